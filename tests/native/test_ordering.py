"""`sort_numbers` against `list.sort`, and `radix.h` in C, also under sanitizers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet._native import sort_numbers

from .test_ring_in_c import COMPILER, run

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


@pytest.mark.slow
@pytest.mark.skipif(COMPILER is None, reason="no C compiler")
@pytest.mark.parametrize("options", [["-O1"], ["-O3"], ["-O1", "-g", "-fsanitize=address,undefined"]])
def test_pairs_are_sorted_in_c(tmp_path: Path, options: list[str]) -> None:
    done = run(tmp_path, "test_radix", *options)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")
