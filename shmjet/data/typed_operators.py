"""What operators do with the values of a `TypedColumn`, of a `Decimal` and of a datetime with a zone.

`operators` comes here where one of the operands is such a value. Decimals are exact, instants compare whatever their
zones, categories are text, and nested values are equal or not. Must not know what a null means to an operator.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from shmjet.data import decimal_columns
from shmjet.data.column_types import MOST_DIGITS, ZONE_UNITS, CategoryType, ColumnType, DecimalType, ZonedType
from shmjet.data.errors import BatchError
from shmjet.data.instants import stored_instants, type_of_instants
from shmjet.data.text import Mask, Text
from shmjet.data.typed_column import TypedColumn, nulls
from shmjet.data.typed_keys import key_values

Array = npt.NDArray[Any]
Values = Array | Text | TypedColumn
Compare = Callable[[str, Any, Any, Mask], Mask]
Calculate = Callable[[str, Any, Any, Mask], tuple[Values, Mask]]

_ORDER: Final[dict[str, Callable[[Any], Any]]] = {
    "==": lambda order: order == 0,
    "!=": lambda order: order != 0,
    "<": lambda order: order == -1,
    "<=": lambda order: (order == -1) | (order == 0),
    ">": lambda order: order == 1,
    ">=": lambda order: (order == 1) | (order == 0),
}
_REFLECTED: Final = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def is_typed(operand: Any) -> bool:
    """Whether an operand is a `TypedColumn`, a `Decimal`, or a datetime with a zone."""
    return isinstance(operand, TypedColumn | decimal.Decimal) or (
        isinstance(operand, datetime.datetime) and operand.tzinfo is not None
    )


def type_name(operand: Any) -> str:
    """Return what a message calls an operand's type."""
    if isinstance(operand, Text | TypedColumn | np.ndarray | np.generic):
        return str(operand.dtype)
    if isinstance(operand, datetime.datetime) and operand.tzinfo is not None:
        return "datetime with a time zone"
    return type(operand).__name__


def _unfit(symbol: str, one: Any, two: Any) -> BatchError:
    return BatchError(f"{symbol} does not work on {type_name(one)} and {type_name(two)}")


def _has(kind: type[ColumnType], scalar: type, *operands: Any) -> bool:
    return any(
        isinstance(each.dtype, kind) if isinstance(each, TypedColumn) else isinstance(each, scalar) for each in operands
    )


def _is_float(operand: Any) -> bool:
    dtype = getattr(operand, "dtype", None)
    return isinstance(operand, float) or (isinstance(dtype, np.dtype) and dtype.kind == "f")


# -- comparing ---------------------------------------------------------------------------------------------------------


def compare(symbol: str, one: Any, two: Any, valid: Mask, plain: Compare) -> Mask:
    """Return what a comparison gives, row by row.

    Args:
        symbol: `== != < <= > >=`.
        one, two: operands, of which one is typed.
        valid: the rows that count.
        plain: compares what is not typed.

    Raises:
        BatchError: such operands cannot be compared.
    """
    if _has(DecimalType, decimal.Decimal, one, two):
        return _compare_decimals(symbol, one, two, len(valid))
    if _has(ZonedType, datetime.datetime, one, two):
        first, second = _instants(symbol, one, two)
        return plain(symbol, first, second, valid)
    if _has(CategoryType, CategoryType, one, two):
        first, second = _texts(symbol, one, two)
        return plain(symbol, first, second, valid)
    if not isinstance(one, TypedColumn) or not isinstance(two, TypedColumn) or one.dtype != two.dtype:
        raise BatchError(f"{type_name(one)} and {type_name(two)} cannot be compared; cast one of them")
    if symbol not in ("==", "!="):
        raise BatchError(f"{symbol} does not work on columns of {one.dtype}: lists and dicts are equal or not")
    return plain(symbol, key_values(one), key_values(two), valid)


