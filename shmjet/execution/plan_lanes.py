"""Which lanes the edges of a plan have on this member, and which of them need a ring. Pure functions of a `JobPlan`."""

from __future__ import annotations

from shmjet.core.partition_assignment import isolated_consumers
from shmjet.execution.job_plan import EdgePlan, JobPlan

REMOTE_QUEUE = 16
"""The rings of a lane between members hold so many times the items that others do: what lies there is on its way, and
every time that one of them is full costs a wake-up of the link."""


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
