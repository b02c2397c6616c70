"""A sort by columns on several processors: each sorts its share, and an ordered edge merges the shares.

Must not know how a share is sorted, nor how an edge holds lanes back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from shmjet.core.batch_order import BatchMerger, BatchOrder
from shmjet.data.columnar import Columnar

if TYPE_CHECKING:  # numpy takes 0.1 s to import: only where there are batches
    from shmjet.data.batch import Batch

SLICE_ROWS: Final = 1 << 15
"""Rows that are merged at once, unless there are hundreds of lanes: a few milliseconds."""


@dataclass(frozen=True)
class ColumnOrder(BatchOrder):
    """Which columns rows are sorted by, and how.

    Args:
        by, descending, nulls_first: as of `sort_batches`.

    Example:
        >>> from shmjet import Batch
        >>> merger = ColumnOrder(("n",), (False,)).merger()
        >>> one, two = Batch({"n": [1, 4]}), Batch({"n": [2, 9]})
        >>> merger.note(one), merger.note(two)
        (None, None)
        >>> merged, rest = merger.merge([one, two])
        >>> merged["n"].tolist(), [None if left is None else left["n"].tolist() for left in rest]
        ([1, 2, 4], [None, [9]])
    """

    by: tuple[str, ...]
    descending: tuple[bool, ...]
    nulls_first: bool = False

    def merger(self) -> BatchMerger:
        """Return what merges the batches of one edge of one processor."""
        return ColumnMerger(self)

    @property
    def __name__(self) -> str:
        """What drawings call it."""
        return ", ".join(self.by)


class ColumnMerger(BatchMerger):
    """Merges batches; their columns are widened to what all batches that were noted have."""

    def __init__(self, order: ColumnOrder) -> None:
        from shmjet.columns.sort import SortOrder
        from shmjet.columns.stream_kinds import StreamKinds

        self._order = SortOrder(order.by, order.descending, order.nulls_first)
        self._kinds = StreamKinds()

    def note(self, batch: Any) -> None:
        """Take notice of the columns of a batch that has come."""
        self._kinds.add(batch)

    def head(self) -> Columnar | None:
        """Return a batch without rows that has all columns seen so far; None if there are none."""
        return self._kinds.head() if self._kinds.kinds else None

    def merge(self, heads: Sequence[Any]) -> tuple[Columnar, list[Columnar | None]]:
        """Return the next rows, merged, and what is left of each batch."""
        from shmjet.columns.sort import merge_slice

        given: list[Batch] = [self._kinds.of(head) for head in heads if head is not None]
        merged, left = merge_slice(given, self._order, SLICE_ROWS)
        rest = iter(left)
        return merged, [None if head is None else next(rest) for head in heads]
