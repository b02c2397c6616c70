"""Stream edges: the part of the graph of operators that matters for partition counts, the second of three steps.

The second of three steps to partition counts, and the only place where an operator and its stream meet. Must not know
the graph, nor how counts are assigned. After the conversion to `StreamEdge`s in Samza's planner (SAMZA-1889).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from shmjet.data.errors import PlanError

Op = TypeVar("Op", bound=Hashable)


@dataclass(frozen=True)
class StreamEdge:
    """A stream as the assignment of counts sees it.

    Args:
        name: unique in the pipeline.
        partitions: how many it has; None: not known.
    """

    name: str
    partitions: int | None = None


@dataclass(frozen=True)
class JoinedStreams:
    """Streams and the sets of them that have to agree.

    Args:
        known: stream -> its partition count, None where it has to be assigned.
        sets: join -> the streams that meet there, those of a known count first.
    """

    known: dict[str, int | None]
    sets: dict[str, tuple[str, ...]]


def to_stream_edges(
    joined: Mapping[Op, Iterable[Op]],
    edge_of: Mapping[Op, StreamEdge],
    name_of: Mapping[Op, str],
    side_inputs: Mapping[Op, Iterable[StreamEdge]] | None = None,
) -> JoinedStreams:
    """Replace every operator by its stream edge.

    Args:
        joined: join -> the operators at which the streams that reach it begin.
        edge_of: operator -> its stream; streams that are joined with nothing are kept too.
        name_of: join -> how messages call it.
        side_inputs: join on a table -> streams that fill the table without being part of the graph.

    Raises:
        PlanError: a stream is not among those known.

    Example:
        >>> edges = {1: StreamEdge("orders", 8), 2: StreamEdge("payments")}
        >>> to_stream_edges({3: [2, 1]}, edges, {3: "join"}).sets
        {'join': ('orders', 'payments')}
    """
    sides = side_inputs or {}
    known = {edge.name: edge.partitions for edge in edge_of.values()}
    sets = {}
    for join in (*joined, *(join for join in sides if join not in joined)):
        edges = dict.fromkeys(_edge(operator, edge_of, name_of[join]) for operator in joined.get(join, ()))
        edges.update(dict.fromkeys(sides.get(join, ())))
        known.update({edge.name: edge.partitions for edge in edges})
        sets[name_of[join]] = tuple(edge.name for edge in sorted(edges, key=lambda edge: edge.partitions is None))
    return JoinedStreams(known, sets)


def _edge(operator: Op, edge_of: Mapping[Op, StreamEdge], join: str) -> StreamEdge:
    if operator not in edge_of:
        streams = ", ".join(repr(edge.name) for edge in edge_of.values()) or "none"
        raise PlanError(f"join {join!r}: stream {operator!r} is unknown; streams of the pipeline: {streams}")
    return edge_of[operator]
