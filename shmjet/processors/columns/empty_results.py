"""Results without rows: so that the columns of a result are known also where it has no rows.

A processor that emits batches tells each schema of which it has emitted no row, at its end. In a job with snapshots it
tells it at once, because a restored processor does not know what came before. Must not know what is computed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shmjet.data.batch import Batch


class EmptyResults:
    """What is told of results without rows.

    Args:
        at_once: not at the end.

    Example:
        >>> from shmjet import Batch
        >>> empty = EmptyResults()
        >>> empty.passing(Batch({"a": [1]})).num_rows, empty.passing(Batch({"b": [1]})[:0]), len(list(empty.rest()))
        (1, None, 1)
    """

    def __init__(self, *, at_once: bool = False) -> None:
        from shmjet.data.schema_heads import SchemaHeads

        self._heads = SchemaHeads()
        self._waiting = SchemaHeads()
        self._empty: list[Batch] = []
        self._at_once = at_once

    def passing(self, result: Batch) -> Batch | None:
        """Return what is to be emitted now for a result: itself, or nothing."""
        if result.num_rows:
            self._heads.before(result)
            return result
        if self._at_once:
            return self._heads.before(result)
        if self._waiting.before(result) is not None:
            self._empty.append(result)
        return None

    def rest(self) -> Iterator[Batch]:
        """Give a batch without rows for each schema of which no row has been emitted, at the end."""
        empty, self._empty = self._empty, []
        for result in empty:
            head = self._heads.before(result)
            if head is not None:
                yield head
