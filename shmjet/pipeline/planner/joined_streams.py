"""The streams that reach each join: analysis of the graph of operators, the first of three steps to partition counts.

An operator is whatever can be a key of a dict; what it is, the caller says by naming the streams, the joins, the tables
and where walks end. Must not know of counts, nor of anything else that streams have. After Samza's
`OperatorSpecGraphAnalyzer` (SAMZA-1889): two walks from every stream, the first of which finds what is sent to tables,
so that the second can go on from there to all joins on the same table, as if they were connected.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from shmjet.data.errors import PlanError
from shmjet.pipeline.planner.traverse import traverse

Op = TypeVar("Op", bound=Hashable)


@dataclass(frozen=True)
class OperatorGraph(Generic[Op]):
    """Operators, as far as the analysis looks at them.

    Args:
        streams: operators at which a stream begins: sources, and what makes new partitions.
        next_of: the operators that an operator feeds.
        joins: operators that join streams with streams.
        sends: operator -> the table to which it sends its items.
        table_joins: operator -> the table with which it joins a stream.
        ends: operators at which the walk of a stream ends when it comes in; what leaves them is another stream, if any.
    """

    streams: tuple[Op, ...]
    next_of: Callable[[Op], Iterable[Op]]
    joins: frozenset[Op] = frozenset()
    sends: Mapping[Op, str] = field(default_factory=dict)
    table_joins: Mapping[Op, str] = field(default_factory=dict)
    ends: frozenset[Op] = frozenset()


def joined_streams(graph: OperatorGraph[Op]) -> dict[Op, tuple[Op, ...]]:
    """Return the streams that reach each join, in the order of `graph.streams`.

    Joins come in the order in which they are met. A join that no stream reaches is left out; a cycle (a table that is
    filled by what is joined with it) ends where it began.

    Raises:
        PlanError: a join is on a table to which nothing that a stream reaches is sent.

    Example:
        >>> edges = {"a": ["j"], "b": ["j"], "j": []}
        >>> joined_streams(OperatorGraph(("a", "b"), edges.__getitem__, joins=frozenset("j")))
        {'j': ('a', 'b')}
    """
    table_connections = _table_connections(graph)
    found: dict[Op, list[Op]] = {}
    for stream in graph.streams:

        def note(operator: Op, stream: Op = stream) -> None:
            if operator in graph.joins or operator in graph.table_joins:
                found.setdefault(operator, []).append(stream)

        def next_vertices(operator: Op, stream: Op = stream) -> Iterable[Op]:
            if operator in graph.ends and operator != stream:
                return ()
            return (*graph.next_of(operator), *table_connections.get(operator, ()))

        traverse(stream, note, next_vertices)
    return {join: tuple(streams) for join, streams in found.items()}


def _table_connections(graph: OperatorGraph[Op]) -> dict[Op, list[Op]]:
    """Return, for each operator that sends to a table, the joins on that table: where its items will turn up."""
    joins_on: dict[str, dict[Op, None]] = {}
    senders: dict[Op, str] = {}

    def note(operator: Op) -> None:
        if operator in graph.sends:
            senders[operator] = graph.sends[operator]
        if operator in graph.table_joins:
            joins_on.setdefault(graph.table_joins[operator], {})[operator] = None

    for stream in graph.streams:
        traverse(stream, note, graph.next_of)
    for table, joins in joins_on.items():
        if table not in senders.values():
            known = ", ".join(map(repr, dict.fromkeys(senders.values()))) or "none"
            raise PlanError(
                f"join {next(iter(joins))!r}: table {table!r} is unknown: nothing is sent to it, and it has no side "
                f"input; tables that are filled: {known}"
            )
    return {operator: list(joins_on.get(table, ())) for operator, table in senders.items()}
