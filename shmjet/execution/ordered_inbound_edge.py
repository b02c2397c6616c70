"""An inbound edge that merges the sorted items of its lanes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any

from shmjet._native import ascends, sort_numbers
from shmjet.core import ShmjetError
from shmjet.core.key_functions import one_by_one, ranks_of
from shmjet.data.marks import DONE, Barrier, Mark
from shmjet.execution.inbound_edge import InboundEdge
from shmjet.ring.lane import LaneReader

_HEAD_ITEMS = 2048
"""Items of a sorted lane that are taken before they are merged with those of other lanes, if there are so many."""


class OrderedInboundEdge(InboundEdge):
    """An inbound edge whose lanes bring sorted items; hands them over merged (Jet's OrderedDrain).

    Nothing can be handed over before every live lane has shown an item, so a silent producer holds the others back.

    Args:
        key: what the lanes are sorted by; None for the items themselves.
    """

    def __init__(
        self,
        ordinal: int,
        lanes: Sequence[LaneReader],
        key: Callable[[Any], Any] | None,
        *,
        priority: int = 0,
        buffered: bool = False,
        text: str | None = None,
    ) -> None:
        self._heads: list[list[Any]] = [[] for _ in lanes]
        super().__init__(ordinal, lanes, priority=priority, buffered=buffered, text=text)
        self._key = key
        self._numeric = True
        self._last: list[list[Any]] = [[] for _ in lanes]
        self._restored: list[Any] = []

    def export_state(self) -> dict[str, Any]:
        return {**super().export_state(), "heads": self._heads, "last": self._last, "restored": self._restored}

    def import_state(self, state: dict[str, Any]) -> None:
        super().import_state(state)
        self._heads, self._last, self._restored = state["heads"], state["last"], state["restored"]

    def heads(self) -> list[list[Any]]:
        return [head for head in (*self._heads, self._restored) if head]

    def restore_heads(self, items: list[Any]) -> None:
        """Take back what `heads` gave before a restore: like the rest of a lane that has ended."""
        merged = self._restored + items
        ranks = self._keys(merged)
        self._check_order(None, items)
        merged.sort(key=one_by_one(ranks))
        self._restored = merged

    def _wants(self, lane: int) -> bool:
        # What a lane brings ahead of the others need wake no worker, unless it is on its way to a barrier.
        has_room = self._barrier is not None or self._has_room(lane)
        return super()._wants(lane) and (has_room or self.is_buffered)

    def _has_room(self, lane: int) -> bool:
        """Say whether more is taken from a lane before what has come is merged."""
        return len(self._heads[lane]) < _HEAD_ITEMS

    def drain(self, limit: int) -> tuple[list[Any] | None, Mark | None, bool]:
        moved = False
        barrier: Barrier | None = None
        for i in range(len(self._lanes)):
            while barrier is None and self._takes_more(i):
                frame = self._pull(i)
                if frame is None:
                    break
                moved = True
                if isinstance(frame, list):
                    self._hold(i, frame)
                elif frame is DONE:
                    self._end_lane(i)
                    if self._live_count:
                        barrier = self._complete_barrier()
                elif isinstance(frame, Barrier):
                    self._take_barrier(i, frame)
                    barrier = self._complete_barrier()
                else:
                    raise ShmjetError(
                        f"an ordered edge (ordinal {self.ordinal}) carries items only, but {frame!r} came on it"
                    )
            self._enable(i)
            if barrier is not None:
                return None, barrier, True
        if self._is_waiting() or not self._has_rest():
            return None, None, moved
        return self._merge(limit) or None, None, True

    @property
    def may_have_more(self) -> bool:
        """Always: what is held is merged in the next call."""
        return True

    def _hold(self, lane: int, items: list[Any]) -> None:
        """Take what a lane has brought."""
        self._check_order(lane, items)
        if self._heads[lane]:
            self._heads[lane] += items
        else:
            self._heads[lane] = items

    def _is_waiting(self) -> bool:
        """Say whether a live lane has to bring something before anything can be handed over."""
        return any(self._live[i] and not head for i, head in enumerate(self._heads))

    def _has_rest(self) -> bool:
        """Say whether there is something that is not merged yet."""
        return bool(self._restored) or any(self._heads)

    def _takes_more(self, lane: int) -> bool:
        """Say whether more is taken from a lane; on its way to a barrier it may bring any number of items."""
        if not self._live[lane] or self._at_barrier[lane]:
            return False
        return self._barrier is not None or self._has_room(lane)

    @property
    def done(self) -> bool:
        return self._live_count == 0 and not self._has_rest()

    def _keys(self, items: list[Any]) -> list[Any]:
        return ranks_of(self._key, items)

    def _check_order(self, lane: int | None, items: list[Any]) -> None:
        """Check that the items of a lane ascend (None: those of several, restored, of which only the kind matters)."""
        keys = self._keys(items)
        previous = [] if lane is None else self._last[lane]
        in_order = ascends(keys)
        self._numeric = self._numeric and in_order is not None and type(keys[0]) is not str
        if in_order is None:
            # Sorting what is sorted takes one comparison for each, and no step in Python; it gives the same objects.
            in_order = sorted(keys) == keys
        if not in_order or (previous and keys[0] < previous[0]):
            raise ShmjetError(
                f"an ordered edge (ordinal {self.ordinal}) got items out of order from producer {lane}; "
                "every producer has to emit in ascending order of the edge's key"
            )
        if lane is not None:
            self._last[lane] = keys[-1:]

    def _merge(self, limit: int) -> list[Any]:
        """Hand over everything up to the smallest last item of a live lane: a later item cannot be smaller."""
        keys = [self._keys(head) for head in self._heads]
        live_ends = [k[-1] for i, k in enumerate(keys) if k and self._live[i]]
        merged: list[Any] = []
        ranks: list[Any] = []
        for i, head in enumerate(self._heads):
            cut = bisect_right(keys[i], min(live_ends)) if live_ends else len(head)
            merged += head[:cut]
            ranks += keys[i][:cut]
            self._heads[i] = head[cut:]
        if self._restored:
            ranked = self._keys(self._restored)
            cut = bisect_right(ranked, min(live_ends)) if live_ends else len(ranked)
            merged += self._restored[:cut]
            ranks += ranked[:cut]
            self._restored = self._restored[cut:]
        if not (self._numeric and sort_numbers(merged, ranks, False)):
            merged.sort(key=one_by_one(ranks))
        self.received += len(merged)
        self.batches += 1
        return merged
