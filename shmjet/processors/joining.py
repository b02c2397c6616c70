"""Hash join: a stream on edge 0 is enriched from tables that are built from the other edges.

Must not know: how the small sides are spread; their edges are broadcast (or all are partitioned by the join key) and
have a lower priority number than edge 0. After Jet's `HashJoinP`: a left outer join, every match gives a result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import product
from typing import Any

from shmjet.core.errors import ProcessorError
from shmjet.core.inbox import Inbox
from shmjet.core.processor import Processor
from shmjet.processors.bulk import ExpandingProcessor, Supply
from shmjet.processors.keying import KeyFn, keys_of, plain

_NO_MATCH = (None,)

JoinClause = tuple[KeyFn, KeyFn]
"""Key function of the stream's items, and key function of the items on the edge to be joined."""


class HashJoinProcessor(ExpandingProcessor):
    """Builds a table per edge 1, 2, ..., then joins edge 0 with them."""

    def __init__(self, clauses: tuple[JoinClause, ...], project: Callable[..., Any] | None, inner: bool) -> None:
        self._clauses = clauses
        self._project = project
        self._inner = inner
        self._tables: list[dict[Any, list[Any]]] = [{} for _ in clauses]
        self._building = set(range(1, len(clauses) + 1))

    def process(self, ordinal: int, inbox: Inbox) -> None:
        """Join items of edge 0, or put those of another edge into its table."""
        if ordinal:
            self._build(ordinal, inbox.take())
        elif self._building:
            raise ProcessorError(
                f"vertex {self.context.vertex_name!r}: items of the stream (edge 0) arrived before edge "
                f"{min(self._building)} was complete; give the joined edges a lower priority number: .priority(-1)"
            )
        else:
            super().process(ordinal, inbox)

    def expand(self, ordinal: int, items: list[Any]) -> Iterable[Any]:
        """Join a list of edge 0."""
        return self._join_one(items) if len(self._tables) == 1 else self._join_many(items)

    def complete_edge(self, ordinal: int) -> bool:
        """Note that a table is whole."""
        self._building.discard(ordinal)
        return super().complete_edge(ordinal)

    def _build(self, ordinal: int, items: list[Any]) -> None:
        if ordinal > len(self._clauses):
            raise ProcessorError(
                f"hash_join has {len(self._clauses)} join clauses, but items arrived on edge {ordinal}"
            )
        table = self._tables[ordinal - 1]
        for key, item in zip(keys_of(self._clauses[ordinal - 1][1], items), items, strict=True):
            try:
                table[key].append(item)
            except KeyError:
                table[key] = [item]

    def _join_one(self, items: list[Any]) -> Iterator[Any]:
        get, project = self._tables[0].get, self._project
        default = () if self._inner else _NO_MATCH
        for key, left in zip(keys_of(self._clauses[0][0], items), items, strict=True):
            for right in get(key, default):
                yield (left, right) if project is None else project(left, right)

    def _join_many(self, items: list[Any]) -> Iterator[Any]:
        project = self._project
        default = () if self._inner else _NO_MATCH
        sides = [(table.get, left_key) for table, (left_key, _) in zip(self._tables, self._clauses, strict=True)]
        for left in items:
            matches = (get(left if key_fn is None else key_fn(left), default) for get, key_fn in sides)
            for rights in product(*matches):
                yield (left, *rights) if project is None else project(left, *rights)


def hash_join(
    *clauses: JoinClause, project: Callable[..., Any] | None = None, inner: bool = False
) -> Callable[[], Processor]:
    """Join the items of edge 0 with those of edges 1, 2, ..., which are kept in memory by key.

    Args:
        clauses: one (left key function, right key function) per joined edge, in the order of the ordinals; None means
            the item itself.
        project: `(left, right1, right2, ...) -> result`; default: the tuple of them. It must not return None.
        inner: leave out items without a match; otherwise None stands for the missing side.

    Give the joined edges `.broadcast()` and `.priority(-1)`, so that they are complete before the stream comes.

    Raises:
        ValueError: without a clause. TypeError: when a clause is no pair of key functions.

    Example:
        >>> join = hash_join((lambda trade: trade[0], lambda company: company[0]))
        >>> # dag.edge(from_(companies).to(join_vertex, 1).broadcast().priority(-1))
    """
    if not clauses:
        raise ValueError("hash_join: expected a (left key, right key) pair per joined edge, got none")
    checked = []
    for clause in clauses:
        if not isinstance(clause, tuple) or len(clause) != 2:
            raise TypeError(f"hash_join: expected a (left key, right key) pair per joined edge, got {clause!r}")
        checked.append((plain(clause[0]), plain(clause[1])))
    if project is not None and not callable(project):
        raise TypeError(f"hash_join: project must be callable, got {project!r}")
    return Supply(HashJoinProcessor, tuple(checked), project, inner)
