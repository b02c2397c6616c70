"""A second implementation of expressions: row by row, in plain Python, written from what the pages promise.

`kind_of` gives the type of a result, `value_of` the value in one row. numpy serves for the names of types, their
promotion, and single floats; nothing else.
"""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from shmjet.core import ColumnKey
from shmjet.core.expressions import Call, Expression, Literal

ARITHMETIC = ("+", "-", "*", "/", "//", "%", "**")
COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
BOOL = np.dtype(bool)
INT = np.dtype(np.int64)


class Refused(Exception):
    """What a column would raise a BatchError for."""


@dataclass(frozen=True)
class Weak:
    """The type of a Python number, which takes on that of the other operand."""

    value: Any


Kind = Any
"""A numpy dtype, "text", a `Weak`, or None for the literal None."""


def kind_of(expression: Expression, kinds: dict[str, Kind]) -> Kind:
    """Return the type of a result. Raises Refused."""
    if isinstance(expression, ColumnKey):
        return kinds[expression.names[0]]
    if isinstance(expression, Literal):
        return _literal_kind(expression.value)
    assert isinstance(expression, Call)
    of = [kind_of(each, kinds) for each in expression.of]
    function = expression.function
    if function in COMPARISONS or function in ("is_null", "is_not_null", "is_in"):
        return BOOL
    if function in ARITHMETIC:
        return _arithmetic_kind(function, *of)
    if function in "&|^~":
        kind = _common(of)
        if kind is not None and kind.kind not in "biu":
            raise Refused(f"{function} of {kind}")
        return kind
    if function in ("neg", "pos", "abs"):
        return of[0]
    if function == "fill_null":
        return _common(of)
    if function == "when":
        return _common([*of[1::2], of[-1]])
    if function == "cast":
        given = expression.option("type")
        return "text" if given is str else np.dtype(given)
    if function in ("str.contains", "str.starts_with", "str.ends_with"):
        return BOOL
    if function == "dt.date":
        return np.dtype("M8[D]")
    if function == "dt.truncate":
        return of[0]
    return INT if function.startswith("dt.") or function == "str.len_chars" else "text"


def _literal_kind(value: Any) -> Kind:
    if value is None:
        return None
    if isinstance(value, bool):
        return BOOL
    if isinstance(value, int | float):
        return Weak(value)
    if isinstance(value, str):
        return "text"
    if isinstance(value, datetime.datetime):
        return np.dtype("M8[us]")
    return np.dtype("M8[D]") if isinstance(value, datetime.date) else np.dtype("m8[us]")


def _fixed(kind: Kind) -> Any:
    return kind.value if isinstance(kind, Weak) else kind


def _common(kinds: list[Kind]) -> Kind:
    there = [kind for kind in kinds if kind is not None]
    if not there:
        return None
    if "text" in there:
        return "text"
    dtype = np.result_type(*map(_fixed, there))
    for kind in there:
        _check_weak(kind, dtype)
    return dtype


def _check_weak(kind: Kind, dtype: np.dtype[Any]) -> None:
    if isinstance(kind, Weak) and isinstance(kind.value, int) and dtype.kind in "iu":
        info = np.iinfo(dtype)
        if not info.min <= kind.value <= info.max:
            raise Refused(f"{kind.value} is not of {dtype}")


def _arithmetic_kind(function: str, one: Kind, two: Kind) -> Kind:
    if one is None or two is None:
        one, two = (one, one) if two is None else (two, two)
        if one is None:
            return None
    dtype = np.result_type(_fixed(one), _fixed(two))
    if dtype.kind in "iu":
        if function == "/":
            return np.dtype(np.float64)
        _check_weak(one, dtype)
        _check_weak(two, dtype)
    return dtype


