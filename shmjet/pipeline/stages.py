"""`BatchStage`, the stage of bounded data: the general operations, and the operations that need all items at once.

A stage is an immutable handle of one node of its pipeline; every method that makes a stage adds a node and returns the
handle of that. Two methods change the node itself, its name and its parallelism, neither of which changes what it
computes. Must not know how anything is done. After Jet's `BatchStage`; `stream_stage` has the stage of endless data.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, overload

from shmjet.aggregate_ops import AggregateOperation
from shmjet.core.key_functions import KeyFn
from shmjet.pipeline import transforms as t
from shmjet.pipeline.checks import checked_fn, checked_key, checked_operation
from shmjet.pipeline.general import GeneralStage
from shmjet.pipeline.join_clauses import On, co_aggregation
from shmjet.processors.columns.group_by import group_by

if TYPE_CHECKING:
    from shmjet.columns.aggregates import Aggregate
    from shmjet.pipeline.builders import AggregateBuilder, HashJoinBuilder
    from shmjet.pipeline.general import ServiceLike
    from shmjet.pipeline.handles import Stage
    from shmjet.pipeline.keyed import KeyedBatchStage
    from shmjet.pipeline.tables import Table

T = TypeVar("T")
T1 = TypeVar("T1")
T2 = TypeVar("T2")
A = TypeVar("A")
K = TypeVar("K")
R = TypeVar("R")
S = TypeVar("S")
St = TypeVar("St")


class BatchStage(GeneralStage[T]):
    """A stage of bounded data whose items are of type `T`.

    Functions that are given to stages travel to the workers, so they must be picklable, lambdas and closures included.
    A result of None is not an item: it is left out.

    Stages run on all workers at once, so the order of items is kept on each of their processors and not between them:
    `items -> map -> list` gives the results in any order, also where one processor makes the items. `sort` makes an
    order, which map, filter, flat_map and sinks behind it keep; `set_local_parallelism(1)`, on each stage up to the
    sink, keeps that of a source with one processor. `explain` says where an order is given up.

    Example:
        >>> lines.flat_map(str.split).filter(str.isalpha).write_to(sinks.list("words"))        # doctest: +SKIP
    """

    if TYPE_CHECKING:  # what is made of a BatchStage is one

        def map(self, fn: Callable[[T], R | None]) -> BatchStage[R]: ...
        def flat_map(self, fn: Callable[[T], Iterable[R]]) -> BatchStage[R]: ...
        def map_batches(self, fn: Callable[[Any], Any], as_: type | None = None) -> BatchStage[Any]: ...
        def map_stateful(self, create: Callable[[], St], fn: Callable[[St, T], R | None]) -> BatchStage[R]: ...
        def flat_map_stateful(self, create: Callable[[], St], fn: Callable[[St, T], Iterable[R]]) -> BatchStage[R]: ...
        def rolling_aggregate(self, op: AggregateOperation[T, A, R]) -> BatchStage[R]: ...
        def map_using_service(self, factory: ServiceLike[S], fn: Callable[[S, T], R | None]) -> BatchStage[R]: ...
        def flat_map_using_service(
            self, factory: ServiceLike[S], fn: Callable[[S, T], Iterable[R]]
        ) -> BatchStage[R]: ...
        def map_using_service_async(
            self,
            factory: ServiceLike[S],
            fn: Callable[[S, T], Coroutine[Any, Any, R | None]],
            max_concurrent_ops: int = 4,
            preserve_order: bool = True,
        ) -> BatchStage[R]: ...
        def flat_map_using_service_async(
            self,
            factory: ServiceLike[S],
            fn: Callable[[S, T], Coroutine[Any, Any, Iterable[R]]],
            max_concurrent_ops: int = 4,
            preserve_order: bool = True,
        ) -> BatchStage[R]: ...
        def join_table(self, table: Table, key_fn: KeyFn, fn: Callable[[T, Any], R | None]) -> BatchStage[R]: ...
        def custom_transform(self, name: str, supplier: Any) -> BatchStage[Any]: ...
        def grouping_key(self, key_fn: Callable[[T], K]) -> KeyedBatchStage[T, K]: ...
        def _then(self, name: str, transform: t.Transform, *others: Stage) -> BatchStage[Any]: ...
        def _hash_join(self, name: str, arguments: Sequence[Any], fn: Any, *, inner: bool) -> BatchStage[Any]: ...

    def _keyed(self, key_fn: KeyFn) -> KeyedBatchStage[T, Any]:
        from shmjet.pipeline.keyed import KeyedBatchStage

        return KeyedBatchStage(self, key_fn)

    # -- several stages --------------------------------------------------------------------------------------------

    @overload
    def hash_join(self, side: BatchStage[T1], on: On, fn: Callable[[T, Any], R | None], /) -> BatchStage[R]: ...
    @overload
    def hash_join(
        self, side: BatchStage[T1], on: On, side2: BatchStage[T2], on2: On, fn: Callable[[T, Any, Any], R | None], /
    ) -> BatchStage[R]: ...
    @overload
    def hash_join(
        self, side: BatchStage[T1], left_key: KeyFn, right_key: KeyFn, fn: Callable[[T, Any], R | None], /
    ) -> BatchStage[R]: ...
    @overload
    def hash_join(self, side: BatchStage[T1], on: On, /) -> BatchStage[tuple[T, T1 | None]]: ...
    @overload
    def hash_join(
        self, side: BatchStage[T1], on: On, side2: BatchStage[T2], on2: On, /
    ) -> BatchStage[tuple[T, T1 | None, T2 | None]]: ...
    @overload
    def hash_join(
        self, side: BatchStage[T1], left_key: KeyFn, right_key: KeyFn, /
    ) -> BatchStage[tuple[T, T1 | None]]: ...
    @overload
    def hash_join(
        self, side: BatchStage[Any], on: On, side2: BatchStage[Any], on2: On, side3: BatchStage[Any], /, *more: Any
    ) -> BatchStage[Any]: ...
    @overload
    def hash_join(self, *sides: Any, fn: Callable[..., R | None]) -> BatchStage[R]: ...
    def hash_join(self, *sides: Any, fn: Callable[..., Any] | None = None) -> BatchStage[Any]:
        """Enrich each item with what matches it on other, smaller stages, which every processor keeps in memory.

        A left outer join: an item with several matches makes several results, and one without has None for a match.

        Args:
            sides: for each joined side the stage, then how it is joined: `on_keys(left_key, right_key)`, the pair
                `(left_key, right_key)`, or the two key functions one after the other. Then perhaps `fn`.
            fn: `fn(item, match, ...)` makes a result (None: no result); by default the tuple of its arguments.

        Raises:
            TypeError: an argument is wrong. PlanError: a stage is of another pipeline.

        Example:
            >>> trades.hash_join(products, on_keys(itemgetter(1), itemgetter(0)), describe)        # doctest: +SKIP
            >>> trades.hash_join(products, on_products, brokers, on_brokers, describe_both)        # doctest: +SKIP
        """
        return self._hash_join("hash_join", sides, fn, inner=False)

    @overload
    def inner_hash_join(self, side: BatchStage[T1], on: On, fn: Callable[[T, T1], R | None], /) -> BatchStage[R]: ...
    @overload
    def inner_hash_join(
        self, side: BatchStage[T1], on: On, side2: BatchStage[T2], on2: On, fn: Callable[[T, T1, T2], R | None], /
    ) -> BatchStage[R]: ...
    @overload
    def inner_hash_join(
        self, side: BatchStage[T1], left_key: KeyFn, right_key: KeyFn, fn: Callable[[T, T1], R | None], /
    ) -> BatchStage[R]: ...
    @overload
    def inner_hash_join(self, side: BatchStage[T1], on: On, /) -> BatchStage[tuple[T, T1]]: ...
    @overload
    def inner_hash_join(
        self, side: BatchStage[T1], on: On, side2: BatchStage[T2], on2: On, /
    ) -> BatchStage[tuple[T, T1, T2]]: ...
    @overload
    def inner_hash_join(
        self, side: BatchStage[T1], left_key: KeyFn, right_key: KeyFn, /
    ) -> BatchStage[tuple[T, T1]]: ...
    @overload
    def inner_hash_join(
        self, side: BatchStage[Any], on: On, side2: BatchStage[Any], on2: On, side3: BatchStage[Any], /, *more: Any
    ) -> BatchStage[Any]: ...
    @overload
    def inner_hash_join(self, *sides: Any, fn: Callable[..., R | None]) -> BatchStage[R]: ...
    def inner_hash_join(self, *sides: Any, fn: Callable[..., Any] | None = None) -> BatchStage[Any]:
        """Join as `hash_join` does, with the same `sides` and `fn`, but leave out items without a match on any side."""
        return self._hash_join("inner_hash_join", sides, fn, inner=True)

    def hash_join_builder(self) -> HashJoinBuilder[T]:
        """Return a builder for a hash join with any number of sides, whose function gets the matches by tag.

        See `HashJoinBuilder`.
        """
        from shmjet.pipeline.builders import HashJoinBuilder

        return HashJoinBuilder(self)

    @overload
    def join(
        self,
        other: BatchStage[T1],
        left_key: Callable[[T], K] | None,
        right_key: Callable[[T1], K] | None,
        fn: Callable[[T, T1], R | None],
    ) -> BatchStage[R]: ...
    @overload
    def join(
        self,
        other: BatchStage[T1],
        left_key: Callable[[T], K] | None,
        right_key: Callable[[T1], K] | None,
        fn: None = None,
    ) -> BatchStage[tuple[T, T1]]: ...
    def join(
        self,
        other: BatchStage[Any],
        left_key: KeyFn,
        right_key: KeyFn,
        fn: Callable[..., Any] | None = None,
    ) -> BatchStage[Any]:
        """Join two streams by key: all pairs of an item here and an item there with equal keys.

        Both are partitioned by the key; what is partitioned alike already does not move. `other` is kept in memory.

        Args:
            other: the other stream.
            left_key, right_key: key of an item here and there; None: the item itself.
            fn: `fn(item, other item)` makes a result (None: no result); by default the pair.

        Example:
            >>> orders.join(payments, itemgetter("order"), itemgetter("order"), settle)        # doctest: +SKIP
        """
        project = None if fn is None else checked_fn("join", "a function of two items", fn)
        transform = t.Join(checked_key("join", left_key), checked_key("join", right_key), project)
        return self._then("join", transform, other)

    # -- all items ----------------------------------------------------------------------------------------------

    def sort(self, key: Callable[[T], Any] | None = None, reverse: bool = False) -> BatchStage[T]:
        """Bring all items into order; the stages that follow one by one keep it.

        Args:
            key: what items are compared by; None: themselves. NaNs come last, in both directions.
            reverse: descending.
        """
        return self._then("sort", t.Sort(checked_key("sort", key), bool(reverse)))

    def distinct(self, key: Callable[[T], Any] | None = None) -> BatchStage[T]:
        """Keep one item of each value, or of each `key(item)`; which one of several is not defined.

        Args:
            key: what has to differ; None: the items themselves.
        """
        return self._then("distinct", t.Distinct(checked_key("distinct", key)))

    def aggregate(self, op: AggregateOperation[T, A, R]) -> BatchStage[R]:
        """Fold all items into one result, which is emitted at the end unless it is None.

        Args:
            op: from `shmjet.aggregate_ops`.

        Example:
            >>> words.aggregate(aggregate_ops.counting())        # doctest: +SKIP
        """
        return self._then("aggregate", t.Aggregate(checked_operation("aggregate", op, 1), None))

    def aggregate2(self, *arguments: Any) -> BatchStage[Any]:
        """Aggregate this stage and another one together.

        Args:
            arguments: either `stage1, op` with an operation of two inputs, or `op0, stage1, op1`, which gives the pair
                of both results.

        Raises:
            TypeError: they are something else.

        Example:
            >>> views.aggregate2(counting(), payments, summing(amount))        # doctest: +SKIP
        """
        stages, op = co_aggregation("aggregate2", arguments, 2, BatchStage)
        return self._then("aggregate2", t.Aggregate(op, None), *stages)

    def aggregate3(self, *arguments: Any) -> BatchStage[Any]:
        """Aggregate this stage and two others together.

        Args:
            arguments: either `stage1, stage2, op` with an operation of three inputs, or `op0, stage1, op1, stage2,
                op2`, which gives the triple of all results.

        Raises:
            TypeError: they are something else.
        """
        stages, op = co_aggregation("aggregate3", arguments, 3, BatchStage)
        return self._then("aggregate3", t.Aggregate(op, None), *stages)

    def aggregate_builder(self, op: AggregateOperation[T, Any, R]) -> AggregateBuilder[R]:
        """Return a builder that aggregates this stage by `op` and any number of others, each by its own.

        See `AggregateBuilder`.
        """
        from shmjet.pipeline.builders import AggregateBuilder

        return AggregateBuilder(self, op)

    def group_by(self, *columns: str, **options: Any) -> ColumnGroups:
        """Group columns by columns: `stage.group_by("user").agg(total=sum_("v"), n=count())`.

        Args:
            columns: names of the key columns.
            options: as for `processors.group_by`.
        """
        return ColumnGroups(self, columns, options)


@dataclass(frozen=True)
class ColumnGroups:
    """What `stage.group_by` returns; say `.agg(...)` next."""

    stage: BatchStage[Any]
    columns: tuple[str, ...]
    options: dict[str, Any]

    def agg(self, **aggregates: Aggregate) -> BatchStage[Any]:
        """Return a stage of batches with the key columns and one column for each aggregate.

        Args:
            aggregates: name of a column → what is in it, from `shmjet.columns`.
        """
        grouping = group_by(*self.columns, **self.options).agg(**aggregates)
        return self.stage._then("group_by", t.GroupColumns(grouping))