def _compare_decimals(symbol: str, one: Any, two: Any, rows: int) -> Mask:
    first, second = decimal_columns.operand(one), decimal_columns.operand(two)
    if first is not None and second is not None:
        order = decimal_columns.compare(first, second, rows)
    elif first is not None and _is_float(two):
        order = decimal_columns.compare_floats(first, two, rows)
    elif second is not None and _is_float(one):
        order, symbol = decimal_columns.compare_floats(second, one, rows), _REFLECTED[symbol]
    else:
        raise BatchError(f"{type_name(one)} and {type_name(two)} cannot be compared; cast one of them")
    result: Mask = np.broadcast_to(np.asarray(_ORDER[symbol](order)), rows)
    return result


def _instants(symbol: str, *operands: Any) -> list[Any]:
    """Return zoned columns and datetimes as `datetime64` of UTC."""
    made: list[Any] = []
    for each in operands:
        if isinstance(each, TypedColumn) and isinstance(each.dtype, ZonedType):
            made.append(each.stored)
        elif isinstance(each, datetime.datetime) and each.tzinfo is not None:
            made.append(stored_instants([each], ZonedType("us", "UTC"))[0])
        elif isinstance(each, np.ndarray | np.generic) and each.dtype.kind == "M":
            raise BatchError(
                f"{symbol}: {type_name(operands[0])} and {type_name(operands[1])} do not go together: one has no time "
                "zone; cast it to 'timestamp[us, UTC]' if it is UTC"
            )
        elif isinstance(each, np.ndarray | np.generic) and each.dtype.kind == "m":
            made.append(each)
        else:
            raise _unfit(symbol, *operands)
    return made


def _texts(symbol: str, *operands: Any) -> list[Any]:
    made: list[Any] = []
    for each in operands:
        if isinstance(each, TypedColumn) and isinstance(each.dtype, CategoryType):
            made.append(each.stored)
        elif isinstance(each, str | Text) or (isinstance(each, np.ndarray) and each.dtype.kind == "U"):
            made.append(each)
        else:
            raise BatchError(
                f"{type_name(operands[0])} and {type_name(operands[1])} cannot be compared; cast one of them"
            )
    return made


# -- arithmetic --------------------------------------------------------------------------------------------------------


def calculate(symbol: str, one: Any, two: Any, valid: Mask, plain: Calculate) -> tuple[Values, Mask]:
    """Return what an arithmetic operator gives, and where that is a value.

    Args:
        symbol: `+ - * / // % **`.
        one, two: operands, of which one is typed.
        valid: the rows that count.
        plain: calculates with what is not typed.

    Raises:
        BatchError: a result leaves its type, or the operator does not work on such operands.
    """
    if _has(DecimalType, decimal.Decimal, one, two):
        return _calculate_decimals(symbol, one, two, valid, plain)
    if _has(ZonedType, datetime.datetime, one, two) and symbol in ("+", "-"):
        return _calculate_instants(symbol, one, two, valid, plain)
    if _has(CategoryType, CategoryType, one, two) and symbol == "+":
        first, second = _texts(symbol, one, two)
        return plain(symbol, first, second, valid)
    raise _unfit(symbol, one, two)


def _calculate_decimals(symbol: str, one: Any, two: Any, valid: Mask, plain: Calculate) -> tuple[Values, Mask]:
    first, second = decimal_columns.operand(one), decimal_columns.operand(two)
    if first is not None and second is not None and symbol in ("+", "-", "*", "//", "%"):
        return decimal_columns.calculate(symbol, first, second, valid)
    if symbol == "**" or not all(each is not None or _is_float(given) for each, given in ((first, one), (second, two))):
        raise _unfit(symbol, one, two)
    return plain(symbol, _as_floats(one), _as_floats(two), valid)


def _as_floats(operand: Any) -> Any:
    if isinstance(operand, TypedColumn):
        return decimal_columns.to_floats(operand)
    return float(operand) if isinstance(operand, decimal.Decimal) else operand


