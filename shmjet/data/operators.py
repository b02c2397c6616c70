"""What operators do with the values of columns: integers never wrap, and types that do not go together are an error.

An operand is an array, a `Text`, or a scalar. Types promote as in numpy 2 (NEP 50), NaN and NaT are values and compare
as IEEE 754 has it. `valid` says which rows count: what lies under a null is neither looked at nor complained about.
Must not know what a null means to an operator.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from shmjet.data import typed_operators
from shmjet.data.errors import BatchError
from shmjet.data.text import Mask, Text, added
from shmjet.data.typed_column import TypedColumn

Array = npt.NDArray[Any]
Values = Array | Text | TypedColumn

_ARITHMETIC: Final[dict[str, Any]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.true_divide,
    "//": np.floor_divide,
    "%": np.remainder,
    "**": np.power,
}
_COMPARISONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
DATE_UNITS: Final = ("Y", "M", "W", "D")
"""numpy's units of dates, which are not times of day."""

MONTH_UNITS: Final = ("Y", "M")
"""Units of spans of time that are not a fixed number of days."""

_NUMBERS: Final = "biufc"
_NAT: Final = np.iinfo(np.int64).min


def kind_of(operand: Any) -> str:
    """Return numpy's letter for an operand's kind; "U" and "S" for `Text`, too, and "?" for a `TypedColumn`."""
    if isinstance(operand, Text):
        return "S" if operand.is_bytes else "U"
    if typed_operators.is_typed(operand):
        return "?"
    if isinstance(operand, int):
        return "b" if isinstance(operand, bool) else "i"
    return np.asarray(operand).dtype.kind


def type_name(operand: Any) -> str:
    """Return what a message calls an operand's type."""
    if isinstance(operand, Text | TypedColumn | np.ndarray | np.generic):
        return str(operand.dtype)
    return type(operand).__name__


# -- arithmetic --------------------------------------------------------------------------------------------------------


def calculate(symbol: str, one: Any, two: Any, valid: Mask) -> tuple[Values, Mask]:
    """Return what an arithmetic operator gives, and where that is a value. `+` puts text together.

    Args:
        symbol: `+ - * / // % **`.
        one, two: operands, at least one of them a column.
        valid: the rows that count.

    Returns:
        The values, and `valid` without the rows in which an integer is divided by 0 (`//` and `%`).

    Raises:
        BatchError: an integer or a span of time leaves its type, or the operator does not work on such operands.
    """
    if typed_operators.is_typed(one) or typed_operators.is_typed(two):
        return typed_operators.calculate(symbol, one, two, valid, calculate)
    kinds = kind_of(one) + kind_of(two)
    if symbol == "+" and kinds in ("UU", "SS"):
        return added(one, two, len(valid)), valid
    if not set(kinds) <= set("biufcmM") or (kinds == "bb" and symbol in "+-"):
        raise _unfit(symbol, one, two)
    if "m" in kinds or "M" in kinds:
        return _calculate_times(symbol, _under(one, valid), _under(two, valid), valid)
    if symbol == "**" and kinds[1] == "i":
        two = _under(two, valid)  # numpy looks at all exponents
    result = _applied(symbol, one, two)
    if result.dtype.kind in "iu":
        a, b = np.asarray(one, result.dtype), np.asarray(two, result.dtype)
        if symbol in ("//", "%"):
            valid = valid & (b != 0)
        _refuse(_overflows(symbol, a, b, result) & valid, symbol, one, two, result.dtype)
    return result, valid


def negate(values: Values, valid: Mask) -> Values:
    """Return `-values`. Raises BatchError as `calculate`."""
    if isinstance(values, TypedColumn):
        return typed_operators.negate(values)
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "iufcm":
        raise BatchError(f"- does not work on a column of {values.dtype}")
    if values.dtype.kind in "iu":
        wrong = values > 0 if values.dtype.kind == "u" else values == np.iinfo(values.dtype).min
        _refuse(wrong & valid, "-", None, values, values.dtype)
    with np.errstate(all="ignore"):
        result: Array = np.negative(values)
    return result


