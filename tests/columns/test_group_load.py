"""Groups that are all new are appended without being looked for, and found by whatever comes next."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from shmjet.columns import Batch
from shmjet.columns.aggregates import count, first, sum_
from shmjet.columns.group_export import RestoredGroups, slices
from shmjet.columns.groups import Groups

AGGREGATES = {"n": count(), "total": sum_("v"), "text": first("t")}
ROWS = 50_000
"""Enough for a directory of many segments."""


def rows(keys: Any, value: int = 1) -> Batch:
    return Batch({"k": keys, "v": np.full(len(keys), value), "t": ["a text that is long"] * len(keys)})


def full(keys: Any) -> Groups:
    groups = Groups(["k"], AGGREGATES)
    groups.add(rows(keys))
    return groups


def loaded(groups: Groups) -> Groups:
    found = Groups(["k"], AGGREGATES)
    again = RestoredGroups(found)
    for states, positions in slices(groups):
        again.merge(states, positions, are_new=True)
    again.finish()
    return found


def contents(groups: Groups) -> dict[str, list[Any]]:
    return groups.results(0, 4 * ROWS)[0].to_dict()


KEYS: dict[str, Callable[[int], Any]] = {
    "numbers": lambda n: np.arange(n) * 7919,
    "near": np.arange,
    "floats": lambda n: np.arange(n) / 2,
    "texts": lambda n: [None, *(f"key number {i}" for i in range(n - 1))],
}


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("n", [1, 1025, ROWS])
def test_loaded_groups_are_those_that_were_saved_and_are_found_again(kind: str, n: int) -> None:
    keys = KEYS[kind](n)
    whole = full(keys)
    again = loaded(whole)
    assert len(again) == n
    assert contents(again) == contents(whole)
    for groups in (whole, again):
        groups.add(rows(keys, 2))
        groups.add(rows(KEYS[kind](n + 5), 3))
    assert len(again) == n + 5
    assert contents(again) == contents(whole)


@pytest.mark.parametrize("read", [lambda groups: pickle.loads(pickle.dumps(groups)), lambda groups: groups.captured()])
@pytest.mark.parametrize("met", [0, 1])
def test_a_copy_of_loaded_groups_has_all(read: Callable[[Groups], Groups], met: int) -> None:
    keys = KEYS["numbers"](ROWS)
    again = loaded(full(keys))
    if met:  # so that something was looked for already
        again.add(rows(keys[:met]))
    copy = read(again)
    for _ in copy.copy_steps():
        pass
    again.add(rows(keys))
    assert contents(copy)["n"] == [2] * met + [1] * (ROWS - met)
    assert contents(again)["n"] == [3] * met + [2] * (ROWS - met)


def test_another_process_finds_loaded_groups() -> None:
    keys = KEYS["numbers"](3000)
    again = loaded(full(keys))
    other = Groups.attach(again.fileno(), again.description)
    other.add(rows(keys))
    assert contents(other)["n"] == [2] * 3000


def test_groups_that_are_not_all_new_are_merged() -> None:
    groups = full(np.arange(100))
    states, _ = full(np.arange(50, 150)).states(0, 1000)
    groups.merge(states, are_new=True)  # not first: the promise is of no use
    assert contents(groups)["n"] == [1] * 50 + [2] * 50 + [1] * 50


def test_keys_that_get_another_dtype_after_loading_are_found() -> None:
    again = loaded(full(np.arange(2000)))
    again.add(rows(np.arange(2000) + 0.0))
    again.add(rows([0.5]))
    assert contents(again)["n"] == [2] * 2000 + [1]


@pytest.mark.parametrize("are_new", [False, True])
@pytest.mark.parametrize(
    "places",
    [
        [[3, 1], [0, 2]],
        [range(2, 4), range(2)],
        [range(2), [2, 3]],
        [[1, 2], [4, 3]],  # the group at 0 belongs to another processor
        [[0, 9000], [1, 12_000]],
        [[0, 2], [2, 1]],  # of two processors
        [[3, 1], [0, 2], [], range(0)],
    ],
)
def test_restored_groups_are_in_the_order_of_their_positions(places: list[Any], are_new: bool) -> None:
    groups, number = Groups(["k"], {"n": count()}), 0
    again = RestoredGroups(groups)
    expected: list[tuple[int, int]] = []
    for each in places:
        keys = np.arange(number, number + len(each))
        one = Groups(["k"], {"n": count()})
        one.add(Batch({"k": keys}))
        again.merge(one.states(0, 9)[0], each if isinstance(each, range) else np.array(each, np.uint32), are_new)
        expected += zip(each, keys.tolist(), strict=True)
        number += len(each)
    again.finish()
    assert groups.results(0, 99)[0].to_dict()["k"] == [key for _, key in sorted(expected)]


def test_groups_that_another_processor_has_saved_too_are_one() -> None:
    groups = Groups(["k"], {"n": count()})
    again = RestoredGroups(groups)
    for keys, are_new in [([1, 2], True), ([3, 1], False), ([3, 4], True)]:
        one = Groups(["k"], {"n": count()})
        one.add(Batch({"k": keys}))
        again.merge(one.states(0, 9)[0], range(2), are_new)
    again.finish()
    groups.add(Batch({"k": [3, 4]}))
    assert groups.results(0, 99)[0].to_dict() == {"k": [1, 2, 3, 4], "n": [2, 1, 3, 2]}
