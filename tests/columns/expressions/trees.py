"""Random columns and random expressions of them, of one type each."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
from hypothesis import strategies as st

from shmjet import Batch, Nullable, column, when
from shmjet.core import Expression
from shmjet.data.text import Text

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float32", "float64")
KINDS: dict[str, Any] = {
    **{f"{name}_{letter}": np.dtype(name) for name in (*INTEGERS, *FLOATS) for letter in "xy"},
    **{f"bool_{letter}": np.dtype(bool) for letter in "xy"},
    **{f"text_{letter}": "text" for letter in "xy"},
    **{f"day_{letter}": np.dtype("M8[D]") for letter in "xy"},
    **{f"time_{letter}": np.dtype("M8[us]") for letter in "xy"},
}
"""The columns of every batch."""

texts = st.one_of(
    st.sampled_from(
        ["", " ", "a", "Ab", "aab", "ba\n", "\nab", "ß", "İi", "ΟΔΟΣ", "ﬁ", "日本", "🙂a", "a b  c", "12", "-7", " x "]
    ),
    st.text(alphabet="ab 1\n.ßé🙂", max_size=12),
)
days = st.dates(datetime.date(1, 1, 8), datetime.date(9999, 12, 31))
times = st.datetimes(datetime.datetime(1, 1, 8), datetime.datetime(9999, 12, 31, 23, 59, 59, 999999))


def _values(name: str) -> st.SearchStrategy[Any]:
    kind = KINDS[name]
    if kind == "text":
        return texts
    if kind == np.dtype("M8[D]"):
        return days
    if kind == np.dtype("M8[us]"):
        return times
    if kind.kind == "b":
        return st.booleans()
    if kind.kind == "f":
        return st.one_of(
            st.floats(width=kind.itemsize * 8),
            st.sampled_from([0.0, -0.0, float("nan"), float("inf"), -float("inf"), 1.5, -2.0, 2.0**53]),
        )
    info = np.iinfo(kind)
    edges = [info.min, info.min + 1, info.max, info.max - 1, 0, 1, info.max // 2 + 1]
    return st.one_of(st.integers(max(info.min, -5), 5), st.integers(info.min, info.max), st.sampled_from(edges))


@st.composite
def batches(draw: Any, names: tuple[str, ...]) -> tuple[Batch, list[dict[str, Any]]]:
    """Columns of some of `KINDS`, and the same as rows of Python values."""
    rows = draw(st.integers(0, 7))
    columns: dict[str, Any] = {}
    listed: dict[str, list[Any]] = {}
    for name in names:
        values = _values(name)
        if draw(st.booleans()):
            values = st.one_of(st.none(), values)
        found = draw(st.lists(values, min_size=rows, max_size=rows))
        listed[name] = found
        columns[name] = _column(found, KINDS[name])
    return Batch(columns), [{name: listed[name][row] for name in names} for row in range(rows)]


def _column(values: list[Any], kind: Any) -> Any:
    mask = np.array([value is not None for value in values], np.bool_)
    if kind == "text":
        stored: Any = Text.of(["junk" if value is None else value for value in values])
    else:
        blank: Any = 77 if kind.kind in "iuf" else "1999-01-01" if kind.kind == "M" else True
        stored = np.array([blank if value is None else value for value in values], kind)
    return stored if mask.all() else Nullable(stored, mask)


def names_of(of: tuple[str, ...]) -> list[str]:
    """Return the columns of types."""
    return [name for name in KINDS if name.split("_")[0] in of]


PATTERNS = (
    "a",
    "b$",
    "^a",
    "a.b",
    "[ab]+",
    r"\d",
    r"\s",
    "a|ß",
    "(?i)AB",
    "",
    "a*",
    r"\bab",
    "^$",
    "[^a]b",
    r"\w+",
    "a{2}",
    "é",
    "🙂",
    r"b\n",
    r"a.*b",
    r"\Aa",
    r"b\Z",
)


@st.composite
def texts_of(draw: Any, depth: int) -> Expression:
    """An expression of text."""
    how = draw(st.integers(0, 9)) if depth else 0
    if how <= 1:
        return column(draw(st.sampled_from(names_of(("text",)))))
    inner = draw(texts_of(depth - 1))
    if how == 2:
        return inner.str.lower() if draw(st.booleans()) else inner.str.upper()
    if how == 3:
        length = draw(st.one_of(st.none(), st.integers(0, 4)))
        return inner.str.slice(draw(st.integers(-5, 5)), length)
    if how == 4:
        return inner.str.strip(draw(st.sampled_from([None, "a", "aß ", ""])))
    if how == 5:
        return inner.str.replace(draw(st.sampled_from(["a", "ab", "", "ß", "."])), draw(texts), literal=True)
    if how == 6:
        return inner.str.replace(draw(st.sampled_from(PATTERNS)), draw(st.sampled_from(["", "x", r"<\g<0>>", "ß"])))
    if how == 7:
        return when(draw(bools_of(depth - 1))).then(inner).otherwise(draw(st.one_of(texts, texts_of(depth - 1))))
    if how == 8:
        return draw(st.one_of(integers_of(depth - 1), bools_of(depth - 1))).cast(str)
    return inner.fill_null(draw(st.one_of(texts, texts_of(depth - 1))))


@st.composite
def integers_of(draw: Any, depth: int) -> Expression:
    """An expression of integers."""
    how = draw(st.integers(0, 9)) if depth else 0
    if how <= 1:
        return column(draw(st.sampled_from(names_of(INTEGERS))))
    if how == 2:
        return draw(texts_of(depth - 1)).str.len_chars()
    if how == 3:
        function = draw(
            st.sampled_from(
                [
                    "year",
                    "quarter",
                    "month",
                    "week",
                    "day",
                    "hour",
                    "minute",
                    "second",
                    "millisecond",
                    "microsecond",
                    "weekday",
                    "ordinal_day",
                ]
            )
        )
        return getattr(draw(dates_of(depth - 1)).dt, function)()
    inner = draw(integers_of(depth - 1))
    if how == 4:
        return draw(st.sampled_from([lambda e: -e, abs, lambda e: ~e, lambda e: +e]))(inner)
    if how == 5:
        kind = draw(st.sampled_from(INTEGERS))
        source = draw(st.one_of(st.just(inner), floats_of(depth - 1), bools_of(depth - 1), texts_of(depth - 1)))
        return source.cast(kind)
    if how == 6:
        other = draw(st.one_of(st.integers(-3, 300), integers_of(depth - 1)))
        return when(draw(bools_of(depth - 1))).then(inner).otherwise(other)
    if how == 7:
        return inner.fill_null(draw(st.one_of(st.integers(-3, 300), integers_of(depth - 1))))
    one = inner
    two = draw(st.one_of(st.integers(-3, 300), integers_of(depth - 1), st.none()))
    symbol = draw(st.sampled_from(["+", "-", "*", "//", "%", "&", "|", "^"]))
    reflected = draw(st.booleans())
    return _infix(symbol, two, one) if reflected else _infix(symbol, one, two)


@st.composite
def floats_of(draw: Any, depth: int) -> Expression:
    """An expression of floats."""
    how = draw(st.integers(0, 7)) if depth else 0
    if how <= 1:
        return column(draw(st.sampled_from(names_of(FLOATS))))
    inner = draw(floats_of(depth - 1))
    if how == 2:
        return draw(st.sampled_from([lambda e: -e, abs]))(inner)
    if how == 3:
        return draw(st.one_of(integers_of(depth - 1), floats_of(depth - 1))).cast(draw(st.sampled_from(FLOATS)))
    if how == 4:
        other = draw(st.one_of(st.floats(width=32), floats_of(depth - 1), integers_of(depth - 1)))
        return when(draw(bools_of(depth - 1))).then(inner).otherwise(other)
    if how == 5:
        return inner.fill_null(draw(st.one_of(st.floats(width=32), integers_of(depth - 1))))
    if how == 6:
        return draw(integers_of(depth - 1)) / draw(st.one_of(integers_of(depth - 1), st.integers(-3, 3)))
    two = draw(st.one_of(st.floats(width=16), st.integers(-3, 300), floats_of(depth - 1), integers_of(depth - 1)))
    symbol = draw(st.sampled_from(["+", "-", "*", "/", "//", "%"]))
    return _infix(symbol, inner, two) if draw(st.booleans()) else _infix(symbol, two, inner)


@st.composite
def dates_of(draw: Any, depth: int) -> Expression:
    """An expression of dates."""
    how = draw(st.integers(0, 4)) if depth else 0
    if how <= 1:
        return column(draw(st.sampled_from(names_of(("day", "time")))))
    inner = draw(dates_of(depth - 1))
    if how == 2:
        units = ["year", "quarter", "month", "week", "day", "hour", "minute", "second"]
        return inner.dt.truncate(draw(st.sampled_from(units)))
    if how == 3:
        return inner.dt.date()
    return inner.fill_null(draw(st.one_of(days, dates_of(depth - 1))))


@st.composite
def bools_of(draw: Any, depth: int) -> Expression:
    """An expression of bools."""
    how = draw(st.integers(0, 9)) if depth else 0
    if how == 0:
        return column(draw(st.sampled_from(names_of(("bool",)))))
    if how == 1:
        return draw(anything_of(depth - 1)).is_null()
    if how == 2:
        return ~draw(bools_of(depth - 1))
    if how <= 4:
        two = draw(st.one_of(bools_of(depth - 1), st.sampled_from([True, False, None])))
        return _infix(draw(st.sampled_from(["&", "|", "^"])), draw(bools_of(depth - 1)), two)
    symbol = draw(st.sampled_from(["==", "!=", "<", "<=", ">", ">="]))
    if how == 5:
        return _infix(symbol, draw(texts_of(depth - 1)), draw(st.one_of(texts, texts_of(depth - 1), st.none())))
    if how == 6:
        numbers = st.one_of(integers_of(depth - 1), floats_of(depth - 1), st.integers(-3, 2**64), st.floats(width=32))
        one = draw(st.one_of(integers_of(depth - 1), floats_of(depth - 1)))
        return _infix(symbol, one, draw(numbers))
    if how == 7:
        return _infix(symbol, draw(dates_of(depth - 1)), draw(st.one_of(dates_of(depth - 1), days, times)))
    if how == 8:
        text = draw(texts_of(depth - 1)).str
        pattern = draw(st.sampled_from(PATTERNS))
        part = draw(texts)
        return draw(
            st.sampled_from(
                [
                    text.contains(pattern),
                    text.contains(part, literal=True),
                    text.starts_with(part),
                    text.ends_with(part),
                ]
            )
        )
    if draw(st.booleans()):
        return draw(texts_of(depth - 1)).is_in(draw(st.lists(st.one_of(texts, st.none()), max_size=7)))
    listed = st.lists(st.one_of(st.integers(-300, 300), st.floats(width=32), st.none()), max_size=6)
    return draw(st.one_of(integers_of(depth - 1), floats_of(depth - 1))).is_in(draw(listed))


def anything_of(depth: int) -> st.SearchStrategy[Expression]:
    """An expression of any type."""
    return st.one_of(integers_of(depth), floats_of(depth), bools_of(depth), texts_of(depth), dates_of(depth))


def _infix(symbol: str, one: Any, two: Any) -> Any:
    import operator

    return {
        "+": operator.add,
        "-": operator.sub,
        "*": operator.mul,
        "/": operator.truediv,
        "//": operator.floordiv,
        "%": operator.mod,
        "&": operator.and_,
        "|": operator.or_,
        "^": operator.xor,
        "==": operator.eq,
        "!=": operator.ne,
        "<": operator.lt,
        "<=": operator.le,
        ">": operator.gt,
        ">=": operator.ge,
    }[symbol](one, two)
