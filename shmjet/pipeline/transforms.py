"""The logical graph of a pipeline: one frozen description for each kind of stage, and the node that places it.

Descriptions only: what the user asked for and nothing of how it is done. It must not know the DAG, the planner or how
processors work. After Jet's `*Transform` classes, without their methods.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from shmjet.core.durations import Duration
from shmjet.core.event_time import EventTimePolicy
from shmjet.core.key_functions import KeyFn
from shmjet.core.windows import WindowDefinition
from shmjet.pipeline.definitions import SinkDef, SourceDef
from shmjet.processors.general.services import ServiceFactory

Fn = Callable[..., Any]

How = Literal["inner", "left", "right", "outer"]
"""Which sides of a join have results without a match."""

ColumnsHow = Literal["inner", "left", "right", "outer", "semi", "anti"]
"""The same of a join of batches, or which of the left rows come out: those with a match, those without."""


class Transform(msgspec.Struct, frozen=True):
    """What a stage does."""


class Source(Transform, frozen=True):
    """Items come from outside.

    Args:
        source: from where.
        policy: what their event time is; None: they have none.
        is_read: of an endless source, that `policy` has been said.
    """

    source: SourceDef[Any]
    policy: EventTimePolicy | None = None
    is_read: bool = False


class Sink(Transform, frozen=True):
    """Items leave."""

    sink: SinkDef[Any]


class Map(Transform, frozen=True):
    """`fn(item)`, unless that is None."""

    fn: Fn


class Filter(Transform, frozen=True):
    """Items for which `fn(item)` is true."""

    fn: Fn


class FlatMap(Transform, frozen=True):
    """All that `fn(item)` gives."""

    fn: Fn


class Peek(Transform, frozen=True):
    """Items pass; if `predicate` selects an item, it is logged as `to_text` writes it."""

    predicate: Fn | None
    to_text: Fn


class MapBatches(Transform, frozen=True):
    """What `fn` makes of each batch of columns; `as_` says what it takes (see `processors.map_batches`)."""

    fn: Fn
    as_: type | None = None


class MapStateful(Transform, frozen=True):
    """`fn(state, key, item)`, or `fn(state, item)` with one state in all when there is no key.

    A state lives for `ttl` of event time without an item; then it is `on_evict(state, key, watermark)`.
    """

    create: Callable[[], Any]
    fn: Fn
    key_fn: KeyFn
    keyed: bool
    ttl: Duration | None = None
    on_evict: Fn | None = None


class FilterStateful(MapStateful, frozen=True):
    """Items for which `fn` is true, given a state."""


class FlatMapStateful(MapStateful, frozen=True):
    """All that `fn` gives, given a state."""


class UsingService(Transform, frozen=True):
    """Map, filter or flat_map (`kind`) with `fn(service, item)`, or `fn(service, key, item)` when there is a key."""

    kind: str
    service: ServiceFactory[Any]
    fn: Fn
    key_fn: KeyFn
    keyed: bool


class UsingServiceAsync(UsingService, frozen=True):
    """The same where `fn` is a coroutine function."""

    max_concurrent_ops: int = 4
    preserve_order: bool = True


class MapUsingMap(Transform, frozen=True):
    """`fn(item, value)` for each item and the value that the map of that name has for its key, or None."""

    name: str
    key_fn: KeyFn
    fn: Fn


class Merge(Transform, frozen=True):
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


class HashJoin(Transform, frozen=True):
    """The first input, enriched from tables made of the others; `project(item, match, ...)` makes the results.

    `inner` says for each side whether an item without a match on it is left out.
    """

    clauses: tuple[JoinClause, ...]
    project: Fn | None
    inner: tuple[bool, ...]


class Join(Transform, frozen=True):
    """All pairs of items of two inputs with equal keys; both inputs are partitioned by the key."""

    left_key: KeyFn
    right_key: KeyFn
    project: Fn | None
    how: How = "inner"


class StreamJoin(Join, frozen=True):
    """The same of two streams, where their times are at most `within` milliseconds apart."""

    within: int = 0


class AddTimestamps(Transform, frozen=True):
    """Items of a stream without event time get one."""

    policy: EventTimePolicy


class WithTime(Transform, frozen=True):
    """Items become pairs `(timestamp, item)`, which are items in their turn, for functions that want to know."""


class Window(Transform, frozen=True):
    """Items of one or several streams, cut into windows by their time and folded in each.

    Args:
        definition: of the windows.
        op: an `AggregateOperation` with as many inputs as the node has.
        key_fns: key of an item, by input; None: everything is one group.
        early_results: milliseconds between results of windows that have not ended; 0: there are none.
        has_late: a `LateItems` node follows.
        make_result: `(start, end, key, result, is_early)` -> what is emitted; None: the usual results.
    """

    definition: WindowDefinition
    op: Any
    key_fns: tuple[KeyFn, ...] | None
    early_results: int = 0
    has_late: bool = False
    make_result: Callable[[int, int, Any, Any, bool], Any] | None = None


class WindowColumns(Transform, frozen=True, eq=False):
    """Rows of batches, cut into windows by their time and aggregated in each by the values of columns.

    Args:
        definition: of the windows.
        keys: names of the key columns; none: everything is one group.
        aggregates: name of a result → its `Aggregate`.
        early_results: milliseconds between results of windows that have not ended; 0: there are none.
        has_late: a `LateItems` node follows.
    """

    definition: WindowDefinition
    keys: tuple[str, ...]
    aggregates: Mapping[str, Any]
    early_results: int = 0
    has_late: bool = False


WINDOWS = (Window, WindowColumns)
"""Stages that cut streams into windows."""


class LateItems(Transform, frozen=True):
    """The items for which the window that feeds it had been emitted before they came."""


class FailedItems(Transform, frozen=True):
    """The items for which a function of the stage that feeds it raised, as `FailedItem`s."""


SIDES = (LateItems, FailedItems)
"""What else comes out of a stage than its results."""


class Rebalance(Transform, frozen=True):
    """Spreads items over all processors, evenly or by key."""

    key_fn: KeyFn
    keyed: bool


class PartitionBy(Transform, frozen=True):
    """An intermediate stream whose partitions are made by a key."""

    key_fn: KeyFn


class SendToTable(Transform, frozen=True):
    """Entries for a table: `(key, value)` items, or with a `key_fn` the item under its key. It ends a branch."""

    table: str
    key_fn: KeyFn
    keyed: bool


class JoinTable(Transform, frozen=True):
    """`fn(item, value)` for each item and the value that a table has for its key, or None."""

    table: str
    key_fn: KeyFn
    fn: Fn


class Sort(Transform, frozen=True):
    """All items in order."""

    key_fn: KeyFn
    reverse: bool


class Distinct(Transform, frozen=True):
    """One item of each key (of each value when there is no key)."""

    key_fn: KeyFn


class Aggregate(Transform, frozen=True):
    """Items of one or several inputs folded into one result, or into one for each key.

    Args:
        op: an `AggregateOperation` with as many inputs as the node has.
        key_fns: key of an item, by input; None: everything is one group.
    """

    op: Any
    key_fns: tuple[KeyFn, ...] | None


class RollingAggregate(Transform, frozen=True):
    """The result so far, after each item; with a key `(key, result)`; `ttl` as of `MapStateful`."""

    op: Any
    key_fn: KeyFn
    keyed: bool
    ttl: Duration | None = None


class GroupColumns(Transform, frozen=True):
    """Aggregation of columns by columns; `grouping` is what `processors.group_by(...).agg(...)` makes."""

    grouping: Any

    @property
    def keys(self) -> tuple[str, ...]:
        """Names of the key columns."""
        return tuple(self.grouping.keys)

    @property
    def aggregates(self) -> Mapping[str, Any]:
        """Name of a result → its `Aggregate`."""
        found: Mapping[str, Any] = self.grouping.aggregates
        return found


class Select(Transform, frozen=True, eq=False):
    """Batches with these columns and no others, in this order: pairs of a name and the `Expression` of its values."""

    outputs: tuple[tuple[str, Any], ...]


# `==` of expressions makes an expression, so stages that have some are compared by identity.


class With(Transform, frozen=True, eq=False):
    """Batches with these columns added, or put in place of those of the same name; `outputs` as of `Select`."""

    outputs: tuple[tuple[str, Any], ...]


class Where(Transform, frozen=True, eq=False):
    """The rows of batches for which an `Expression` is true."""

    expression: Any


class Only(Transform, frozen=True):
    """Batches without the columns that no later stage reads; the planner puts it where rows move next.

    Args:
        names: of the columns that are kept, as far as they are there.
    """

    names: frozenset[str]


class JoinColumns(Transform, frozen=True):
    """Rows of two inputs of batches with equal keys.

    Args:
        left_keys, right_keys: names of the key columns, equally many; results have them under the left names.
        how: which rows come out.
        suffix: appended to the name of a column on the right that the left side has, too; None: that is an error.
    """

    left_keys: tuple[str, ...]
    right_keys: tuple[str, ...]
    how: ColumnsHow = "inner"
    suffix: str | None = None


class StreamJoinColumns(Transform, frozen=True):
    """Rows of two streams of batches with equal keys whose times are at most `within` milliseconds apart.

    Args:
        left_keys, right_keys, suffix: as of `JoinColumns`.
        within: milliseconds.
        how: which rows come out without a match.
    """

    left_keys: tuple[str, ...]
    right_keys: tuple[str, ...]
    suffix: str | None
    within: int
    how: How = "inner"


class SortColumns(Transform, frozen=True):
    """The rows of all batches in order.

    Args:
        names: of the columns, the most important first.
        descending: one for each name.
        nulls_first: nulls stand before all values, in descending columns, too.
    """

    names: tuple[str, ...]
    descending: tuple[bool, ...]
    nulls_first: bool = False


class Top(Transform, frozen=True):
    """The first `n` rows of the sort by `names`, descending."""

    n: int
    names: tuple[str, ...]


class DistinctColumns(Transform, frozen=True):
    """One row of each key; without names one of all equal rows."""

    names: tuple[str, ...]


class Union(Transform, frozen=True):
    """The rows of all inputs, whose batches have columns of the same names."""


class ToBatches(Transform, frozen=True):
    """Batches as they are, and rows (dicts, named tuples) gathered into batches; `schema` is name → type."""

    schema: Mapping[str, Any] | None = None


class ToRows(Transform, frozen=True):
    """The rows of batches as dicts."""


PROJECTIONS = (Select, With, Where, Only)
"""Stages of batches that look at one row at a time."""

COLUMNAR = (*PROJECTIONS, GroupColumns, JoinColumns, StreamJoinColumns, SortColumns, Top, DistinctColumns, Union)
"""Stages that work on batches of columns, by the names of these."""


class Custom(Transform, frozen=True):
    """A processor of the user's own; with a key all items of a key go to one of its processors."""

    supplier: Any
    key_fn: KeyFn = None
    keyed: bool = False


class Node(msgspec.Struct, frozen=True):
    """A stage's place in the graph.

    Args:
        id: its index among the pipeline's nodes; what feeds it has lower ones.
        name: stem of the names of its vertices; unique in the pipeline.
        transform: what it does.
        upstream: ids of the nodes that feed it, in the order of its inputs.
        parallelism: processors on each member; -1: as the planner sees fit.
        is_named: the user chose the name.
        on_error: what is done with an item whose function raises: "skip"; "send", to a `FailedItems` node that follows;
            None: the job fails.
        inner: id of the node that has the state of a stage which is made of several; it goes by this one's name.
    """

    id: int
    name: str
    transform: Transform
    upstream: tuple[int, ...] = ()
    parallelism: int = -1
    is_named: bool = False
    on_error: Literal["skip", "send"] | None = None
    inner: int | None = None
