"""Hashing keys, dealing lists by key, finding special items."""

from __future__ import annotations

import struct
from array import array
from typing import Any, NamedTuple

import mmh3
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet._native import index_of_special, murmur3_32, partition_of, split, split_entries
from shmjet.data.marks import IDLE, Watermark


def no_fallback(key: object) -> bytes:
    raise AssertionError(f"{key!r} needs no fallback")


@given(st.binary(max_size=70), st.integers(0, 2**32 - 1))
def test_murmur3_equals_mmh3(data: bytes, seed: int) -> None:
    assert murmur3_32(data, seed) == mmh3.hash(data, seed, signed=False)


@given(st.integers(-(2**63), 2**63 - 1), st.integers(1, 1000))
def test_ints_hash_as_eight_bytes(key: int, count: int) -> None:
    assert partition_of(key, count, no_fallback) == mmh3.hash(struct.pack("<q", key), signed=False) % count


@given(st.text(), st.integers(1, 1000))
def test_text_hashes_as_utf8(key: str, count: int) -> None:
    assert partition_of(key, count, no_fallback) == mmh3.hash(key.encode(), signed=False) % count


@given(st.floats())
def test_floats_hash_as_the_int_they_equal_or_as_their_bits(key: float) -> None:
    if key == key and abs(key) != float("inf") and key.is_integer() and -(2**63) <= key < 2**63:
        data = struct.pack("<q", int(key))
    else:
        data = struct.pack("<d", key if key == key else float("nan"))
    assert partition_of(key, 271, no_fallback) == mmh3.hash(data, signed=False) % 271


def test_equal_numbers_meet() -> None:
    assert len({partition_of(key, 65536, no_fallback) for key in (1, 1.0, True)}) == 1
    assert partition_of(0.0, 65536, no_fallback) == partition_of(-0.0, 65536, no_fallback)
    nan = struct.unpack("<d", b"\1\0\0\0\0\0\xf8\xff")[0]
    assert partition_of(nan, 65536, no_fallback) == partition_of(float("nan"), 65536, no_fallback)


def test_other_keys_go_to_the_fallback() -> None:
    keys: list[Any] = []

    def fallback(key: object) -> bytes:
        keys.append(key)
        return b"abc"

    assert partition_of((1, 2), 271, fallback) == mmh3.hash(b"abc", signed=False) % 271
    assert partition_of(2**64, 271, fallback) == partition_of("\ud800", 271, fallback)
    assert keys == [(1, 2), 2**64, "\ud800"]
    with pytest.raises(AssertionError):
        partition_of(None, 271, no_fallback)
    with pytest.raises(TypeError):
        partition_of(None, 271, lambda key: "no bytes")  # type: ignore[arg-type, return-value]
    with pytest.raises(ValueError, match="partition count"):
        partition_of(1, 0, no_fallback)


@given(st.lists(st.one_of(st.integers(), st.text(max_size=3), st.none())), st.integers(1, 9), st.integers(1, 300))
def test_split_keeps_order_and_sends_each_key_to_one_consumer(keys: list[Any], consumers: int, count: int) -> None:
    def fallback(key: object) -> bytes:
        return repr(key).encode()

    table = array("H", [p % consumers for p in range(count)])
    items = list(enumerate(keys))
    shares = split(items, keys, count, table, consumers, fallback)
    expected: list[list[Any] | None] = [None] * consumers
    for item in items:
        target = table[partition_of(item[1], count, fallback)]
        expected[target] = [*(expected[target] or []), item]
    assert shares == expected


@given(st.lists(st.one_of(st.integers(), st.text(max_size=3), st.none())), st.integers(1, 9), st.integers(1, 300))
def test_entries_are_split_by_their_keys(keys: list[Any], consumers: int, count: int) -> None:
    def fallback(key: object) -> bytes:
        return repr(key).encode()

    table = array("H", [p % consumers for p in range(count)])
    entries = [(key, place) for place, key in enumerate(keys)]
    shares = split_entries(entries, count, table, consumers, fallback, Special)
    assert shares == split(entries, keys, count, table, consumers, fallback)


@pytest.mark.parametrize("odd", ["special", "list", "empty", "named"])
def test_entries_with_a_special_key_or_of_another_type_are_not_split(odd: str) -> None:
    entry: Any = {"special": (Special(), 1), "list": ["a", 1], "empty": (), "named": Named("a", 1)}[odd]
    entries: list[Any] = [("a", 1), entry]
    assert split_entries(entries, 1, array("H", [0]), 1, no_fallback, Special) is None
    assert split_entries(entries[:1], 1, array("H", [0]), 1, no_fallback, Special) == [entries[:1]]
    assert split_entries([(Special, 1)], 1, array("H", [0]), 1, lambda key: b"", Special) is not None


def test_splitting_entries_says_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match="consumer 7 of 2"):
        split_entries([(1, 1)], 1, array("H", [7]), 2, no_fallback, Special)
    with pytest.raises(ValueError, match="2 partitions need 4"):
        split_entries([(1, 1)], 2, array("H", [0]), 2, no_fallback, Special)
    with pytest.raises(TypeError, match="entries: list"):
        split_entries(((1, 1),), 1, array("H", [0]), 1, no_fallback, Special)  # type: ignore[arg-type]


@pytest.mark.parametrize("changed", ["shorter", "other items"])
def test_splitting_entries_survives_a_fallback_that_changes_the_list(changed: str) -> None:
    entries: list[Any] = [(None, place) for place in range(100)]

    def fallback(key: object) -> bytes:
        if changed == "shorter":
            del entries[10:]
        else:
            entries[5:] = [place for place, _ in enumerate(entries[5:])]
        return b""

    with pytest.raises(RuntimeError, match="was changed"):
        split_entries(entries, 1, array("H", [0]), 1, fallback, Special)


def test_split_says_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match="consumer 7 of 2"):
        split([1], [1], 1, array("H", [7]), 2, no_fallback)
    with pytest.raises(ValueError, match="2 partitions need 4"):
        split([1], [1], 2, array("H", [0]), 2, no_fallback)
    with pytest.raises(ValueError, match="a key for each item"):
        split([1, 2], [1], 1, array("H", [0]), 2, no_fallback)


def test_split_survives_a_fallback_that_shortens_the_lists() -> None:
    items: list[Any] = list(range(100))
    keys: list[Any] = [None] * 100

    def fallback(key: object) -> bytes:
        del items[10:], keys[10:]
        return b""

    with pytest.raises(RuntimeError, match="was changed"):
        split(items, keys, 1, array("H", [0]), 1, fallback)


class Special:
    pass


class Named(NamedTuple):
    key: str
    value: int


class Derived(Special):
    pass


def test_the_first_special_item_is_found() -> None:
    assert index_of_special([1, "a", None, 2], 0, Special) == 2
    assert index_of_special([1, Special(), None], 0, Special) == 1
    assert index_of_special([1, Derived()], 0, Special) == 1
    assert index_of_special([Watermark(1), 5, 5, IDLE], 1, Watermark) == 3
    assert index_of_special([1, 2, 3], 0, Special) == -1
    assert index_of_special([None, 2], 1, Special) == -1
    assert index_of_special([], 0, Special) == -1
