"""Which partitions of a table of groups have changed since it was saved last.

The partition of each group is kept, so that keys are hashed once. The table notes the groups that rows are added to, so
that a save costs little where little has changed. Where most partitions change, noting would only cost: it ends when so
many groups have changed that few partitions can be without one, and there is none for some time where that cannot be
told from the number. Must not know processors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from shmjet.columns.group_export import PartitionsOf, Piece, slices
from shmjet.columns.group_page import Positions
from shmjet.columns.groups import ANY_NUMBER, Groups
from shmjet.columns.partition_order import HASHED_ROWS, PartitionOrder, rows_at_once
from shmjet.columns.typed_groups import TypedGroups

LEAST_GROUPS: Final = 16
"""Groups to a partition, so that it is looked at by itself: a piece by itself costs some 30 microseconds."""

LONGEST_PAUSE: Final = 16
"""Saves for which nothing is noted, at most."""

MOST_CHANGED: Final = 8
"""Changed groups to a partition, with which all that is left unchanged is one partition in 3,000."""

Flags = npt.NDArray[np.bool_]


class PartitionPieces(NamedTuple):
    """The groups of a partition.

    Args:
        token: stands for what they are: number of the table, the partition, and the save before which it changed last.
        pieces: makes them.
    """

    token: tuple[int, int, int]
    pieces: Callable[[], Iterator[Piece]]


class GroupChanges:
    """Tells parts of a table that did not change from one save to the next.

    Args:
        count: partitions of the job; groups may be in a few of them only.
        are_hashed: groups are spread over them by hashes, so that any of them are.
    """

    def __init__(self, count: int, *, are_hashed: bool = False) -> None:
        self._count = count
        self._most = MOST_CHANGED * count if are_hashed else ANY_NUMBER
        self._partitions = np.zeros(0, np.uint32)
        """Of each group, as far as it is known."""
        self._changed = np.zeros(count, np.int64)
        """By partition the save before which it changed last."""
        self._has_groups = np.zeros(count, np.bool_)
        """By partition, as far as it is known."""
        self._save = self._table = 0
        self._serial = -1
        self._pause = self._left = 0

    def note(self, groups: Groups | TypedGroups) -> Flags | None:
        """Return which groups have got rows since this was called last, None where that is not known; begin anew."""
        self._save += 1
        flags = groups.take_updates()
        if flags is None:
            self._table += 1
        if groups.serial != self._serial:
            self._serial = groups.serial
            self._partitions = self._partitions[:0]
            self._has_groups[:] = False
        if self._left:
            self._left -= 1
        elif len(groups) >= LEAST_GROUPS * self._count:
            groups.note_updates(self._most)
        return flags

    def pieces(
        self, groups: Groups | TypedGroups, flags: Flags | None, partitions_of: PartitionsOf
    ) -> Iterator[Piece | PartitionPieces | None]:
        """Give all groups: partition by partition, or in order where most may have changed. None stands for a step.

        Args:
            groups: as they were when `note` was called.
            flags: what it returned.
            partitions_of: of keys.
        """
        if flags is None:
            yield from slices(groups)
            return
        known, rows, found = len(self._partitions), len(groups), [self._partitions]
        for at in range(known, rows, HASHED_ROWS):
            found.append(partitions_of(groups.key_columns(at, min(HASHED_ROWS, rows - at))))
            self._has_groups[found[-1]] = True
            yield None
        self._partitions = partitions = np.concatenate(found)
        if self._most_have_changed(partitions[flags]):
            yield from slices(groups)
            return
        order, step = PartitionOrder(rows, self._count), rows_at_once(rows, groups.nbytes)
        yield from order.sort(lambda at, limit: partitions[at : at + limit])
        for partition, chosen in order.partitions():
            token = self._table, partition, int(self._changed[partition])
            yield PartitionPieces(token, partial(_of_one, groups, chosen, step))

    def _most_have_changed(self, partitions: Positions) -> bool:
        """Note which partitions have changed; if most have, have nothing be noted for some time."""
        is_changed = np.zeros(self._count, np.bool_)
        is_changed[partitions] = True
        self._changed[is_changed] = self._save
        are_most = 2 * int(is_changed.sum()) > int(self._has_groups.sum())
        if are_most:
            self._left = self._pause = min(2 * self._pause + 1, LONGEST_PAUSE)
        else:
            self._pause = 0
        return are_most


def _of_one(groups: Groups | TypedGroups, chosen: Positions, step: int) -> Iterator[Piece]:
    for at in range(0, len(chosen), step):
        some = chosen[at : at + step]
        yield Piece(groups.states_at(some), some)
