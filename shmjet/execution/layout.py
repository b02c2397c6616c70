"""Where everything lies in the arena of one execution: a pure function of its `JobPlan`.

The member and every worker compute the same layout from the same plan, so no offsets are sent. From the start of the
arena: one page of header, a control block per carrier, a word per processor that says where it is, a byte per process
that says whether it is ready, a block of counters per processor, then the rings of all lanes that cross processes or
may come to. `docs/formats/arena.md` has the offsets.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from shmjet.execution.control import BLOCK_SIZE
from shmjet.execution.job_plan import JobPlan
from shmjet.execution.plan_lanes import spans
from shmjet.execution.ring_places import RingPlaces, place_rings

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
REMOTE_SLOT_BYTES = 4 << 20
"""Bytes of batches that wait for the link in one lane at most: it takes them at once, but has to be woken for it."""
MAX_SLAB = 16 << 20
MIN_SLAB = 1 << 20
"""Bytes of a slab lie between these, in steps of the smaller, as the memory for rings allows; they are taken only when
they are needed."""


@dataclass(frozen=True)
class ArenaLayout:
    """Offsets in bytes into one arena.

    `rings` says where the ring of each lane lies; lanes that stay within one worker have none. `carriers` are the
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
    rings: RingPlaces = field(repr=False)
    traffic: dict[tuple[int, int], int]


def counters_size(inbound: int, outbound: int) -> int:
    """Return the bytes of a processor's counter block: its own, and those of its ordinals."""
    return -(-(COUNTERS + INBOUND_COUNTERS * inbound + OUTBOUND_COUNTERS * outbound) * 8 // 64) * 64


_newest: deque[tuple[JobPlan, ArenaLayout]] = deque(maxlen=4)
"""What was laid out last: small jobs are often run many times, and to compare plans takes a tenth of the time."""


def lay_out(plan: JobPlan) -> ArenaLayout:
    """Return the layout of an execution's arena."""
    for known, layout in tuple(_newest):
        if known == plan:
            return layout
    layout = _computed(plan)
    _newest.appendleft((plan, layout))
    return layout


def _computed(plan: JobPlan) -> ArenaLayout:
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
    counters_end = offset
    rings = place_rings(plan, _align(offset, 4096))
    size = _align(rings.end, 4096)
    return ArenaLayout(size, carriers, owners, ready, endpoints, counters_start, counters_end, counters, rings, traffic)


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
