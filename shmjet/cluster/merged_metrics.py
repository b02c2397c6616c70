"""The metrics of an execution, merged from those of all participants."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from shmjet.cluster.lifecycle_messages import LastRestart, LastSnapshot, VertexState
from shmjet.execution.metrics import NO_METRICS, EdgeMetrics, Metrics, VertexMetrics, WorkerMetrics

_EDGE_COUNTS = ("emitted_count", "received_count", "queues_size", "queues_capacity", "ring_bytes", "waited_ns")


def merge_metrics(parts: Sequence[tuple[str, Metrics]], started_at: float) -> Metrics:
    """Return the metrics of a whole execution.

    Processors have their global index, those of the first member come first; processors and workers say on which member
    they are; edges are added up.

    Args:
        parts: address and metrics of each member that takes part, in the order of their places.
        started_at: when the execution was asked for, in seconds since 1970.
    """
    told = [(address, part) for address, part in parts if part.vertices]
    if not told:
        return NO_METRICS
    ends = [part.execution_completion_time for _, part in told]
    return Metrics(
        vertices={name: _vertex(name, told) for name in told[0][1].vertices},
        edges=[_edge([part.edges[e] for _, part in told]) for e in range(len(told[0][1].edges))],
        workers=[_worker(address, worker) for address, part in told for worker in part.workers],
        execution_start_time=started_at,
        execution_completion_time=None if None in ends else max(end for end in ends if end is not None),
    )


def _vertex(name: str, parts: Sequence[tuple[str, Metrics]]) -> VertexMetrics:
    return VertexMetrics(name, [processor for _, part in parts for processor in part.vertices[name].processors])


def _worker(address: str, worker: WorkerMetrics) -> WorkerMetrics:
    return msgspec.structs.replace(worker, member=address)


def _edge(parts: Sequence[EdgeMetrics]) -> EdgeMetrics:
    return msgspec.structs.replace(
        parts[0],
        emitted_count=sum(part.emitted_count for part in parts),
        received_count=sum(part.received_count for part in parts),
        queues_size=sum(part.queues_size for part in parts),
        queues_capacity=sum(part.queues_capacity for part in parts),
        ring_bytes=sum(part.ring_bytes for part in parts),
        waited_ns=sum(part.waited_ns for part in parts),
        traffic=[traffic for part in parts for traffic in part.traffic],
    )


def with_life(
    metrics: Metrics,
    attempts: int,
    snapshot: LastSnapshot | None,
    waits_for: Sequence[str] = (),
    *,
    attempt_waits_for: str = "",
    restart: LastRestart | None = None,
) -> Metrics:
    """Return metrics with what only the coordinator of a run knows: its attempts, its last snapshot, and the vertices
    for whose end one waits; what its next attempt waits for, and its last restart."""
    if attempt_waits_for or restart is not None:
        metrics = msgspec.structs.replace(
            metrics,
            waits_for=attempt_waits_for,
            last_restart_cause="" if restart is None else restart.cause,
            last_restart_duration=None if restart is None else restart.seconds,
        )
    if attempts != metrics.attempts or waits_for:
        metrics = msgspec.structs.replace(metrics, attempts=attempts, snapshot_waits_for=list(waits_for))
    if snapshot is None:
        return metrics
    nothing = VertexState(0, 0)
    vertices = {
        name: msgspec.structs.replace(vertex, snapshot_keys=saved.keys, snapshot_bytes=saved.size)
        for name, vertex in metrics.vertices.items()
        for saved in [snapshot.vertices.get(name, nothing)]
    }
    return msgspec.structs.replace(
        metrics,
        vertices=vertices,
        last_snapshot_id=snapshot.id,
        last_snapshot_start_time=snapshot.started_at,
        last_snapshot_duration=snapshot.seconds,
        last_snapshot_bytes=snapshot.size,
        last_snapshot_keys=snapshot.keys,
    )


def part_of(metrics: Metrics, member: str, *, leads: bool) -> Metrics:
    """Return what one member did of a whole execution: its processors and workers, and what it sent and received.

    Other counts of edges are known of all members together only; they stand at the coordinator. An edge
    without them has no capacity.

    Args:
        metrics: of the execution.
        member: its address.
        leads: whether it coordinates the execution.
    """
    replace = msgspec.structs.replace
    uncounted = {} if leads else dict.fromkeys(_EDGE_COUNTS, 0)
    return replace(
        metrics,
        vertices={
            name: replace(vertex, processors=[p for p in vertex.processors if p.member in ("", member)])
            for name, vertex in metrics.vertices.items()
        },
        edges=[
            replace(edge, traffic=[traffic for traffic in edge.traffic if traffic.member == member], **uncounted)
            for edge in metrics.edges
        ],
        workers=[worker for worker in metrics.workers if worker.member in ("", member)],
    )