def value_of(expression: Expression, row: dict[str, Any], kinds: dict[str, Kind]) -> Any:
    """Return the value in a row, None for null. Raises Refused."""
    if isinstance(expression, ColumnKey):
        return row[expression.names[0]]
    if isinstance(expression, Literal):
        return expression.value
    assert isinstance(expression, Call)
    function = expression.function
    if function == "when":
        for condition, value in zip(expression.of[:-1:2], expression.of[1::2], strict=True):
            if value_of(condition, row, kinds) is True:
                return _as_kind(value_of(value, row, kinds), kind_of(expression, kinds))
        return _as_kind(value_of(expression.of[-1], row, kinds), kind_of(expression, kinds))
    one = value_of(expression.of[0], row, kinds)
    if function == "is_null":
        return one is None
    if function == "is_not_null":
        return one is not None
    if function == "fill_null":
        filled = value_of(expression.of[1], row, kinds) if one is None else one
        return _as_kind(filled, kind_of(expression, kinds))
    if len(expression.of) == 2:
        two = value_of(expression.of[1], row, kinds)
        first, second = (kind_of(each, kinds) for each in expression.of)
        if function in ("&", "|"):
            return _logic(function, one, two)
        if one is None or two is None:
            return None
        if function in COMPARISONS:
            return _compare(function, one, two, first, second)
        if function == "^":
            return one ^ two
        return _calculate(function, one, two, _arithmetic_kind(function, first, second))
    if one is None:
        return None
    kind = kind_of(expression.of[0], kinds)
    if function == "is_in":
        return any(_compare("==", one, value, kind, _literal_kind(value)) for value in expression.option("values"))
    if function == "cast":
        return _cast(one, kind_of(expression, kinds))
    if function in ("neg", "pos", "abs", "~"):
        return _unary(function, one, kind)
    if function.startswith("str."):
        return _text(function[4:], one, dict(expression.options))
    return _date(function[3:], one, dict(expression.options))


def _as_kind(value: Any, kind: Kind) -> Any:
    if value is None or kind is None or isinstance(kind, str):
        return value
    if kind == np.dtype("M8[us]") and not isinstance(value, datetime.datetime):
        return datetime.datetime.combine(value, datetime.time())
    return float(kind.type(value)) if kind.kind == "f" else value


def _logic(function: str, one: Any, two: Any) -> Any:
    if (one is None or isinstance(one, bool)) and (two is None or isinstance(two, bool)):
        strong = function == "|"
        if one is strong or two is strong:
            return strong
        return None if one is None or two is None else not strong
    if one is None or two is None:
        return None
    return one & two if function == "&" else one | two


def _compare(function: str, one: Any, two: Any, first: Kind, second: Kind) -> bool:
    if isinstance(one, float) or isinstance(two, float):
        dtype = np.result_type(_fixed(first), _fixed(second))
        one, two = dtype.type(one), dtype.type(two)
    elif isinstance(one, datetime.date) and isinstance(one, datetime.datetime) != isinstance(two, datetime.datetime):
        one, two = (
            each if isinstance(each, datetime.datetime) else datetime.datetime.combine(each, datetime.time())
            for each in (one, two)
        )
    return bool(
        {
            "==": lambda: one == two,
            "!=": lambda: one != two,
            "<": lambda: one < two,
            "<=": lambda: one <= two,
            ">": lambda: one > two,
            ">=": lambda: one >= two,
        }[function]()
    )