def absolute(values: Values, valid: Mask) -> Values:
    """Return `abs(values)`. Raises BatchError as `calculate`."""
    if isinstance(values, TypedColumn):
        return typed_operators.absolute(values)
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "biufcm":
        raise BatchError(f"abs() does not work on a column of {values.dtype}")
    if values.dtype.kind == "i":
        _refuse((values == np.iinfo(values.dtype).min) & valid, "abs", None, values, values.dtype)
    with np.errstate(all="ignore"):
        result: Array = np.absolute(values)
    return result


def _unfit(symbol: str, one: Any, two: Any) -> BatchError:
    return BatchError(f"{symbol} does not work on {type_name(one)} and {type_name(two)}")


def _applied(symbol: str, one: Any, two: Any) -> Array:
    try:
        with np.errstate(all="ignore"):
            result: Array = _ARITHMETIC[symbol](one, two)
    except ValueError:
        if symbol != "**":
            raise
        raise BatchError("an integer to a negative power is not an integer; cast the column to float first") from None
    except OverflowError as error:
        raise BatchError(f"{type_name(one)} {symbol} {type_name(two)}: {error}; cast the column first") from None
    except TypeError:
        raise _unfit(symbol, one, two) from None
    return result


def _under(operand: Any, valid: Mask) -> Any:
    """Return an operand with 0 under its nulls."""
    if not isinstance(operand, np.ndarray) or valid.all():
        return operand
    return np.where(valid, operand, np.zeros((), operand.dtype))


def _refuse(wrong: Mask, symbol: str, one: Any, two: Any, dtype: np.dtype[Any]) -> None:
    if not wrong.any():
        return
    row = int(np.argmax(wrong))
    left, right = (operand[row] if isinstance(operand, np.ndarray) else operand for operand in (one, two))
    shown = f"{symbol}({right})" if one is None else f"{left} {symbol} {right}"
    raise BatchError(f"{shown} in row {row} is not a value of {dtype}; cast the column to a type that holds it")


def _overflows(symbol: str, a: Array, b: Array, result: Array) -> Mask:
    """Tell where an integer result is not that of arithmetic; all three are of one type."""
    unsigned = result.dtype.kind == "u"
    wrong: Any
    if symbol == "+":
        wrong = result < a if unsigned else ((a ^ result) & (b ^ result)) < 0
    elif symbol == "-":
        wrong = a < b if unsigned else ((a ^ b) & (a ^ result)) < 0
    elif symbol == "*":
        wrong = _outside(np.abs(a.astype(np.float64) * b.astype(np.float64)), a, b, result.dtype, operator.mul)
    elif symbol == "**":
        with np.errstate(all="ignore"):
            size = np.abs(a.astype(np.float64)) ** b.astype(np.float64)
        wrong = _outside(size, a, b, result.dtype, operator.pow)
    elif symbol == "//" and not unsigned:
        wrong = (b == -1) & (a == np.iinfo(result.dtype).min)
    else:
        wrong = False
    return np.broadcast_to(np.asarray(wrong, np.bool_), result.shape)


def _outside(size: Array, a: Array, b: Array, dtype: np.dtype[Any], exact: Callable[[int, int], int]) -> Mask:
    """Tell where a result leaves its type. `size` is about its magnitude; where that does not decide, `exact` does."""
    info = np.iinfo(dtype)
    limit = float(info.max) + 1
    wrong: Mask = size > limit * (1 + 2.0**-40)
    near = np.flatnonzero(~wrong & (size >= limit * (1 - 2.0**-40)))
    ones, twos = np.broadcast_to(a, size.shape), np.broadcast_to(b, size.shape)
    for row in near.tolist():
        wrong[row] = not info.min <= exact(int(ones[row]), int(twos[row])) <= info.max
    return wrong


# -- dates and spans of time -------------------------------------------------------------------------------------------


