"""Flow charts of a DAG in Mermaid's language, which GitHub and many notebooks draw.

Pure functions of names and edges.
"""

from __future__ import annotations

from collections.abc import Sequence

from shmjet.core.edge import Edge
from shmjet.core.vertex import Vertex
from shmjet.host.terminal_text import clean_line


def to_mermaid(vertices: Sequence[Vertex], edges: Sequence[Edge], default_parallelism: int | None = None) -> str:
    """Return the graph as a flow chart; `dag.to_mermaid()` calls it.

    Args:
        vertices: in the order in which they are written.
        edges: between them.
        default_parallelism: what to write for vertices without a local parallelism; nothing by default.
    """
    index = {vertex.name: f"v{i}" for i, vertex in enumerate(vertices)}
    lines = ["flowchart TB"]
    for vertex in vertices:
        given = vertex.local_parallelism if vertex.local_parallelism != -1 else default_parallelism
        count = "" if given is None else f" ({given})"
        lines.append(f'    {index[vertex.name]}["{_escaped(vertex.name)}{count}"]')
    for edge in edges:
        label = _label(edge)
        arrow = f'-->|"{label}"|' if label else "-->"
        lines.append(f"    {index[edge.source.name]} {arrow} {index[edge.destination.name]}")
    return "\n".join(lines)


def _label(edge: Edge) -> str:
    return _escaped(", ".join(edge.traits()))


def _escaped(text: str) -> str:
    """Write characters that mean something to Mermaid as entities; a label is one line."""
    line = clean_line(" ".join(text.splitlines()))
    return line.replace("#", "#35;").replace('"', "#quot;").replace("<", "#lt;").replace(">", "#gt;")
