"""The saved form of `Groups`: pieces of one partition each, in steps of bounded size, and back. docs/formats/groups.md.

The groups are sorted by partition with one counting sort over numbers, so that their states are read once and there is
no second copy of the table. Must not know of processors, nor how partitions are owned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from shmjet._native._columns import bucket_rows
from shmjet.columns.group_page import Positions
from shmjet.columns.groups import Groups
from shmjet.columns.partition_order import PartitionOrder, rows_at_once
from shmjet.columns.typed_groups import TypedGroups
from shmjet.data.batch import Batch

PartitionsOf = Callable[[Batch], npt.NDArray[np.uint32]]
"""Gives the partition of each row of a batch that has the key columns."""

_SPARSE: Final = 4
"""Positions that leave more gaps than this are sorted by comparison."""


_FEW: Final = 4096


class Piece(NamedTuple):
    """Groups of one partition."""

    partition: int
    states: Batch
    """As `Groups.states` gives them."""
    positions: Positions
    """For each group its place in the order in which results are read; a restore keeps that order."""


def pieces(
    groups: Groups | TypedGroups, partitions_of: PartitionsOf, count: int, start: int = 0
) -> Iterator[Piece | None]:
    """Give the groups from a position on by partition. None stands for a step of work without a piece.

    Nothing may be added meanwhile.

    The groups are sorted by one counting sort over their numbers, see `partition_order`.

    Args:
        groups: what is saved.
        partitions_of: of keys, each below `count`.
        count: partitions.
        start: the first position.
    """
    rows = len(groups) - start
    if rows <= 0:
        return
    order = PartitionOrder(rows, count)
    yield from order.sort(lambda at, limit: partitions_of(groups.key_columns(start + at, limit)))
    for chosen, parts in order.steps(rows_at_once(len(groups), groups.nbytes)):
        states = groups.states_at(chosen + np.uint32(start) if start else chosen)
        for partition, begin, end in parts:
            yield Piece(partition, states[begin:end], chosen[begin:end])


def slices(groups: Groups | TypedGroups, start: int = 0) -> Iterator[Piece]:
    """Give the groups from a position on in order, whatever their partitions; that of each piece is 0."""
    step = rows_at_once(len(groups), groups.nbytes)
    position = start
    while position < len(groups):
        states, _ = groups.states(position, step)
        numbers = np.arange(position - start, position - start + states.num_rows, dtype=np.uint32)
        yield Piece(0, states, numbers)
        position += states.num_rows


class RestoredGroups:
    """Merges pieces into `Groups` and keeps the order of their groups.

    Args:
        groups: where they go; without groups so far.
    """

    def __init__(self, groups: Groups | TypedGroups) -> None:
        self._groups = groups
        self._positions: list[Positions] = []
        self._is_distinct = True

    def merge(self, states: Batch, positions: Positions) -> None:
        """Merge a piece. Raises BatchError when it holds other states than the groups have."""
        before = len(self._groups)
        self._groups.merge(states)
        self._is_distinct &= len(self._groups) - before == len(positions)
        self._positions.append(positions)

    def finish(self) -> None:
        """Put the groups in the order that they had; where groups have met, in that of their arrival."""
        found, self._positions = self._positions, []
        if not found or not self._is_distinct:
            return
        positions = np.concatenate(found)
        rows = len(positions)
        most = int(positions.max()) + 1
        if most > _SPARSE * rows + _FEW:
            self._groups.arrange(np.argsort(positions, kind="stable").astype(np.uint32))
            return
        sizes = np.bincount(positions, minlength=most)
        order = np.empty(rows, np.uint32)
        bucket_rows(positions, 0, rows, (np.cumsum(sizes) - sizes).astype(np.uint32), order)
        self._groups.arrange(order)
