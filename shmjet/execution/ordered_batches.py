"""An inbound edge whose lanes bring batches with sorted rows; hands them over merged.

A lane is read as far as its next batch, so a lane that runs ahead waits in its ring. Before anything is merged every
lane tells its columns (by a batch without rows, or by its first batch), because all rows have to have the same kinds.
Must not know columns: a `BatchMerger` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shmjet.core import ShmjetError
from shmjet.core.batch_order import BatchOrder
from shmjet.data.columnar import Columnar
from shmjet.execution.ordered_inbound_edge import OrderedInboundEdge
from shmjet.ring.lane import LaneReader


class OrderedBatchEdge(OrderedInboundEdge):
    """As `OrderedInboundEdge`, for batches.

    Args:
        order: by what the rows of each lane are sorted.
    """

    def __init__(
        self,
        ordinal: int,
        lanes: Sequence[LaneReader],
        order: BatchOrder,
        *,
        priority: int = 0,
        buffered: bool = False,
        text: str | None = None,
    ) -> None:
        self._merger = order.merger()
        self._has_told = [False] * len(lanes)
        self._tells = True
        self._left: list[list[Columnar]] = []
        super().__init__(ordinal, lanes, None, priority=priority, buffered=buffered, text=text)

    def export_state(self) -> dict[str, Any]:
        return {**super().export_state(), "told": self._has_told, "tells": self._tells, "left": self._left}

    def import_state(self, state: dict[str, Any]) -> None:
        super().import_state(state)
        self._has_told, self._tells, self._left = state["told"], state["tells"], state["left"]
        for head in (*self._heads, *self._left):
            for batch in head:
                self._merger.note(batch)

    def heads(self) -> list[list[Any]]:
        return [head for head in (*self._heads, *self._left) if head]

    def restore_heads(self, items: list[Any]) -> None:
        """Take back what `heads` gave before a restore: each is like the rest of a lane that has ended."""
        for batch in items:
            self._merger.note(batch)
        self._left.append(items)

    def _has_room(self, lane: int) -> bool:
        return not self._heads[lane]

    def _hold(self, lane: int, items: list[Any]) -> None:
        for batch in items:
            if not isinstance(batch, Columnar):
                raise ShmjetError(
                    f"{self._text} is ordered by columns, but producer {lane} sent a {type(batch).__name__}; it takes "
                    "batches only"
                )
            self._merger.note(batch)
            self._has_told[lane] = True
            if len(batch):  # type: ignore[arg-type]  # a Batch has a length
                self._heads[lane].append(batch)

    def _is_waiting(self) -> bool:
        """Say whether a live lane has to bring something before anything can be handed over."""
        if not all(told or not live for told, live in zip(self._has_told, self._live, strict=True)):
            return True
        if self._tells:
            return False
        return any(live and not head for live, head in zip(self._live, self._heads, strict=True))

    def _has_rest(self) -> bool:
        return self._tells or any(self._heads) or any(self._left)

    def _merge(self, limit: int) -> list[Any]:
        """Hand over the columns first, then what all lanes have shown."""
        self.batches += 1
        if self._tells:
            self._tells = False
            head = self._merger.head()
            if head is not None:
                self.received += 1
                return [head]
            return []
        lanes = [*self._left, *self._heads]
        merged, rest = self._merger.merge([lane[0] if lane else None for lane in lanes])
        for lane, left in zip(lanes, rest, strict=True):
            if lane:
                lane[:1] = [] if left is None else [left]
        for number in range(len(self._lanes)):
            self._enable(number)
        self.received += 1
        return [merged]
