"""Where everything lies in the arena of one execution: a pure function of its `JobPlan`.

The member and every worker compute the same layout from the same plan, so no offsets are sent. From the start of the
arena: one page of header, a control block per carrier, a word per processor that says where it is, a byte per process
that says whether it is ready, a block of counters per processor, then the rings of all lanes that cross processes or
may come to. `docs/formats/arena.md` has the offsets.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from shmjet._native import RING_HEADER
from shmjet.core.partition_assignment import isolated_consumers
from shmjet.execution.control import BLOCK_SIZE
from shmjet.execution.messages import EdgePlan, JobPlan

HEADER_SIZE = 4096
"""Bytes of the arena's header page."""
CANCELLED_OFFSET = 0
"""A byte in the header: 1 once the execution is being cancelled."""

COUNTERS = 24
"""64-bit counters of one processor before its per-ordinal ones."""
INBOUND_COUNTERS = 6
OUTBOUND_COUNTERS = 4
"""64-bit counters of each ordinal."""
TRAFFIC_COUNTERS = 4
"""64-bit counters of each edge and other member: what went there and came from there."""
MIN_RING = 4096
MAX_RING = 1 << 20
"""Data bytes of a ring lie between these, powers of two. Lanes of items are as fast with 64 KiB as with 4 MiB, and each
megabyte that an arena has to reserve costs a first job 0.3 ms."""
REMOTE_SLOT_BYTES = 4 << 20
"""Bytes of batches that wait for the link in one lane at most: it takes them at once, but has to be woken for it."""
MAX_SLAB = 16 << 20
MIN_SLAB = 1 << 20
"""Bytes of a slab lie between these, in steps of the smaller, as the memory for rings allows; they are taken only when
they are needed."""
REMOTE_QUEUE = 16
"""The rings of a lane between members hold so many times the items that others do: what lies there is on its way, and
every time that one of them is full costs a wake-up of the link."""
SPARE_RING = 128 << 10
"""At most so many data bytes has the ring of a lane that is local until one of its ends is stolen."""


def spans(plan: JobPlan, edge: EdgePlan) -> bool:
    """Say whether an edge joins processors of several members."""
    return edge.distributed and plan.slot.count > 1


def number_on(plan: JobPlan, edge: EdgePlan, v: int, processor: int) -> int:
    """Return the number under which an edge knows a processor of this member.

    On an edge that spans members, processors are numbered over all of them: those of the first, then those of the
    second.
    """
    return processor + plan.slot.index * plan.vertices[v].parallelism if spans(plan, edge) else processor


def member_of(plan: JobPlan, edge: EdgePlan, v: int, number: int) -> int:
    """Return the place of the member that has a processor."""
    return number // plan.vertices[v].parallelism if spans(plan, edge) else plan.slot.index


def processor_of(plan: JobPlan, edge: EdgePlan, v: int, number: int) -> int | None:
    """Return the processor of this member that has a number, None when it is another member's."""
    if not spans(plan, edge):
        return number
    member, processor = divmod(number, plan.vertices[v].parallelism)
    return processor if member == plan.slot.index else None


def is_remote(plan: JobPlan, edge: EdgePlan, producer: int, consumer: int) -> bool:
    """Say whether one end of a lane is on another member, so that the link carries it."""
    return member_of(plan, edge, edge.source, producer) != member_of(plan, edge, edge.destination, consumer)


def starts_as_ring(plan: JobPlan, edge: EdgePlan, producer: int, consumer: int) -> bool:
    """Say whether the lane between two processors crosses processes from the start (or has to behave as if it did)."""
    p = processor_of(plan, edge, edge.source, producer)
    c = processor_of(plan, edge, edge.destination, consumer)
    if p is None or c is None or plan.force_rings:
        return True
    return plan.vertices[edge.source].endpoints[p] != plan.vertices[edge.destination].endpoints[c]


def needs_ring(plan: JobPlan, edge: EdgePlan, producer: int, consumer: int) -> bool:
    """Say whether a lane needs a ring now, or will when one of its ends is stolen."""
    may_move = plan.vertices[edge.source].movable or plan.vertices[edge.destination].movable
    return starts_as_ring(plan, edge, producer, consumer) or (plan.stealing and may_move)


def queue_size(plan: JobPlan, key: tuple[int, int, int]) -> int:
    """Return the items that the ring of a lane (edge, producer, consumer) may hold."""
    edge = plan.edges[key[0]]
    return edge.queue_size * (REMOTE_QUEUE if is_remote(plan, edge, key[1], key[2]) else 1)


def lane_consumers(plan: JobPlan, edge: EdgePlan, producer: int) -> list[int]:
    """Return the consumers that one producer of an edge is connected to, ascending, by their numbers on the edge.

    All of them, but for isolated edges, and edges that go to one member.
    """
    down = plan.vertices[edge.destination].parallelism
    if edge.routing == "isolated":
        return isolated_consumers(producer, plan.vertices[edge.source].parallelism, down)
    if not spans(plan, edge):
        return list(range(down))
    if edge.target >= 0:
        return list(range(edge.target * down, (edge.target + 1) * down))
    return list(range(down * plan.slot.count))


def lane_producers(plan: JobPlan, edge: EdgePlan, consumer: int) -> list[int]:
    """Return the producers that one consumer of an edge is connected to, ascending, by their numbers on the edge."""
    up = plan.vertices[edge.source].parallelism
    if edge.routing == "isolated":
        return [producer for producer in range(up) if consumer in lane_consumers(plan, edge, producer)]
    if not spans(plan, edge):
        return list(range(up))
    if edge.target >= 0 and edge.target != member_of(plan, edge, edge.destination, consumer):
        return []
    return list(range(up * plan.slot.count))


