"""One inbound ordinal of one processor: drains the lanes of all its producers into lists.

After Jet's ConcurrentInboundEdgeStream. Lanes are visited round robin and whole frames are taken; a watermark that
advances the edge's coalesced one, or a barrier that has come on every live lane, ends the drain and is handed over
behind the items before it. A lane that has brought its barrier waits for the others (alignment), unless the job is
content with AT_LEAST_ONCE.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from shmjet._native import Coalescer, Poller
from shmjet.core import ShmjetError, WatermarkError
from shmjet.data.columnar import Columnar
from shmjet.data.marks import DONE, Barrier, Mark, Watermark, watermark_of
from shmjet.ring.lane import LaneReader, LocalLane, RingLaneReader

_MOST_BATCHES = 8
"""Frames with batches of columns that are taken at once, as each of them may hold a slot of its producer's slab."""


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
        for i in self._plain_index:  # noqa: SIM110 (see `InputSelector.may_have_more`)
            if self._lanes[i].has_data:
                return True
        return False

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
        coalescer = self._coalescer
        mark: Mark | None = self._behind_barrier
        if mark is not None:
            self._behind_barrier = None
            return None, mark, True
        timestamp = coalescer.pending()
        if timestamp is not None:
            return None, watermark_of(timestamp), True
        ready: list[int] | None = None
        if self._ring_index and not self._early_count:
            ready, timestamp, moved, self._cursor = coalescer.take(self.consumers, self._ring_index, self._cursor)
            if timestamp is not None:
                return None, watermark_of(timestamp), True
        for i in self._ready_lanes(ready):
            if not self._live[i] or self._at_barrier[i]:
                continue
            early, pull = self._early[i], self._lanes[i].pull
            consumer = None if early else self._consumer_of.get(i)
            while True:
                frame = self._pull(i) if early else pull()
                if frame is None:
                    break
                moved = True
                if isinstance(frame, list):
                    coalescer.observe_event(i)
                    if items is None:
                        items = frame
                    else:
                        items += frame
                    if isinstance(frame[0], Columnar):
                        batches += 1
                    if len(items) >= limit or batches >= _MOST_BATCHES:
                        full = True
                        break
                    if consumer is None:
                        continue
                    timestamp = coalescer.follow(consumer, i)
                    if timestamp is not None:
                        mark = watermark_of(timestamp)
                        break
                    if not consumer.has_data:
                        break
                    continue
                mark = self._take_mark(i, frame)
                if mark is not None or not self._live[i] or self._at_barrier[i]:
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