def _calculate_instants(symbol: str, one: Any, two: Any, valid: Mask, plain: Calculate) -> tuple[Values, Mask]:
    first, second = _instants(symbol, one, two)
    if first.dtype.kind == second.dtype.kind == "M" and symbol == "+":
        raise _unfit(symbol, one, two)
    values, mask = plain(symbol, first, second, valid)
    assert isinstance(values, np.ndarray)
    if values.dtype.kind != "M":
        return values, mask
    kind = next(each.dtype for each in (one, two) if isinstance(each, TypedColumn))
    unit = np.datetime_data(values.dtype)[0]
    if unit not in ZONE_UNITS:
        raise BatchError(f"{type_name(one)} {symbol} {type_name(two)} has the unit {unit}; cast the span of time first")
    assert isinstance(kind, ZonedType)
    return TypedColumn.trusted(ZonedType(unit, kind.zone), values), mask


def negate(column: TypedColumn) -> TypedColumn:
    """Return `-column` of decimals. Raises BatchError for other types."""
    if not isinstance(column.dtype, DecimalType):
        raise BatchError(f"- does not work on a column of {column.dtype}")
    return decimal_columns.negate(column)


def absolute(column: TypedColumn) -> TypedColumn:
    """Return `abs(column)` of decimals. Raises BatchError for other types."""
    if not isinstance(column.dtype, DecimalType):
        raise BatchError(f"abs() does not work on a column of {column.dtype}")
    return decimal_columns.absolute(column)


# -- choice ------------------------------------------------------------------------------------------------------------


def common_type(one: ColumnType, two: ColumnType) -> ColumnType | None:
    """Return the type that holds the values of two types; None where there is none.

    Decimals get the digits of both before and after the point, at most 38, so that values may not fit; instants get the
    finer unit, and UTC where zones differ.

    Example:
        >>> common_type(DecimalType(5, 2), DecimalType(6, 1)), common_type(DecimalType(38, 0), DecimalType(5, 2))
        (decimal(7, 2), decimal(38, 2))
    """
    if one == two:
        return one
    if isinstance(one, DecimalType) and isinstance(two, DecimalType):
        scale = max(one.scale, two.scale)
        digits = max(one.precision - one.scale, two.precision - two.scale) + scale
        return DecimalType(min(digits, MOST_DIGITS), scale)
    if isinstance(one, ZonedType) and isinstance(two, ZonedType):
        unit = max(one.unit, two.unit, key=ZONE_UNITS.index)
        return ZonedType(unit, one.zone if one.zone == two.zone else "UTC")
    return None


def as_column(value: Any, rows: int) -> Values:
    """Return a typed scalar as a column of so many rows; a column as it is."""
    if isinstance(value, decimal.Decimal):
        operand = decimal_columns.operand(value)
        assert operand is not None
        return TypedColumn.trusted(operand.kind, np.repeat(operand.data, rows))
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        kind = type_of_instants([value])
        return TypedColumn.trusted(kind, np.repeat(stored_instants([value], kind), rows))
    column: Values = value
    return column


def blanked(values: Any, counts: Mask) -> Any:
    """Return a column with zeros where nothing counts, so that no conversion looks at what is there; text as it is."""
    if isinstance(values, TypedColumn):
        stored = blanked(values.stored, counts)
        return values if stored is values.stored else TypedColumn.trusted(values.dtype, stored)
    if not isinstance(values, np.ndarray) or not values.ndim or counts.all():
        return values
    return np.where(counts, values, np.zeros((), values.dtype))


