"""Metrics made by hand, for whatever shows them."""

from __future__ import annotations

from typing import Any

from shmjet.execution.metrics import EdgeMetrics, Metrics, ProcessorMetrics, VertexMetrics, WorkerMetrics


def vertex(name: str, *busy_ns: int, received: int = 0, emitted: int = 0, **more: Any) -> VertexMetrics:
    """A vertex with a processor for each number; the first of them has done everything else."""
    processors = []
    for index, busy in enumerate(busy_ns):
        counts = (received, 0, emitted) if index == 0 else (0, 0, 0)
        given = more if index == 0 else {key: more[key] for key in more if key in ("state", "work_unit")}
        processors.append(ProcessorMetrics(index, 0, *counts, 0, 0, busy, None, None, None, 0, **given))
    return VertexMetrics(name, processors)


def edge(source: str, destination: str, received: int = 0, queued: int = 0, waited_ns: int = 0) -> EdgeMetrics:
    """An edge between ordinals 0 with room for 100 items."""
    return EdgeMetrics(source, 0, destination, 0, received + queued, received, queued, 100, 0, waited_ns)


def metrics(
    *parts: VertexMetrics | EdgeMetrics | WorkerMetrics, start: float = 100.0, end: float | None = None
) -> Metrics:
    """Metrics of an execution that was started at `start`."""
    return Metrics(
        {part.name: part for part in parts if isinstance(part, VertexMetrics)},
        [part for part in parts if isinstance(part, EdgeMetrics)],
        [part for part in parts if isinstance(part, WorkerMetrics)],
        start,
        end,
    )


def chain(*, waited_ns: tuple[int, int] = (0, 0), received: int = 0, now: bool = False) -> Metrics:
    """source -> map -> sink, the first knowing how far it is; `now`: a second later than without it."""
    second = 1_000_000_000 if now else 0
    return metrics(
        vertex("source", second // 10, emitted=received, work_done=received, work_total=1000, work_unit="bytes"),
        vertex("map", second, second // 2, received=received, emitted=received),
        vertex("sink", 0, received=received),
        edge("source", "map", received, 90, waited_ns[0]),
        edge("map", "sink", received, 10, waited_ns[1]),
        WorkerMetrics(0, 11, 0, 0.5, second, 0, 3),
    )
