"""What an ordered edge needs to know to merge batches whose rows are sorted by columns.

The engine holds batches back lane by lane and knows nothing of their columns; a `BatchMerger` knows the columns and
nothing of lanes. Must not import numpy, which a job without batches never needs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from shmjet.data.columnar import Columnar


class BatchMerger(ABC):
    """Merges the batches of one ordered edge, slice by slice."""

    @abstractmethod
    def note(self, batch: Columnar) -> None:
        """Take notice of the columns of a batch that has come; it may have no rows.

        Raises:
            BatchError: they do not go together with earlier columns.
        """

    @abstractmethod
    def head(self) -> Columnar | None:
        """Return a batch without rows that has all columns seen so far; None if there are none."""

    @abstractmethod
    def merge(self, heads: Sequence[Columnar | None]) -> tuple[Columnar, list[Columnar | None]]:
        """Return the next rows, merged, and what is left of each batch.

        Args:
            heads: the next batch of each lane, with rows; None for a lane that has ended. Rows that follow on a lane
                are not before those of its batch. Equal rows come in the order of the lanes.
        """


class BatchOrder(ABC):
    """The order of an ordered edge of batches. Immutable, and can be pickled."""

    @abstractmethod
    def merger(self) -> BatchMerger:
        """Return what merges the batches of one edge of one processor."""
