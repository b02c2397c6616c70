"""Promotion of types that numpy has no dtype for: decimals of several scales, instants of several units and zones.

Two types have a common one, which holds the values of both exactly, or none. Must not know what columns are for.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from shmjet.data.column import Values, not_exact
from shmjet.data.column_types import CategoryType, ColumnType, DecimalType, Kind
from shmjet.data.decimal_columns import (
    Operand,
    compare,
    compare_floats,
    integer_type,
    operand,
    rescaled_where_it_fits,
    to_floats,
)
from shmjet.data.fitting import fitted
from shmjet.data.text import Mask
from shmjet.data.typed_column import TypedColumn
from shmjet.data.typed_operators import common_type

_FLOAT64: Final = np.dtype(np.float64)
_INT64: Final = np.dtype(np.int64)


def promoted_type(one: Kind, other: Kind) -> Kind | None:
    """Return the kind that holds the values of two, of which at least one is a `ColumnType`; None for none.

    Decimals of differing digits get those of both before and after the point, at most 38; among integers all that these
    may have; with floats they are floats. Instants get the finer unit, and UTC where zones differ. A category with text
    is text. Nested types have to be equal.

    Example:
        >>> promoted_type(DecimalType(5, 2), DecimalType(5, 0)), promoted_type(CategoryType(), "text")
        (decimal(7, 2), 'text')
    """
    if isinstance(one, ColumnType) and isinstance(other, ColumnType):
        return common_type(one, other)
    typed, plain = (one, other) if isinstance(one, ColumnType) else (other, one)
    if isinstance(typed, CategoryType):
        return "text" if plain == "text" or (isinstance(plain, np.dtype) and plain.kind == "U") else None
    if not isinstance(typed, DecimalType) or not isinstance(plain, np.dtype):
        return None
    if plain.kind == "f":
        return _FLOAT64
    # Small integers have the digits of large ones: else it would matter which two of three kinds come first.
    return common_type(typed, integer_type(plain if plain.itemsize == 8 else _INT64)) if plain.kind in "biu" else None


def converted_type(name: str, column: Values, mask: Mask | None, kind: Kind) -> Values:
    """Return a column as a kind that `promoted_type` gave for its own.

    Raises:
        BatchError: a value cannot be held exactly.
    """
    if isinstance(column, np.ndarray) and column.dtype.kind == "b":
        column = column.view(np.int8)
    if not isinstance(column, TypedColumn) or kind != _FLOAT64:
        return fitted(name, column, mask, kind)
    floats, decimals = to_floats(column), operand(column)
    assert decimals is not None
    wrong = compare_floats(decimals, floats, len(column)) != 0
    if mask is not None:
        wrong &= mask
    if wrong.any():
        raise not_exact(name, column[int(np.argmax(wrong))], _FLOAT64)
    return floats


def rescaled(stored: npt.NDArray[Any], own: DecimalType, kind: DecimalType) -> tuple[npt.NDArray[Any], Mask]:
    """Return stored decimals as another type stores them, and which of them it holds; the others are 0.

    Args:
        stored: units of `own`.
        own: the type that they have.
        kind: the type that is wanted.
    """
    values = Operand(stored, own, False)
    found = rescaled_where_it_fits(values, kind)
    return found, compare(Operand(found, kind, False), values, len(stored)) == 0
