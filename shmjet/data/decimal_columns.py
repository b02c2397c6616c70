"""Arithmetic, comparisons and sums of decimals, and their way to other types. The kernels are in C (columns/decimal.h).

An operand is a column of decimals or of integers, or a single `Decimal` or int, which are decimals too. What leaves 38
digits is a `BatchError` that names the row. Must not know nulls but as rows that do not count.
"""

from __future__ import annotations

import decimal
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from shmjet.data.column_types import MOST_DIGITS, WIDE, DecimalType
from shmjet.data.decimals import digits_of, plain_decimals, stored_units, units_of, unscaled
from shmjet.data.errors import BatchError
from shmjet.data.text import Mask, Text
from shmjet.data.typed_column import TypedColumn

if TYPE_CHECKING:
    from shmjet._native._columns import Decimals

Array = npt.NDArray[Any]

_INTEGER_DIGITS: Final = {1: 3, 2: 5, 4: 10, 8: 20}
"""Digits of integers by their bytes."""


class Operand(NamedTuple):
    """Decimals as the kernels take them."""

    data: Array
    kind: DecimalType
    is_single: bool

    def shifted(self, shift: int) -> Decimals:
        """Return what a kernel takes, times 10**shift."""
        data = self.data
        return (data.view(np.uint8) if data.dtype == WIDE else data), data.dtype.itemsize, self.is_single, shift


def operand(value: Any) -> Operand | None:
    """Return a column of decimals or integers, a `Decimal` or an int as an operand; None for anything else.

    Raises:
        BatchError: a single number has more than 38 digits.
    """
    if isinstance(value, TypedColumn):
        if not isinstance(value.dtype, DecimalType) or isinstance(value.stored, Text):
            return None
        return Operand(value.stored, value.dtype, False)
    if isinstance(value, np.ndarray) and value.ndim and value.dtype.kind in "iu":
        return _integers(value)
    if isinstance(value, np.generic):
        if value.dtype.kind not in "iu":
            return None
        value = int(value)
    if isinstance(value, decimal.Decimal) or (isinstance(value, int) and not isinstance(value, bool)):
        before, after = digits_of(value)
        if before + after > MOST_DIGITS:
            raise BatchError(f"{value!s:.80} has more than {MOST_DIGITS} digits, which is what a decimal may have")
        kind = DecimalType(max(before + after, 1), after)
        return Operand(stored_units([unscaled(value, kind)], kind), kind, True)
    return None


def integer_type(dtype: np.dtype[Any]) -> DecimalType:
    """Return the decimals that hold all integers of a dtype.

    Example:
        >>> integer_type(np.dtype("int8")), integer_type(np.dtype("uint64"))
        (decimal(3, 0), decimal(20, 0))
    """
    return DecimalType(19 if dtype == np.int64 else _INTEGER_DIGITS[dtype.itemsize], 0)


def _integers(array: Array) -> Operand:
    kind = integer_type(array.dtype)
    if array.dtype != np.uint64:
        return Operand(array.astype(np.int64), kind, False)
    halves = np.zeros((len(array), 2), np.uint64)
    halves[:, 0] = array
    return Operand(halves.reshape(-1).view(WIDE), kind, False)


def _empty(kind: DecimalType, rows: int) -> Array:
    return np.empty(rows, kind.stored)


def _bytes(data: Array) -> Array:
    return data.view(np.uint8)


def result_type(symbol: str, one: DecimalType, two: DecimalType) -> DecimalType:
    """Return the type of `+ - * // %` of two types.

    Raises:
        BatchError: `*` has more than 38 digits after the point.

    Example:
        >>> result_type("*", DecimalType(15, 2), DecimalType(15, 2))
        decimal(30, 4)
        >>> result_type("+", DecimalType(9, 2), DecimalType(5, 4))
        decimal(12, 4)
    """
    left, right = one.precision - one.scale, two.precision - two.scale
    if symbol == "*":
        scale = one.scale + two.scale
        if scale > MOST_DIGITS:
            raise BatchError(
                f"{one} * {two} has {scale} digits after the point, {MOST_DIGITS} are possible; cast one of the columns"
            )
        return DecimalType(min(one.precision + two.precision, MOST_DIGITS), scale)
    scale = max(one.scale, two.scale)
    if symbol == "//":
        return DecimalType(min(left + scale + 1, MOST_DIGITS), 0)
    before = max(left, right) + (symbol in "+-")
    return DecimalType(min(max(before + scale, 1), MOST_DIGITS), scale)