def _calculate(function: str, one: Any, two: Any, kind: Kind) -> Any:
    if kind.kind in "iu":
        if function in ("//", "%"):
            if two == 0:
                return None
            return _in_range(one // two if function == "//" else one % two, kind)
        if function == "**":
            if two < 0:
                raise Refused("negative power")
            return _in_range(one**two, kind)
        return _in_range({"+": one + two, "-": one - two, "*": one * two}[function], kind)
    with np.errstate(all="ignore"):
        a, b = kind.type(one), kind.type(two)
        return float(
            {
                "+": lambda: a + b,
                "-": lambda: a - b,
                "*": lambda: a * b,
                "/": lambda: a / b,
                "//": lambda: np.floor_divide(a, b),
                "%": lambda: np.remainder(a, b),
            }[function]()
        )


def _in_range(value: int, kind: np.dtype[Any]) -> int:
    info = np.iinfo(kind)
    if not info.min <= value <= info.max:
        raise Refused(f"{value} is not of {kind}")
    return value


def _unary(function: str, one: Any, kind: Kind) -> Any:
    if function == "~":
        if isinstance(one, bool):
            return not one
        return np.iinfo(kind).max - one if kind.kind == "u" else ~one
    value = {"neg": lambda: -one, "pos": lambda: one, "abs": lambda: abs(one)}[function]()
    return _in_range(value, kind) if not isinstance(value, float) else value


def _cast(one: Any, kind: Kind) -> Any:
    if kind == "text":
        if isinstance(one, str):
            return one
        if isinstance(one, bool):
            return "true" if one else "false"
        return one.isoformat() if isinstance(one, datetime.date) else str(one)
    if isinstance(one, str):
        if kind.kind not in "iu" or not re.fullmatch("[+-]?[0-9]+", one):
            raise Refused(one)
        return _in_range(int(one), kind)
    if isinstance(one, datetime.date):
        if kind == np.dtype("M8[D]"):
            return one.date() if isinstance(one, datetime.datetime) else one
        return one if isinstance(one, datetime.datetime) else datetime.datetime.combine(one, datetime.time())
    if kind.kind == "b":
        return bool(one)
    if kind.kind == "f":
        with np.errstate(all="ignore"):
            result = float(kind.type(one))
        if np.isinf(result) and not np.isinf(float(one)):
            raise Refused(one)
        return result
    if isinstance(one, float) and not np.isfinite(one):
        raise Refused(one)
    return _in_range(int(one), kind)


def _text(function: str, one: str, options: dict[str, Any]) -> Any:
    if function == "contains":
        return options["pattern"] in one if options["literal"] else re.search(options["pattern"], one) is not None
    if function == "replace":
        if options["literal"]:
            return one.replace(options["pattern"], options["value"])
        return re.sub(options["pattern"], options["value"], one)
    if function == "starts_with":
        return one.startswith(options["prefix"])
    if function == "ends_with":
        return one.endswith(options["suffix"])
    if function == "strip":
        return one.strip(options["characters"])
    if function == "len_chars":
        return len(one)
    if function == "slice":
        start, length = options["start"], options["length"]
        first = start if start >= 0 else len(one) + start
        last = len(one) if length is None else first + length
        return one[max(first, 0) : max(last, 0)]
    return one.upper() if function == "upper" else one.lower()


def _date(function: str, one: Any, options: dict[str, Any]) -> Any:
    moment = one if isinstance(one, datetime.datetime) else datetime.datetime.combine(one, datetime.time())
    if function == "truncate":
        cut = _truncated(moment, options["unit"])
        return cut if isinstance(one, datetime.datetime) else cut.date()
    return {
        "year": moment.year,
        "quarter": (moment.month + 2) // 3,
        "month": moment.month,
        "week": moment.isocalendar().week,
        "day": moment.day,
        "hour": moment.hour,
        "minute": moment.minute,
        "second": moment.second,
        "millisecond": moment.microsecond // 1000,
        "microsecond": moment.microsecond,
        "nanosecond": moment.microsecond * 1000,
        "weekday": moment.isoweekday(),
        "ordinal_day": moment.timetuple().tm_yday,
        "date": moment.date(),
    }[function]


def _truncated(moment: datetime.datetime, unit: str) -> datetime.datetime:
    second = moment.replace(microsecond=0)
    if unit == "second":
        return second
    minute = second.replace(second=0)
    if unit == "minute":
        return minute
    hour = minute.replace(minute=0)
    if unit == "hour":
        return hour
    day = hour.replace(hour=0)
    if unit == "day":
        return day
    if unit == "week":
        return day - datetime.timedelta(days=day.weekday())
    month = day.replace(day=1)
    if unit == "month":
        return month
    return month.replace(month=(month.month - 1) // 3 * 3 + 1) if unit == "quarter" else month.replace(month=1)
