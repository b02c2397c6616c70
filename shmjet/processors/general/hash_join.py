"""Hash join: a stream on edge 0 is enriched from tables that are built from the other edges.

Must not know: how the small sides are spread; their edges are broadcast (or all are partitioned by the join key) and
have a lower priority number than edge 0. After Jet's `HashJoinP`: a left outer join, every match gives a result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product, repeat
from typing import Any

from shmjet._native import unify_nans
from shmjet.core.broadcast_key import BroadcastKey
from shmjet.core.inbox import Inbox
from shmjet.core.key_functions import KeyFn, keys_of, mapped, plain
from shmjet.core.processor import Processor
from shmjet.core.state_placement import placement_in
from shmjet.data.errors import ProcessorError
from shmjet.processors.general.base import ExpandingProcessor, Supply
from shmjet.processors.general.failures import OnError
from shmjet.processors.general.match_table import NOTHING, MatchTable

_NO_MATCH = (None,)
_BUILT_NAN = float("nan")
"""What stands for NaN in the keys of tables: another object than in those of the stream, so it matches nothing."""

JoinClause = tuple[KeyFn, KeyFn] | tuple[KeyFn, KeyFn, Callable[[Any], Any] | None]
"""Key function of the stream's items, key function of the items on the edge to be joined, and perhaps what of these
is kept."""


class HashJoinProcessor(ExpandingProcessor):
    """Builds a table per edge 1, 2, ..., then joins edge 0 with them.

    The tables are its state. Where every processor has the same tables, the first processor saves them for all; tables
    that are partitioned by key are saved by key.
    """

    state_kind = "hash_join"

    entries_at_once = 16

    def __init__(
        self,
        clauses: tuple[tuple[KeyFn, KeyFn, Callable[[Any], Any] | None], ...],
        project: Callable[..., Any] | None,
        inner: tuple[bool, ...],
        timed: bool = False,
        on_error: OnError | None = None,
    ) -> None:
        self._clauses = clauses
        self._project = project
        self._defaults: list[tuple[Any, ...]] = [() if side_is_inner else _NO_MATCH for side_is_inner in inner]
        self._tables = [MatchTable() for _ in clauses]
        self._building = set(range(1, len(clauses) + 1))
        self._timed = timed
        self._on_error = on_error
        self.failure_policies = (on_error,)

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
        if self._on_error is not None:
            return self._join_guarded(items, self._on_error)
        if self._timed:
            return self._join_timed(items)
        return self._joined(items)

    def _joined(self, items: list[Any]) -> Iterable[Any]:
        """Return the results of bare items."""
        if len(self._tables) > 1:
            return self._join_many(items)
        if self._project is None and self._tables[0].is_unique and not self._defaults[0]:
            return self._pairs(items)
        return self._join_one(items)

    def _join_timed(self, items: list[Any]) -> Iterable[Any]:
        """Return the results of timed items with their times."""
        if len(self._tables) == 1 and self._project is None and self._tables[0].is_unique and not self._defaults[0]:
            matches = self._tables[0].firsts(keys_of(self._clauses[0][0], [item for _, item in items]))
            found = zip(items, matches, strict=True)
            return [(stamp, (left, right)) for (stamp, left), right in found if right is not NOTHING]
        return ((stamp, result) for stamp, item in items for result in self._joined([item]))

    def _join_guarded(self, items: list[Any], on_error: OnError) -> Iterator[Any]:
        """Yield the results of items; one on which a function raises has none."""
        assert self.guard is not None
        for item in items:
            bare = item[1] if self._timed else item
            try:
                results = list(self._joined([bare]))
            except Exception as error:
                self.guard.failed(on_error, bare, error)
            else:
                yield from zip(repeat(item[0]), results) if self._timed else results

    def complete_edge(self, ordinal: int) -> bool:
        """Note that a table is whole."""
        self._building.discard(ordinal)
        return super().complete_edge(ordinal)

    def _is_everywhere(self, side: int) -> bool:
        """Say whether all processors have the same table of a side; so it is without an engine."""
        return self.context._find_placement is None or side + 1 in placement_in(self.context).broadcast

    def saved_entries(self) -> Iterator[tuple[Any, Any]]:
        """Return the tables, side by side."""
        for side, table in enumerate(self._tables):
            if not self._is_everywhere(side):
                for keys, items in table.chunks():
                    for key, item in zip(keys, items, strict=True):
                        yield key, (side, item)
            elif self.context.global_index == 0:
                yield from zip(repeat(BroadcastKey(("side", side))), table.chunks())

    def restore_entries(self, entries: list[tuple[Any, Any]]) -> None:
        """Add items to the tables."""
        for side, table in enumerate(self._tables):
            whole = BroadcastKey(("side", side))
            for keys, items in (value for key, value in entries if key == whole):
                table.add(unify_nans(keys, _BUILT_NAN), items)
            own = [(k, v[1]) for k, v in entries if not isinstance(k, BroadcastKey) and v[0] == side]
            table.add(unify_nans([key for key, _ in own], _BUILT_NAN), [item for _, item in own])

    def _build(self, ordinal: int, items: list[Any]) -> None:
        if ordinal > len(self._clauses):
            raise ProcessorError(
                f"hash_join has {len(self._clauses)} join clauses, but items arrived on edge {ordinal}"
            )
        table = self._tables[ordinal - 1]
        _, key_fn, projection = self._clauses[ordinal - 1]
        table.add(keys_of(key_fn, items, _BUILT_NAN), items if projection is None else mapped(projection, items))

    def _pairs(self, items: list[Any]) -> list[Any]:
        """Join items of which each has one match or none: no call of Python code but the key function's."""
        matches = self._tables[0].firsts(keys_of(self._clauses[0][0], items))
        return [(left, right) for left, right in zip(items, matches, strict=True) if right is not NOTHING]

    def _join_one(self, items: list[Any]) -> Iterator[Any]:
        matches, project = self._tables[0].matches, self._project
        default = self._defaults[0]
        for key, left in zip(keys_of(self._clauses[0][0], items), items, strict=True):
            for right in matches(key, default):
                if project is None:
                    yield left, right
                elif (result := project(left, right)) is not None:
                    yield result

    def _join_many(self, items: list[Any]) -> Iterator[Any]:
        project = self._project
        sides = [(table.matches, default) for table, default in zip(self._tables, self._defaults, strict=True)]
        keys = [keys_of(clause[0], items) for clause in self._clauses]
        for left, *of_left in zip(items, *keys, strict=True):
            found = [matches(key, default) for key, (matches, default) in zip(of_left, sides, strict=True)]
            for rights in product(*found):
                if project is None:
                    yield (left, *rights)
                elif (result := project(left, *rights)) is not None:
                    yield result


