"""`group_by(...).agg(...)`: aggregates of columns per key, in one stage or in two; results are batches.

What `aggregate_by_key` is for items, with native tables (`shmjet.columns.groups`) in place of a dict, so that a row
costs nanoseconds. Items that are rows are gathered into batches on the way in. Must not know: how rows are routed; an
edge into these vertices is partitioned by the same columns. Groups are emitted at the end in batches of bounded size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Final

from shmjet._native import index_of_special
from shmjet.columns.aggregates import Aggregate
from shmjet.core.column_key import ColumnKey, checked_names
from shmjet.core.expressions import Expression
from shmjet.core.inbox import Inbox
from shmjet.core.latency_policy import may_be_saved, policy_in
from shmjet.core.processor import Processor, ProcessorContext
from shmjet.data.columnar import Columnar
from shmjet.data.errors import BatchError
from shmjet.processors.columns.empty_results import EmptyResults
from shmjet.processors.columns.grouping import GroupingProcessor
from shmjet.processors.columns.groups_state import kind_of_groups
from shmjet.processors.columns.project_batches import Steps
from shmjet.processors.columns.reduction import MEASURED_ROWS, Reduction
from shmjet.processors.general.base import Supply, require_batches
from shmjet.processors.general.batches_and_rows import ToBatchesProcessor

if TYPE_CHECKING:
    from shmjet.data.batch import Batch

GATHERED_ROWS: Final = 8192
"""Items that become a batch before they are grouped."""

PASSED_BYTES: Final = 64
"""Bytes of a row that a first stage may pass on instead of its states, which are as large for two or three numbers."""

_COUNTED: Final = ("item",)
"""The column of items when none of their values is needed, only how many there are."""


class GroupByProcessor(GroupingProcessor):
    """Groups the rows of batches, and items that are rows.

    Where it emits states and hardly any row shares its key with another one, it passes rows on as they are.

    Args:
        keys, aggregates: as `GroupingProcessor`.
        item_columns: names for the values of items that are tuples; None when items are dicts.
        schema: what the columns of items are.
        finishes: results are emitted, not states.
        tells_columns: as of `GroupingProcessor`.
    """

    def __init__(
        self,
        keys: tuple[str, ...],
        aggregates: Mapping[str, Aggregate],
        item_columns: tuple[str, ...] | None,
        schema: Mapping[str, Any] | None,
        finishes: bool,
        tells_columns: bool = False,
    ) -> None:
        super().__init__(keys, aggregates, tells_columns)
        self._item_columns = item_columns
        self._schema = schema
        self._finishes = finishes
        self._flushing = False
        self._passed: list[Batch] = []
        self._reduction: Reduction | None = None
        self._makes_no_fewer = False
        """The table is to be emitted, and then rows are to be passed on."""
        self._later: list[Batch] = []
        """Rows to pass on that came after those of a table that is to be emitted."""

    def start(self, context: ProcessorContext) -> None:
        """Make the table, and what makes batches of items."""
        from shmjet.columns.row_gatherer import RowGatherer
        from shmjet.columns.schemas import schema_of

        super().start(context)
        needed = _columns_of(self._keys, self._aggregates)
        self._only_counts = needed == ()
        names = _COUNTED if self._only_counts else self._item_columns or needed
        schema = schema_of(self._schema) if self._schema else None
        self._gatherer = RowGatherer(GATHERED_ROWS, names, schema, needed or None)
        if not self._finishes and _are_told_apart(self._keys, self._aggregates):
            self._reduction = Reduction(MEASURED_ROWS)
            self._needed = needed or ()
            self._inputs = tuple(name for name in self._needed if name not in self._keys)

    def process(self, ordinal: int, inbox: Inbox) -> None:
        """Empty the inbox, unless what is emitted waits for room."""
        if not self.emission.flush():
            return
        self.release(inbox)
        if not inbox:
            return
        items = inbox.take()
        last = items[-1]
        self.absorb(ordinal, items)
        if not self.emission.flush():
            self.hold(inbox, last)

    def absorb(self, ordinal: int, items: list[Any]) -> None:
        """Group the rows of a list of batches and items, in order."""
        at = 0
        while at < len(items):
            if isinstance(items[at], Columnar):
                self._add_gathered()
                self._take(items[at])
                at += 1
                continue
            end = index_of_special(items, at, Columnar)
            rows = items[at : end if end >= 0 else len(items)]
            self._gatherer.add([(True,)] * len(rows) if self._only_counts else rows)
            for batch in self._gatherer.full():
                self._take(batch)
            at += len(rows)
        if self._passed:
            self.emission.put(self._taken())
        if self._makes_no_fewer:
            self.emission.start(self.results())

    def _taken(self) -> list[Batch]:
        passed, self._passed = self._passed, []
        return passed

    def _add_gathered(self) -> None:
        for batch in self._gatherer.rest():
            self._take(batch)

    def _take(self, batch: Batch) -> None:
        """Group the rows of a batch, or pass them on, or the first ones and the others."""
        undecided = 0 if self._reduction is None else self._reduction.undecided_rows
        if 0 < undecided < batch.num_rows:
            self._take_part(batch[:undecided])
            batch = batch[undecided:]
        self._take_part(batch)

    def _take_part(self, batch: Batch) -> None:
        """Group the rows of a batch, or pass them on."""
        reduction, rows = self._reduction, batch.num_rows
        is_passed = reduction is not None and (reduction.is_poor or self._later)  # so that rows stay in order
        if rows and is_passed and self._is_passed(batch):
            return
        self._table.add(batch)
        if reduction is not None and not reduction.is_poor and reduction.grouped(rows, self._table.entries):
            self._makes_no_fewer = True

    def _is_passed(self, batch: Batch) -> bool:
        """Pass a batch on, unless its rows are so wide that their states are less to move."""
        assert self._reduction is not None
        if not self._later and batch.select(*self._inputs).nbytes > PASSED_BYTES * batch.num_rows:
            self._reduction.refused()
            return False
        self._reduction.passed(batch.num_rows)
        (self._later if self._makes_no_fewer else self._passed).append(batch.select(*self._needed))
        return True

    def results(self) -> Iterable[Any]:
        """Return the batches of all groups, each made when it is drawn; before states comes what says their kinds.

        Rows that are passed on are emitted in order with it: before what is in the table, or after it.
        """
        self._add_gathered()
        if self._finishes:
            return self._finished()
        self._makes_no_fewer = False
        if self._reduction is not None:
            self._reduction.emptied()
        head, later = self._table.head(), self._later
        self._later = []
        return chain(self._taken(), () if head is None else (head,), self._drawn(self._table.states), later)

    @property
    def _captures(self) -> bool:  # type: ignore[override]
        return self._finishes

    def _capture(self) -> bool:
        self._add_gathered()
        return super()._capture()

    def save_to_snapshot(self) -> bool:
        """Save the groups; a first stage emits its states instead and begins anew, so it has nothing to save."""
        if self._finishes:
            return super().save_to_snapshot()
        if not self._finishing and not self._flushing:
            if not self.emission.flush():
                return False
            self.emission.start(self.results())
            self._flushing = True
        if not self.emission.flush():
            return False
        self._flushing = False
        return True


class ProjectedGroupByProcessor(GroupByProcessor):
    """Groups what projections and filters make of batches.

    Args:
        steps: as of `project_batches`.
        keys, aggregates: as of `GroupByProcessor`.
    """

    def __init__(self, steps: Steps, keys: tuple[str, ...], aggregates: Mapping[str, Aggregate]) -> None:
        super().__init__(keys, aggregates, None, None, finishes=False)
        self._steps = steps

    def start(self, context: ProcessorContext) -> None:
        """Make the table, and compile the steps."""
        from shmjet.columns.projections import ProjectedGroups

        super().start(context)
        self._projected = ProjectedGroups(self._steps, self._keys, self._aggregates)
        self._empty = EmptyResults(at_once=may_be_saved(context))

    def process(self, ordinal: int, inbox: Inbox) -> None:
        """Take batches for as long as a call should take, unless what is emitted waits for room."""
        if not self.emission.flush():
            return
        self.release(inbox)
        deadline = monotonic_ns() + policy_in(self.context).call_ns
        while inbox:
            batch = inbox.poll()
            self.absorb(ordinal, [batch])
            if not self.emission.flush():
                self.hold(inbox, batch)
                return
            if monotonic_ns() >= deadline:
                return

    def absorb(self, ordinal: int, items: list[Any]) -> None:
        """Group what the steps make of a list of batches, in order."""
        require_batches("select, with_columns and filter", items)
        super().absorb(ordinal, items)

    def _take(self, batch: Batch) -> None:
        made = self._projected.add(batch, self._table)
        result = None if made is None else self._empty.passing(made)
        if result is not None:
            super()._take(result)

    def results(self) -> Iterable[Any]:
        """Return the batches of states, after those without rows that tell the columns of the results of the steps."""
        for batch in self._empty.rest():
            super()._take(batch)
        return super().results()


class CombineGroupsProcessor(GroupingProcessor):
    """Combines the states that an earlier stage has emitted, and the rows that it has passed on."""

    def start(self, context: ProcessorContext) -> None:
        """Make the table."""
        super().start(context)
        self._passed: frozenset[str] | None = None
        if _are_told_apart(self._keys, self._aggregates):
            self._passed = frozenset(_columns_of(self._keys, self._aggregates) or ())

    def absorb(self, ordinal: int, items: list[Any]) -> None:
        """Merge a list of batches of states, among which may be rows."""
        require_batches("group_by(...).agg(...).combine", items)
        for batch in items:
            if self._passed is not None and self._passed.issuperset(batch.names):
                self._table.add(batch)
            else:
                self._table.merge(batch)


class RowsProcessor(ToBatchesProcessor):
    """Emits rows as batches of the columns that are read: the first stage where an aggregate needs all rows.

    Args:
        needed: the columns; None: all.
        item_columns, schema: as `GroupByProcessor`.
    """

    def __init__(
        self, needed: tuple[str, ...] | None, item_columns: tuple[str, ...] | None, schema: Mapping[str, Any] | None
    ) -> None:
        super().__init__(GATHERED_ROWS, item_columns or needed, schema, None)
        self._needed = needed

    def passed(self, batch: Batch) -> Batch:
        """Return the columns of a batch that are read."""
        return batch if self._needed is None else batch.select(*self._needed)


class Grouping:
    """What `group_by` returns: the keys, waiting for `agg`."""

    def __init__(
        self, keys: tuple[str, ...], item_columns: tuple[str, ...] | None, schema: Mapping[str, Any] | None
    ) -> None:
        self._keys = keys
        self._item_columns = item_columns
        self._schema = schema

    def agg(self, /, **aggregates: Aggregate) -> GroupBy:
        """Say what is computed of each group.

        Args:
            aggregates: name of the output column → `sum_("v")`, `count()`, ... of `shmjet.columns`; none gives the
                distinct keys.

        Raises:
            TypeError: an argument is not an aggregate.
            BatchError: an output column has the name of a key, or there is neither key nor aggregate.
        """
        for name, aggregate in aggregates.items():
            if not isinstance(aggregate, Aggregate):
                raise TypeError(
                    f"agg({name}=...): expected an aggregate of shmjet.columns such as sum_('v') or count(), "
                    f"got {type(aggregate).__name__} {aggregate!r:.80}"
                    f"{_advice(aggregate)}"
                )
            if not name:
                raise BatchError("agg: the name of a column must be a non-empty str, got ''")
            if name in self._keys:
                raise BatchError(f"agg({name}=...): {name!r} is a key; give the result another name")
        if not self._keys and not aggregates:
            raise BatchError("group_by().agg() has neither keys nor aggregates, so there is nothing to compute")
        needed = _columns_of(self._keys, aggregates) or ()
        missing = [name for name in needed if self._item_columns is not None and name not in self._item_columns]
        if missing:
            raise BatchError(
                f"group_by: column {missing[0]!r} is needed, but item_columns are {list(self._item_columns or ())}"
            )
        return GroupBy(self._keys, aggregates, self._item_columns, self._schema)

    def __repr__(self) -> str:
        return f"group_by({', '.join(map(repr, self._keys))})"


class GroupBy(Supply):
    """A supplier of the whole aggregation as one stage, and of its two stages as `accumulate` and `combine`."""

    __slots__ = ("aggregates", "item_columns", "keys", "schema")

    keys: tuple[str, ...]
    aggregates: Mapping[str, Aggregate]
    item_columns: tuple[str, ...] | None
    schema: Mapping[str, Any] | None

    def __init__(
        self,
        keys: tuple[str, ...],
        aggregates: Mapping[str, Aggregate],
        item_columns: tuple[str, ...] | None,
        schema: Mapping[str, Any] | None,
    ) -> None:
        super().__init__(GroupByProcessor, keys, aggregates, item_columns, schema, finishes=True)
        self.keys = keys
        self.aggregates = aggregates
        self.state_kind = kind_of_groups(keys, aggregates)
        self.item_columns = item_columns
        self.schema = schema

    @property
    def key(self) -> ColumnKey:
        """The key of the partitioned edge into the vertex.

        Raises:
            BatchError: there are no key columns; the vertex has `local_parallelism=1` or an `all_to_one()` edge then.
        """
        return ColumnKey(self.keys)

    @property
    def _moves_rows(self) -> bool:
        return any(aggregate.moves_rows for aggregate in self.aggregates.values())

    @property
    def accumulate(self) -> Callable[[], Processor]:
        """The first stage: groups what its processor gets, from whatever edge, and emits states.

        Where an aggregate needs all rows of a group, or keys hardly repeat, it emits the rows as they are.
        """
        if self._moves_rows:
            return Supply(RowsProcessor, _columns_of(self.keys, self.aggregates), self.item_columns, self.schema)
        return self._stage(GroupByProcessor, self.item_columns, self.schema, finishes=False)

    def accumulate_projected(self, steps: Steps) -> Callable[[], Processor] | None:
        """Return the first stage for what projections and filters make of batches; None where it groups no rows.

        Args:
            steps: as of `project_batches`.
        """
        if self._moves_rows or self.item_columns is not None:
            return None
        supply = Supply(ProjectedGroupByProcessor, steps, self.keys, self.aggregates)
        supply.state_kind = self.state_kind
        return supply

    @property
    def combine(self) -> Callable[[], Processor]:
        """The second stage, behind an edge that is partitioned by `key`: combines states and rows into results."""
        if self._moves_rows:
            return self._stage(GroupByProcessor, None, None, finishes=True)
        return self._stage(CombineGroupsProcessor)

    def _stage(self, processor: Callable[..., Processor], *rest: Any, **flags: Any) -> Supply:
        supply = Supply(processor, self.keys, self.aggregates, *rest, **flags)
        supply.state_kind = self.state_kind
        return supply

    def __repr__(self) -> str:
        aggregates = ", ".join(f"{name}={aggregate!r}" for name, aggregate in self.aggregates.items())
        return f"group_by({', '.join(map(repr, self.keys))}).agg({aggregates})"


def _advice(given: Any) -> str:
    if isinstance(given, Expression):
        return "; an expression goes into one: sum_(expression)"
    if callable(given) and getattr(given, "__module__", "").startswith("shmjet.columns"):
        return f"; it lacks its parentheses: {given.__name__}(...)"
    return ""


def group_by(
    *keys: str | Sequence[str] | ColumnKey,
    item_columns: Sequence[str] | None = None,
    schema: Mapping[str, Any] | None = None,
) -> Grouping:
    """Aggregate columns per key: `group_by("user").agg(total=sum_("v"), n=count())` is what a vertex takes.

    It emits batches with the key columns and one column for each aggregate, at the end; nothing when nothing came in.
    All rows of a key must come to the same processor: the edge into it is `.partitioned(column("user"))`. Without keys
    everything is one group, and the vertex has `local_parallelism=1`. In two stages only one row per key and processor
    crosses to another core:

        grouping = group_by("user").agg(total=sum_("v"))
        first = dag.new_vertex("accumulate", grouping.accumulate)
        second = dag.new_vertex("combine", grouping.combine)
        dag.edge(between(batches, first)).edge(between(first, second).partitioned(grouping.key))

    Items may be batches, and rows as dicts or, with `item_columns`, as tuples.

    Args:
        keys: names of key columns, a sequence of them, or what `columns("a", "b")` returns. A null is a key too.
        item_columns: names for the values of items that are tuples.
        schema: name → type of a column of items (as for `to_batches`); batches have theirs.

    Raises:
        BatchError: a name is not a str, is empty or is there twice. In the job: a column is not there, or of a dtype
            that its aggregate cannot use; the text names vertex and column.

    Example:
        >>> from shmjet import Batch
        >>> from shmjet.columns import count, sum_
        >>> from shmjet.testing import verify_processor
        >>> totals = group_by("user").agg(total=sum_("v"), n=count())
        >>> expected = Batch({"user": ["a", "b"], "total": [4, 2], "n": [2, 1]})
        >>> verify_processor(totals).inputs([Batch({"user": ["a", "b", "a"], "v": [1, 2, 3]})]).expect([expected])
    """
    names: list[Any] = []
    for key in keys:
        if isinstance(key, ColumnKey):
            names += key.names
        elif isinstance(key, Sequence) and not isinstance(key, str):
            names += key
        else:
            names.append(key)
    checked = checked_names("group_by", names, least=0)
    rows = None if item_columns is None else checked_names("group_by: item_columns", item_columns)
    if schema is not None:
        from shmjet.columns.schemas import schema_of

        schema_of(schema)
    return Grouping(checked, rows, schema)


def _are_told_apart(keys: tuple[str, ...], aggregates: Mapping[str, Aggregate]) -> bool:
    """Whether a batch of rows can be told from one of states, which has columns with a separator in their names."""
    from shmjet.columns.group_schema import state_separator

    names = _columns_of(keys, aggregates)
    return bool(names and aggregates) and not any(state_separator(keys) in name for name in names or ())


def _columns_of(keys: Iterable[str], aggregates: Mapping[str, Aggregate]) -> tuple[str, ...] | None:
    """Return the columns that are read, each once; None if all are."""
    if any(aggregate.function == "custom" for aggregate in aggregates.values()):
        return None
    inputs = (name for aggregate in aggregates.values() for name in aggregate.names)
    return tuple(dict.fromkeys([*keys, *inputs]))
