"""A column as the kind that a schema gives it: of Python's values, and of columns of another kind.

Fitting widens and never loses: what does not fit is an error that names the column. (Numbers among floats are rounded
as floats are.) Must not know where columns come from.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from shmjet.data.column import Values, as_column
from shmjet.data.column_types import CategoryType, ColumnType, DecimalType, Kind, ListType, StructType, ZonedType
from shmjet.data.decimal_columns import of_floats, of_integers, rescaled, to_floats
from shmjet.data.decimals import stored_decimals
from shmjet.data.errors import BatchError
from shmjet.data.instants import stored_instants
from shmjet.data.masked import masked_value
from shmjet.data.nested_values import encoded
from shmjet.data.text import Mask, Text
from shmjet.data.typed_column import TypedColumn, nulls

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def column_of(name: str, given: Any, kind: Kind) -> tuple[Values, Mask | None]:
    """Return what a user gives for a column as a kind, and its mask.

    Args:
        name: of the column, for messages.
        given: array, `Text`, `TypedColumn`, or a sequence of values, in which None is a null.
        kind: what it has to be.

    Raises:
        BatchError: a value does not fit.
    """
    is_sequence = not isinstance(given, Text | TypedColumn | np.ndarray | str | bytes | Mapping)
    if is_sequence and isinstance(given, Iterable):
        given = list(given)
        masked = masked_value()
        mask = np.array([value is not None and value is not masked for value in given], np.bool_)
        if not mask.any():
            return nulls(kind, len(given)), None if mask.all() else mask
        if isinstance(kind, ColumnType):
            values = [value if known else None for value, known in zip(given, mask.tolist(), strict=True)]
            return _typed(name, values, kind), None if mask.all() else mask
    column, valid = as_column(name, given)
    return fitted(name, column, valid, kind), valid


def _typed(name: str, values: list[Any], kind: ColumnType) -> TypedColumn:
    """Return values, None for nulls, as a column of a type."""
    try:
        return TypedColumn.trusted(kind, _stored(name, values, kind))
    except BatchError as error:
        if str(error).startswith("column "):
            raise
        raise BatchError(f"column {name!r}: {error}") from None


def _stored(name: str, values: list[Any], kind: ColumnType) -> Any:
    if isinstance(kind, DecimalType):
        return stored_decimals([_number(value, kind) for value in values], kind)
    if isinstance(kind, ZonedType):
        wrong = next((v for v in values if v is not None and not isinstance(v, datetime.datetime)), None)
        if wrong is not None:
            raise _not_of(wrong, kind)
        return stored_instants([_EPOCH if value is None else value for value in values], kind)
    if isinstance(kind, CategoryType):
        wrong = next((value for value in values if value is not None and not isinstance(value, str)), None)
        if wrong is not None:
            raise _not_of(wrong, kind)
        return Text.of(["" if value is None else str(value) for value in values])

    def inner(some: list[Any], inner_kind: Kind) -> Any:
        column, _ = column_of(name, some, inner_kind)
        return column.stored if isinstance(column, TypedColumn) else column

    assert isinstance(kind, ListType | StructType)
    return encoded(values, kind, inner)


def _number(value: Any, kind: DecimalType) -> Any:
    """Return what stands for a decimal; a float by its shortest text, which is what it is read as."""
    if value is None:
        return 0
    if isinstance(value, np.generic) and value.dtype.kind in "iu":
        return int(value)
    if isinstance(value, float):
        return decimal.Decimal(repr(float(value)))
    if isinstance(value, bool) or not isinstance(value, int | decimal.Decimal):
        raise _not_of(value, kind)
    return value


def _not_of(value: Any, kind: Kind) -> BatchError:
    return BatchError(f"{value!r:.60} of type {type(value).__name__} is not a value of {kind}")


def fitted(name: str, column: Values, mask: Mask | None, kind: Kind) -> Values:
    """Return a column as the kind it has to be.

    Numbers are widened (bool to int, int to float), and become narrower within their family (int64 to int8, float64 to
    float32) when every value is in its range; text becomes fixed-width text that is long enough, or a category.
    Decimals, and numbers as decimals, keep their value; `datetime64` becomes the instants that it is in UTC. Nothing
    else changes.

    Args:
        name: of the column, for messages.
        column: what is there.
        mask: False where it is null; values there need not fit.
        kind: what it has to be.

    Raises:
        BatchError: a value would be lost or changed.

    Example:
        >>> fitted("v", np.array([1, 2]), None, np.dtype(float)).tolist()
        [1.0, 2.0]
    """
    if column.dtype == kind:
        return column
    if isinstance(column, TypedColumn) or isinstance(kind, ColumnType):
        result = _typed_fitted(name, column, mask, kind)
        if result is not None:
            return result
    elif isinstance(column, Text):
        if isinstance(kind, np.dtype) and kind.kind == ("S" if column.is_bytes else "U"):
            return _fixed_text(name, column, kind)
    elif isinstance(kind, np.dtype):
        array = _cast(column, mask, kind)
        if array is not None:
            return array
    raise BatchError(
        f"column {name!r} has to be {kind}, found {_found(column, mask)}; "
        f"give the column a type that fits all, such as schema={{{name!r}: {_wider(column, kind)}}}"
    )


def _typed_fitted(name: str, column: Values, mask: Mask | None, kind: Kind) -> Values | None:
    valid = np.ones(len(column), np.bool_) if mask is None else mask
    if not valid.any():
        return nulls(kind, len(column))
    have = column.dtype
    if isinstance(column, TypedColumn) and isinstance(have, CategoryType) and kind == "text":
        return column.stored
    if isinstance(kind, CategoryType):
        if isinstance(column, np.ndarray) and column.dtype.kind == "U":
            column = Text.of(column.tolist())
        return TypedColumn.trusted(kind, column) if isinstance(column, Text) and not column.is_bytes else None
    try:
        if isinstance(kind, DecimalType):
            return _fitted_decimal(column, valid, kind)
        if isinstance(kind, ZonedType):
            return _fitted_instants(column, mask, kind)
    except BatchError as error:
        raise BatchError(f"column {name!r}: {error}") from None
    if isinstance(column, TypedColumn) and isinstance(have, DecimalType) and kind == np.dtype(np.float64):
        return to_floats(column)
    return None


def _fitted_decimal(column: Values, valid: Mask, kind: DecimalType) -> TypedColumn | None:
    if isinstance(column, TypedColumn):
        return rescaled(column, kind, valid) if isinstance(column.dtype, DecimalType) else None
    if isinstance(column, Text):
        return None
    if column.dtype.kind in "iu":
        return of_integers(column, kind, valid)
    if column.dtype.kind != "f":
        return None
    made = of_floats(column, kind, valid)
    wrong = (to_floats(made).astype(column.dtype) != column) & valid
    if wrong.any():
        row = int(np.argmax(wrong))
        raise BatchError(f"{column[row]} in row {row} has more than {kind.scale} digits after the point")
    return made


def _fitted_instants(column: Values, mask: Mask | None, kind: ZonedType) -> TypedColumn | None:
    stored: Any = column.stored if isinstance(column, TypedColumn) and isinstance(column.dtype, ZonedType) else column
    if not isinstance(stored, np.ndarray) or stored.dtype.kind != "M":
        return None
    array = _cast(stored, mask, np.dtype(f"M8[{kind.unit}]"))
    if array is None:
        raise BatchError(f"a value of {column.dtype} is not a value of {kind}")
    return TypedColumn.trusted(kind, array)


def _cast(array: npt.NDArray[Any], mask: Mask | None, kind: np.dtype[Any]) -> npt.NDArray[Any] | None:
    if np.can_cast(array.dtype, kind, "safe"):
        return array.astype(kind)
    family = array.dtype.kind + kind.kind
    if mask is not None:
        array = np.where(mask, array, np.zeros((), array.dtype))
    if family in ("ff", "cc"):
        with np.errstate(over="ignore"):
            result = array.astype(kind)
        return result if np.array_equal(np.isfinite(result), np.isfinite(array)) else None
    if family in ("uf", "if"):  # to float32 or float16, which round as they do with other floats
        with np.errstate(over="ignore"):
            result = array.astype(kind)
        return result if np.isfinite(result).all() else None
    if family in ("ii", "iu", "ui", "uu", "MM", "mm"):
        result = array.astype(kind)
        same = (result.astype(array.dtype) == array) | _is_nat(array)
        if family in ("iu", "ui"):
            same &= (result < 0) == (array < 0)
        return result if same.all() else None
    return None


def _is_nat(array: npt.NDArray[Any]) -> Mask:
    return np.isnat(array) if array.dtype.kind in "mM" else np.zeros(len(array), np.bool_)


def _fixed_text(name: str, column: Text, kind: np.dtype[Any]) -> npt.NDArray[Any]:
    values = column.tolist()
    width = kind.itemsize // (1 if column.is_bytes else 4)
    longest = max(values, key=len, default=b"" if column.is_bytes else "")
    if len(longest) > width:
        raise BatchError(f"column {name!r} has to be {kind}, found {longest!r:.80} of {len(longest)} characters")
    return np.array(values, kind)


def _found(column: Values, mask: Mask | None) -> str:
    if not isinstance(column, np.ndarray):
        return str(column.dtype)
    values = column if mask is None else column[mask]
    if column.dtype.kind in "iuf" and len(values):
        return f"{column.dtype} with values from {values.min()} to {values.max()}"
    return str(column.dtype)


def _wider(column: Values, kind: Kind) -> str:
    if isinstance(column, Text) or isinstance(kind, str):
        return "str"
    if isinstance(column, TypedColumn) or isinstance(kind, ColumnType):
        return repr(str(column.dtype))
    return "float" if column.dtype.kind in "iuf" and kind.kind in "biuf" else repr(str(column.dtype))