def calculate(symbol: str, one: Operand, two: Operand, valid: Mask) -> tuple[TypedColumn, Mask]:
    """Return `+ - * // %` of decimals, and where that is a value: not where a divisor is 0.

    Raises:
        BatchError: a result has more than 38 digits; the text names the row.
    """
    from shmjet._native._columns import decimal_arithmetic

    kind = result_type(symbol, one.kind, two.kind)
    scale = max(one.kind.scale, two.kind.scale)
    shifts = (0, 0) if symbol == "*" else (scale - one.kind.scale, scale - two.kind.scale)
    rows = len(valid)
    out = _empty(kind, rows)
    mask = valid
    if symbol in ("//", "%"):
        mask = valid & (compare(two, operand(0), rows) != 0)
    bad = decimal_arithmetic(
        {"//": "/"}.get(symbol, symbol),
        one.shifted(shifts[0]),
        two.shifted(shifts[1]),
        None if mask.all() else mask,
        rows,
        kind.precision,
        _bytes(out),
        out.dtype.itemsize,
    )
    if bad >= 0:
        raise BatchError(
            f"{_shown(one, bad)} {symbol} {_shown(two, bad)} in row {bad} has more than {MOST_DIGITS} digits; "
            "cast one of the columns to fewer digits, or to float"
        )
    return TypedColumn.trusted(kind, out), mask


def _shown(each: Operand, row: int) -> str:
    place = 0 if each.is_single else row
    return f"{plain_decimals(each.data[place : place + 1], each.kind.scale)[0]:f}"


def compare(one: Operand, two: Operand | None, rows: int) -> npt.NDArray[np.int8]:
    """Return -1, 0 or 1 for each row."""
    from shmjet._native._columns import decimal_compare

    assert two is not None
    scale = max(one.kind.scale, two.kind.scale)
    out = np.empty(rows, np.int8)
    decimal_compare(one.shifted(scale - one.kind.scale), two.shifted(scale - two.kind.scale), rows, out)
    return out


def compare_floats(one: Operand, floats: Any, rows: int) -> npt.NDArray[np.int8]:
    """Return -1, 0 or 1 for each row, exactly, and 2 where the float is NaN.

    Args:
        one: decimals.
        floats: an array of floats of any width, or a float.
        rows: how many there are.
    """
    from shmjet._native._columns import decimal_compare_floats

    numbers = np.ascontiguousarray(floats, np.float64).reshape(-1)
    out = np.empty(rows, np.int8)
    decimal_compare_floats(one.shifted(one.kind.scale), numbers, not np.ndim(floats), rows, out)
    return out


def negate(column: TypedColumn) -> TypedColumn:
    """Return `-column`."""
    zero, values = operand(0), operand(column)
    assert zero is not None
    assert values is not None
    zero = zero._replace(kind=DecimalType(1, 0))
    made, _ = calculate("-", zero, values, np.ones(len(column), np.bool_))
    return rescaled(made, _decimal(column), np.ones(len(column), np.bool_))


def absolute(column: TypedColumn) -> TypedColumn:
    """Return `abs(column)`."""
    values, zero = operand(column), operand(0)
    assert values is not None
    is_negative = compare(values, zero, len(column)) < 0
    if not is_negative.any():
        return column
    return column.wrap(np.where(is_negative, negate(column).stored, column.stored))


def _decimal(column: TypedColumn) -> DecimalType:
    assert isinstance(column.dtype, DecimalType)
    return column.dtype


# -- reductions --------------------------------------------------------------------------------------------------------


def sum_of(column: TypedColumn, valid: Mask) -> decimal.Decimal | None:
    """Return the sum of the valid rows, None where there are none. Raises BatchError when it has over 38 digits."""
    total = _sum(column, valid)
    if total is None:
        return None
    if abs(total) >= 10**MOST_DIGITS:
        raise BatchError(f"the sum of a column of {column.dtype} has more than {MOST_DIGITS} digits")
    return single(total, _decimal(column).scale)


def mean_of(column: TypedColumn, valid: Mask) -> np.float64 | None:
    """Return the mean of the valid rows as the nearest float64, None where there are none."""
    total = _sum(column, valid)
    if total is None:
        return None
    return np.float64(total / (int(np.count_nonzero(valid)) * 10 ** _decimal(column).scale))


def _sum(column: TypedColumn, valid: Mask) -> int | None:
    from shmjet._native._columns import decimal_sum

    values = operand(column)
    assert values is not None
    if not valid.any():
        return None
    top, high, low = decimal_sum(values.shifted(0), None if valid.all() else valid, len(column))
    return (top << 128) + (high << 64) + low


def extreme_of(column: TypedColumn, valid: Mask, is_greatest: bool) -> decimal.Decimal | None:
    """Return the least or greatest of the valid rows, None where there are none."""
    from shmjet._native._columns import decimal_extreme

    values = operand(column)
    assert values is not None
    row = decimal_extreme(values.shifted(0), None if valid.all() else valid, len(column), is_greatest)
    return None if row < 0 else single(units_of(values.data[row : row + 1])[0], values.kind.scale)


def single(units: int, scale: int) -> decimal.Decimal:
    """Return units of the last digit as a `Decimal`."""
    return decimal.Decimal((int(units < 0), tuple(map(int, str(abs(units)))), -scale))


# -- other types -------------------------------------------------------------------------------------------------------


def rescaled(column: TypedColumn, kind: DecimalType, valid: Mask, rounds: bool = False) -> TypedColumn:
    """Return decimals as another type of decimals.

    Args:
        column: decimals.
        kind: the type.
        valid: the rows that count.
        rounds: round half away from 0 where the scale is smaller; otherwise that is an error.

    Raises:
        BatchError: the type does not hold a value; the text names the row.
    """
    from shmjet._native._columns import decimal_rescale

    have = _decimal(column)
    if have == kind:
        return column
    values = operand(column)
    assert values is not None
    return _rescaled(values, kind, valid, int(rounds), decimal_rescale)


