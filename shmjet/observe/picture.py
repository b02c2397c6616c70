"""A job as a picture for notebooks: its DAG, with what has gone through each vertex and edge so far."""

from __future__ import annotations

from collections.abc import Sequence

from shmjet.core.edge import Edge
from shmjet.core.graph_drawing import to_svg
from shmjet.core.vertex import Vertex
from shmjet.execution.metrics import EdgeMetrics, Metrics
from shmjet.observe.numbers import bytes_text, count_text


def job_svg(vertices: Sequence[Vertex], edges: Sequence[Edge], metrics: Metrics) -> str:
    """Return the DAG as an SVG document, with counts where there are metrics.

    Args:
        vertices: in topological order.
        edges: between them.
        metrics: of an execution of it; empty ones give the plain DAG.
    """
    notes = {}
    for name, vertex in metrics.vertices.items():
        is_fed = any(edge.destination.name == name for edge in edges)
        received = f"{count_text(vertex.received_count)} in, " if is_fed else ""
        notes[name] = f"\u00d7 {len(vertex.processors)}: {received}{count_text(vertex.emitted_count)} out"
    counts = {(edge.source, edge.source_ordinal): _edge_note(edge) for edge in metrics.edges if edge.received_count}
    return to_svg(vertices, edges, notes=notes, edge_notes=counts)


def _edge_note(edge: EdgeMetrics) -> str:
    through = count_text(edge.received_count)
    if not edge.distributed_bytes_in:
        return through
    return f"{through}, {count_text(edge.distributed_items_in)} ({bytes_text(edge.distributed_bytes_in)}) by network"
