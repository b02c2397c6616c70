"""One inbound ordinal of one processor: drains the lanes of all its producers into lists.

After Jet's ConcurrentInboundEdgeStream. Lanes are visited round robin and whole frames are taken; a watermark that
advances the edge's coalesced one, or a barrier that has come on every live lane, ends the drain and is handed over
behind the items before it. A lane that has brought its barrier waits for the others (alignment), unless the job is
content with AT_LEAST_ONCE.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from shmjet._native import Coalescer, Poller, ascends, sort_numbers
from shmjet.core import ShmjetError, WatermarkError
from shmjet.core.key_functions import one_by_one, ranks_of
from shmjet.data.columnar import Columnar
from shmjet.data.marks import DONE, Barrier, Mark, Watermark, watermark_of
from shmjet.ring.lane import LaneReader, LocalLane, RingLaneReader

_MOST_BATCHES = 8
"""Frames with batches of columns that are taken at once, as each of them may hold a slot of its producer's slab."""
_HEAD_ITEMS = 2048
"""Items of a sorted lane that are taken before they are merged with those of other lanes, if there are so many."""


class InboundEdge:
    """The stream of one inbound ordinal.

    Args:
        ordinal: the ordinal at the vertex.
        lanes: one per producer, local and ring.
        priority: the group in which the edge is consumed.
        buffered: soak the lanes even while the group is closed.
        text: what errors call the edge.
        aligns: let a lane that has brought its barrier wait for the others; if it is False, only a terminal one does.
    """

    def __init__(
        self,
        ordinal: int,
        lanes: Sequence[LaneReader],
        *,
        priority: int = 0,
        buffered: bool = False,
        text: str | None = None,
        aligns: bool = True,
    ) -> None:
        self.ordinal = ordinal
        self._aligns = aligns
        self._text = f"edge {text}" if text else f"the edge of ordinal {ordinal}"
        self.priority = priority
        self.received = 0
        self.batches = 0
        self._coalescer = Coalescer(len(lanes), WatermarkError)
        self.is_buffered = buffered
        self._live = [True] * len(lanes)
        self._live_count = len(lanes)
        self._at_barrier = [False] * len(lanes)
        self._has_brought = [False] * len(lanes)
        self._brought_count = 0
        """Live lanes that have brought the barrier; to look at all of them for each would take their square."""
        self._barrier: Barrier | None = None
        self._behind_barrier: Watermark | None = None
        self._cursor = 0
        self._is_open = True
        self._early: list[deque[list[Any] | Mark]] = [deque() for _ in lanes]
        self._early_count = 0
        self._lanes: list[LaneReader] = []
        self._set_lanes(lanes)

    def _set_lanes(self, lanes: Sequence[LaneReader]) -> None:
        self._lanes = list(lanes)
        self._ring_index = [i for i, lane in enumerate(lanes) if isinstance(lane, RingLaneReader)]
        self._plain_index = [i for i, lane in enumerate(lanes) if not isinstance(lane, RingLaneReader)]
        self.consumers = [lane.consumer for lane in lanes if isinstance(lane, RingLaneReader)]
        self._consumer_of = dict(zip(self._ring_index, self.consumers, strict=True))
        self._poller = Poller(self.consumers, [])
        self.open(self._is_open)

    @property
    def done(self) -> bool:
        """True when every lane has brought its DONE."""
        return self._live_count == 0

    @property
    def top_watermark(self) -> int | None:
        """The highest watermark that any lane has brought."""
        return self._coalescer.top_observed

    @property
    def coalesced(self) -> int | None:
        """The last watermark that this edge has brought, coalesced over its lanes."""
        return self._coalescer.coalesced

    @property
    def slowest_lane(self) -> tuple[int, int | None]:
        """The lane that holds the others back, -1 for none, and its watermark."""
        return (-1, None) if self._live_count == 0 else self._coalescer.slowest

    @property
    def is_idle(self) -> bool:
        """Whether the edge holds no other edge back: all its lanes are idle."""
        return self._coalescer.is_idle

    @property
    def may_have_more(self) -> bool:
        """Whether a call may find something here of which no doorbell and no neighbour tells: what one call has left.

        That is the end of the edge, too, if another edge was drained since. What is in rings is for pollers.
        """
        if not self._live_count or self._early_count or self._behind_barrier is not None or self._coalescer.is_pending:
            return True
        return any(self._lanes[i].has_data for i in self._plain_index)

    def open(self, is_open: bool) -> None:
        """Let the ring lanes count as work for an idle worker, or not (their priority group is closed)."""
        self._is_open = is_open
        for i, consumer in zip(self._ring_index, self.consumers, strict=True):
            consumer.enabled = self._wants(i)

    def relink(self, lane: int, new: LaneReader) -> None:
        """Go on with another lane from the same producer, after what the old one still holds."""
        old = self._lanes[lane]
        while (frame := old.pull()) is not None:
            self._early[lane].append(frame)
            self._early_count += 1
        self._set_lanes([new if i == lane else other for i, other in enumerate(self._lanes)])

    @property
    def in_fragments(self) -> bool:
        """Whether an item has come in part on one of the lanes."""
        return any(isinstance(lane, RingLaneReader) and lane.in_fragments for lane in self._lanes)

    def export_state(self) -> dict[str, Any]:
        """Return all that this edge knows, local lanes' contents included, for a twin whose lanes are all rings."""
        early = []
        for kept, lane in zip(self._early, self._lanes, strict=True):
            early.append([*kept, *(lane.contents() if isinstance(lane, LocalLane) else ())])
        return {
            "early": early,
            "live": self._live,
            "at_barrier": self._at_barrier,
            "has_brought": self._has_brought,
            "barrier": self._barrier,
            "behind_barrier": self._behind_barrier,
            "coalescer": self._coalescer,
            "cursor": self._cursor,
            "received": self.received,
            "batches": self.batches,
        }

    def import_state(self, state: dict[str, Any]) -> None:
        """Take over what a twin on another worker knew."""
        self._early = [deque(frames) for frames in state["early"]]
        self._early_count = sum(map(len, self._early))
        self._live = state["live"]
        self._live_count = sum(self._live)
        self._at_barrier = state["at_barrier"]
        self._has_brought = state["has_brought"]
        self._brought_count = sum(has and live for has, live in zip(self._has_brought, self._live, strict=True))
        self._barrier = state["barrier"]
        self._behind_barrier = state["behind_barrier"]
        self._coalescer = state["coalescer"]
        self._cursor = state["cursor"]
        self.received = state["received"]
        self.batches = state["batches"]
        self.open(self._is_open)

    def soak(self) -> bool:
        """Empty the lanes of a buffered edge into memory, without a bound; True when anything was there."""
        before = self._early_count
        for early, lane in zip(self._early, self._lanes, strict=True):
            while (frame := lane.pull()) is not None:
                early.append(frame)
                self._early_count += 1
        return self._early_count > before

    def _pull(self, lane: int) -> list[Any] | Mark | None:
        early = self._early[lane]
        if early:
            self._early_count -= 1
            return early.popleft()
        return self._lanes[lane].pull()

    def drain(self, limit: int) -> tuple[list[Any] | None, Mark | None, bool]:
        """Take about `limit` items, more by at most one frame.

        Returns:
            the items (a fresh list, or None), the mark that comes after them (or None), and whether anything at all
            was taken from a lane.
        """
        items: list[Any] | None = None
        batches = 0
        moved = full = False
        mark: Mark | None = self._behind_barrier
        self._behind_barrier = None
        if mark is None:
            mark = watermark_of(self._coalescer.pending())
        if mark is not None:
            return None, mark, True
        ready: list[int] | None = None
        if self._ring_index and not self._early_count:
            ready, timestamp, moved, self._cursor = self._coalescer.take(self.consumers, self._ring_index, self._cursor)
            if timestamp is not None:
                return None, watermark_of(timestamp), True
        for i in self._ready_lanes(ready):
            consumer = None if self._early[i] else self._consumer_of.get(i)
            while self._live[i] and not self._at_barrier[i]:
                frame = self._pull(i)
                if frame is None:
                    break
                moved = True
                if isinstance(frame, list):
                    self._coalescer.observe_event(i)
                    if items is None:
                        items = frame
                    else:
                        items += frame
                    batches += isinstance(frame[0], Columnar)
                    if len(items) >= limit or batches >= _MOST_BATCHES:
                        full = True
                        break
                    if consumer is None:
                        continue
                    mark = watermark_of(self._coalescer.follow(consumer, i))
                    if mark is not None or not consumer.has_data:
                        break
                    continue
                mark = self._take_mark(i, frame)
                if mark is not None:
                    break
            if mark is not None or full:
                self._cursor = i + 1
                break
        if items is not None:
            self.received += len(items)
            self.batches += 1
        return items, mark, moved

    def _ready_lanes(self, rings: list[int] | None) -> list[int]:
        """Return the lanes that have something, in the order in which they take turns.

        Args:
            rings: of these the lanes in rings, if they are known.
        """
        ready = [i for i in self._plain_index if self._live[i] and self._lanes[i].has_data]
        if rings is not None:
            if not ready:
                return rings
            ready += rings
        elif self._ring_index:
            ready += [self._ring_index[k] for k in self._poller.ready_inputs()]
        if self._early_count:
            ready += [i for i, early in enumerate(self._early) if early and i not in ready]
        if len(ready) > 1:
            ready.sort()
            at = self._cursor
            ready = [i for i in ready if i >= at] + [i for i in ready if i < at]
        return ready

    def _take_mark(self, lane: int, mark: Mark) -> Mark | None:
        if isinstance(mark, Watermark):
            return watermark_of(self._coalescer.observe_watermark(lane, mark.timestamp))
        if isinstance(mark, Barrier):
            self._take_barrier(lane, mark)
            return self._complete_barrier()
        assert mark is DONE
        self._end_lane(lane)
        if self._live_count == 0:
            return None
        barrier, watermark = self._complete_barrier(), watermark_of(self._coalescer.input_done(lane))
        if barrier is None:
            return watermark
        self._behind_barrier = watermark
        return barrier

    def holds(self, barrier: Barrier) -> bool:
        """Say whether what has brought a barrier waits until it has come from everywhere."""
        return self._aligns or barrier.terminal

    def heads(self) -> list[list[Any]]:
        """Return the items that have been taken from lanes but not handed over; only ordered edges have some."""
        return []

    def restore_heads(self, items: list[Any]) -> None:
        """Take back what `heads` gave before a restore."""
        raise ShmjetError(f"{self._text} is not ordered, but the snapshot has items that an ordered edge held")

    def _take_barrier(self, lane: int, barrier: Barrier) -> None:
        other = self._barrier
        if other is not None and other.snapshot_id != barrier.snapshot_id:
            raise ShmjetError(
                f"{self._text}: producer {lane} sent the barrier of snapshot {barrier.snapshot_id}, while that of "
                f"snapshot {other.snapshot_id} has not come from all"
            )
        self._barrier = barrier
        self._brought_count += not self._has_brought[lane]
        self._has_brought[lane] = True
        self._at_barrier[lane] = self.holds(barrier)
        self._enable(lane)

    def _end_lane(self, lane: int) -> None:
        """Take nothing more from a lane that has brought its DONE."""
        self._live[lane] = False
        self._live_count -= 1
        self._brought_count -= self._has_brought[lane]
        self._at_barrier[lane] = False
        self._enable(lane)
        self._refuse_late(lane)

    def refuse_late(self) -> None:
        """Check that lanes that have ended have brought nothing since: it would be lost without a word.

        Raises:
            ShmjetError: one of them has.
        """
        for lane, is_live in enumerate(self._live):
            if not is_live:
                self._refuse_late(lane)

    def _refuse_late(self, lane: int) -> None:
        if not (self._early[lane] or self._lanes[lane].has_data):
            return
        frame = self._pull(lane)
        if frame is not None:
            what = f"{len(frame)} items, the first a {type(frame[0]).__name__}" if isinstance(frame, list) else frame
            raise ShmjetError(f"{self._text}: producer {lane} has ended, yet it sent more after its DONE: {what}")

    def _enable(self, lane: int) -> None:
        consumer = self._consumer_of.get(lane)
        if consumer is not None:
            consumer.enabled = self._wants(lane)

    def _wants(self, lane: int) -> bool:
        """Say whether what comes on a lane is work for this side now."""
        return (self._is_open or self.is_buffered) and self._live[lane] and not self._at_barrier[lane]

    def _complete_barrier(self) -> Barrier | None:
        """Return the barrier when every live lane has brought it, and open the lanes again."""
        barrier = self._barrier
        if barrier is None or self._brought_count < self._live_count:
            return None
        self._barrier = None
        self._brought_count = 0
        for i in range(len(self._at_barrier)):
            self._at_barrier[i] = self._has_brought[i] = False
            self._enable(i)
        return barrier


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
