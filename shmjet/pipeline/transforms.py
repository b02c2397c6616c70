"""The logical graph of a pipeline: one frozen description for each kind of stage, and the node that places it.

Descriptions only: what the user asked for and nothing of how it is done. It must not know the DAG, the planner or how
processors work. After Jet's `*Transform` classes, without their methods.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shmjet.core.key_functions import KeyFn
from shmjet.pipeline.definitions import SinkDef, SourceDef
from shmjet.processors.general.services import ServiceFactory

Fn = Callable[..., Any]


@dataclass(frozen=True)
class Transform:
    """What a stage does."""


@dataclass(frozen=True)
class Source(Transform):
    """Items come from outside."""

    source: SourceDef[Any]


@dataclass(frozen=True)
class Sink(Transform):
    """Items leave."""

    sink: SinkDef[Any]


@dataclass(frozen=True)
class Map(Transform):
    """`fn(item)`, unless that is None."""

    fn: Fn


@dataclass(frozen=True)
class Filter(Transform):
    """Items for which `fn(item)` is true."""

    fn: Fn


@dataclass(frozen=True)
class FlatMap(Transform):
    """All that `fn(item)` gives."""

    fn: Fn


@dataclass(frozen=True)
class Peek(Transform):
    """Items pass; if `predicate` selects an item, it is logged as `to_text` writes it."""

    predicate: Fn | None
    to_text: Fn


@dataclass(frozen=True)
class MapBatches(Transform):
    """What `fn` makes of each batch of columns; `as_` says what it takes (see `processors.map_batches`)."""

    fn: Fn
    as_: type | None = None


@dataclass(frozen=True)
class MapStateful(Transform):
    """`fn(state, key, item)`, or `fn(state, item)` with one state in all when there is no key."""

    create: Callable[[], Any]
    fn: Fn
    key_fn: KeyFn
    keyed: bool


@dataclass(frozen=True)
class FilterStateful(MapStateful):
    """Items for which `fn` is true, given a state."""


@dataclass(frozen=True)
class FlatMapStateful(MapStateful):
    """All that `fn` gives, given a state."""


@dataclass(frozen=True)
class UsingService(Transform):
    """Map, filter or flat_map (`kind`) with `fn(service, item)`, or `fn(service, key, item)` when there is a key."""

    kind: str
    service: ServiceFactory[Any]
    fn: Fn
    key_fn: KeyFn
    keyed: bool


@dataclass(frozen=True)
class UsingServiceAsync(UsingService):
    """The same where `fn` is a coroutine function."""

    max_concurrent_ops: int = 4
    preserve_order: bool = True


@dataclass(frozen=True)
class Merge(Transform):
    """The items of all inputs."""


@dataclass(frozen=True)
class JoinClause:
    """How one side of a hash join is joined: made by `on_keys` and `join_map_entries`.

    Args:
        left_key: key of an item of the stream.
        right_key: key of an item of the joined side.
        projection: what of a joined item is handed on; None: all of it.

    Example:
        >>> from operator import itemgetter
        >>> JoinClause(itemgetter(1), itemgetter(0)).projecting(itemgetter(2)).projection((1, 2, 3))
        3
    """

    left_key: KeyFn
    right_key: KeyFn
    projection: Fn | None = None

    def projecting(self, fn: Callable[[Any], Any]) -> JoinClause:
        """Return a clause that keeps only `fn(item)` of each item of the joined side."""
        return JoinClause(self.left_key, self.right_key, fn)


@dataclass(frozen=True)
class HashJoin(Transform):
    """The first input, enriched from tables made of the others; `project(item, match, ...)` makes the results.

    `inner` says for each side whether an item without a match on it is left out.
    """

    clauses: tuple[JoinClause, ...]
    project: Fn | None
    inner: tuple[bool, ...]


@dataclass(frozen=True)
class Join(Transform):
    """All pairs of items of two inputs with equal keys; both inputs are partitioned by the key."""

    left_key: KeyFn
    right_key: KeyFn
    project: Fn | None


@dataclass(frozen=True)
class Rebalance(Transform):
    """Spreads items over all processors, evenly or by key."""

    key_fn: KeyFn
    keyed: bool


@dataclass(frozen=True)
class PartitionBy(Transform):
    """An intermediate stream whose partitions are made by a key."""

    key_fn: KeyFn


@dataclass(frozen=True)
class SendToTable(Transform):
    """Entries for a table: `(key, value)` items, or with a `key_fn` the item under its key. It ends a branch."""

    table: str
    key_fn: KeyFn
    keyed: bool


@dataclass(frozen=True)
class JoinTable(Transform):
    """`fn(item, value)` for each item and the value that a table has for its key, or None."""

    table: str
    key_fn: KeyFn
    fn: Fn


@dataclass(frozen=True)
class Sort(Transform):
    """All items in order."""

    key_fn: KeyFn
    reverse: bool


@dataclass(frozen=True)
class Distinct(Transform):
    """One item of each key (of each value when there is no key)."""

    key_fn: KeyFn


@dataclass(frozen=True)
class Aggregate(Transform):
    """Items of one or several inputs folded into one result, or into one for each key.

    Args:
        op: an `AggregateOperation` with as many inputs as the node has.
        key_fns: key of an item, by input; None: everything is one group.
    """

    op: Any
    key_fns: tuple[KeyFn, ...] | None


@dataclass(frozen=True)
class RollingAggregate(Transform):
    """The result so far, after each item; with a key `(key, result)`."""

    op: Any
    key_fn: KeyFn
    keyed: bool


@dataclass(frozen=True)
class GroupColumns(Transform):
    """Aggregation of columns by columns; `grouping` is what `processors.group_by(...).agg(...)` makes."""

    grouping: Any


@dataclass(frozen=True)
class Custom(Transform):
    """A processor of the user's own."""

    supplier: Any


@dataclass(frozen=True)
class Node:
    """A stage's place in the graph.

    Args:
        id: its index among the pipeline's nodes; what feeds it has lower ones.
        name: stem of the names of its vertices; unique in the pipeline.
        transform: what it does.
        upstream: ids of the nodes that feed it, in the order of its inputs.
        parallelism: processors on each member; -1: as the planner sees fit.
        is_named: the user chose the name.
    """

    id: int
    name: str
    transform: Transform
    upstream: tuple[int, ...] = ()
    parallelism: int = -1
    is_named: bool = False
