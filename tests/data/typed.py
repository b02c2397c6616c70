"""Columns of every type, for hypothesis: lists of Python's values, and the type that holds them."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

from hypothesis import strategies as st

ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe", "+05:30")
_SWITCHES = [
    datetime.datetime(2024, 3, 31, 1, 0, tzinfo=datetime.UTC),
    datetime.datetime(2024, 10, 27, 0, 30, tzinfo=datetime.UTC),
    datetime.datetime(2024, 10, 27, 1, 30, tzinfo=datetime.UTC),
    datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=datetime.UTC),
]


@st.composite
def decimals(draw: st.DrawFn, precision: int, scale: int) -> decimal.Decimal:
    """A value of decimal(precision, scale), often at its limits."""
    most = 10**precision - 1
    units = draw(
        st.one_of(
            st.integers(-most, most),
            st.sampled_from([0, 1, -1, most, -most]),
            st.integers(-min(most, 999), min(most, 999)),
        )
    )
    digits = tuple(map(int, str(abs(units))))
    return decimal.Decimal((units < 0, digits, -scale))


@st.composite
def decimal_types(draw: st.DrawFn) -> tuple[int, int]:
    """Precision and scale."""
    precision = draw(st.sampled_from([1, 2, 9, 15, 18, 19, 20, 30, 37, 38]))
    return precision, draw(st.sampled_from(sorted({0, min(2, precision), precision // 2, precision})))


def instants(zone: str) -> st.SearchStrategy[datetime.datetime]:
    """Aware datetimes of a zone, often at its switches."""
    from shmjet.data.column_types import zone_of

    anywhere = st.datetimes(
        datetime.datetime(1700, 1, 3), datetime.datetime(2200, 12, 29), timezones=st.just(datetime.UTC)
    )
    return st.one_of(anywhere, st.sampled_from(_SWITCHES)).map(lambda value: value.astimezone(zone_of(zone)))


_LEAVES: Any = st.sampled_from(
    [
        ("int64", st.integers(-(1 << 63), (1 << 63) - 1)),
        ("float64", st.floats(allow_nan=False)),
        ("text", st.text(st.characters(codec="utf-8"), max_size=4)),
        ("bool", st.booleans()),
        ("bytes", st.binary(max_size=3)),
        ("decimal(20, 2)", decimals(20, 2)),
        ("timestamp[us, Europe/Berlin]", instants("Europe/Berlin")),
        ("category", st.sampled_from(["a", "b"])),
    ]
)


def _or_none(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), values)


def _nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    lists = inner.map(lambda pair: (f"list<{pair[0]}>", st.lists(_or_none(pair[1]), max_size=4)))
    structs = st.lists(inner, min_size=1, max_size=3).map(
        lambda pairs: (
            f"struct<{', '.join(f'f{place}: {word}' for place, (word, _) in enumerate(pairs))}>",
            st.fixed_dictionaries({f"f{place}": _or_none(values) for place, (_, values) in enumerate(pairs)}),
        )
    )
    return st.one_of(lists, structs)


nested_kinds: st.SearchStrategy[Any] = st.recursive(_nested(_LEAVES), _nested, max_leaves=3)
"""Pairs of the text of a nested type and a strategy for its values."""


@st.composite
def typed_columns(draw: st.DrawFn, rows: int) -> tuple[str, list[Any]]:
    """The text of a type, and so many values of it, some of them None."""
    family = draw(st.sampled_from(["decimal", "zoned", "category", "nested"]))
    if family == "decimal":
        precision, scale = draw(decimal_types())
        word, values = f"decimal({precision}, {scale})", decimals(precision, scale)
    elif family == "zoned":
        zone = draw(st.sampled_from(ZONES))
        word, values = f"timestamp[us, {zone}]", instants(zone)
    elif family == "category":
        word, values = "category", st.sampled_from(["", "a", "b", "ä", "zz"])
    else:
        word, values = draw(nested_kinds)
    nulls = st.one_of(st.none(), values) if draw(st.booleans()) else values
    return word, draw(st.lists(nulls, min_size=rows, max_size=rows))


def same(one: Any, two: Any) -> bool:
    """Whether values are equal, of equal types, at equal places in time."""
    if isinstance(one, list):
        return isinstance(two, list) and len(one) == len(two) and all(map(same, one, two))
    if isinstance(one, dict):
        return isinstance(two, dict) and set(one) == set(two) and all(same(one[name], two[name]) for name in one)
    if isinstance(one, datetime.datetime) and isinstance(two, datetime.datetime):
        return one == two and one.utcoffset() == two.utcoffset() and str(one.tzinfo) == str(two.tzinfo)
    if isinstance(one, decimal.Decimal) and isinstance(two, decimal.Decimal):
        return str(one) == str(two) or (one == two == 0 and one.as_tuple().exponent == two.as_tuple().exponent)
    return type(one) is type(two) and one == two


__all__ = ["ZONES", "decimal_types", "decimals", "instants", "nested_kinds", "same", "typed_columns"]
