"""`GeneralStage`: the operations of every stage, bounded or endless.

Each method adds a node to the pipeline and returns the stage of it. Must not know how anything is done, nor what needs
all items at once: that is `stages`. After Jet's `GeneralStage`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Never, Protocol, TypeVar, cast

from shmjet.aggregate_ops import AggregateOperation
from shmjet.core.durations import Duration, milliseconds
from shmjet.core.key_functions import KeyFn
from shmjet.data.errors import PlanError
from shmjet.pipeline import transforms as t
from shmjet.pipeline.checks import checked_count, checked_fn, checked_key, checked_operation, checked_service
from shmjet.pipeline.column_arguments import is_expression
from shmjet.pipeline.column_stages import ColumnStage
from shmjet.pipeline.definitions import SinkDef, StreamSourceDef
from shmjet.pipeline.handles import SinkStage, Stage
from shmjet.pipeline.join_clauses import parsed_sides
from shmjet.pipeline.stage_times import check_merged, check_time
from shmjet.pipeline.tables import Table
from shmjet.processors.columns.map_batches import map_batches

if TYPE_CHECKING:
    from shmjet.core.expressions import Expression
    from shmjet.pipeline.keyed import KeyedStage

T = TypeVar("T")
A = TypeVar("A")
R = TypeVar("R")
S = TypeVar("S")
S_co = TypeVar("S_co", covariant=True)
St = TypeVar("St")
K = TypeVar("K")
G = TypeVar("G", bound="GeneralStage[Any]")


OnEvict = Callable[[Any, Any, int], Any]
"""`on_evict(state, key, watermark_ms)`: called when a state expires."""


_WITH_FUNCTIONS = (
    *(t.Map, t.Filter, t.FlatMap, t.MapStateful, t.RollingAggregate, t.UsingService, t.MapUsingMap),
    *(t.HashJoin, t.Join, t.JoinTable, t.MapBatches),
)
"""Stages whose functions may fail for single items."""

_CONDITION = "an expression of bools such as column('price') > 0, or a function of one item"


class ServiceLike(Protocol[S_co]):
    """A `ServiceFactory`, or a function that makes a service.

    A protocol and not a `Callable`: type checkers then know the service when they look at a lambda that uses it.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> S_co:
        """Make a service."""


