"""One outbound ordinal of one processor: takes a drained bucket and hands its items to lanes.

`Outbound` keeps the order: a bucket is cut into runs of items with watermarks between them, a run is given to the
`Router` of the edge, and a mark (watermark, barrier, DONE) goes to every lane after the run before it has left.
Routers decide who gets which item, after Jet's OutboundCollector; they are resumable, never block and never drop.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from shmjet._native import RingProducer, index_of_special, split
from shmjet.core import PartitionError
from shmjet.core.keys import canonical_bytes
from shmjet.ring.lane import LaneWriter, RingLaneWriter
from shmjet.ring.marks import Mark, Watermark


class Router(Protocol):
    """Spreads one run of items at a time over lanes."""

    moved: int
    """Items and slices accepted by lanes so far; grows with every bit of progress."""

    def start(self, items: list[Any]) -> None:
        """Take the next run; called only when `flush` has returned True for the one before."""

    def flush(self) -> bool:
        """Push what the lanes take now; True when the whole run has left."""

    def replace(self, old: LaneWriter, new: LaneWriter) -> None:
        """Go on with another lane to the same consumer."""


def _replaced(lanes: Sequence[LaneWriter], old: LaneWriter, new: LaneWriter) -> list[LaneWriter]:
    return [new if lane is old else lane for lane in lanes]


class Outbound:
    """An ordinal's queue of runs and marks in front of its router.

    Args:
        lanes: every lane of this ordinal, local and ring, by consumer.
        router: spreads the items over these lanes.
    """

    __slots__ = ("_lanes", "_mark", "_mark_lanes", "_marked", "_queue", "_router", "emitted")

    def __init__(self, lanes: Sequence[LaneWriter], router: Router) -> None:
        self._lanes = list(lanes)
        self._router = router
        self._queue: deque[list[Any] | Mark] = deque()
        self._mark: Mark | None = None
        self._mark_lanes: list[LaneWriter] = []
        self._marked = 0
        self.emitted = 0

    @property
    def moved(self) -> int:
        """A number that grows whenever anything was handed over."""
        return self._router.moved + self._marked

    @property
    def producers(self) -> list[RingProducer]:
        """The writing ends of its ring lanes, to be polled for room."""
        return [lane.producer for lane in self._lanes if isinstance(lane, RingLaneWriter)]

    def replace(self, old: LaneWriter, new: LaneWriter) -> None:
        """Go on with another lane to the same consumer; what `old` has accepted is the consumer's."""
        self._lanes = _replaced(self._lanes, old, new)
        self._mark_lanes = _replaced(self._mark_lanes, old, new)
        self._router.replace(old, new)

    def add(self, items: list[Any]) -> None:
        """Queue a bucket; the list is now the router's."""
        self.emitted += len(items)
        start = 0
        at = index_of_special(items, 0, Watermark)
        while at >= 0:
            if at > start:
                self._queue.append(items[start:at])
            self._queue.append(items[at])
            start = at + 1
            at = index_of_special(items, start, Watermark)
        if start == 0:
            self._queue.append(items)
        elif start < len(items):
            self._queue.append(items[start:])

    def add_mark(self, mark: Mark) -> None:
        """Queue a mark for every lane."""
        self._queue.append(mark)

    def flush(self) -> bool:
        """Hand over what the lanes take; True when nothing is left."""
        while True:
            if self._mark is not None:
                waiting = [lane for lane in self._mark_lanes if not lane.push_mark(self._mark)]
                self._marked += len(self._mark_lanes) - len(waiting)
                self._mark_lanes = waiting
                if waiting:
                    return False
                self._mark = None
            elif not self._router.flush():
                return False
            if not self._queue:
                return True
            head = self._queue.popleft()
            if isinstance(head, list):
                self._router.start(head)
            else:
                self._mark = head
                self._mark_lanes = list(self._lanes)


