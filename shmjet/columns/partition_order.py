"""The order of rows by partition: a counting sort over their numbers, in steps of bounded size.

It takes 8 bytes a row until it is through, so that large state is read in this order without a copy of it. Must not
know what the rows are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from shmjet._native._columns import bucket_rows
from shmjet.columns.take import take_rows
from shmjet.data.batch import Batch

Numbers: TypeAlias = npt.NDArray[np.uint32]

PIECE_BYTES: Final = 512 << 10
"""Bytes of a piece, about; a piece has one row at least."""

PIECE_ROWS: Final = 4096
"""Rows that are read in a step, at most: their memory stays in the cache of a core."""

HASHED_ROWS: Final = 1 << 14
"""Rows whose keys are hashed in a step."""

SORTED_ROWS: Final = 1 << 16
"""Rows that are sorted in a step."""


class PartitionOrder:
    """Numbers of rows, by partition, and within a partition ascending.

    Args:
        rows: how many there are.
        count: partitions.
    """

    def __init__(self, rows: int, count: int) -> None:
        self._rows = rows
        self._count = count
        self._order: Numbers = np.empty(rows, np.uint32)
        self._ends: npt.NDArray[np.int64] = np.zeros(count, np.int64)

    def sort(self, partitions_at: Callable[[int, int], Numbers]) -> Iterator[None]:
        """Sort; each item drawn is a step.

        Args:
            partitions_at: gives the partitions of rows from a number on, as many as asked for or up to the end.
        """
        rows = self._rows
        partitions = np.empty(rows, np.uint32)
        sizes = np.zeros(self._count, np.int64)
        for at in range(0, rows, HASHED_ROWS):
            found = partitions_at(at, HASHED_ROWS)
            partitions[at : at + len(found)] = found
            sizes += np.bincount(found, minlength=self._count)
            yield None
        self._ends = np.cumsum(sizes)
        places = (self._ends - sizes).astype(np.uint32)
        for at in range(0, rows, SORTED_ROWS):
            bucket_rows(partitions, at, min(SORTED_ROWS, rows - at), places, self._order)
            yield None

    def partitions(self) -> Iterator[tuple[int, Numbers]]:
        """Give each partition that has rows, and these."""
        ends = self._ends.tolist()
        for partition, (begin, end) in enumerate(pairwise([0, *ends])):
            if begin < end:
                yield partition, self._order[begin:end]

    def steps(self, limit: int) -> Iterator[tuple[Numbers, list[tuple[int, int, int]]]]:
        """Give the rows in order, at most `limit` in a step, with (partition, begin, end) for each partition in it."""
        for at in range(0, self._rows, limit):
            chosen = self._order[at : at + limit]
            partition, begin = int(np.searchsorted(self._ends, at, "right")), 0
            parts: list[tuple[int, int, int]] = []
            while begin < len(chosen):
                end = min(int(self._ends[partition]) - at, len(chosen))
                if end > begin:
                    parts.append((partition, begin, end))
                    begin = end
                partition += 1
            yield chosen, parts


def rows_at_once(rows: int, nbytes: int) -> int:
    """Return how many rows of so many that take so many bytes are read in a step."""
    return max(1, min(PIECE_ROWS, PIECE_BYTES * rows // max(nbytes, 1)))


def batch_pieces(batch: Batch, partitions_of: Callable[[Batch], Numbers], count: int) -> Iterator[Batch | None]:
    """Give the rows of a batch by partition, in pieces of one partition each, in their order; None stands for a step.

    Args:
        batch: any.
        partitions_of: of the rows of a batch, each below `count`.
        count: partitions.
    """
    rows = batch.num_rows
    order = PartitionOrder(rows, count)
    yield from order.sort(lambda at, limit: partitions_of(batch[at : at + limit]))
    for chosen, parts in order.steps(rows_at_once(rows, batch.nbytes)):
        taken = take_rows(batch, chosen.astype(np.int64))
        for _, begin, end in parts:
            yield taken[begin:end]
