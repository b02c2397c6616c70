"""Pictures of a pipeline: its stages as a graph, for the drawings that DAGs have.

Must not know how anything is planned.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shmjet.core.dag import DAG
from shmjet.core.edge import from_
from shmjet.core.graph_order import cycle_in
from shmjet.core.processor import Processor
from shmjet.pipeline import transforms as t


class _Box:
    """Stands for what a stage does; drawings write its name."""

    is_cooperative = True

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __call__(self) -> Processor:
        return Processor()


def as_graph(nodes: Sequence[t.Node]) -> DAG:
    """Return a DAG with a vertex for each stage, and edges from what is sent to a table to what is joined with it.

    It is there to be drawn and cannot be run.
    """
    dag = DAG()
    vertices = [dag.new_vertex(node.name, _Box(_subtitle(node.transform)), node.parallelism) for node in nodes]
    successors: dict[str, list[str]] = {node.name: [] for node in nodes}

    def connect(source: int, destination: int) -> None:
        start, end = vertices[source], vertices[destination]
        successors[start.name].append(end.name)
        dag.edge(from_(start, len(dag.outbound_edges(start))).to(end, len(dag.inbound_edges(end))))

    for node in nodes:
        for upstream in node.upstream:
            connect(upstream, node.id)
    for sender in nodes:
        for node in nodes:
            if (
                isinstance(sender.transform, t.SendToTable)
                and isinstance(node.transform, t.JoinTable)
                and sender.transform.table == node.transform.table
            ):
                tried = {**successors, sender.name: [*successors[sender.name], node.name]}
                if not cycle_in(list(tried), tried):
                    connect(sender.id, node.id)
    return dag


def _subtitle(transform: t.Transform) -> str:
    kind = type(transform).__name__
    for name in ("fn", "key_fn"):
        function: Any = getattr(transform, name, None)
        if function is not None:
            called = getattr(function, "__name__", type(function).__name__)
            return kind if called == "<lambda>" else f"{kind}: {called}"
    return kind
