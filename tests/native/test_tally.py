"""Tally counts like `collections.Counter`, for any keys that a dict would take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet._native import Tally

KEYS = st.one_of(
    st.text(max_size=3),
    st.integers(-5, 5),
    st.sampled_from([1.0, True, False, None, 2**70, -0.0, b"a", (1, "a"), (1.0, "a"), Decimal(2), Fraction(-3)]),
    st.sampled_from([2**61 - 1, 2**61 - 2, -(2**61), 2**63 - 1, -(2**63), 2**63, float(2**62), 2**62, -1, -2]),
)


def contents(tally: Tally) -> dict[Any, int]:
    pairs, position = [], 0
    while position >= 0:
        chunk, position = tally.chunk(position, 7)
        pairs += chunk
    assert len(pairs) == len(tally)
    return dict(pairs)


@given(st.lists(st.lists(KEYS)))
def test_it_counts_what_a_counter_counts(batches: list[list[Any]]) -> None:
    tally, counter = Tally(), Counter()
    for keys in batches:
        tally.add(keys)
        tally.add(iter(keys))
        counter.update(keys * 2)
    assert contents(tally) == counter
    assert all(tally.get(key) == count for key, count in counter.items())
    assert tally.get("not there") == 0


def test_it_grows_through_many_keys() -> None:
    tally = Tally()
    keys = [f"key {i}" for i in range(200_000)]
    for start in range(0, len(keys), 1000):
        tally.add(keys[start : start + 1000])
    tally.add(keys[:10])
    assert len(tally) == len(keys)
    assert contents(tally) == {**dict.fromkeys(keys, 1), **dict.fromkeys(keys[:10], 2)}


def test_pairs_are_added_up_to_the_first_that_is_none() -> None:
    tally = Tally()
    assert tally.add_pairs([("a", 2), ("b", -1), ("a", 3)]) == 3
    assert tally.add_pairs([("a", 1), ("a", 1.5), ("a", 1)]) == 1
    assert tally.add_pairs([("a", 2**63)]) == 0
    assert tally.add_pairs([("a",)]) == 0
    assert contents(tally) == {"a": 6, "b": -1}
    with pytest.raises(OverflowError, match="64 bits"):
        tally.add_pairs([("c", 2**63 - 1), ("c", 1)])


def test_keys_without_a_hash_are_refused_and_the_rest_stays() -> None:
    tally = Tally()
    with pytest.raises(TypeError, match="unhashable"):
        tally.add(["a", [], "b"])
    assert contents(tally) == {"a": 1}


def test_a_key_that_uses_its_own_table_is_refused() -> None:
    tally = Tally()

    class Nosy:
        def __hash__(self) -> int:
            tally.add(["b"])
            return 1

    with pytest.raises(RuntimeError, match="a Tally was used by the __hash__"):
        tally.add(["a", Nosy()])
    tally.add(["a"])
    assert contents(tally) == {"a": 2}


def test_keys_are_kept_alive_and_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    gone: list[str] = []

    class Key:
        def __del__(self) -> None:
            gone.append("gone")

    tally = Tally()
    tally.add([Key(), Key()])
    assert not gone
    assert len(tally) == 2
    del tally
    assert gone == ["gone", "gone"]


@given(st.lists(st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-3, 3)), max_size=100))
def test_ints_of_64_bits_meet_what_equals_them(numbers: list[int]) -> None:
    tally = Tally()
    tally.add(numbers)
    tally.add([Fraction(number) for number in numbers])
    counter = Counter(numbers)
    assert contents(tally) == {number: 2 * count for number, count in counter.items()}
    assert all(type(number) is int for number in contents(tally))
    again = Tally()
    again.add([Fraction(number) for number in numbers])
    again.add(numbers)
    assert contents(again) == contents(tally)


def test_an_error_of_a_key_or_of_the_iterator_leaves_what_came_before() -> None:
    def keys() -> Iterator[Any]:
        yield from [1, 2, 1]
        raise LookupError("no more")

    class Rude:
        def __hash__(self) -> int:
            return 1

        def __eq__(self, other: object) -> bool:
            raise ArithmeticError("rude")

    tally = Tally()
    with pytest.raises(LookupError, match="no more"):
        tally.add(keys())
    assert contents(tally) == {1: 2, 2: 1}
    with pytest.raises(ArithmeticError, match="rude"):
        tally.add([2, Rude(), 2])
    with pytest.raises(ArithmeticError, match="rude"):
        tally.get(Rude())
    assert contents(tally) == {1: 2, 2: 2}
    assert tally.get("x", "absent") == "absent"
