"""The column codec: what it takes comes back the same, what it refuses is refused, damage is an error."""

from __future__ import annotations

import gc
import random
import sys
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet._native import Codec
from tests.native.values import Colour, Number, Point, Text, nested, odd_scalars, plain_scalars, rows, same

codec = Codec()


def round_trip(items: list[Any]) -> list[Any] | None:
    payload = codec.encode(items, 0, len(items))
    return None if payload is None else codec.decode(payload, len(items))


@given(st.lists(nested(plain_scalars), min_size=1, max_size=20))
def test_whatever_is_taken_comes_back_the_same(items: list[Any]) -> None:
    back = round_trip(items)
    assert back is None or same(back, items)


@given(st.lists(nested(st.one_of(plain_scalars, odd_scalars)), min_size=1, max_size=8))
def test_no_type_is_changed_by_the_way(items: list[Any]) -> None:
    back = round_trip(items)
    assert back is None or same(back, items)


@given(rows())
def test_rows_of_plain_values_are_always_columns(items: list[Any]) -> None:
    back = round_trip(items)
    assert back is not None
    assert same(back, items)


@pytest.mark.parametrize(
    "items",
    [
        list(range(1000)),
        [-(2**63), 2**63 - 1],
        [10**18 + i for i in range(5)],
        [0.5, -0.0, float("nan"), float("inf")],
        ["", "a", "é" * 300, "x" * 70000, "\x00"],
        [b"", b"\x00", b"y" * 300],
        [True, False, None],
        [1, True, 1.0, "1", b"1", None],
        [(), ()],
        [{}, {}],
        [(1,), (1, 2), ()],
        [[], [1], ["a", 2.5]],
        [("a", (1, (2.0, b"z"))), ("b", (3, (4.0, b"")))],
        [{"user": "u", "n": 1}, {"user": "v", "n": None}],
        [{"a": {"b": [1, 2]}}, {"a": {"b": []}}],
        [{1: "x", "k": 2}],
    ],
    ids=repr,
)
def test_plain_values_are_columns(items: list[Any]) -> None:
    back = round_trip(items)
    assert back is not None
    assert same(back, items)


@pytest.mark.parametrize(
    "item",
    [
        2**63,
        -(2**63) - 1,
        "\ud800",
        Text("t"),
        Number(3),
        Colour.RED,
        Point(1, 2),
        1j,
        object(),
        {1, 2},
        bytearray(b"x"),
    ],
    ids=lambda item: type(item).__name__,
)
def test_anything_else_is_refused(item: object) -> None:
    assert round_trip([item]) is None
    assert round_trip([1, item]) is None
    assert round_trip([("a", item)]) is None
    assert round_trip([{"a": item}]) is None


def test_dicts_with_other_keys_or_another_order_are_refused() -> None:
    assert round_trip([{"a": 1, "b": 2}, {"b": 2, "a": 1}]) is None
    assert round_trip([{"a": 1}, {"a": 1, "b": 2}]) is None


def test_a_list_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    assert round_trip([loop]) is None


def test_a_slice_is_encoded_by_itself() -> None:
    payload = codec.encode(list(range(10)), 3, 7)
    assert payload is not None
    assert codec.decode(payload, 4) == [3, 4, 5, 6]
    with pytest.raises(ValueError, match="at least one"):
        codec.encode([1], 1, 1)


def test_repeated_strings_become_one_object() -> None:
    back = round_trip(["".join(("re", "peated"))] * 3)
    assert back is not None
    assert back[0] is back[1] is back[2]


def test_many_distinct_strings_survive_the_cache() -> None:
    items = [f"word-{i}" for i in range(40000)]
    for start in range(0, len(items), 1000):
        part = items[start : start + 1000]
        assert round_trip(part) == part


def test_damaged_frames_are_errors_and_nothing_worse() -> None:
    items: list[Any] = [(i, f"s{i}", [i, None], {"k": (i, 0.5)}, bytes(i % 5)) for i in range(20)]
    payload = codec.encode(items, 0, len(items))
    assert payload is not None
    choose = random.Random(7)
    for _ in range(20000):
        damaged = bytearray(payload)
        for _ in range(choose.randint(1, 4)):
            damaged[choose.randrange(len(damaged))] = choose.randrange(256)
        del damaged[choose.choice([len(damaged), choose.randrange(len(damaged))]) :]
        with suppress(ValueError, TypeError):
            codec.decode(damaged, choose.choice([20, choose.randrange(1, 60)]))


def test_no_reference_is_lost_or_kept() -> None:
    items: list[Any] = [(12345678901 + i, f"text {i}", (1.5, None)) for i in range(50)]
    for _ in range(3):
        round_trip(items)
    gc.collect()
    before = sys.getrefcount(items[0]), sys.getrefcount(items[0][1]), sys.getrefcount(None), len(gc.get_objects())
    for _ in range(200):
        round_trip(items)
        payload = codec.encode(items, 0, 50)
        assert payload is not None
        with pytest.raises(ValueError, match="damaged"):
            codec.decode(payload[:-4], 50)
    after = sys.getrefcount(items[0]), sys.getrefcount(items[0][1]), sys.getrefcount(None), len(gc.get_objects())
    assert after[:2] == before[:2]
    assert abs(after[2] - before[2]) < 100
    assert abs(after[3] - before[3]) < 100


def test_the_collector_is_left_as_it_was() -> None:
    gc.disable()
    try:
        round_trip([(1, 2)])
        assert not gc.isenabled()
    finally:
        gc.enable()
    round_trip([(1, 2)])
    assert gc.isenabled()
