"""Where the ring of each lane lies, known without a list of all of them.

With n workers most edges have n x n lanes: 36,864 for 192 workers. The member and every worker need the place of some
of them, for every job, so it is computed: an edge within one member that joins all its processors has the rings of one
producer side by side, all equally large but those whose ends are in one process. Other edges have a list.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from itertools import accumulate

import msgspec

from shmjet._native import RING_HEADER
from shmjet.execution.job_plan import EdgePlan, JobPlan
from shmjet.execution.plan_lanes import (
    is_remote,
    lane_pairs,
    most_remote_lanes,
    needs_ring,
    queue_size,
    spans,
    starts_as_ring,
)

MIN_RING = 4096
MAX_RING = 1 << 20
"""Data bytes of a ring lie between these, powers of two."""
ENOUGH_RING = 64 << 10
PLENTY = 32 << 20
"""Lanes of items are as fast with rings of `ENOUGH_RING` as with 4 MiB, and each megabyte that an arena has to reserve
costs a first job 0.3 ms or more. So where the rings of lanes within one member take more than `PLENTY` together, they
have no more than that each."""
SPARE_RING = 128 << 10
"""At most so many data bytes has the ring of a lane that is local until one of its ends is stolen."""

Lane = tuple[int, int, int]
"""Edge, producer and consumer, numbered as `number_on` says."""


class Run(msgspec.Struct, frozen=True):
    """Rings of one edge that are equally large and lie one behind the other.

    Args:
        edge: its index.
        start: offset of the first one's control block.
        capacity: data bytes of each.
        queue_size: items that each may hold.
        count: how many.
    """

    edge: int
    start: int
    capacity: int
    queue_size: int
    count: int


class _ListedRings:
    """The rings of an edge between some processors, or of several members.

    Args:
        capacities: data bytes of each ring.
        queue_sizes: items that each may hold.
    """

    def __init__(self, capacities: dict[tuple[int, int], int], queue_sizes: dict[tuple[int, int], int]) -> None:
        self._capacities = capacities
        self._queue_sizes = queue_sizes
        self._places: dict[tuple[int, int], int] = {}

    def put(self, start: int) -> int:
        """Lay them out from `start` on; return where they end."""
        for pair, capacity in self._capacities.items():
            self._places[pair] = start
            start += RING_HEADER + capacity
        return start

    def find(self, producer: int, consumer: int) -> tuple[int, int] | None:
        """Return offset and data bytes of a ring, or None."""
        at = self._places.get((producer, consumer))
        return None if at is None else (at, self._capacities[producer, consumer])

    def pairs(self) -> Iterator[tuple[int, int]]:
        """Give the lanes that have a ring, in order."""
        yield from self._capacities

    def runs(self, edge: int) -> Iterator[Run]:
        """Give the rings, in order."""
        for pair, capacity in self._capacities.items():
            yield Run(edge, self._places[pair], capacity, self._queue_sizes[pair], 1)


class _AllPairs:
    """The rings of an edge that joins all processors of two vertices, all of them on this member.

    Args:
        sources: the process of each producer.
        destinations: the process of each consumer.
        near: data bytes of the ring of a lane within one process; -1 where it has none.
        capacity: of all others.
        queue_size: items that each may hold.
    """

    def __init__(self, sources: list[int], destinations: list[int], near: int, capacity: int, queue_size: int) -> None:
        within: dict[int, list[int]] = {}
        for consumer, process in enumerate(destinations):
            within.setdefault(process, []).append(consumer)
        self._near = [within.get(process, []) for process in sources]
        self._down = len(destinations)
        self._near_capacity, self._capacity, self._queue_size = near, capacity, queue_size
        self._near_bytes, self._bytes = (RING_HEADER + near if near >= 0 else 0), RING_HEADER + capacity
        self._rows: list[int] = []

    def put(self, start: int) -> int:
        """Lay them out from `start` on; return where they end."""
        less = self._bytes - self._near_bytes
        *self._rows, end = accumulate((self._down * self._bytes - len(n) * less for n in self._near), initial=start)
        return end

    def find(self, producer: int, consumer: int) -> tuple[int, int] | None:
        """Return offset and data bytes of a ring, or None."""
        if not (0 <= producer < len(self._rows) and 0 <= consumer < self._down):
            return None
        near = self._near[producer]
        before = bisect_left(near, consumer)
        is_near = before < len(near) and near[before] == consumer
        if is_near and self._near_capacity < 0:
            return None
        at = self._rows[producer] + (consumer - before) * self._bytes + before * self._near_bytes
        return at, self._near_capacity if is_near else self._capacity

    def pairs(self) -> Iterator[tuple[int, int]]:
        """Give the lanes that have a ring, in order."""
        for producer, near in enumerate(self._near):
            without = set(near) if self._near_capacity < 0 else ()
            for consumer in range(self._down):
                if consumer not in without:
                    yield producer, consumer

    def runs(self, edge: int) -> Iterator[Run]:
        """Give the rings, in order."""
        for at, near in zip(self._rows, self._near, strict=True):
            consumer = 0
            for place in near:
                if place > consumer:
                    yield Run(edge, at, self._capacity, self._queue_size, place - consumer)
                    at += (place - consumer) * self._bytes
                if self._near_capacity >= 0:
                    yield Run(edge, at, self._near_capacity, self._queue_size, 1)
                at += self._near_bytes
                consumer = place + 1
            if self._down > consumer:
                yield Run(edge, at, self._capacity, self._queue_size, self._down - consumer)


class RingPlaces(Mapping[Lane, int]):
    """Lane -> the offset of its ring's control block; lanes without a ring are not in it.

    Args:
        edges: the rings of each edge, laid out.
        end: the first byte behind the last one.
    """

    def __init__(self, edges: list[_ListedRings | _AllPairs], end: int) -> None:
        self._edges = edges
        self.end = end

    def __getitem__(self, lane: Lane) -> int:
        return self._find(lane)[0]

    def __iter__(self) -> Iterator[Lane]:
        for e, edge in enumerate(self._edges):
            for producer, consumer in edge.pairs():
                yield e, producer, consumer

    def __len__(self) -> int:
        return sum(run.count for run in self.runs())

    def capacity(self, lane: Lane) -> int:
        """Return the data bytes of a lane's ring. Raises KeyError when it has none."""
        return self._find(lane)[1]

    def runs(self) -> Iterator[Run]:
        """Give all rings, in order."""
        for e, edge in enumerate(self._edges):
            yield from edge.runs(e)

    def _find(self, lane: Lane) -> tuple[int, int]:
        e, producer, consumer = lane
        found = self._edges[e].find(producer, consumer) if 0 <= e < len(self._edges) else None
        if found is None:
            raise KeyError(lane)
        return found