def of_integers(array: Array, kind: DecimalType, valid: Mask) -> TypedColumn:
    """Return integers as decimals. Raises BatchError as `rescaled`."""
    from shmjet._native._columns import decimal_rescale

    return _rescaled(_integers(array), kind, valid, 0, decimal_rescale)


def rescaled_operand(values: Operand, kind: DecimalType, valid: Mask) -> TypedColumn:
    """Return an operand's values as a type, one where it is a single one. Raises BatchError as `rescaled`."""
    from shmjet._native._columns import decimal_rescale

    return _rescaled(values, kind, valid, 0, decimal_rescale)


def rescaled_where_it_fits(values: Operand, kind: DecimalType) -> Array:
    """Return a column's values as a type stores them, 0 where it does not hold one."""
    from shmjet._native._columns import decimal_rescale

    rows, out = len(values.data), _empty(kind, len(values.data))
    up, down = max(kind.scale - values.kind.scale, 0), max(values.kind.scale - kind.scale, 0)
    decimal_rescale(values.shifted(up), None, rows, down, 0, kind.precision, _bytes(out), out.dtype.itemsize)
    return out


def _rescaled(values: Operand, kind: DecimalType, valid: Mask, rounds: int, kernel: Any) -> TypedColumn:
    rows, out = len(values.data), _empty(kind, len(values.data))
    up, down = max(kind.scale - values.kind.scale, 0), max(values.kind.scale - kind.scale, 0)
    mask = None if valid.all() else valid
    bad = kernel(values.shifted(up), mask, rows, down, rounds, kind.precision, _bytes(out), out.dtype.itemsize)
    if bad >= 0:
        raise BatchError(f"{_shown(values, bad)} in row {bad} is not a value of {kind}")
    return TypedColumn.trusted(kind, out)


def to_floats(column: TypedColumn) -> npt.NDArray[np.float64]:
    """Return the nearest float64 of each value."""
    from shmjet._native._columns import decimal_to_floats

    values = operand(column)
    assert values is not None
    out = np.empty(len(column), np.float64)
    decimal_to_floats(values.shifted(values.kind.scale), len(column), out)
    return out


def of_floats(array: Array, kind: DecimalType, valid: Mask) -> TypedColumn:
    """Return floats rounded to the scale of a type. Raises BatchError where one does not fit."""
    from shmjet._native._columns import decimal_of_floats

    floats, out = np.ascontiguousarray(array, np.float64), _empty(kind, len(array))
    mask = None if valid.all() else valid
    bad = decimal_of_floats(floats, mask, len(floats), kind.scale, kind.precision, _bytes(out), out.dtype.itemsize)
    if bad >= 0:
        raise BatchError(f"{array[bad]} in row {bad} is not a value of {kind}")
    return TypedColumn.trusted(kind, out)


def truncated(column: TypedColumn, valid: Mask) -> Array:
    """Return decimals without their fractions as int64, or uint64 where one is 2**63 or more.

    Raises:
        BatchError: 64 bits do not hold a value.
    """
    from shmjet._native._columns import decimal_rescale

    values = operand(column)
    assert values is not None
    whole = _rescaled(values, DecimalType(MOST_DIGITS, 0), valid, 2, decimal_rescale).stored
    assert isinstance(whole, np.ndarray)
    halves = whole.view(np.int64).reshape(-1, 2)
    low, high = halves[:, 0], np.where(valid, halves[:, 1], 0)
    low = np.where(valid, low, 0)
    if (high == low >> 63).all():
        return low
    if (high == 0).all():
        return low.view(np.uint64)
    row = int(np.argmax(high != low >> 63))
    raise BatchError(f"{_shown(values, row)} in row {row} is not an integer of 64 bits")


def of_text(text: Text, kind: DecimalType, valid: Mask) -> TypedColumn:
    """Return text such as "-12.50" as decimals. Raises BatchError where it is none, or does not fit."""
    from shmjet._native._columns import decimal_of_text

    out = _empty(kind, len(text))
    column = "t", 0, len(text), text.data, text.offsets, None if valid.all() else valid
    bad = decimal_of_text(column, kind.scale, kind.precision, _bytes(out), out.dtype.itemsize)
    if bad >= 0:
        raise BatchError(f"{text[bad]!r:.80} in row {bad} is not a value of {kind}")
    return TypedColumn.trusted(kind, out)


def to_text(column: TypedColumn) -> Text:
    """Return decimals as text with all digits of their scale."""
    from shmjet._native._columns import decimal_to_text

    values = operand(column)
    assert values is not None
    offsets, data = np.empty(len(column) + 1, np.int64), np.empty(42 * len(column), np.uint8)
    size = decimal_to_text(values.shifted(values.kind.scale), len(column), offsets, data)
    return Text.trusted(offsets, data[:size].copy())
