"""Casts from and to the types of `TypedColumn`: decimals, instants with a zone, categories.

What does not fit raises. Decimals are rounded half away from 0 to a smaller scale, floats to the nearest; as integers
their fractions are cut off. Between instants and `datetime64` the latter is UTC.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from shmjet.data import decimal_columns
from shmjet.data.column_types import CategoryType, ColumnType, DecimalType, Kind, ZonedType
from shmjet.data.errors import BatchError
from shmjet.data.instants import stored_instants
from shmjet.data.text import Mask, Text
from shmjet.data.typed_column import TypedColumn, nulls

Values = npt.NDArray[Any] | Text | TypedColumn
Plain = Callable[[npt.NDArray[Any], np.dtype[Any], Mask], Values]


def cast(values: Values, kind: Kind, valid: Mask, plain: Plain) -> Values | None:
    """Return a column as another kind, where one of the two is a `ColumnType`; None where there is no such cast.

    Args:
        values: a column.
        kind: what it becomes.
        valid: the rows that count.
        plain: casts arrays to dtypes.

    Raises:
        BatchError: a value does not fit.
    """
    if values.dtype == kind:
        return values
    if not valid.any():
        return nulls(kind, len(values))
    have = values.dtype
    if isinstance(values, TypedColumn) and isinstance(have, CategoryType):
        assert isinstance(values.stored, Text)
        if kind == "text":
            return values.stored
        return cast(values.stored, kind, valid, plain) if isinstance(kind, ColumnType) else None
    if isinstance(kind, CategoryType):
        text = values if isinstance(values, Text) else _to_text(values, valid)
        return None if text is None or text.is_bytes else TypedColumn.trusted(kind, text)
    if isinstance(kind, DecimalType):
        return _to_decimal(values, kind, valid)
    if isinstance(kind, ZonedType):
        return _to_instants(values, kind, valid, plain)
    if not isinstance(values, TypedColumn) or isinstance(kind, ColumnType):
        return None
    if kind == "text":
        return _to_text(values, valid)
    if isinstance(have, DecimalType) and isinstance(kind, np.dtype):
        return _of_decimal(values, kind, valid, plain)
    if isinstance(have, ZonedType) and isinstance(kind, np.dtype) and kind.kind == "M":
        assert isinstance(values.stored, np.ndarray)
        return plain(values.stored, kind, valid)
    return None


def _to_text(values: Values, valid: Mask) -> Text | None:
    if isinstance(values, np.ndarray):
        return Text.of(values.tolist()) if values.dtype.kind == "U" else None
    if isinstance(values, TypedColumn) and isinstance(values.dtype, DecimalType):
        return decimal_columns.to_text(values)
    if isinstance(values, TypedColumn) and isinstance(values.dtype, ZonedType):
        texts = [str(value) if known else "" for value, known in zip(values.to_list(), valid.tolist(), strict=True)]
        return Text.of(texts)
    return None


def _to_decimal(values: Values, kind: DecimalType, valid: Mask) -> TypedColumn | None:
    if isinstance(values, TypedColumn):
        is_decimal = isinstance(values.dtype, DecimalType)
        return decimal_columns.rescaled(values, kind, valid, rounds=True) if is_decimal else None
    if isinstance(values, Text):
        return None if values.is_bytes else decimal_columns.of_text(values, kind, valid)
    if values.dtype.kind == "b":
        values = values.astype(np.int64)
    if values.dtype.kind in "iu":
        return decimal_columns.of_integers(values, kind, valid)
    return decimal_columns.of_floats(values, kind, valid) if values.dtype.kind == "f" else None


def _of_decimal(values: TypedColumn, kind: np.dtype[Any], valid: Mask, plain: Plain) -> Values | None:
    if kind.kind in "fc":
        return plain(decimal_columns.to_floats(values), kind, valid)
    if kind.kind not in "iu":
        return None
    whole = decimal_columns.truncated(values, valid)
    return plain(whole, kind, valid)


def _to_instants(values: Values, kind: ZonedType, valid: Mask, plain: Plain) -> TypedColumn | None:
    stored: Any = values.stored if isinstance(values, TypedColumn) and isinstance(values.dtype, ZonedType) else values
    if isinstance(stored, Text) and not stored.is_bytes:
        return _parsed(stored, kind, valid)
    if not isinstance(stored, np.ndarray) or stored.dtype.kind != "M":
        return None
    made = plain(stored, np.dtype(f"M8[{kind.unit}]"), valid)
    assert isinstance(made, np.ndarray)
    return TypedColumn.trusted(kind, made)


def _parsed(text: Text, kind: ZonedType, valid: Mask) -> TypedColumn:
    found: list[datetime.datetime] = []
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    for row, (value, known) in enumerate(zip(text.tolist(), valid.tolist(), strict=True)):
        try:
            instant = datetime.datetime.fromisoformat(value) if known else epoch
        except ValueError:
            instant = epoch.replace(tzinfo=None)
        if instant.tzinfo is None:
            raise BatchError(f"{value!r:.80} in row {row} is not a date and time with an offset, such as {epoch}")
        found.append(instant)
    return TypedColumn.trusted(kind, stored_instants(found, kind))
