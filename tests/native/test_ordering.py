"""`sort_numbers`, `sort_texts` and `NumberSorter` against `list.sort`, and what is below them in C."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet._native import NumberSorter, ascends, sort_numbers, sort_texts
from tests.native.programs import WELL, needs_compiler, run_sanitized

ints = st.lists(st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-3, 3)))
floats = st.lists(st.one_of(st.floats(allow_nan=False), st.sampled_from([0.0, -0.0, 1.0])))


@given(keys=st.one_of(ints, floats), reverse=st.booleans())
def test_items_are_sorted_by_numbers_and_stably(keys: list[Any], reverse: bool) -> None:
    items = [(key, place) for place, key in enumerate(keys)]
    expected = sorted(items, key=lambda item: item[0], reverse=reverse)
    given_keys = list(keys)
    assert sort_numbers(items, given_keys, reverse) is True
    assert list(map(repr, items)) == list(map(repr, expected))
    assert list(map(repr, given_keys)) == list(map(repr, keys))
    assert sort_numbers(keys, keys, reverse) is True
    assert list(map(repr, keys)) == [repr(key) for key, _ in expected]


near = st.text(alphabet="ab\0", max_size=30)
texts = st.lists(st.one_of(near, st.builds(lambda text: "the same beginning" + text, near)), max_size=200)


@given(keys=texts, reverse=st.booleans())
def test_items_are_sorted_by_text_and_stably(keys: list[str], reverse: bool) -> None:
    items = list(enumerate(keys))
    expected = sorted(items, key=lambda item: item[1], reverse=reverse)
    given_keys = list(keys)
    assert sort_texts(items, given_keys, reverse) is True
    assert items == expected
    assert given_keys == keys
    assert sort_texts(keys, keys, reverse) is True
    assert keys == [key for _, key in expected]


@pytest.mark.parametrize("length", [0, 1, 7, 8, 20, 3000])
def test_many_texts_are_sorted_however_late_they_differ(length: int) -> None:
    beginning = "x" * length
    keys = [beginning + str(n * 2654435761 % 997) for n in range(3000)]
    expected = sorted(keys)
    references = [sys.getrefcount(key) for key in expected]
    assert sort_texts(keys, keys, False)
    assert keys == expected
    assert [sys.getrefcount(key) for key in expected] == references
    assert sort_texts(keys, keys, True)
    assert keys == expected[::-1]


def test_texts_of_which_each_begins_the_next_are_sorted() -> None:
    keys = ["a" * n for n in range(2000)]
    mixed = keys[::3] + keys[1::3] + keys[2::3]
    assert sort_texts(mixed, mixed, False)
    assert mixed == keys


@pytest.mark.parametrize("keys", [["a", 1], [b"a"], ["a", "ä"], ["\ud800"], [None], [1, 2]])
def test_what_is_no_ascii_text_is_left_alone(keys: list[Any]) -> None:
    items = list(range(len(keys)))
    assert sort_texts(items, keys, True) is False
    assert items == list(range(len(keys)))


def test_many_numbers_are_sorted() -> None:
    numbers = [n * 2654435761 % (1 << 40) for n in range(50_000)]
    expected = sorted(numbers)
    references = [sys.getrefcount(number) for number in expected]
    assert sort_numbers(numbers, numbers, False)
    assert numbers == expected
    assert [sys.getrefcount(number) for number in expected] == references


@pytest.mark.parametrize(
    "keys",
    [[1, 2.0], [1.0, 2], [1, True], [True], ["a"], [2**63, 1], [1, -(2**63) - 1], [1.0, float("nan")], [None, 1]],
)
def test_other_keys_are_left_alone(keys: list[Any]) -> None:
    items = list(range(len(keys)))
    assert sort_numbers(items, keys, True) is False
    assert items == list(range(len(keys)))


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="2 items, but 1 keys"):
        sort_numbers([1, 2], [1], False)
    for arguments in (([1], (1,), False), ([1], [1], 0), ([1],)):
        with pytest.raises(TypeError, match="sort_numbers"):
            sort_numbers(*arguments)


@given(keys=st.one_of(ints, floats, texts))
def test_ascending_keys_are_told_from_others(keys: list[Any]) -> None:
    assert ascends(sorted(keys)) is True
    assert ascends(keys) is (sorted(keys) == keys)


@pytest.mark.parametrize("keys", [[1, 2.0], [True], ["a", 1], ["ä"], [2**63], [1.0, float("nan")], [None]])
def test_of_other_keys_nothing_is_said(keys: list[Any]) -> None:
    assert ascends(keys) is None


class TestNumberSorter:
    @given(lists=st.one_of(st.lists(ints), st.lists(st.lists(st.floats(allow_nan=False)))), reverse=st.booleans())
    def test_numbers_come_back_in_order(self, lists: list[list[Any]], reverse: bool) -> None:
        sorter, expected = NumberSorter(reverse), []
        for numbers in lists:
            if sorter.add(numbers):
                expected += numbers
            else:
                assert any(number == 0 and str(number) == "-0.0" for number in numbers)
            assert len(sorter) == len(expected)
        found: list[Any] = []
        while piece := sorter.take(7):
            found += piece
        assert list(map(repr, found)) == list(map(repr, sorted(expected, reverse=reverse)))
        assert len(sorter) == 0

    def test_many_numbers_come_back_in_slices(self) -> None:
        sorter = NumberSorter()
        numbers = [n * 2654435761 % (1 << 40) for n in range(200_000)]
        for at in range(0, len(numbers), 5000):
            assert sorter.add(numbers[at : at + 5000])
        pieces = []
        while piece := sorter.take(8192):
            pieces.append(piece)
        assert max(map(len, pieces)) <= 8192
        assert [number for piece in pieces for number in piece] == sorted(numbers)

    @pytest.mark.parametrize(
        "items", [["a"], [True], [1, 2.0], [1, None], [2**63], [1.0, float("nan")], [1.0, -0.0], [1, 2, "c"]]
    )
    def test_of_others_none_is_taken(self, items: list[Any]) -> None:
        sorter = NumberSorter()
        assert not sorter.add(items)
        assert len(sorter) == 0
        assert sorter.add([3, 1])
        assert not sorter.add([1.0])
        assert sorter.take(10) == [1, 3]

    def test_wrong_calls_are_refused(self) -> None:
        sorter = NumberSorter()
        with pytest.raises(TypeError):
            sorter.add((1,))
        with pytest.raises(ValueError, match="at least 1"):
            sorter.take(0)
        assert sorter.add([])
        assert sorter.take(1) == []
        with pytest.raises(ValueError, match=r"add\(\) after take"):
            sorter.add([1])


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("name", ["test_radix", "test_numbers"])
def test_they_are_sorted_in_c(tmp_path: Path, name: str) -> None:
    assert run_sanitized(tmp_path, name) == WELL