def lane_pairs(plan: JobPlan, edge: EdgePlan) -> list[tuple[int, int]]:
    """Return the (producer, consumer) pairs that an edge connects and that have an end on this member."""
    producers = [number_on(plan, edge, edge.source, p) for p in range(plan.vertices[edge.source].parallelism)]
    pairs = [(producer, consumer) for producer in producers for consumer in lane_consumers(plan, edge, producer)]
    if spans(plan, edge):
        for c in range(plan.vertices[edge.destination].parallelism):
            consumer = number_on(plan, edge, edge.destination, c)
            pairs += [
                (producer, consumer)
                for producer in lane_producers(plan, edge, consumer)
                if processor_of(plan, edge, edge.source, producer) is None
            ]
    return pairs


def most_remote_lanes(plan: JobPlan) -> int:
    """Return how many lanes to and from others the member has that has most of them.

    It decides how large their rings are. Records pass from ring to ring as they are, so these have to be equally
    large on all members.
    """
    count = 0
    for edge in plan.edges:
        if spans(plan, edge):
            lanes = plan.vertices[edge.source].parallelism * plan.vertices[edge.destination].parallelism
            count += lanes * (plan.slot.count - 1) * (1 if edge.target >= 0 else 2)
    return count


@dataclass(frozen=True)
class ArenaLayout:
    """Offsets in bytes into one arena.

    `rings` maps (edge index, producer, consumer), numbered as `number_on` says, to the offset of the ring's control
    block, `capacities` to its data bytes; lanes that stay within one worker are not in them. `carriers` are the
    offsets of the carriers' blocks.
    `counters` maps (vertex index, processor) to its counter block, `owners` to the 32-bit word that says in which
    process it is. `ready` is where the bytes of `Readiness` start, one for each of `endpoints`, with the start
    barrier's.
    The blocks of counters lie between `counters_start` and `counters_end`, and nothing but rings behind them.
    `traffic` maps (edge index, place of another member) to the words of `TrafficCounters`, which lie there, too.
    """

    size: int
    carriers: list[int]
    owners: dict[tuple[int, int], int]
    ready: int
    endpoints: int
    counters_start: int
    counters_end: int
    counters: dict[tuple[int, int], int]
    rings: dict[tuple[int, int, int], int] = field(repr=False)
    capacities: dict[tuple[int, int, int], int] = field(repr=False)
    traffic: dict[tuple[int, int], int]


def counters_size(inbound: int, outbound: int) -> int:
    """Return the bytes of a processor's counter block: its own, and those of its ordinals."""
    return -(-(COUNTERS + INBOUND_COUNTERS * inbound + OUTBOUND_COUNTERS * outbound) * 8 // 64) * 64


def ring_capacity(ring_memory: int, count: int) -> int:
    """Return the data bytes of each of `count` rings that share `ring_memory` bytes."""
    if count == 0:
        return MIN_RING
    share = max(MIN_RING, min(MAX_RING, ring_memory // count - RING_HEADER))
    return 1 << (share.bit_length() - 1)


def lay_out(plan: JobPlan) -> ArenaLayout:
    """Compute the layout of an execution's arena."""
    offset = HEADER_SIZE
    carriers = []
    for _ in range(plan.carrier_count):
        carriers.append(offset)
        offset += BLOCK_SIZE
    owners = {}
    for v, vertex in enumerate(plan.vertices):
        for p in range(vertex.parallelism):
            owners[v, p] = offset
            offset += 4
    ready, endpoints = offset, plan.endpoint_count
    offset = counters_start = _align(offset + endpoints, 64)
    counters = {}
    for v, vertex in enumerate(plan.vertices):
        size = counters_size(vertex.inbound, vertex.outbound)
        for p in range(vertex.parallelism):
            counters[v, p] = offset
            offset += size
    traffic = {}
    for e, edge in enumerate(plan.edges):
        for place in range(plan.slot.count) if spans(plan, edge) else ():
            if place != plan.slot.index:
                traffic[e, place] = offset
                offset += TRAFFIC_COUNTERS * 8
    crossing = [
        (e, p, c)
        for e, edge in enumerate(plan.edges)
        for p, c in lane_pairs(plan, edge)
        if needs_ring(plan, edge, p, c)
    ]
    remote = {key for key in crossing if is_remote(plan, plan.edges[key[0]], key[1], key[2])}
    remote_capacity = ring_capacity(plan.slot.ring_memory // 2, most_remote_lanes(plan))
    capacity = ring_capacity(plan.ring_memory, len(crossing) - len(remote))
    counters_end = offset
    offset = _align(offset, 4096)
    rings = {}
    capacities = {}
    for key in crossing:
        e, p, c = key
        spare = not starts_as_ring(plan, plan.edges[e], p, c)
        rings[key] = offset
        capacities[key] = remote_capacity if key in remote else min(capacity, SPARE_RING) if spare else capacity
        offset += RING_HEADER + capacities[key]
    size = _align(offset, 4096)
    return ArenaLayout(
        size, carriers, owners, ready, endpoints, counters_start, counters_end, counters, rings, capacities, traffic
    )


def slab_size(plan: JobPlan) -> int:
    """Return the bytes of each process's slab; 0 where that would be too little to be of use."""
    size = min(MAX_SLAB, plan.ring_memory // plan.endpoint_count)
    return 0 if size < MIN_SLAB else size // MIN_SLAB * MIN_SLAB


def slab_offsets(plan: JobPlan, start: int) -> list[int]:
    """Return where the slab of each process begins, by endpoint, when the first does at `start`."""
    size = slab_size(plan)
    return [start + endpoint * size for endpoint in range(plan.endpoint_count)] if size else []


def _align(offset: int, to: int) -> int:
    return -(-offset // to) * to
