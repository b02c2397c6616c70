"""One outbound ordinal of one processor: takes a drained bucket and hands its items to lanes.

`Outbound` keeps the order: a bucket is cut into runs of items with watermarks between them, a run is given to the
`Router` of the edge, and a mark (watermark, barrier, DONE) goes to every lane after the run before it has left.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from shmjet._native import RingProducer, index_of_special, push_marks
from shmjet.core.latency_policy import LatencyPolicy
from shmjet.data.marks import IDLE, Mark, Watermark
from shmjet.execution.partitioned_router import PartitionedRouter
from shmjet.execution.routers import BroadcastRouter, FanoutRouter, Router, UnicastRouter, replaced
from shmjet.ring import frames
from shmjet.ring.lane import LaneWriter, RingLaneWriter


class Outbound:
    """An ordinal's queue of runs and marks in front of its router.

    Args:
        lanes: every lane of this ordinal, local and ring, by consumer.
        router: spreads the items over these lanes.
    """

    __slots__ = (
        *("_lanes", "_mark", "_mark_lanes", "_marked", "_others", "_queue", "_ring_lanes", "_rings"),
        *("_router", "_router_is_empty"),
        *("emitted", "is_idle", "is_waiting", "time"),
    )

    def __init__(self, lanes: Sequence[LaneWriter], router: Router) -> None:
        self._set_lanes(lanes)
        self._router = router
        self._router_is_empty = True
        """Whether the router has nothing: none was given since its `flush` has said so, and it keeps nothing back."""
        self._queue: deque[list[Any] | Mark] = deque()
        self._mark: Mark | None = None
        self._mark_lanes: list[LaneWriter] = []
        self._marked = 0
        self.emitted = 0
        self.time: int | None = None
        """The last watermark that was queued here, as its timestamp; None before the first."""
        self.is_idle = False
        """Whether the last mark of time that was queued is the idle message."""
        self.is_waiting = False
        """Whether the last `flush` found no room; for measuring how long."""

    def _set_lanes(self, lanes: Sequence[LaneWriter]) -> None:
        self._lanes = list(lanes)
        self._ring_lanes = [lane for lane in lanes if isinstance(lane, RingLaneWriter)]
        self._rings = [lane.producer for lane in self._ring_lanes]
        self._others = [lane for lane in lanes if not isinstance(lane, RingLaneWriter)]

    @property
    def moved(self) -> int:
        """A number that grows whenever anything was handed over."""
        return self._router.moved + self._marked

    @property
    def producers(self) -> list[RingProducer]:
        """The writing ends of its ring lanes, to be polled for room."""
        return self._rings

    def export_state(self) -> tuple[int, int, int | None, bool]:
        """Return what a twin on another worker needs to go on; only while nothing is left in here."""
        return self.emitted, self._router.turn, self.time, self.is_idle

    def import_state(self, state: tuple[int, int, int | None, bool]) -> None:
        """Go on where a twin on another worker stopped."""
        self.emitted, self._router.turn, self.time, self.is_idle = state

    def replace(self, old: LaneWriter, new: LaneWriter) -> None:
        """Go on with another lane to the same consumer; what `old` has accepted is the consumer's."""
        self._set_lanes(replaced(self._lanes, old, new))
        self._mark_lanes = replaced(self._mark_lanes, old, new)
        self._router.replace(old, new)

    def add(self, items: list[Any], is_plain: bool = False) -> None:
        """Queue a bucket, which may be known to have no watermark; the list is now the router's."""
        self.emitted += len(items)
        if is_plain:
            self._queue.append(items)
            return
        start = 0
        at = index_of_special(items, 0, Watermark)
        while at >= 0:
            if at > start:
                self._queue.append(items[start:at])
            self._queue.append(items[at])
            self._note_time(items[at])
            start = at + 1
            at = index_of_special(items, start, Watermark)
        if start == 0:
            self._queue.append(items)
        elif start < len(items):
            self._queue.append(items[start:])

    def add_mark(self, mark: Mark) -> None:
        """Queue a mark for every lane."""
        self._queue.append(mark)
        if isinstance(mark, Watermark):
            self._note_time(mark)

    def _note_time(self, watermark: Watermark) -> None:
        self.is_idle = watermark == IDLE
        if not self.is_idle:
            self.time = watermark.timestamp

    @property
    def has_buffered_rows(self) -> bool:
        """Whether rows of batches are kept back until there are enough for a batch of their own."""
        return self._router.has_buffered_rows

    def flush_buffered(self) -> bool:
        """Hand over what is kept back too; True when nothing is left."""
        return self.flush() and self._flush_rows()

    def _flush_rows(self) -> bool:
        self._router_is_empty = False
        return self._router.flush_buffered()

    def flush(self) -> bool:
        """Hand over what the lanes take; True when nothing is left but what the router keeps back."""
        while True:
            if self._mark is not None:
                waiting = [lane for lane in self._mark_lanes if not lane.push_mark(self._mark)]
                self._marked += len(self._mark_lanes) - len(waiting)
                self._mark_lanes = waiting
                if waiting:
                    return False
                self._mark = None
            elif not self._router_is_empty:
                if not self._router.flush():
                    return False
                self._router_is_empty = not self._router.has_buffered_rows
            if not self._queue:
                return True
            head = self._queue[0]
            if isinstance(head, list):
                self._router_is_empty = False
                self._router.start(head)
            elif not self._flush_rows():
                return False
            else:
                self._mark = head
                self._mark_lanes = self._begin_mark(head)
            self._queue.popleft()

    def _begin_mark(self, mark: Mark) -> list[LaneWriter]:
        """Hand a mark to all rings in one call; return the lanes that have to be asked one by one."""
        left: list[LaneWriter] = [self._ring_lanes[i] for i in push_marks(self._rings, *frames.numbers_of(mark))]
        self._marked += len(self._rings) - len(left)
        return [*self._others, *left]