class UnicastRouter:
    """Each item to one consumer.

    Lanes of the same worker come first: no encoding, and the item is still in the cache. Others get items when the
    local lanes are full and either their worker sleeps with an empty lane or nothing could be placed in a whole
    round, so that a saturated host does not shuffle for nothing and an idle worker is fed at once. Without a local
    lane, or with `deal` (fewer producers than workers), items are dealt round robin over all lanes, skipping full
    ones.
    """

    __slots__ = ("_always_deal", "_cursor", "_far", "_items", "_lanes", "_near", "_pos", "_started", "_stuck", "moved")

    def __init__(self, lanes: Sequence[LaneWriter], *, deal: bool) -> None:
        self._always_deal = deal
        self._set_lanes(lanes)
        self._items: list[Any] = []
        self._pos = 0
        self._stuck = False
        self._started: LaneWriter | None = None
        self.moved = 0

    def _set_lanes(self, lanes: Sequence[LaneWriter]) -> None:
        self._lanes = list(lanes)
        near = [lane for lane in lanes if lane.is_local]
        deal = self._always_deal or not near
        self._near = self._lanes if deal else near
        self._far = [] if deal else [lane for lane in lanes if not lane.is_local]
        self._cursor = 0

    def replace(self, old: LaneWriter, new: LaneWriter) -> None:
        self._set_lanes(_replaced(self._lanes, old, new))

    def start(self, items: list[Any]) -> None:
        self._items = items
        self._pos = 0

    def flush(self) -> bool:
        if self._pos == len(self._items):
            return True
        before = self._pos
        if self._started is not None and not self._push(self._started, 1) and self._pos == before:
            return False
        if self._pos == len(self._items) or self._spread(self._near):
            return True
        for lane in self._far:
            if (self._stuck or lane.hungry) and self._push(lane, len(self._items) - self._pos):
                return True
            if self._started is not None:
                return False
        self._stuck = self._pos == before
        return False

    def _spread(self, lanes: list[LaneWriter]) -> bool:
        """Deal what is left in equal shares, starting behind the lane that got the last one."""
        count = len(lanes)
        share = -(-(len(self._items) - self._pos) // count)
        full = 0
        while full < count:
            lane = lanes[self._cursor]
            self._cursor = (self._cursor + 1) % count
            before = self._pos
            if self._push(lane, share):
                return True
            if self._started is not None:
                return False
            full = full + 1 if self._pos == before else 0
        return False

    def _push(self, lane: LaneWriter, most: int) -> bool:
        items, pos = self._items, self._pos
        if len(items) - pos > most:
            accepted = lane.push(items[pos : pos + most])
        else:
            accepted = lane.push(items, pos)
        self._pos = pos + accepted
        self.moved += accepted
        self._started = lane if lane.in_fragments else None
        if self._pos == len(items):
            self._items, self._pos = [], 0
            return True
        return False


class PartitionedRouter:
    """Each item to the consumer that owns its key's partition.

    Args:
        lanes: by consumer.
        key_fn: the edge's key function, or None for the item itself.
        partitioner: a custom `(key, partition_count) -> partition`, or None for murmur3 of the canonical bytes.
        table: partition -> consumer, as 16-bit integers.
        edge: how the edge is called in errors.
    """

    __slots__ = ("_edge", "_key_fn", "_lanes", "_partitioner", "_pending", "_table", "moved")

    def __init__(
        self,
        lanes: Sequence[LaneWriter],
        key_fn: Callable[[Any], Any] | None,
        partitioner: Callable[[Any, int], int] | None,
        table: array[int],
        edge: str,
    ) -> None:
        self._lanes = list(lanes)
        self._key_fn = key_fn
        self._partitioner = partitioner
        self._table = table
        self._edge = edge
        self._pending: list[tuple[LaneWriter, list[Any], int]] = []
        self.moved = 0

    def replace(self, old: LaneWriter, new: LaneWriter) -> None:
        self._lanes = _replaced(self._lanes, old, new)
        self._pending = [(new if lane is old else lane, share, pos) for lane, share, pos in self._pending]

    def start(self, items: list[Any]) -> None:
        keys = items if self._key_fn is None else list(map(self._key_fn, items))
        if self._partitioner is None:
            shares = split(items, keys, len(self._table), self._table, len(self._lanes), canonical_bytes)
        else:
            shares = self._split_by(self._partitioner, items, keys)
        self._pending = [(lane, share, 0) for lane, share in zip(self._lanes, shares, strict=True) if share]

    def _split_by(
        self, partitioner: Callable[[Any, int], int], items: list[Any], keys: list[Any]
    ) -> list[list[Any] | None]:
        shares: list[list[Any] | None] = [None] * len(self._lanes)
        count = len(self._table)
        for item, key in zip(items, keys, strict=True):
            partition = partitioner(key, count)
            if not isinstance(partition, int) or not 0 <= partition < count:
                raise PartitionError(
                    f"edge {self._edge}: the partitioner gave {partition!r} for key {key!r}; "
                    f"it has to give an int from 0 to {count - 1}"
                )
            consumer = self._table[partition]
            share = shares[consumer]
            if share is None:
                shares[consumer] = [item]
            else:
                share.append(item)
        return shares

    def flush(self) -> bool:
        if not self._pending:
            return True
        left = []
        for lane, share, pos in self._pending:
            accepted = lane.push(share, pos)
            self.moved += accepted
            if pos + accepted < len(share):
                left.append((lane, share, pos + accepted))
        self._pending = left
        return not left


class BroadcastRouter:
    """Each item to every consumer."""

    __slots__ = ("_items", "_lanes", "_pending", "moved")

    def __init__(self, lanes: Sequence[LaneWriter]) -> None:
        self._lanes = list(lanes)
        self._items: list[Any] = []
        self._pending: list[tuple[LaneWriter, int]] = []
        self.moved = 0

    def replace(self, old: LaneWriter, new: LaneWriter) -> None:
        self._lanes = _replaced(self._lanes, old, new)
        self._pending = [(new if lane is old else lane, pos) for lane, pos in self._pending]

    def start(self, items: list[Any]) -> None:
        self._items = items
        self._pending = [(lane, 0) for lane in self._lanes]

    def flush(self) -> bool:
        if not self._pending:
            return True
        items, left = self._items, []
        for lane, pos in self._pending:
            accepted = lane.push(items, pos)
            self.moved += accepted
            if pos + accepted < len(items):
                left.append((lane, pos + accepted))
        self._pending = left
        if left:
            return False
        self._items = []
        return True


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
) -> Router:
    """Make the router of an edge for one producer.

    Args:
        routing: value of `shmjet.core.Routing`.
        lanes: the producer's lanes by consumer; for `isolated` only those of its pairs.
        producers: parallelism of the upstream vertex.
        table: partition -> consumer.
        target_partition: where `all_to_one` sends everything.
    """
    if routing == "broadcast":
        return BroadcastRouter(lanes)
    if routing == "partitioned":
        return PartitionedRouter(lanes, key_fn, partitioner, table, edge)
    if routing == "all_to_one":
        return UnicastRouter([lanes[table[target_partition]]], deal=True)
    return UnicastRouter(lanes, deal=routing in ("isolated", "fanout") or producers < workers)
