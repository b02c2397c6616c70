"""Parts of a table of groups that did not change: what is referred to and what is new make the whole table."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from shmjet import Batch
from shmjet.columns import count, max_by, n_unique, sum_
from shmjet.columns.group_changes import LEAST_GROUPS, LONGEST_PAUSE, MOST_CHANGED, GroupChanges, PartitionPieces
from shmjet.columns.group_export import Piece, RestoredGroups
from shmjet.columns.typed_groups import TypedGroups
from tests.examples import seeds

PARTITIONS = 8
KEYS = 2 * LEAST_GROUPS * PARTITIONS
AGGREGATES = {"n": count(), "total": sum_("v"), "kinds": n_unique("v"), "top": max_by("v", "v")}


def by_key(batch: Batch) -> npt.NDArray[np.uint32]:
    return (np.asarray(batch["k"]) % PARTITIONS).astype(np.uint32)


def rows(keys: Any, value: Any = 1) -> Batch:
    return Batch({"k": np.array(keys, np.int64), "v": [value] * len(keys)})


class Saves:
    """Saves a table time and again, and keeps what each save has."""

    def __init__(self) -> None:
        self.groups = TypedGroups(["k"], AGGREGATES)
        self.changes = GroupChanges(PARTITIONS)
        self.known: dict[Any, list[Piece]] = {}
        self.hashed = 0
        """Keys whose partition was asked for."""
        self.are_new = False
        """Whether groups are loaded as new ones: every second time."""
        self.written = 0
        """Partitions of the last save that were written; -1: all groups were written, not by partition."""

    def partitions_of(self, batch: Batch) -> npt.NDArray[np.uint32]:
        self.hashed += batch.num_rows
        return by_key(batch)

    def save(self) -> TypedGroups:
        """Save the table, refer to what is known, and return the table that is restored from that."""
        flags = self.changes.note(self.groups)
        captured = self.groups.captured()
        found: list[Piece] = []
        parts: dict[Any, list[Piece]] = {}
        self.written = -1
        for _ in captured.copy_steps():
            pass
        for each in self.changes.pieces(captured, flags, self.partitions_of):
            if isinstance(each, Piece):
                found.append(each)
            elif isinstance(each, PartitionPieces):
                self.written = max(self.written, 0) + (each.token not in self.known)
                parts[each.token] = self.known.get(each.token) or list(each.pieces())
        self.known = parts
        restored = TypedGroups(["k"], AGGREGATES)
        pieces = RestoredGroups(restored)
        for piece in [*found, *(piece for some in parts.values() for piece in some)]:
            pieces.merge(piece.states, piece.positions, self.are_new)
        pieces.finish()
        self.are_new = not self.are_new
        return restored


def is_restored(saves: Saves) -> bool:
    """Save the table, and tell whether the restored one is the same."""
    return contents(saves.save()) == contents(saves.groups)


def contents(groups: TypedGroups) -> dict[str, Any]:
    return groups.results(0, KEYS * 9)[0].to_dict()


def test_only_partitions_that_have_changed_are_written() -> None:
    saves = Saves()
    saves.groups.add(rows(range(KEYS)))
    written = []
    for keys in ([], [3], [3], [], [5, 13], [KEYS], [KEYS * 8 + 1, 1]):
        assert is_restored(saves)
        written.append(saves.written)
        saves.groups.add(rows(keys, len(written)))
    assert is_restored(saves)
    # the first save knows nothing of changes, the second writes each partition by itself
    assert written == [-1, PARTITIONS, 1, 1, 0, 1, 1]
    assert saves.written == 1


def test_a_table_that_changes_all_over_is_looked_at_now_and_then_only() -> None:
    saves = Saves()
    saves.groups.add(rows(range(KEYS)))
    assert is_restored(saves)
    written = []
    for _ in range(4 * LONGEST_PAUSE):
        saves.groups.add(rows(range(KEYS)))
        assert is_restored(saves)
        written.append(saves.written)
    assert set(written) == {-1}
    assert saves.hashed == KEYS
    noted = [saves.groups.take_updates() is not None]
    for _ in range(LONGEST_PAUSE + 3):
        assert is_restored(saves)
        noted.append(saves.written >= 0)
    assert any(noted)
    saves.groups.add(rows([7], 9))
    assert is_restored(saves)
    assert saves.written == 1


def test_a_processor_counts_only_the_partitions_of_its_groups() -> None:
    saves = Saves()
    saves.changes = GroupChanges(3 * PARTITIONS)
    saves.groups.add(rows(range(3 * KEYS)))
    for _ in range(2):  # the partitions of all groups are known after the second save
        assert is_restored(saves)
    saves.groups.add(rows(range(3 * KEYS)))
    assert is_restored(saves)
    assert saves.written == -1


def test_noting_ends_when_so_many_have_changed_that_their_partitions_must_have() -> None:
    saves = Saves()
    saves.changes = GroupChanges(PARTITIONS, are_hashed=True)
    saves.groups.add(rows(range(KEYS)))
    for size, written in ((0, -1), (MOST_CHANGED * PARTITIONS + 1, PARTITIONS), (1, -1), (1, PARTITIONS), (0, 1)):
        assert is_restored(saves)
        assert saves.written == written
        saves.groups.add(rows(range(size)))
    assert is_restored(saves)
    assert saves.written == 0


def test_groups_that_move_to_another_table_are_written() -> None:
    saves = Saves()
    saves.groups.add(rows(range(KEYS)))
    for _ in range(3):
        assert is_restored(saves)
    assert saves.written == 0
    saves.groups.add(rows([1], 0.5))  # sums become floats
    assert is_restored(saves)
    assert saves.written == -1
    for _ in range(2):
        assert is_restored(saves)
    assert saves.written == 0


@pytest.mark.parametrize("seed", seeds(4))
def test_random_changes(seed: int) -> None:
    dice = random.Random(seed)
    saves = Saves()
    saves.groups.add(rows(range(KEYS)))
    for _ in range(12):
        assert is_restored(saves)
        size = dice.choice([0, 1, 2, 3, 200])
        saves.groups.add(rows([dice.randrange(KEYS + 40) for _ in range(size)], dice.choice([1, 2, 3])))
    assert is_restored(saves)