def _floor_divided(spans: Any, numbers: Any, dtype: np.dtype[Any]) -> Array:
    """Return spans of time divided by integers, rounded down as Python does; numpy rounds towards 0."""
    ticks, divisors = np.broadcast_arrays(np.asarray(spans, dtype).view(np.int64), np.asarray(numbers))
    found = ticks // np.where(divisors == 0, 1, divisors).astype(np.int64)
    return np.where(np.isnat(ticks.view(dtype)), ticks, found).view(dtype)


def _calculate_times(symbol: str, one: Any, two: Any, valid: Mask) -> tuple[Array, Mask]:
    try:
        result = _applied(symbol, one, two)
    except BatchError:
        raise
    except Exception as error:  # numpy has several for units that do not meet
        raise BatchError(f"{type_name(one)} {symbol} {type_name(two)}: {error}") from None
    if symbol == "//" and np.asarray(two).dtype.kind in "iu":
        result = _floor_divided(one, two, result.dtype)
    if symbol in ("//", "%"):
        divisor = np.asarray(two)
        valid = valid & (divisor != np.zeros((), divisor.dtype))
        if result.dtype.kind in "iu":  # there is no integer for NaT
            valid = valid & ~_is_nat(one) & ~_is_nat(two)
    if result.dtype.kind not in "mM" or symbol == "%":
        return result, valid
    with np.errstate(all="ignore"):
        if symbol in ("+", "-"):
            a, b = _ticks(one, result.dtype, symbol), _ticks(two, result.dtype, symbol)
            ticks: Array = _ARITHMETIC[symbol](a, b)
            wrong = _overflows(symbol, a, b, ticks) | (ticks == _NAT)
        else:
            numbers = [_floats(operand) for operand in (one, two)]
            size = np.abs(_ARITHMETIC["*" if symbol == "*" else "/"](*numbers))
            wrong = np.isfinite(numbers[0]) & np.isfinite(numbers[1]) & (size >= 2.0**63) & (numbers[1] != 0)
    _refuse(wrong & valid & ~_is_nat(one) & ~_is_nat(two), symbol, one, two, result.dtype)
    return result, valid


def _is_nat(operand: Any) -> Any:
    return np.isnat(operand) if kind_of(operand) in "mM" else np.False_


def _ticks(operand: Any, unit: np.dtype[Any], symbol: str) -> Array:
    """Return dates, spans or numbers as the integers that they are in a unit."""
    array = np.asarray(operand)
    if array.dtype.kind not in "mM":
        return array.astype(np.int64)
    return to_unit(array, np.dtype(f"{array.dtype.kind}8{unit.str[3:]}"), symbol).view(np.int64)


def _floats(operand: Any) -> Array:
    array = np.asarray(operand)
    return array.view(np.int64).astype(np.float64) if array.dtype.kind in "mM" else array.astype(np.float64)


def to_unit(array: Array, dtype: np.dtype[Any], symbol: str) -> Array:
    """Return dates or spans in a finer unit. Raises BatchError where they are out of its range."""
    try:
        cast = array.astype(dtype)
        fits = bool(((cast.astype(array.dtype) == array) | np.isnat(array)).all())
    except OverflowError:
        fits = False
    if not fits:
        raise BatchError(f"{symbol}: a value of {array.dtype} is out of the range of {dtype}; cast one of the columns")
    return cast


# -- comparing ---------------------------------------------------------------------------------------------------------