def make_router(
    routing: str,
    lanes: Sequence[LaneWriter],
    *,
    producers: int,
    workers: int,
    key_fn: Callable[[Any], Any] | None,
    partitioner: Callable[[Any, int], int] | None,
    table: array[int],
    target_partition: int,
    edge: str,
    policy: LatencyPolicy,
    spreads: bool = False,
    members: Sequence[int] = (),
    tells_schemas: bool = False,
) -> Router:
    """Make the router of an edge for one producer.

    Args:
        routing: value of `shmjet.core.Routing`.
        lanes: the producer's lanes by consumer; for `isolated` only those of its pairs.
        producers: parallelism of the upstream vertex.
        table: partition -> consumer; `partitioned` and `all_to_one` alone look at it.
        target_partition: where `all_to_one` sends everything.
        policy: of the job: how long a `partitioned` edge keeps rows of batches back.
        spreads: a unicast edge deals to all consumers in turn, the one on the same worker like the others, as an edge
            to other members has to.
        tells_schemas: the consumers of a `partitioned` edge want to know the columns of all batches.
        members: of each lane, the member on which it ends; `fanout` alone looks at it.
    """
    if routing == "broadcast":
        return BroadcastRouter(lanes)
    if routing == "partitioned":
        delay = policy.row_delay_ns
        return PartitionedRouter(lanes, key_fn, partitioner, table, edge, tells_schemas, row_delay_ns=delay)
    if routing == "all_to_one":
        return UnicastRouter([lanes[table[target_partition]]], deal=True)
    if routing == "fanout":
        groups: dict[int, list[LaneWriter]] = {}
        for lane, member in zip(lanes, members, strict=True):
            groups.setdefault(member, []).append(lane)
        return FanoutRouter(list(groups.values()))
    return UnicastRouter(lanes, deal=routing != "unicast" or spreads or producers < workers)