def hash_join(
    *clauses: JoinClause,
    project: Callable[..., Any] | None = None,
    inner: bool | Sequence[bool] = False,
    timed: bool = False,
    on_error: OnError | None = None,
) -> Callable[[], Processor]:
    """Join the items of edge 0 with those of edges 1, 2, ..., which are kept in memory by key.

    Args:
        clauses: one (left key function, right key function) per joined edge, in the order of the ordinals; None means
            the item itself. A third function says what of a joined item is kept; it must not return None.
        project: `(left, right1, right2, ...) -> result`; default: the tuple of them. None is not a result.
        inner: leave out items without a match; otherwise None stands for the missing side. One bool for all sides or
            one for each.
        timed: items of edge 0 are pairs `(timestamp, item)`; functions see the item, and results are pairs with its
            timestamp. Items of the other edges are bare.
        on_error: what is done with an item of edge 0 on which a function raises; None: the job fails.

    Give the joined edges `.broadcast()` and `.priority(-1)`, so that they are complete before the stream comes.

    Raises:
        ValueError: without a clause. TypeError: when a clause is not a pair of key functions.

    Example:
        >>> join = hash_join((lambda trade: trade[0], lambda company: company[0]))
        >>> # dag.edge(from_(companies).to(join_vertex, 1).broadcast().priority(-1))
    """
    if not clauses:
        raise ValueError("hash_join: expected a (left key, right key) pair per joined edge, got none")
    checked = []
    for clause in clauses:
        if not isinstance(clause, tuple) or len(clause) not in (2, 3):
            raise TypeError(f"hash_join: expected a (left key, right key) pair per joined edge, got {clause!r}")
        projection = clause[2] if len(clause) == 3 else None
        if projection is not None and not callable(projection):
            raise TypeError(f"hash_join: expected a function of a joined item, got {projection!r}")
        checked.append((plain(clause[0]), plain(clause[1]), projection))
    if project is not None and not callable(project):
        raise TypeError(f"hash_join: project must be callable, got {project!r}")
    inners = (inner,) * len(checked) if isinstance(inner, bool) else tuple(inner)
    if len(inners) != len(checked):
        raise ValueError(f"hash_join: {len(checked)} edges are joined, but inner has {len(inners)} values")
    return Supply(HashJoinProcessor, tuple(checked), project, inners, timed, on_error)
