"""Random expressions over instants, dates, text, categories and decimals, against polars.

A tree is built together with the expression of polars that should say the same. Where polars means something else than
is promised (categories with text, decimals of other scales) the promised meaning is spelled out in polars.
"""

from __future__ import annotations

import datetime
import operator
from collections.abc import Callable
from decimal import Decimal
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet import Batch, column, when
from shmjet.columns.expressions import evaluate
from tests.examples import examples

pl = pytest.importorskip("polars")
pl.Series([1, None]).filter(pl.Series([1, None]).is_null())  # starts polars' threads, which no test may leave behind

UTC = datetime.UTC
ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata")
UNITS = {"year": "1y", "quarter": "1q", "month": "1mo", "week": "1w", "day": "1d", "hour": "1h", "minute": "1m"}
PARTS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second", "microsecond", "weekday")
DAYS = ("year", "quarter", "month", "week", "day", "weekday", "ordinal_day")
WORDS = ["", "a", "ab", "Ab", " b ", "ba", "é", "ß", "日本", "aab-ab", "12", "a" * 100]
COMPARISONS = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)


class Pair(NamedTuple):
    """The same in shmjet and in polars."""

    ours: Any
    theirs: Any


switches = [
    datetime.datetime(2024, month, day, tzinfo=UTC) for month, day in ((3, 10), (3, 31), (4, 6), (10, 27), (11, 3))
]
instants = st.one_of(
    st.datetimes(datetime.datetime(1990, 1, 1), datetime.datetime(2037, 1, 1), timezones=st.just(UTC)),
    st.builds(
        lambda at, half: at + datetime.timedelta(minutes=30 * half), st.sampled_from(switches), st.integers(-10, 60)
    ),
)
days = st.dates(datetime.date(1600, 1, 1), datetime.date(2400, 1, 1))
words = st.sampled_from(WORDS)
prices = st.decimals(-9_999, 9_999, places=2)
VALUES: dict[str, tuple[st.SearchStrategy[Any], str, Any]] = {
    **{f"z{at}": (instants, f"timestamp[us, {zone}]", pl.Datetime("us", zone)) for at, zone in enumerate(ZONES)},
    **dict.fromkeys(("d", "e"), (days, "datetime64[D]", pl.Date)),
    **dict.fromkeys(("s", "t"), (words, "text", pl.String)),
    **dict.fromkeys(("c", "k"), (words, "category", pl.String)),
    **{name: (prices, "decimal(18, 2)", pl.Decimal(18, 2)) for name in ("p", "q")},
    "b": (st.booleans(), "bool", pl.Boolean),
}


@st.composite
def tables(draw: Any) -> dict[str, list[Any]]:
    """Return values of all columns."""
    rows = draw(st.integers(0, 8))
    return {
        name: draw(st.lists(st.none() | values, min_size=rows, max_size=rows))
        for name, (values, _, _) in VALUES.items()
    }


def named(draw: Any, *names: str) -> Pair:
    name = draw(st.sampled_from(names))
    return Pair(column(name), pl.col(name))


def literal_or(draw: Any, values: st.SearchStrategy[Any], dtype: Any, *names: str) -> Pair:
    """Return a column or a value."""
    if draw(st.booleans()):
        return named(draw, *names)
    value = draw(values)
    return Pair(value, pl.lit(value, dtype=dtype))


def instant(draw: Any, depth: int) -> Pair:
    if depth <= 0:
        return named(draw, "z0", "z1", "z2", "z3")
    one = instant(draw, depth - 1)
    match draw(st.integers(0, 3)):
        case 0:
            unit = draw(st.sampled_from([*UNITS]))
            return Pair(one.ours.dt.truncate(unit), one.theirs.dt.truncate(UNITS[unit]))
        case 1:
            span = datetime.timedelta(minutes=draw(st.integers(-99_999, 99_999)))
            return Pair(one.ours + span, one.theirs + pl.lit(span, dtype=pl.Duration("us")))
        case 2:
            condition = truth(draw, 0)
            return Pair(when(condition.ours).then(one.ours), pl.when(condition.theirs).then(one.theirs))
    return one


def day(draw: Any, depth: int) -> Pair:
    if depth <= 0:
        return named(draw, "d", "e")
    one = day(draw, depth - 1)
    match draw(st.integers(0, 3)):
        case 0:
            unit = draw(st.sampled_from([*UNITS][:5]))
            return Pair(one.ours.dt.truncate(unit), one.theirs.dt.truncate(UNITS[unit]))
        case 1:
            span = datetime.timedelta(days=draw(st.integers(-999, 999)))
            return Pair((one.ours + span).cast("datetime64[D]"), (one.theirs + pl.lit(span)).cast(pl.Date))
        case 2:
            other = literal_or(draw, days, pl.Date, "d", "e")
            return Pair(one.ours.fill_null(other.ours), one.theirs.fill_null(other.theirs))
    return one


