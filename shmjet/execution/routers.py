"""What spreads the items of one outbound ordinal over lanes, after Jet's OutboundCollector: one class for each routing.

Routers decide who gets which item; they are resumable, never block and never drop. The order of the items that go to
one lane is kept. `shmjet.execution.partitioned_router` has the router of partitioned edges.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from shmjet.data.columnar import Columnar
from shmjet.ring.lane import LaneWriter


class Router(Protocol):
    """Spreads one run of items at a time over lanes."""

    @property
    def moved(self) -> int:
        """Items and slices accepted by lanes so far; grows with every bit of progress."""

    turn: int
    """Where dealing in turn goes on; moves to another worker with the producer. 0 for routers that do not deal."""

    def start(self, items: list[Any]) -> None:
        """Take the next run; called only when `flush` has returned True for the one before."""

    def flush(self) -> bool:
        """Push what the lanes take now; True when the next run may come."""

    @property
    def has_buffered_rows(self) -> bool:
        """Whether it keeps something back: rows until there are enough for a batch, items that one lane refuses."""

    def flush_buffered(self) -> bool:
        """Push what is kept back; True when nothing is. Called only when `flush` has returned True."""

    def replace(self, old: LaneWriter, new: LaneWriter) -> None:
        """Go on with another lane to the same consumer."""


def replaced(lanes: Sequence[LaneWriter], old: LaneWriter, new: LaneWriter) -> list[LaneWriter]:
    """Return the lanes with one of them changed."""
    return [new if lane is old else lane for lane in lanes]


class UnicastRouter:
    """Each item to one consumer.

    Lanes of the same worker come first: no encoding, and the item is still in the cache. Others get items when the
    local lanes are full and either their worker sleeps with an empty lane or nothing could be placed in a whole
    round, so that a saturated host does not shuffle for nothing and an idle worker is fed at once; of batches, a worker
    that is awake gets one at a time. Without a local lane, or with `deal` (fewer producers than workers), items are
    dealt round robin over all lanes, skipping full ones.
    """

    __slots__ = ("_always_deal", "_far", "_items", "_lanes", "_near", "_pos", "_started", "_stuck", "moved", "turn")
    has_buffered_rows = False

    def __init__(self, lanes: Sequence[LaneWriter], *, deal: bool) -> None:
        self._always_deal = deal
        self.turn = 0
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

    def replace(self, old: LaneWriter, new: LaneWriter) -> None:
        self._set_lanes(replaced(self._lanes, old, new))

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
            most = self._most_for(lane)
            if most and self._push(lane, most):
                return True
            if self._started is not None:
                return False
        if self._pos > before:
            self._stuck = False
        elif not self._stuck and self._far:
            self._stuck = True
            self.moved += 1  # counts as progress: nothing else would cause the next round
        return False

    def flush_buffered(self) -> bool:
        return True

    def _most_for(self, lane: LaneWriter) -> int:
        """Return how many items a lane to another worker may get now."""
        left = len(self._items) - self._pos
        if lane.reader_idle:
            return left
        if not self._stuck:
            return 0
        if isinstance(self._items[self._pos], Columnar):  # to copy one takes as long as many stages do
            return 1 if lane.is_empty else 0
        return left

    def _spread(self, lanes: list[LaneWriter]) -> bool:
        """Deal what is left in equal shares, starting behind the lane that got the last one."""
        count = len(lanes)
        share = -(-(len(self._items) - self._pos) // count)
        full = 0
        while full < count:
            lane = lanes[self.turn % count]
            self.turn += 1
            before = self._pos
            if self._push(lane, share):
                return True
            if self._started is not None:
                return False
            full = full + 1 if self._pos == before else 0
        return False

    def _push(self, lane: LaneWriter, most: int) -> bool:
        items, pos = self._items, self._pos
        left = len(items) - pos
        if left > most:
            accepted = lane.give(items[pos : pos + most])
        elif pos:
            accepted = lane.push(items, pos)
        else:
            accepted = lane.give(items)
            if accepted == left:  # the list is the lane's, and perhaps the consumer's already
                self.moved += left
                self._started = None
                self._items = []
                return True
        self._pos = pos + accepted
        self.moved += accepted
        self._started = lane if lane.in_fragments else None
        if self._pos == len(items):
            self._items, self._pos = [], 0
            return True
        return False


class BroadcastRouter:
    """Each item to every consumer."""

    __slots__ = ("_items", "_lanes", "_pending", "moved", "turn")
    has_buffered_rows = False

    def __init__(self, lanes: Sequence[LaneWriter]) -> None:
        self._lanes = list(lanes)
        self._items: list[Any] = []
        self._pending: list[tuple[LaneWriter, int]] = []
        self.moved = self.turn = 0

    def replace(self, old: LaneWriter, new: LaneWriter) -> None:
        self._lanes = replaced(self._lanes, old, new)
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

    def flush_buffered(self) -> bool:
        return True


class Shares:
    """Lists that are on their way to lanes. Each is for one lane alone, which may keep it (`LaneWriter.give`)."""

    __slots__ = ("_pending", "moved")

    def __init__(self) -> None:
        self._pending: list[tuple[LaneWriter, list[Any], int]] = []
        self.moved = 0
        """Items accepted by lanes so far."""

    @property
    def is_waiting(self) -> bool:
        """Whether a lane has not taken all of its list yet."""
        return bool(self._pending)

    def waits_for(self, lane: LaneWriter) -> bool:
        """Say whether a lane has not taken all of its list yet."""
        return any(other is lane for other, _, _ in self._pending)

    def put(self, lane: LaneWriter, items: list[Any]) -> None:
        """Add a list that no one else reads or changes, for a lane for which none waits."""
        self._pending.append((lane, items, 0))

    def offer(self, lane: LaneWriter, items: list[Any]) -> None:
        """As `put`, and push what the lane takes now."""
        size = len(items)  # before it is given away
        accepted = lane.give(items)
        self.moved += accepted
        if accepted < size:
            self._pending.append((lane, items, accepted))

    def flush(self) -> bool:
        """Push what the lanes take now; True when nothing is left."""
        if not self._pending:
            return True
        left: list[tuple[LaneWriter, list[Any], int]] = []
        for lane, items, pos in self._pending:
            size = len(items)  # before it is given away
            accepted = lane.push(items, pos) if pos else lane.give(items)
            self.moved += accepted
            if pos + accepted < size:
                left.append((lane, items, pos + accepted))
        self._pending = left
        return not left

    def replace(self, old: LaneWriter, new: LaneWriter) -> None:
        """Go on with another lane to the same consumer."""
        self._pending = [(new if lane is old else lane, items, pos) for lane, items, pos in self._pending]


class FanoutRouter:
    """Each item to one consumer of every member, item by item in turn among those of the member that have room.

    A lane that refuses a part of its share keeps that part waiting here, as the order on a lane must not change; until
    the lane has taken it, items are dealt among the others. The edge waits only when all lanes of a member are full.

    Args:
        groups: the lanes, by member.
    """

    __slots__ = ("_first", "_groups", "_items", "_shares", "_undealt", "turn")

    def __init__(self, groups: Sequence[Sequence[LaneWriter]]) -> None:
        self._groups = [list(group) for group in groups]
        self._shares = Shares()
        self._items: list[Any] = []
        self._undealt: list[int] = []
        self._first = self.turn = 0

    @property
    def moved(self) -> int:
        return self._shares.moved

    @property
    def has_buffered_rows(self) -> bool:
        return self._shares.is_waiting

    def replace(self, old: LaneWriter, new: LaneWriter) -> None:
        self._groups = [replaced(group, old, new) for group in self._groups]
        self._shares.replace(old, new)

    def start(self, items: list[Any]) -> None:
        self._items = items
        self._first = self.turn
        self._undealt = list(range(len(self._groups)))
        self.turn += len(items)

    def flush(self) -> bool:
        self._shares.flush()
        if not self._undealt:
            return True
        self._undealt = [at for at in self._undealt if not self._deal(self._groups[at])]
        if self._undealt:
            return False
        self._items = []
        return True

    def flush_buffered(self) -> bool:
        return self._shares.flush()

    def _deal(self, lanes: list[LaneWriter]) -> bool:
        """Deal the run among those lanes of a member for which nothing waits; False when there is none."""
        first = self._first % len(lanes)
        free = lanes[first:] + lanes[:first]
        if self._shares.is_waiting:
            free = [lane for lane in free if not self._shares.waits_for(lane)]
        for k, lane in enumerate(free[: len(self._items)]):  # a list of its own for every lane, as it may keep it
            self._shares.offer(lane, self._items[k :: len(free)])
        return bool(free)