def choose(valid: Mask, values: Values, filling: Any, plain: Callable[[Mask, Any, Any], Values]) -> Values:
    """Return the values where `valid` is true, elsewhere those of `filling`, a scalar or a column.

    Args:
        valid: where the values stay; those of the other rows are not looked at, nor is the filling in these.
        values: a column.
        filling: of the same family.
        plain: chooses among what is not typed.

    Raises:
        BatchError: the two do not go together, or no type holds both.
    """
    rows = len(valid)
    wrong = BatchError(f"a column of {values.dtype} cannot be filled with {type_name(filling)}")
    if _has(CategoryType, CategoryType, values, filling):
        try:
            first, second = _texts("fill_null", values, filling)
        except BatchError:
            raise wrong from None
        chosen = plain(valid, Text.of(first.tolist()) if isinstance(first, np.ndarray) else first, second)
        return TypedColumn.trusted(CategoryType(), chosen) if isinstance(values, TypedColumn) else chosen  # type: ignore[arg-type]
    if type_name(values) != type_name(filling):
        values, filling = blanked(values, valid), blanked(filling, ~valid)
    if _has(DecimalType, decimal.Decimal, values, filling):
        return _choose_decimals(valid, values, filling, plain, wrong)
    other = as_column(filling, rows)
    if not isinstance(values, TypedColumn) or not isinstance(other, TypedColumn):
        raise wrong
    kind = common_type(values.dtype, other.dtype)
    if kind is None:
        raise wrong
    if isinstance(kind, ZonedType) and isinstance(values.dtype, ZonedType):
        kind = ZonedType(kind.unit, values.dtype.zone)
        one, two = (_in_unit(each, kind) for each in (values.stored, other.stored))
        return TypedColumn.trusted(kind, np.where(valid, one, two))
    return TypedColumn.trusted(kind, plain(valid, values.stored, other.stored))  # type: ignore[arg-type]


def _in_unit(stored: Any, kind: ZonedType) -> Array:
    cast: Array = stored.astype(kind.stored)
    if not (cast.astype(stored.dtype) == stored)[~np.isnat(stored)].all():
        raise BatchError(f"a value of {stored.dtype} is out of the range of {kind}; cast one of the columns")
    return cast


def _choose_decimals(valid: Mask, values: Any, filling: Any, plain: Any, wrong: BatchError) -> Values:
    if _is_float(values) or _is_float(filling):
        if not all(_is_float(each) or decimal_columns.operand(each) is not None for each in (values, filling)):
            raise wrong
        chosen: Values = plain(valid, _as_floats(values), _as_floats(filling))
        return chosen
    first, second = decimal_columns.operand(values), decimal_columns.operand(filling)
    if first is None or second is None:
        raise wrong
    kind = common_type(first.kind, second.kind)
    if not isinstance(kind, DecimalType):
        raise BatchError(f"{wrong}: no decimal has the digits of both")
    one, two = _widened(first, kind, valid), _widened(second, kind, ~valid)
    return TypedColumn.trusted(kind, np.where(valid, one, two))


def _widened(operand: decimal_columns.Operand, kind: DecimalType, counts: Mask) -> Array:
    looked_at = np.array([counts.any()]) if operand.is_single else counts
    stored = decimal_columns.rescaled_operand(operand, kind, looked_at).stored
    assert isinstance(stored, np.ndarray)
    return np.repeat(stored, len(counts)) if operand.is_single else stored


def under_nulls(values: Values, filling: Any) -> Values:
    """Return what lies under nulls alone, of the type of what replaces them where the two do not go together."""
    other = as_column(filling, 1)
    if not isinstance(other, TypedColumn):
        if isinstance(filling, str | Text) and isinstance(values, TypedColumn) and values.dtype == CategoryType():
            return values
        if (
            isinstance(values, TypedColumn)
            and isinstance(values.dtype, DecimalType)
            and np.asarray(filling).dtype.kind in "if"
        ):
            return values
        kind = filling.dtype if isinstance(filling, Text) else None
        if isinstance(filling, str | bytes):
            kind = "text" if isinstance(filling, str) else "bytes"
        return nulls(np.asarray(filling).dtype if kind is None else kind, len(values))
    if isinstance(values, TypedColumn) and common_type(values.dtype, other.dtype) is not None:
        return values
    return nulls(other.dtype, len(values))