def text(draw: Any, depth: int) -> Pair:
    if depth <= 0:
        return named(draw, "s", "t", "c", "k")
    one = text(draw, depth - 1)
    ours, theirs = one.ours.str, one.theirs.str
    match draw(st.integers(0, 8)):
        case 0:
            return Pair(ours.upper(), theirs.to_uppercase())
        case 1:
            return Pair(ours.lower(), theirs.to_lowercase())
        case 2:
            return Pair(ours.strip(), theirs.strip_chars())
        case 3:
            start, length = draw(st.integers(-4, 4)), draw(st.none() | st.integers(0, 3))
            if start < 0:  # from before the beginning polars cuts the length, too
                return Pair(ours.slice(start), theirs.slice(start))
            return Pair(ours.slice(start, length), theirs.slice(start, length))
        case 4:
            return Pair(ours.replace("a+|é", "<x>"), theirs.replace_all("a+|é", "<x>"))
        case 5:
            return Pair(ours.replace("ab", "$", literal=True), theirs.replace_all("ab", "$", literal=True))
        case 6:
            other = literal_or(draw, words, pl.String, "s", "t", "c")
            return Pair(one.ours + other.ours, one.theirs + other.theirs)
        case 7:
            other = literal_or(draw, words, pl.String, "s", "t")
            return Pair(one.ours.fill_null(other.ours), one.theirs.fill_null(other.theirs))
    condition, other = truth(draw, 0), literal_or(draw, words, pl.String, "s", "c")
    return Pair(
        when(condition.ours).then(one.ours).otherwise(other.ours),
        pl.when(condition.theirs).then(one.theirs).otherwise(other.theirs),
    )


def price(draw: Any, depth: int) -> Pair:
    if depth <= 0:
        return named(draw, "p", "q")
    one = price(draw, depth - 1)
    match draw(st.integers(0, 3)):
        case 0:
            other = literal_or(draw, prices, pl.Decimal(18, 2), "p", "q")
            return Pair(one.ours + other.ours, one.theirs + other.theirs)
        case 1:
            other = named(draw, "p", "q")
            return Pair(one.ours - other.ours, one.theirs - other.theirs)
        case 2:
            return Pair(one.ours.fill_null(Decimal("1.25")), one.theirs.fill_null(pl.lit(Decimal("1.25"))))
    return Pair(-one.ours, -one.theirs)


def number(draw: Any, depth: int) -> Pair:
    match draw(st.integers(0, 2)):
        case 0:
            one, part = instant(draw, depth - 1), draw(st.sampled_from(PARTS))
        case 1:
            one, part = day(draw, depth - 1), draw(st.sampled_from(DAYS))
        case _:
            one = text(draw, depth - 1)
            return Pair(one.ours.str.len_chars(), one.theirs.str.len_chars().cast(pl.Int64))
    return Pair(getattr(one.ours.dt, part)(), getattr(one.theirs.dt, part)().cast(pl.Int64))


def truth(draw: Any, depth: int) -> Pair:
    if depth <= 0:
        return named(draw, "b")
    make: Callable[[Any, int], Pair] = draw(st.sampled_from([instant, day, text, price, number]))
    match draw(st.integers(0, 5)):
        case 0 | 1:
            compare, one, two = draw(st.sampled_from(COMPARISONS)), make(draw, depth - 1), make(draw, depth - 1)
            if make is instant:  # polars compares none of different zones
                one, two = (Pair(each.ours, each.theirs.dt.convert_time_zone("UTC")) for each in (one, two))
            return Pair(compare(one.ours, two.ours), compare(one.theirs, two.theirs))
        case 2:
            one, two = truth(draw, depth - 1), truth(draw, depth - 1)
            combine = draw(st.sampled_from([operator.and_, operator.or_]))
            return Pair(combine(one.ours, ~two.ours), combine(one.theirs, ~two.theirs))
        case 3:
            one, values = text(draw, depth - 1), draw(st.lists(st.none() | words, max_size=3))
            known = [value for value in values if value is not None]
            return Pair(one.ours.is_in(values), one.theirs.is_in(pl.Series(known, dtype=pl.String).implode()))
        case 4:
            one, word = text(draw, depth - 1), draw(words)
            name = draw(st.sampled_from(["starts_with", "ends_with"]))
            return Pair(getattr(one.ours.str, name)(word), getattr(one.theirs.str, name)(word))
    one = make(draw, depth - 1)
    return Pair(one.ours.is_null(), one.theirs.is_null())


@st.composite
def pairs(draw: Any) -> Pair:
    make: Callable[[Any, int], Pair] = draw(st.sampled_from([instant, day, text, price, number, truth]))
    return make(draw, draw(st.integers(1, 4)))


def listed(values: Any) -> list[Any]:
    found = values.to_list() if hasattr(values, "to_list") else values.tolist()
    return [value.astimezone(UTC) if isinstance(value, datetime.datetime) else value for value in found]


@examples(60)
@given(tables(), pairs())
def test_typed_expressions_are_those_of_polars(table: dict[str, list[Any]], pair: Pair) -> None:
    frame = pl.DataFrame(
        {
            name: pl.Series(table[name], dtype=pl.Datetime("us", "UTC")).dt.convert_time_zone(kind.time_zone)
            if isinstance(kind, pl.Datetime)
            else pl.Series(table[name], dtype=kind)
            for name, (_, _, kind) in VALUES.items()
        }
    )
    batch = Batch(table, schema={name: kind for name, (_, kind, _) in VALUES.items()})
    expected = frame.select(pair.theirs.alias("found"))["found"]
    assert listed(evaluate(pair.ours, batch)) == listed(expected)