class GeneralStage(ColumnStage, Generic[T]):
    """A stage whose items are of type `T`: what can be done with bounded and with endless data alike.

    Users hold a `BatchStage` or a `StreamStage`. A stage that is made of either is of the same kind, which both declare
    for type checkers.
    """

    _is_endless: ClassVar[bool] = False

    # -- item by item -------------------------------------------------------------------------------------------

    def map(self, fn: Callable[[T], R | None]) -> GeneralStage[R]:
        """Make `fn(item)` of each item; a result of None drops the item.

        The results come in any order when the stage has several processors, as it has by default.

        Raises:
            TypeError: `fn` cannot be called, or is a coroutine function.

        Example:
            >>> numbers.map(lambda n: n * n)        # doctest: +SKIP
        """
        return self._then("map", t.Map(checked_fn("map", "a function of one item", fn)))

    def filter(self: G, predicate: Callable[[T], Any] | Expression, *more: Never) -> G:
        """Keep the items for which `predicate(item)` is true; by an expression, the rows of batches for which it is.

        Args:
            predicate: a function of an item, which may be a row of a batch; or an expression such as
                `column("price") > 2`. Rows for which that is null are left out, as in SQL.
            more: none; a TypeError says how conditions go together.

        Raises:
            TypeError: `predicate` is neither, or is a coroutine function.

        Example:
            >>> numbers.filter(lambda n: n % 2)        # doctest: +SKIP
            >>> orders.filter(column("price") > 2)        # doctest: +SKIP
        """
        if more:
            raise TypeError(
                f"filter: expected one condition, got {1 + len(more)}; `(a > 1) & (b == 2)` is one of two expressions"
            )
        if is_expression(predicate):
            return cast("G", self._then("filter", t.Where(predicate)))
        return cast("G", self._then("filter", t.Filter(checked_fn("filter", _CONDITION, predicate))))

    def flat_map(self, fn: Callable[[T], Iterable[R]]) -> GeneralStage[R]:
        """Make all items of the iterable `fn(item)` of each item.

        A list or tuple is best; a generator is drawn as far as there is room and may be endless.

        Example:
            >>> lines.flat_map(lambda line: line.split())        # doctest: +SKIP
        """
        what = "a function of one item that returns an iterable"
        return self._then("flat_map", t.FlatMap(checked_fn("flat_map", what, fn)))

    def map_batches(self, fn: Callable[[Any], Any], as_: type | None = None) -> GeneralStage[Any]:
        """Make what `fn(batch)` returns of each `Batch` of columns; other items are gathered into batches first.

        Args:
            fn: takes a `Batch`, or a dict of arrays when its parameter is annotated so; returns a `Batch`, a dict of
                columns, None, or several of these.
            as_: `Batch` or `dict`: what `fn` takes.

        Example:
            >>> rows.map_batches(lambda batch: {"v": batch["v"] * 2})        # doctest: +SKIP
        """
        map_batches(checked_fn("map_batches", "a function of one batch", fn), as_)
        return self._then("map_batches", t.MapBatches(fn, as_))

    def peek(self: G, to_text: Callable[[T], str] = str, predicate: Callable[[T], Any] | None = None) -> G:
        """Log the items that pass, where the stage runs.

        Args:
            to_text: what to write of an item.
            predicate: which items to write; all of them by default.
        """
        if predicate is not None:
            checked_fn("peek", "a predicate of one item", predicate)
        return cast(
            "G", self._then("peek", t.Peek(predicate, checked_fn("peek", "a function from item to text", to_text)))
        )

    # -- with a state -------------------------------------------------------------------------------------------

    def map_stateful(
        self,
        create: Callable[[], St],
        fn: Callable[[St, T], R | None],
        ttl: Duration | None = None,
        on_evict: OnEvict | None = None,
    ) -> GeneralStage[R]:
        """Map with one state for the whole stage, which therefore runs on a single processor.

        Group by a key first to have a state for each key, and all cores.

        Args:
            create: makes the state, which is mutable.
            fn: `fn(state, item)`; it may change the state.
            ttl: how long the state lives without an item, in event time: seconds or a `timedelta`; None: for ever.
            on_evict: `on_evict(state, key, watermark_ms)`, called when a state expires, or at the end of the input;
                what it returns is emitted, unless it is None. The key is None.

        Raises:
            PlanError: `ttl` is given, but the items have no event time. TypeError, ConfigError: an argument is wrong.

        Example:
            >>> def number(state, item):
            ...     state.append(item)
            ...     return len(state), item
            >>> items.map_stateful(list, number)        # doctest: +SKIP
        """
        return self._stateful("map_stateful", t.MapStateful, create, fn, None, False, ttl, on_evict)

    def filter_stateful(
        self: G,
        create: Callable[[], St],
        fn: Callable[[St, T], Any],
        ttl: Duration | None = None,
        on_evict: OnEvict | None = None,
    ) -> G:
        """Keep the items for which `fn(state, item)` is true, with one state, made by `create()`, for the stage.

        `ttl` and `on_evict` are those of `map_stateful`.
        """
        return cast("G", self._stateful("filter_stateful", t.FilterStateful, create, fn, None, False, ttl, on_evict))

    def flat_map_stateful(
        self,
        create: Callable[[], St],
        fn: Callable[[St, T], Iterable[R]],
        ttl: Duration | None = None,
        on_evict: OnEvict | None = None,
    ) -> GeneralStage[R]:
        """Make all items of the iterable `fn(state, item)`, with one state, made by `create()`, for the stage.

        `ttl` and `on_evict` are those of `map_stateful`.
        """
        return self._stateful("flat_map_stateful", t.FlatMapStateful, create, fn, None, False, ttl, on_evict)

    def rolling_aggregate(self, op: AggregateOperation[T, A, R], ttl: Duration | None = None) -> GeneralStage[R]:
        """Emit the result of the aggregation so far after each item; on a single processor.

        Args:
            op: from `shmjet.aggregate_ops`, with one input.
            ttl: how long the accumulator lives without an item, in event time; as for `map_stateful`.

        Example:
            >>> payments.rolling_aggregate(aggregate_ops.summing())        # doctest: +SKIP
        """
        return self._rolling("rolling_aggregate", op, None, False, ttl)

    # -- with a service -----------------------------------------------------------------------------------------

    def map_using_map(self, name: str, key_fn: KeyFn, fn: Callable[[T, Any], R | None]) -> GeneralStage[R]:
        """Make `fn(item, value)` of each item and the value that a map has for its key, None when it has none.

        The map is read when the item comes, so later items see what is put into it while the job runs.

        Args:
            name: of the map (`jet.get_map(name)`); a map that does not exist is empty.
            key_fn: key of an item; None: the item itself.
            fn: a result of None drops the item.

        Raises:
            TypeError: an argument is wrong.

        Example:
            >>> orders.map_using_map("prices", lambda order: order.product, priced)        # doctest: +SKIP
        """
        if not isinstance(name, str) or not name:
            raise TypeError(f"map_using_map: expected the name of a map, got {name!r}")
        checked = checked_fn("map_using_map", "a function of an item and a value", fn)
        return self._then("map_using_map", t.MapUsingMap(name, checked_key("map_using_map", key_fn), checked))

    def map_using_service(self, factory: ServiceLike[S], fn: Callable[[S, T], R | None]) -> GeneralStage[R]:
        """Make `fn(service, item)` of each item.

        Args:
            factory: a `ServiceFactory`, or a function that makes a service (a model, a connection) in each worker; it
                is closed at the end.
            fn: a result of None drops the item.

        Example:
            >>> texts.map_using_service(load_model, lambda model, text: model.classify(text))        # doctest: +SKIP
        """
        return self._using("map", factory, fn, None, False)

    def filter_using_service(self: G, factory: ServiceLike[S], fn: Callable[[S, T], Any]) -> G:
        """Keep the items for which `fn(service, item)` is true; `factory` is that of `map_using_service`."""
        return cast("G", self._using("filter", factory, fn, None, False))

    def flat_map_using_service(self, factory: ServiceLike[S], fn: Callable[[S, T], Iterable[R]]) -> GeneralStage[R]:
        """Make all items of the iterable `fn(service, item)`; `factory` is that of `map_using_service`."""
        return self._using("flat_map", factory, fn, None, False)

    def map_using_service_async(
        self,
        factory: ServiceLike[S],
        fn: Callable[[S, T], Coroutine[Any, Any, R | None]],
        max_concurrent_ops: int = 4,
        preserve_order: bool = True,
    ) -> GeneralStage[R]:
        """Make `await fn(service, item)` of each item, several at once, in an event loop in each worker.

        Args:
            factory: a `ServiceFactory` or a function, which may be `async`, that makes a service in each worker.
            fn: a coroutine function; a result of None drops the item.
            max_concurrent_ops: calls that run at once on each processor, at most.
            preserve_order: emit the results in the order of their items; else as they come.

        Raises:
            TypeError, ValueError: an argument is wrong.

        Example:
            >>> urls.map_using_service_async(session, fetch, max_concurrent_ops=64)        # doctest: +SKIP
        """
        return self._using_async("map", factory, fn, max_concurrent_ops, preserve_order, None, False)

    def filter_using_service_async(
        self: G,
        factory: ServiceLike[S],
        fn: Callable[[S, T], Coroutine[Any, Any, Any]],
        max_concurrent_ops: int = 4,
        preserve_order: bool = True,
    ) -> G:
        """Keep the items for which `await fn(service, item)` is true.

        Args:
            factory, max_concurrent_ops, preserve_order: as for `map_using_service_async`.
            fn: a coroutine function.
        """
        return cast("G", self._using_async("filter", factory, fn, max_concurrent_ops, preserve_order, None, False))

    def flat_map_using_service_async(
        self,
        factory: ServiceLike[S],
        fn: Callable[[S, T], Coroutine[Any, Any, Iterable[R]]],
        max_concurrent_ops: int = 4,
        preserve_order: bool = True,
    ) -> GeneralStage[R]:
        """Make all items of the iterable `await fn(service, item)`.

        Args:
            factory, max_concurrent_ops, preserve_order: as for `map_using_service_async`.
            fn: a coroutine function whose result is an iterable.
        """
        return self._using_async("flat_map", factory, fn, max_concurrent_ops, preserve_order, None, False)

    # -- several streams ----------------------------------------------------------------------------------------

    def merge(self: G, *others: G) -> G:
        """Return the items of this stage and of others, in any order.

        Raises:
            PlanError: there is no other stage, or one of another pipeline; or some of them have event time and others
                have not.
        """
        if not others:
            raise PlanError(f"merge: expected at least one stage to merge with {self.name!r}, got none")
        merged = [s.node_id for s in (self, *others) if isinstance(s, GeneralStage) and s.pipeline is self.pipeline]
        check_merged(self.pipeline.nodes, merged)
        return cast("G", self._then("merge", t.Merge(), *others))

    # -- tables -------------------------------------------------------------------------------------------------

    def send_to(self, table: Table, key_fn: KeyFn = None) -> SinkStage:
        """Put the items into a table.

        Args:
            table: which.
            key_fn: key under which an item is put; without it the items are `(key, value)` pairs.
        """
        name = _checked_table("send_to", table)
        transform = t.SendToTable(name, checked_key("send_to", key_fn), key_fn is not None)
        self._fill_from_sides(table)
        return SinkStage(self.pipeline, self.pipeline._add(f"send_to({name})", transform, self))

    def join_table(self, table: Table, key_fn: KeyFn, fn: Callable[[T, Any], R | None]) -> GeneralStage[R]:
        """Make `fn(item, value)` of each item and the value that a table has for its key, None when it has none.

        Args:
            table: which; complete before the first item is joined.
            key_fn: key of an item; None: the item itself.
            fn: a result of None drops the item.

        Example:
            >>> profiles = Table("profiles")        # doctest: +SKIP
            >>> p.read_from(sources.map("profiles")).send_to(profiles)        # doctest: +SKIP
            >>> views.join_table(profiles, lambda view: view.user, enrich)        # doctest: +SKIP
        """
        name = _checked_table("join_table", table)
        what = "a function of an item and a value"
        transform = t.JoinTable(name, checked_key("join_table", key_fn), checked_fn("join_table", what, fn))
        self._fill_from_sides(table)
        return self._then(f"join_table({name})", transform)

    def _fill_from_sides(self, table: Table) -> None:
        """Read the side inputs of a table, once for the pipeline."""
        for source in table.side_inputs:
            if isinstance(source, StreamSourceDef):
                raise PlanError(
                    f"table {table.name!r}: a table is complete before the first item is joined with it, but its side "
                    f"input {source.name!r} is endless"
                )
            readers = {node.id for node in self.pipeline.nodes if node.transform == t.Source(source)}
            filled = any(
                isinstance(node.transform, t.SendToTable)
                and node.transform.table == table.name
                and node.upstream[0] in readers
                for node in self.pipeline.nodes
            )
            if not filled:
                stage = self.pipeline.read_from(source)
                transform = t.SendToTable(table.name, table.side_key, table.side_key is not None)
                self.pipeline._add(f"send_to({table.name})", transform, stage)

    # -- spreading ----------------------------------------------------------------------------------------------

    def rebalance(self: G, key_fn: KeyFn | str | Sequence[str] = None) -> G:
        """Spread the items over all processors of the next stage, evenly; with a `key_fn` by their keys.

        It pays behind a source that gives most items to few processors. An aggregation that follows a rebalancing by
        its own key has one stage only.

        Args:
            key_fn: key of an item, or the name of a column; items of equal keys go to the same processor.
        """
        return cast("G", self._then("rebalance", t.Rebalance(checked_key("rebalance", key_fn), key_fn is not None)))

    def partition_by(self: G, key_fn: KeyFn | str | Sequence[str]) -> G:
        """Make an intermediate stream that is partitioned by a key; the planner chooses its partition count.

        Args:
            key_fn: key of an item, or the name of a column; None: the item itself.
        """
        return cast("G", self._then("partition_by", t.PartitionBy(checked_key("partition_by", key_fn))))

    def grouping_key(self, key_fn: Callable[[T], K] | str | Sequence[str]) -> KeyedStage[T, K]:
        """Group the items by a key; the stages that follow from it work for each key.

        Args:
            key_fn: key of an item; of rows (dicts, named tuples, rows of batches) the name of a column, or several;
                None: the item itself.
        """
        return self._keyed(checked_key("grouping_key", key_fn))

    def on_error(self: G, action: Literal["skip"] | None = None, *, send_to: SinkDef[Any] | None = None) -> G:
        """Say what is done with an item for which a function of this stage raises; without it the job fails.

        Args:
            action: "skip": the item is left out, logged and counted (`failed_items_skipped`).
            send_to: a sink that gets it as a `FailedItem(item, vertex, error, traceback)`. The item of `map_batches` is
                the whole batch.

        Returns:
            this stage.

        Raises:
            PlanError: the stage calls no function for its items, or it has been said before. TypeError: the arguments
                are neither "skip" nor a sink.

        Example:
            >>> lines.map(json.loads).on_error(send_to=sinks.files("bad"))        # doctest: +SKIP
        """
        node = self.pipeline.nodes[self.node_id]
        if not isinstance(node.transform, _WITH_FUNCTIONS):
            raise PlanError(f"on_error: stage {self.name!r} calls no function for its items that could be guarded")
        if node.on_error is not None:
            raise PlanError(f"on_error: it has been said before of stage {self.name!r}")
        if send_to is None:
            if action != "skip":
                raise TypeError(f'on_error: expected "skip" or send_to=sink, got {action!r}')
            self.pipeline._change(self.node_id, on_error="skip")
            return self
        if action is not None or not isinstance(send_to, SinkDef):
            got = repr(action) if action is not None else f"{type(send_to).__name__}: {send_to!r:.80}"
            raise TypeError(f'on_error: expected either "skip" or send_to=sink (see shmjet.sinks), got {got}')
        self.pipeline._change(self.node_id, on_error="send")
        self._then(f"{self.name}-failed", t.FailedItems()).write_to(send_to)
        return self

    # -- anything else ------------------------------------------------------------------------------------------

    def apply(self: G, fn: Callable[[G], R]) -> R:
        """Return `fn(self)`: a way to name a piece of a pipeline and to use it in a chain."""
        checked_fn("apply", "a function of a stage", fn)
        return fn(self)

    def custom_transform(self, name: str, supplier: Any) -> GeneralStage[Any]:
        """Add a processor of your own.

        In a stream with event time it sees the items and all watermarks; what it emits has the time of the item that it
        is handling, in `try_process_watermark` that of the watermark, and in `complete` that of the last watermark.

        Args:
            name: of the stage.
            supplier: what `dag.new_vertex` takes: a `Processor` class, a function that makes one, a supplier.
        """
        return self._custom(name, supplier, None, False)

    def _custom(self, name: str, supplier: Any, key_fn: KeyFn, keyed: bool) -> GeneralStage[Any]:
        from shmjet.core.vertex import Vertex

        Vertex(name, supplier)  # raises what is wrong with it
        return self._then(name, t.Custom(supplier, key_fn, keyed))

    def write_to(self, sink: SinkDef[T]) -> SinkStage:
        """Write the items to a sink (see `shmjet.sinks`)."""
        return self.pipeline.write_to(sink, self)

    # -- making nodes -------------------------------------------------------------------------------------------

    def _then(self, name: str, transform: t.Transform, *others: Stage) -> GeneralStage[Any]:
        """Add a node and return its stage, which is endless if a stage that feeds it is."""
        node_id = self.pipeline._add(name, transform, self, *others)
        feeders = (self, *(other for other in others if isinstance(other, GeneralStage)))
        kind = next((type(feeder) for feeder in feeders if feeder._is_endless), type(self))
        return kind(self.pipeline, node_id)

    def _keyed(self, key_fn: KeyFn) -> KeyedStage[T, Any]:
        """Return this stage with a key, of the same kind."""
        raise NotImplementedError

    def _rolling(self, name: str, op: Any, key_fn: KeyFn, keyed: bool, ttl: Duration | None) -> GeneralStage[Any]:
        self._check_ttl("rolling_aggregate", ttl)
        checked = checked_operation("rolling_aggregate", op, 1)
        return self._then(name, t.RollingAggregate(checked, key_fn, keyed, ttl))

    def _check_ttl(self, name: str, ttl: Duration | None) -> None:
        if ttl is not None:
            milliseconds(f"{name}: ttl", ttl)
            check_time(self.pipeline.nodes, self.node_id, f"{name}: ttl")

    def _stateful(
        self,
        name: str,
        kind: type[t.MapStateful],
        create: Any,
        fn: Any,
        key_fn: KeyFn,
        keyed: bool,
        ttl: Duration | None,
        on_evict: Any,
    ) -> GeneralStage[Any]:
        checked_fn(name, "a function without arguments that makes a state", create)
        checked_fn(name, f"a function of state, {'key and item' if keyed else 'and item'}", fn)
        if on_evict is not None:
            checked_fn(f"{name}: on_evict", "a function of state, key and watermark", on_evict)
        self._check_ttl(name, ttl)
        return self._then(name, kind(create, fn, key_fn, keyed, ttl, on_evict))

    def _using(self, kind: str, factory: Any, fn: Any, key_fn: KeyFn, keyed: bool) -> GeneralStage[Any]:
        name = f"{kind}_using_service"
        service = checked_service(name, factory)
        checked_fn(name, f"a function of service{', key' if keyed else ''} and item", fn)
        return self._then(name, t.UsingService(kind, service, fn, key_fn, keyed))

    def _using_async(
        self, kind: str, factory: Any, fn: Any, most: int, in_order: bool, key_fn: KeyFn, keyed: bool
    ) -> GeneralStage[Any]:
        name = f"{kind}_using_service_async"
        service = checked_service(name, factory)
        checked_fn(name, f"a coroutine function of service{', key' if keyed else ''} and item", fn, is_async=True)
        checked_count(name, "max_concurrent_ops", most)
        return self._then(name, t.UsingServiceAsync(kind, service, fn, key_fn, keyed, most, bool(in_order)))

    def _hash_join(self, name: str, arguments: Sequence[Any], fn: Any, *, inner: bool) -> GeneralStage[Any]:
        sides, clauses, project = parsed_sides(name, arguments, fn)
        return self._then(name, t.HashJoin(tuple(clauses), project, (inner,) * len(clauses)), *sides)


def _checked_table(name: str, table: Any) -> str:
    if isinstance(table, Table):
        return table.name
    raise TypeError(f"{name}: expected a Table, such as Table('profiles'), got {type(table).__name__}: {table!r:.80}")
