"""Keys that are decimals, instants with a zone or categories: a row has the partition of the same row as a dict."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet import Batch
from shmjet._native import murmur3_32
from shmjet.core.keys import canonical_bytes
from shmjet.data.column_keys import hash_rows
from shmjet.data.column_types import CategoryType, DecimalType, ZonedType
from shmjet.data.decimals import stored_units
from shmjet.data.text import Text
from shmjet.data.typed_column import TypedColumn

_UNITS = st.one_of(
    st.integers(-(10**38) + 1, 10**38 - 1),
    st.integers(-(10**18) + 1, 10**18 - 1),
    st.integers(-2000, 2000),
    st.integers(0, 126).map(lambda bits: min(1 << bits, 10**38 - 1)),
    st.builds(lambda n, zeros: n * 10**zeros, st.integers(-9999, 9999), st.integers(0, 33)),
    st.builds(lambda n, fives: n * 5**fives, st.integers(-99, 99), st.integers(0, 38)),
)


def assert_hashed_as_objects(batch: Batch, *names: str) -> None:
    keys: Any = zip(*(batch.values(name) for name in names), strict=True) if len(names) > 1 else batch.values(names[0])
    assert hash_rows(batch, list(names)).tolist() == [murmur3_32(canonical_bytes(key)) & 0xFFFFFFFF for key in keys]


@given(st.lists(_UNITS, min_size=1, max_size=20), st.integers(0, 38), st.data())
def test_decimals_are_keys_by_value(units: list[int], scale: int, data: st.DataObject) -> None:
    kind = DecimalType(38, scale)
    valid = np.array(data.draw(st.lists(st.booleans(), min_size=len(units), max_size=len(units))), np.bool_)
    batch = Batch({"a": TypedColumn(kind, stored_units(units, kind)), "b": ["x"] * len(units)}, {"a": valid})
    assert_hashed_as_objects(batch, "a")
    assert_hashed_as_objects(batch, "b", "a")
    if max(map(abs, units)) < 10**18 and scale <= 18:
        narrow = DecimalType(18, scale)
        batch = Batch({"a": TypedColumn(narrow, stored_units(units, narrow))})
        assert_hashed_as_objects(batch, "a")
        assert_hashed_as_objects(batch, "a", "a")


def test_decimals_of_other_scales_and_equal_numbers_are_one_key() -> None:
    columns: list[Any] = [[decimal.Decimal("2.50")], [decimal.Decimal("2.5")], [2.5]]
    assert len({int(hash_rows(Batch({"a": values}), ["a"])[0]) for values in columns}) == 1
    columns = [[decimal.Decimal("3.00")], [decimal.Decimal(3)], [3], [3.0], [decimal.Decimal("3.0000000000000000000")]]
    assert len({int(hash_rows(Batch({"a": values}), ["a"])[0]) for values in columns}) == 1


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "-07:00"])
@given(ticks=st.lists(st.one_of(st.integers(-(1 << 63) + 1, (1 << 63) - 1), st.integers(-(10**9), 10**9)), max_size=9))
def test_instants_are_keys_by_instant(unit: str, zone: str, ticks: list[int]) -> None:
    stored = np.array([*ticks, 0, 10**9, 1_711_846_800 * 10**6], np.int64).view(f"M8[{unit}]")
    batch = Batch({"a": TypedColumn(ZonedType(unit, zone), stored)})
    assert_hashed_as_objects(batch, "a")


def test_one_instant_in_two_zones_is_one_key() -> None:
    instant = datetime.datetime(2024, 3, 31, 1, 30, tzinfo=datetime.UTC)
    berlin = TypedColumn(ZonedType("ns", "Europe/Berlin"), np.array([instant.replace(tzinfo=None)], "M8[ns]"))
    assert hash_rows(Batch({"a": [instant]}), ["a"]) == hash_rows(Batch({"a": berlin}), ["a"])


def test_categories_are_keys_by_text() -> None:
    batch = Batch({"a": TypedColumn(CategoryType(), Text.of(["x", "", "ä"])), "b": [1, 2, 3]})
    assert_hashed_as_objects(batch, "a")
    assert_hashed_as_objects(batch, "a", "b")
    assert hash_rows(batch, ["a"]).tolist() == hash_rows(Batch({"a": ["x", "", "ä"]}), ["a"]).tolist()