def compare(symbol: str, one: Any, two: Any, valid: Mask) -> Mask:
    """Return what a comparison gives, row by row.

    Args:
        symbol: `== != < <= > >=`.
        one, two: operands, at least one of them an array or a `Text`.
        valid: the rows that count.

    Raises:
        BatchError: such operands cannot be compared: text with numbers, numbers with dates.
    """
    if typed_operators.is_typed(one) or typed_operators.is_typed(two):
        return typed_operators.compare(symbol, one, two, valid, compare)
    first, second = kind_of(one), kind_of(two)
    if first != second and not (first in _NUMBERS and second in _NUMBERS):
        if not valid.any():  # a column of nulls only, such as [None, None], may be of any type
            return np.zeros(len(valid), np.bool_)
        raise BatchError(f"{type_name(one)} and {type_name(two)} cannot be compared; cast one of them")
    apply = _COMPARISONS[symbol]
    if isinstance(one, Text) or isinstance(two, Text):
        one, two = (Text.of(each.tolist()) if isinstance(each, np.ndarray) else each for each in (one, two))
        found: Mask = apply(one, two)
        return found
    if first in "mM":
        one, two = _in_one_unit(_under(one, valid), _under(two, valid), symbol)
    elif first + second in ("bi", "ib"):  # numpy compares integers with ints of any size, and bools not
        one, two = (
            each.view(np.int8) if each_kind == "b" and isinstance(each, np.ndarray) else each
            for each, each_kind in ((one, first), (two, second))
        )
    try:
        with np.errstate(all="ignore"):
            found = np.asarray(apply(one, two))
    except TypeError:
        raise _unfit(symbol, one, two) from None
    if found.dtype != np.bool_ or found.shape != valid.shape:
        raise _unfit(symbol, one, two)
    return found


def _in_one_unit(one: Any, two: Any, symbol: str) -> tuple[Array, Array]:
    a, b = np.asarray(one), np.asarray(two)
    if a.dtype == b.dtype:
        return a, b
    try:
        common = np.result_type(a.dtype, b.dtype)
    except TypeError:  # months and days
        raise BatchError(f"{a.dtype} and {b.dtype} cannot be compared: months differ in their days") from None
    return to_unit(a, common, symbol), to_unit(b, common, symbol)


# -- logic, choice -----------------------------------------------------------------------------------------------------


def combine(symbol: str, one: Any, known: Mask, two: Any, others: Mask) -> tuple[Array, Mask]:
    """Return what `& | ^` give: of bools by three-valued logic, of integers bit by bit.

    Args:
        symbol: the operator.
        one, two: operands.
        known, others: where these are not null.

    Returns:
        The values, and where they are not null.

    Raises:
        BatchError: the operands are neither bools nor integers.
    """
    kinds = kind_of(one) + kind_of(two)
    if not set(kinds) <= set("biu"):
        raise _unfit(symbol, one, two)
    if kinds == "bb" and symbol != "^":
        two = np.asarray(two)
        true_one, true_two = one & known, two & others
        false_one, false_two = ~one & known, ~two & others
        if symbol == "&":
            values: Array = true_one & true_two
            return values, values | false_one | false_two
        values = true_one | true_two
        return values, values | (false_one & false_two)
    apply = {"&": np.bitwise_and, "|": np.bitwise_or, "^": np.bitwise_xor}[symbol]
    try:
        return apply(one, two), known & others
    except (TypeError, OverflowError):
        raise _unfit(symbol, one, two) from None


def invert(values: Any) -> Array:
    """Return `~values`. Raises BatchError when they are neither bools nor integers."""
    if kind_of(values) not in "biu":
        raise BatchError(f"~ does not work on a column of {values.dtype}")
    result: Array = ~values
    return result


def under_nulls(values: Values, filling: Any) -> Values:
    """Return what lies under nulls alone, of the kind of what replaces them where the two do not go together."""
    if isinstance(values, TypedColumn) or typed_operators.is_typed(filling):
        return typed_operators.under_nulls(values, filling)
    kind = kind_of(filling)
    if kind == kind_of(values) or (kind in _NUMBERS and kind_of(values) in _NUMBERS):
        return values
    if kind in "US":
        return Text.of(["" if kind == "U" else b""] * len(values))
    dtype = np.asarray(filling).dtype
    return np.zeros(len(values), np.int64 if dtype.hasobject else dtype)


def blanked(filling: Any, counts: Mask) -> Any:
    """Return a typed column with zeros where nothing counts; anything else as it is."""
    return typed_operators.blanked(filling, counts) if isinstance(filling, TypedColumn) else filling


