"""The list as its user sees it, in one process."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shmjet.grid import Grid
from tests.grid.test_imap import VALUES, same


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
@given(batches=st.lists(st.lists(VALUES, max_size=10), max_size=5))
def test_a_list_holds_what_was_appended_with_the_same_types(grid: Grid, batches: list[list[Any]]) -> None:
    jet, expected = grid.get_list("l"), [item for batch in batches for item in batch]
    jet.clear()
    for batch in batches:
        jet.extend(batch)
    assert len(jet) == len(expected)
    assert all(same(left, right) for left, right in zip(jet, expected, strict=True))
    assert all(same(jet[index], expected[index]) for index in range(-len(expected), len(expected)))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
@given(
    sizes=st.lists(st.integers(0, 300), max_size=6),
    chosen=st.slices(1000),
)
def test_slices_are_those_of_a_list(grid: Grid, sizes: list[int], chosen: slice) -> None:
    jet, expected = grid.get_list("l"), list(range(sum(sizes)))
    jet.clear()
    for size in sizes:
        jet.extend(range(len(jet), len(jet) + size))
    assert jet[chosen] == expected[chosen]


def test_large_and_small_items_mix_and_large_ones_live_in_files(grid: Grid) -> None:
    jet = grid.get_list("l")
    expected: list[Any] = [1, "x" * 200_000, (1, 2), b"y" * 70_000, *range(500), "z" * 65_000]
    jet.extend(expected)
    jet.append(np.arange(50_000))
    assert jet[:-1] == expected
    assert jet[-1].sum() == 49_999 * 25_000
    assert len(list((grid.folder / "blobs").iterdir())) >= 3
    jet.destroy()
    assert list((grid.folder / "blobs").iterdir()) == []
    assert len(jet) == 0


def test_append_and_the_methods_of_a_sequence_work(grid: Grid) -> None:
    jet = grid.get_list("l")
    for i in range(100):
        jet.append(i)
    assert list(reversed(jet)) == list(range(99, -1, -1))
    assert 42 in jet
    assert jet.index(42) == 42
    assert jet.count(7) == 1


def test_iteration_sees_items_appended_meanwhile(grid: Grid) -> None:
    jet = grid.get_list("l")
    jet.extend(range(100_000))
    seen = 0
    for item in jet:
        assert item == seen
        seen += 1
        if item == 5:
            jet.append(100_000)
    assert seen == 100_001


def test_an_index_out_of_range_is_an_index_error_with_the_size(grid: Grid) -> None:
    jet = grid.get_list("l")
    jet.extend("abc")
    for index in (3, -4):
        with pytest.raises(IndexError, match="3 items"):
            jet[index]
    with pytest.raises(TypeError, match="str"):
        jet["a"]


def test_none_as_an_item_is_a_type_error(grid: Grid) -> None:
    with pytest.raises(TypeError, match="must not be None"):
        grid.get_list("l").extend([1, None])
    assert len(grid.get_list("l")) == 0


def test_a_remembered_block_does_not_outlive_a_clear(grid: Grid) -> None:
    jet, other = grid.get_list("l"), grid.get_list("l")
    jet.extend(range(10))
    assert jet[3] == 3
    other.clear()
    other.extend(range(100, 110))
    assert jet[3] == 103


def test_a_list_cannot_be_pickled_and_says_what_to_do(grid: Grid) -> None:
    with pytest.raises(TypeError, match=r"context\.grid\.get_list\('l'\)"):
        pickle.dumps(grid.get_list("l"))
