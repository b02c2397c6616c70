"""Expressions over columns with a time zone, categories and lists."""

from __future__ import annotations

import datetime
import zoneinfo
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet import Batch, BatchError, Nullable, Text, column, when
from shmjet.columns.expressions import evaluate
from shmjet.data.column_types import CategoryType, ZonedType
from shmjet.data.typed_column import TypedColumn
from tests.examples import examples

ZONES = (
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Asia/Kolkata",
    "America/Sao_Paulo",
    "UTC",
    "+05:45",
)
PARTS = ("year", "quarter", "month", "day", "hour", "minute", "second", "microsecond", "weekday", "ordinal_day", "week")
instants = st.one_of(
    st.integers(-62_000_000_000, 253_000_000_000),
    st.integers(1_711_800_000 - 200_000, 1_711_800_000 + 200_000),  # Berlin's clock goes forward on 2024-03-31
    st.integers(1_729_990_800 - 200_000, 1_729_990_800 + 200_000),  # and back on 2024-10-27
)


def _zoned(seconds: list[int], zone: str) -> Batch:
    return Batch({"t": TypedColumn(ZonedType("us", zone), np.array(seconds, "M8[s]").astype("M8[us]"))})


def _python(seconds: int, zone: str) -> datetime.datetime:
    moment = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(seconds=seconds)
    if zone.startswith("+"):
        return moment.astimezone(datetime.timezone(datetime.timedelta(hours=5, minutes=45)))
    return moment.astimezone(zoneinfo.ZoneInfo(zone))


@examples(60)
@given(st.lists(instants, min_size=1, max_size=8), st.sampled_from(ZONES))
def test_parts_follow_the_zone(seconds: list[int], zone: str) -> None:
    batch = _zoned(seconds, zone)
    expected = [_python(each, zone) for each in seconds]
    for part in PARTS:
        found = evaluate(getattr(column("t").dt, part)(), batch).tolist()
        assert found == [_part(part, each) for each in expected], part
    assert evaluate(column("t").dt.date(), batch).tolist() == [each.date() for each in expected]


def _part(part: str, moment: datetime.datetime) -> int:
    other = {
        "quarter": (moment.month + 2) // 3,
        "weekday": moment.isoweekday(),
        "ordinal_day": moment.timetuple().tm_yday,
        "week": moment.isocalendar().week,
    }
    return other[part] if part in other else int(getattr(moment, part))


@examples(40)
@given(st.lists(instants, min_size=1, max_size=8), st.sampled_from(("Europe/Berlin", "America/New_York", "UTC")))
def test_a_day_begins_at_midnight_of_the_zone(seconds: list[int], zone: str) -> None:
    found = evaluate(column("t").dt.truncate("day"), _zoned(seconds, zone)).to_list()
    for instant, each in zip(found, seconds, strict=True):
        moment = _python(each, zone)
        assert instant == moment.replace(hour=0, minute=0, second=0, fold=0)


def test_an_hour_that_comes_twice_stays_the_one_that_it_was() -> None:
    found = evaluate(column("t").dt.truncate("hour"), _zoned([1_729_989_000, 1_729_992_600], "Europe/Berlin")).to_list()
    assert [each.astimezone(datetime.UTC).hour for each in found] == [0, 1]


@pytest.mark.parametrize("by", [",", "ab", None])
def test_split_gives_lists(by: str | None) -> None:
    values = ["a,b,,c", "", ",", "x", "ab ab", "é,ab,ß "]
    found: Any = evaluate(column("s").str.split(by), Batch({"s": [*values, None]}))
    assert found.to_list() == [*(value.split(by) for value in values), None]
    assert str(found.dtype) == "list<text>"


def test_functions_of_text_take_categories() -> None:
    batch = Batch({"s": TypedColumn(CategoryType(), Text.of(["Rome", "", "Oslo"]))}, {"s": [True, False, True]})
    assert evaluate(column("s").str.upper(), batch).to_list() == ["ROME", None, "OSLO"]
    assert evaluate(column("s").str.contains("o$"), batch).to_list() == [False, None, True]


def test_plus_puts_text_together() -> None:
    given = {
        "s": ["x", None, "é", ""],
        "t": ["1", "2", None, "日"],
        "c": ["p", "q", None, "r"],
        "b": [b"a", b"", None, b"c"],
    }
    batch, s, t, c = Batch(given, schema={"c": "category"}), column("s"), column("t"), column("c")
    found: Any = evaluate("<" + s + t + ">", batch)
    assert found.to_list() == ["<x1>", None, None, "<日>"]
    assert evaluate(c + s, batch).to_list() == ["px", None, None, "r"]
    assert evaluate("-" + c, batch).to_list() == ["-p", "-q", None, "-r"]
    assert evaluate(column("b") + b"z", batch).to_list() == [b"az", b"z", None, b"cz"]
    assert evaluate(s + t, batch[:0]).tolist() == []
    assert evaluate(s + None, batch).to_list() == [None] * 4
    assert evaluate(s + t, Batch({"s": ["ab"] * 40_000, "t": ["c"] * 40_000}))[39_999] == "abc"
    assert (batch["s"] + batch["t"] + "!").to_list() == ["x1!", None, None, "日!"]
    assert ("-" + Text.of(["a", "b"])[1:] + Text.of(["c"])).tolist() == ["-bc"]
    assert (Text.of(["a", "b"]) + Nullable([None, "c"])).to_list() == [None, "bc"]
    for wrong in (s + 1, s + column("b"), s - t, t * 2):
        with pytest.raises(BatchError, match="does not work on"):
            evaluate(wrong, batch)
    for other in (b"c", Text.of(["a", "b"])):
        with pytest.raises(BatchError, match="put together"):
            Text.of(["a"]) + other


def test_decimals_are_filled_and_chosen() -> None:
    batch = Batch({"p": [Decimal("1.50"), None, Decimal("2.25")], "n": [1, 2, 3]})
    zero = Decimal(0)
    assert evaluate(column("p").fill_null(zero), batch).tolist() == [Decimal("1.50"), zero, Decimal("2.25")]
    chosen = when(column("n") > 2).then(zero).otherwise(column("p"))
    assert evaluate(chosen, batch).tolist() == [Decimal("1.50"), None, zero]
