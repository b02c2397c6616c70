"""A job's metrics as a person looks at them in a notebook: vertices, edges, workers, and when it ran."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from shmjet.data.html_tables import note, section, table

if TYPE_CHECKING:
    from shmjet.execution.metrics import EdgeMetrics, Metrics, VertexMetrics, WorkerMetrics

_MOST = 100
"""Vertices and edges that are shown."""


def metrics_html(metrics: Metrics) -> str:
    """Return the counts of all vertices and edges, and how busy workers are."""
    vertices = list(metrics.vertices.values())
    if not vertices:
        return section("Metrics of no vertex")
    parts = [note(text) for text in (_times(metrics), _snapshot(metrics)) if text]
    parts.append(table(["vertex", "processors", "in", "out", "busy (s)", "watermark"], map(_vertex, vertices[:_MOST])))
    if metrics.edges:
        heads = ["edge", "in", "out", "under way", "room for", "waited (s)"]
        parts.append(table(heads, map(_edge, metrics.edges[:_MOST])))
    if metrics.workers:
        parts.append(table(["worker", "pid", "core", "busy", "tasklets"], map(_worker, metrics.workers[:_MOST])))
    hidden = max(0, len(vertices) - _MOST) + max(0, len(metrics.edges) - _MOST)
    return section("Metrics", *parts, *([note(f"... and {hidden:,} more vertices and edges")] if hidden else []))


def moment_text(seconds: float | None) -> str:
    """Return seconds since the epoch as date and time of this host's zone; nothing for None."""
    return "" if seconds is None else datetime.fromtimestamp(seconds).isoformat(" ", "milliseconds")


def _times(metrics: Metrics) -> str:
    if metrics.execution_start_time is None:
        return ""
    text = f"began {moment_text(metrics.execution_start_time)}"
    if metrics.execution_completion_time is not None:
        text += f", ended {moment_text(metrics.execution_completion_time)}"
    return text if metrics.attempts == 1 else f"{text}, attempt {metrics.attempts}"


def _snapshot(metrics: Metrics) -> str:
    if not metrics.last_snapshot_id:
        return ""
    return (
        f"snapshot {metrics.last_snapshot_id} of {moment_text(metrics.last_snapshot_start_time)}: "
        f"{metrics.last_snapshot_keys:,} keys, {metrics.last_snapshot_bytes:,} bytes"
    )


def _vertex(vertex: VertexMetrics) -> list[str]:
    return [
        vertex.name,
        f"{len(vertex.processors):,}",
        f"{vertex.received_count:,}",
        f"{vertex.emitted_count:,}",
        f"{vertex.busy_ns / 1e9:.3f}",
        "" if vertex.last_forwarded_wm is None else str(vertex.last_forwarded_wm),
    ]


def _edge(edge: EdgeMetrics) -> list[str]:
    return [
        f"{edge.source} → {edge.destination}",
        f"{edge.emitted_count:,}",
        f"{edge.received_count:,}",
        f"{edge.queues_size:,}",
        f"{edge.queues_capacity:,}",
        f"{edge.waited_ns / 1e9:.3f}",
    ]


def _worker(worker: WorkerMetrics) -> list[str]:
    core = "any" if worker.core is None else str(worker.core)
    return [f"{worker.index}", str(worker.pid or ""), core, f"{worker.busy:.0%}", f"{worker.tasklets:,}"]
