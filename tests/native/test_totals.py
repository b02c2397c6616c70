"""Totals adds and compares as Python does, by key, and `add_up` as a plain loop does."""

from __future__ import annotations

import gc
import sys
from decimal import Decimal
from fractions import Fraction
from functools import reduce
from operator import add
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet._native import Totals, add_up

KEYS = st.one_of(
    st.text(max_size=2), st.integers(-3, 3), st.sampled_from([1.0, True, None, 2**70, (1, "a"), Decimal(2)])
)
NUMBERS = st.one_of(
    st.integers(-5, 5),
    st.integers(-(2**65), 2**65),
    st.floats(),
    st.sampled_from([True, -0.0, 2**63 - 1, -(2**63), 2**53 + 1, Fraction(1, 3)]),
)
PAIRS = st.lists(st.tuples(KEYS, NUMBERS), max_size=60)


def contents(totals: Totals) -> list[tuple[Any, Any]]:
    pairs: list[tuple[Any, Any]] = []
    position = 0
    while position >= 0:
        chunk, position = totals.chunk(position, 7)
        pairs += chunk
    assert len(pairs) == len(totals)
    return pairs


def filled(kind: str, pairs: list[tuple[Any, Any]]) -> Totals:
    totals = Totals(kind)
    for at in range(0, len(pairs), 40):
        piece = pairs[at : at + 40]
        if at:
            totals.add((key for key, _ in piece), (value for _, value in piece))
        else:
            totals.add([key for key, _ in piece], [value for _, value in piece])
    return totals


def reference(kind: str, pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    table: dict[Any, Any] = {}
    for key, value in pairs:
        if kind == "sum":
            table[key] = table.get(key, 0) + value
        elif kind == "mean":
            total, count = table.get(key, (0, 0))
            table[key] = total + value, count + 1
        elif key not in table or (beaten(table[key], value) if kind == "min" else beaten(value, table[key])):
            table[key] = value
    return table


def beaten(value: Any, other: Any) -> bool:
    """Say whether `other` is less than `value`; NaN is greater than every number."""
    return (other != other, other) < (value != value, value)


def outcome(run: Any) -> Any:
    """The repr of a result, which tells 1 from 1.0 and -0.0 from 0.0; or the type of an error."""
    try:
        return repr(run())
    except (OverflowError, TypeError) as error:
        return type(error)


@pytest.mark.parametrize("kind", ["sum", "mean", "min", "max"])
@given(pairs=PAIRS)
def test_values_are_put_together_as_python_does_it(kind: str, pairs: list[tuple[Any, Any]]) -> None:
    expected = outcome(lambda: list(reference(kind, pairs).items()))
    assert outcome(lambda: contents(filled(kind, pairs))) == expected
    if isinstance(expected, str):
        totals, table = filled(kind, pairs), reference(kind, pairs)
        assert [repr(totals.get(key)) for key in table] == [repr(value) for value in table.values()]


@pytest.mark.parametrize("kind", ["sum", "mean", "min", "max"])
@given(first=PAIRS, second=PAIRS)
def test_accumulators_are_put_together(kind: str, first: list[tuple[Any, Any]], second: list[tuple[Any, Any]]) -> None:
    exact = [(key, value) for key, value in first + second if not isinstance(value, float)]
    totals = Totals(kind)
    for part in (exact[: len(exact) // 2], exact[len(exact) // 2 :]):
        pairs = contents(filled(kind, part))
        assert totals.add_pairs(pairs) == len(pairs)
    assert dict(contents(totals)) == reference(kind, exact)


@given(st.lists(NUMBERS, max_size=40), NUMBERS)
def test_adding_up_is_plain_addition_from_left_to_right(numbers: list[Any], start: Any) -> None:
    assert outcome(lambda: add_up(start, numbers)) == outcome(lambda: reduce(add, numbers, start))


def test_texts_are_compared() -> None:
    words = ["pear", "äpfel", "apple", ""]
    assert contents(filled("min", [(1, word) for word in words])) == [(1, "")]
    assert contents(filled("max", [(1, word) for word in words])) == [(1, "äpfel")]


def test_keys_are_entered_without_values() -> None:
    for kind, nothing in (("sum", 0), ("mean", (0, 0)), ("min", None), ("max", None)):
        totals = Totals(kind)
        totals.touch(["a", 1, "a"])
        assert contents(totals) == [("a", nothing), (1, nothing)]
        assert totals.get("b", "absent") == "absent"
        totals.add(["a"], [5])
        totals.touch({"a"})
        assert totals.get("a") == ((5, 1) if kind == "mean" else 5)


def test_pairs_are_taken_up_to_the_first_that_is_none() -> None:
    assert Totals("sum").add_pairs([("a", 1), ("b",)]) == 1  # type: ignore[list-item]
    assert Totals("mean").add_pairs([("a", (1, 1)), ("b", 2)]) == 1
    assert Totals("mean").add_pairs([("a", (1, 1.0))]) == 0
    assert Totals("mean").add_pairs([("a", (1, 2**64))]) == 0
    least = Totals("min")
    assert least.add_pairs([("a", None), ("b", 2), ("b", None)]) == 3
    assert contents(least) == [("a", None), ("b", 2)]


def test_it_grows_through_many_keys() -> None:
    totals = Totals("sum")
    for start in range(0, 200_000, 1000):
        keys = list(range(start, start + 1000))
        totals.add(keys, keys)
        totals.add(map(str, keys), keys)
    assert len(totals) == 400_000
    assert contents(totals)[:4] == [(0, 0), (1, 1), (2, 2), (3, 3)]
    assert totals.get("199999") == 199_999


def test_what_does_not_fit_is_an_error() -> None:
    with pytest.raises(ValueError, match="must be sum, mean, min or max, got 'median'"):
        Totals("median")
    with pytest.raises(ValueError, match="2 keys, but 1 values"):
        Totals("sum").add([1, 2], [1])
    with pytest.raises(TypeError, match="unhashable"):
        Totals("sum").add([1, []], [1, 2])
    with pytest.raises(TypeError, match="'<' not supported"):
        Totals("min").add([1, 1], [1, "a"])
    with pytest.raises(TypeError, match="unsupported operand"):
        add_up(0, [1, "a"])


def test_a_value_that_uses_its_own_table_is_refused() -> None:
    totals = Totals("sum")

    class Nosy:
        def __radd__(self, other: Any) -> int:
            totals.add(["b"], [1])
            return 1

    with pytest.raises(RuntimeError, match="a Totals was used by"):
        totals.add(["a"], [Nosy()])
    totals.add(["a"], [2])
    assert totals.get("a") == 2


def test_keys_and_values_are_kept_alive_and_let_go() -> None:
    key, value, other = ("key",), Fraction(1, 3), Fraction(1, 2)
    before = [sys.getrefcount(each) for each in (key, value, other)]
    totals = Totals("max")
    totals.add([key, key], [value, other])
    totals.add([key] * 3, [value] * 3)
    assert totals.get(key) is other
    assert contents(totals) == [(key, other)]
    assert totals.add_pairs([(key, value), (key, other)]) == 2
    with pytest.raises(TypeError):
        totals.add([key], ["x"])
    del totals
    gc.collect()
    assert [sys.getrefcount(each) for each in (key, value, other)] == before
