"""Physical values by which kernels group, join and sort columns of a type.

`key_values` are equal where the keys are, `order_values` ascend as the values do; both only among columns of one type,
so batches of different types (scales, units, zones) are brought to their common type first. The hash of a key, which
must be that of an equal object of Python, is the business of `column_keys`.
"""

from __future__ import annotations

import numpy as np

from shmjet.data.column_types import WIDE, ColumnType
from shmjet.data.errors import BatchError
from shmjet.data.nested_values import with_one_zero
from shmjet.data.text import Text
from shmjet.data.typed_column import Physical, TypedColumn


def key_values(column: TypedColumn) -> Physical:
    """Return physical values that are equal exactly where the values are: among columns of one type.

    Example:
        >>> from shmjet.data.column_types import DecimalType
        >>> key_values(TypedColumn(DecimalType(5, 1), np.array([15, 20]))).tolist()
        [15, 20]
    """
    stored = column.stored
    return with_one_zero(stored, column.dtype) if isinstance(stored, Text) else stored


def order_values(name: str, column: TypedColumn) -> tuple[Physical, ...]:
    """Return columns that have the values' order together: the second decides where the first is equal.

    Args:
        name: of the column, for the message.
        column: decimals, instants or categories.

    Raises:
        BatchError: the type has no order.

    Example:
        >>> from shmjet.data.column_types import DecimalType
        >>> from shmjet.data.decimals import stored_units
        >>> kind = DecimalType(38, 1)
        >>> [part.tolist() for part in order_values("a", TypedColumn(kind, stored_units([15, -1, 1 << 70], kind)))]
        [[0, -1, 64], [15, 18446744073709551615, 0]]
    """
    check_order(name, column.dtype)
    stored = column.stored
    if isinstance(stored, Text) or stored.dtype != WIDE:
        return (stored,)
    halves = stored.view(np.uint64).reshape(-1, 2)
    return np.ascontiguousarray(halves[:, 1]).view(np.int64), np.ascontiguousarray(halves[:, 0])


def check_order(name: str, kind: ColumnType) -> None:
    """Check that values of a type have an order. Raises BatchError for nested ones."""
    if kind.is_nested:
        raise BatchError(f"column {name!r} of {kind} has no order: lists and dicts are only compared for equality")
