"""The saved form of `Groups`: pieces of bounded size, and back. docs/formats/groups.md.

Must not know of processors, nor how partitions are owned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from shmjet._native._columns import bucket_rows, number_places
from shmjet.columns.group_page import Positions
from shmjet.columns.groups import Groups
from shmjet.columns.partition_order import PIECE_BYTES
from shmjet.columns.typed_groups import TypedGroups
from shmjet.data.batch import Batch

PartitionsOf = Callable[[Batch], npt.NDArray[np.uint32]]
"""Gives the partition of each row of a batch that has the key columns."""

_SPARSE: Final = 4
"""Positions that leave more gaps than this are sorted by comparison."""

_FEW: Final = 4096

_NO_GROUP: Final = (1 << 32) - 1
"""No table has so many groups."""

SLICE_ROWS: Final = 8192
"""Groups of a slice, at most: some 100 microseconds of reading."""


class Piece(NamedTuple):
    """Some groups."""

    states: Batch
    """As `Groups.states` gives them."""
    positions: Positions | range
    """For each group its place in the order in which results are read; a restore keeps that order."""


def slices(groups: Groups | TypedGroups, start: int = 0) -> Iterator[Piece]:
    """Give the groups from a position on in order, whatever their partitions. Nothing may be added meanwhile."""
    rows = len(groups)
    step = max(1, min(SLICE_ROWS, PIECE_BYTES * rows // max(groups.nbytes, 1)))
    for position in range(start, rows, step):
        states, _ = groups.states(position, step)
        yield Piece(states, range(position - start, position - start + states.num_rows))


class RestoredGroups:
    """Merges pieces into `Groups` and keeps the order of their groups.

    Args:
        groups: where they go; without groups so far.
    """

    def __init__(self, groups: Groups | TypedGroups) -> None:
        self._groups = groups
        self._positions: list[Positions | range] = []
        self._is_distinct = True

    def merge(self, states: Batch, positions: Positions | range, are_new: bool = False) -> None:
        """Merge a piece; `are_new` as of `Groups.merge`.

        Raises:
            BatchError: it holds other states than the groups have.
        """
        before = len(self._groups)
        self._groups.merge(states, are_new)
        self._is_distinct &= len(self._groups) - before == len(positions)
        self._positions.append(positions)

    def finish(self) -> None:
        """Put the groups in the order that they had; where groups have met, in that of their arrival."""
        found, self._positions = self._positions, []
        if not found or not self._is_distinct or _are_in_order(found):
            return
        order = _without_gaps(found)
        if order is not None:
            self._groups.arrange(order)
            return
        positions = np.concatenate([np.asarray(each, np.uint32) for each in found])
        rows = len(positions)
        most = int(positions.max()) + 1
        if most > _SPARSE * rows + _FEW:
            self._groups.arrange(np.argsort(positions, kind="stable").astype(np.uint32))
            return
        sizes = np.bincount(positions, minlength=most)
        order = np.empty(rows, np.uint32)
        bucket_rows(positions, 0, rows, (np.cumsum(sizes) - sizes).astype(np.uint32), order)
        self._groups.arrange(order)


def _are_in_order(found: list[Positions | range]) -> bool:
    """Say whether the groups have come in the order in which they are to be."""
    end = 0
    for each in found:
        if not isinstance(each, range) or each.start != end:
            return False
        end = each.stop
    return True


def _without_gaps(found: list[Positions | range]) -> Positions | None:
    """Return the order of groups whose positions are all from 0 on, each once; None: they are not."""
    rows = sum(map(len, found))
    order, begin = np.full(rows, _NO_GROUP, np.uint32), 0
    for each in found:
        try:
            places = np.arange(each.start, each.stop, dtype=np.uint32) if isinstance(each, range) else each
            number_places(np.ascontiguousarray(places, np.uint32), begin, order)
        except ValueError:
            return None
        begin += len(each)
    return None if (order == _NO_GROUP).any() else order