def choose(valid: Mask, values: Values, filling: Any) -> Values:
    """Return the values where `valid` is true, elsewhere those of `filling`, a scalar or a column.

    Raises:
        BatchError: one is text and the other numbers or dates, or a number is out of the range of the values' type.
    """
    if isinstance(values, TypedColumn) or typed_operators.is_typed(filling):
        return typed_operators.choose(valid, values, filling, choose)
    first, second = kind_of(values), kind_of(filling)
    if first != second and not (first in _NUMBERS and second in _NUMBERS):
        raise BatchError(f"a column of {values.dtype} cannot be filled with {type_name(filling)}")
    if isinstance(values, Text):
        rows = np.arange(len(values))
        if isinstance(filling, str | bytes):
            return Text.concat([values, Text.of([filling])]).take(np.where(valid, rows, len(values)))
        other = filling if isinstance(filling, Text) else Text.of(filling.tolist())
        return Text.concat([values, other]).take(np.where(valid, rows, rows + len(values)))
    if isinstance(filling, Text):
        filling = np.asarray(filling)
    try:
        return np.where(valid, values, filling)
    except (OverflowError, TypeError) as error:
        raise BatchError(f"a column of {values.dtype} cannot be filled with {filling!r:.80}: {error}") from None


# -- casting -----------------------------------------------------------------------------------------------------------


def cast(values: Array, dtype: np.dtype[Any], valid: Mask) -> Array:
    """Return numbers, bools, dates or spans as another type of that kind; fractions are cut off.

    Raises:
        BatchError: a value does not fit, or there is no such cast.
    """
    pair = values.dtype.kind, dtype.kind
    if values.dtype == dtype:
        return values
    if not (pair[0] in _NUMBERS and pair[1] in _NUMBERS and (pair[0] != "c" or pair[1] == "c")) and pair not in (
        ("m", "m"),
        ("M", "M"),
    ):
        raise BatchError(f"a column of {values.dtype} cannot be cast to {dtype}")
    if pair == ("m", "m") and _is_month(values.dtype) != _is_month(dtype):
        raise BatchError(f"a column of {values.dtype} cannot be cast to {dtype}: months differ in their days")
    there = _under(values, valid)
    try:
        with np.errstate(all="ignore"):
            result: Array = there.astype(dtype)
            if pair[0] == "b":  # every number holds 0 and 1
                return result
            wrong = _is_lost(there, result)
    except OverflowError:
        raise BatchError(f"a value of {values.dtype} is out of the range of {dtype}") from None
    if wrong.any():
        row = int(np.argmax(wrong))
        raise BatchError(f"{there[row]} in row {row} is not a value of {dtype}; cast to a type that holds it")
    return result


def _is_month(span: np.dtype[Any]) -> bool:
    """Whether spans of time are in months or years. Of no unit they are neither."""
    return np.datetime_data(span)[0] in MONTH_UNITS


def _is_lost(there: Array, result: Array) -> Mask:
    """Tell where a cast gave something else than the value, or the value without its fraction."""
    kind = result.dtype.kind
    if kind in "iu" and there.dtype.kind == "f":
        info = np.iinfo(result.dtype)
        whole = np.trunc(there)
        return ~((whole >= float(info.min)) & (whole < float(info.max) + 1))
    if kind in "iu":
        lost: Mask = (result.astype(there.dtype) != there) | ((result < 0) != (there < 0))
        return lost
    if kind in "fc" and there.dtype.kind in "fc":
        return np.isfinite(there) & ~np.isfinite(result)
    if kind in "f" and there.dtype.kind in "iu":
        return ~np.isfinite(result)
    if kind in "mM" and np.can_cast(there.dtype, result.dtype):  # to a finer unit
        lost = result.astype(there.dtype) != there
        return lost & ~np.isnat(there)
    return np.zeros(there.shape, np.bool_)