def ring_capacity(ring_memory: int, count: int) -> int:
    """Return the data bytes of each of `count` rings that share `ring_memory` bytes."""
    if count == 0:
        return MIN_RING
    share = max(MIN_RING, min(MAX_RING, ring_memory // count - RING_HEADER))
    return 1 << (share.bit_length() - 1)


def local_capacity(ring_memory: int, count: int) -> int:
    """Return the data bytes of each of `count` rings of lanes within one member: no more than they need."""
    return min(ring_capacity(ring_memory, count), max(ENOUGH_RING, ring_capacity(PLENTY, count)))


def place_rings(plan: JobPlan, start: int) -> RingPlaces:
    """Lay out all rings of a plan, from an offset on."""
    listed = {
        e: [(p, c) for p, c in lane_pairs(plan, edge) if needs_ring(plan, edge, p, c)]
        for e, edge in enumerate(plan.edges)
        if spans(plan, edge) or edge.routing == "isolated"
    }
    count = 0
    for e, edge in enumerate(plan.edges):
        if e in listed:
            count += sum(not is_remote(plan, edge, p, c) for p, c in listed[e])
        else:
            count += _count(plan, edge)
    capacity = local_capacity(plan.ring_memory, count)
    remote = ring_capacity(plan.slot.ring_memory // 2, most_remote_lanes(plan))
    spare = min(capacity, SPARE_RING)
    edges: list[_ListedRings | _AllPairs] = []
    for e, edge in enumerate(plan.edges):
        if e in listed:
            sizes = {}
            for p, c in listed[e]:
                near = not starts_as_ring(plan, edge, p, c)
                sizes[p, c] = remote if is_remote(plan, edge, p, c) else spare if near else capacity
            edges.append(_ListedRings(sizes, {(p, c): queue_size(plan, (e, p, c)) for p, c in sizes}))
        else:
            sources, destinations = (plan.vertices[v].endpoints for v in (edge.source, edge.destination))
            near_capacity = capacity if plan.force_rings else spare if _may_move(plan, edge) else -1
            edges.append(_AllPairs(list(sources), list(destinations), near_capacity, capacity, edge.queue_size))
        start = edges[-1].put(start)
    return RingPlaces(edges, start)


def _count(plan: JobPlan, edge: EdgePlan) -> int:
    """Return how many lanes of an edge that joins all processors here need a ring."""
    sources, destinations = plan.vertices[edge.source].endpoints, plan.vertices[edge.destination].endpoints
    lanes = len(sources) * len(destinations)
    if plan.force_rings or _may_move(plan, edge):
        return lanes
    return lanes - sum(destinations.count(process) for process in sources)


def _may_move(plan: JobPlan, edge: EdgePlan) -> bool:
    return plan.stealing and (plan.vertices[edge.source].movable or plan.vertices[edge.destination].movable)
