"""`BatchStage`, the stage of bounded data: the general operations, and the operations that need all items at once.

A stage is an immutable handle of one node of its pipeline; every method that makes a stage adds a node and returns the
handle of that. Two methods change the node itself, its name and its parallelism, neither of which changes what it
computes. Must not know how anything is done. After Jet's `BatchStage`; `stream_stage` has the stage of endless data.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Never, TypeVar, overload

from shmjet.aggregate_ops import AggregateOperation
from shmjet.core.durations import Duration
from shmjet.core.key_functions import KeyFn
from shmjet.data.errors import PlanError
from shmjet.pipeline import transforms as t
from shmjet.pipeline.checks import checked_fn, checked_key, checked_operation
from shmjet.pipeline.column_arguments import (
    check_group_keys,
    column_join,
    column_names,
    flags,
    is_column_join,
    item_join,
    names_columns,
    only_key,
)
from shmjet.pipeline.general import GeneralStage, OnEvict
from shmjet.pipeline.join_clauses import On, co_aggregation
from shmjet.processors.columns.group_by import group_by

if TYPE_CHECKING:
    from shmjet.columns.aggregates import Aggregate
    from shmjet.core.column_key import ColumnKey
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
        def map_stateful(
            self,
            create: Callable[[], St],
            fn: Callable[[St, T], R | None],
            ttl: Duration | None = None,
            on_evict: OnEvict | None = None,
        ) -> BatchStage[R]: ...
        def flat_map_stateful(
            self,
            create: Callable[[], St],
            fn: Callable[[St, T], Iterable[R]],
            ttl: Duration | None = None,
            on_evict: OnEvict | None = None,
        ) -> BatchStage[R]: ...
        def rolling_aggregate(self, op: AggregateOperation[T, A, R], ttl: Duration | None = None) -> BatchStage[R]: ...
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
        def map_using_map(self, name: str, key_fn: KeyFn, fn: Callable[[T, Any], R | None]) -> BatchStage[R]: ...
        def join_table(self, table: Table, key_fn: KeyFn, fn: Callable[[T, Any], R | None]) -> BatchStage[R]: ...
        def custom_transform(self, name: str, supplier: Any) -> BatchStage[Any]: ...
        def grouping_key(self, key_fn: Callable[[T], K] | str | Sequence[str]) -> KeyedBatchStage[T, K]: ...
        def select(self, *columns: Any, **named: Any) -> BatchStage[Any]: ...
        def with_columns(self, **named: Any) -> BatchStage[Any]: ...
        def union(self, *others: Any) -> BatchStage[Any]: ...
        def to_batches(self, schema: Mapping[str, Any] | None = None) -> BatchStage[Any]: ...
        def to_rows(self) -> BatchStage[dict[str, Any]]: ...
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
    @overload
    def join(
        self,
        other: BatchStage[Any],
        on: str | Sequence[str] | ColumnKey | Mapping[str, str] | None = None,
        *,
        left_on: str | Sequence[str] | ColumnKey | None = None,
        right_on: str | Sequence[str] | ColumnKey | None = None,
        how: t.ColumnsHow = "inner",
        suffix: str | None = None,
    ) -> BatchStage[Any]: ...
    def join(self, other: BatchStage[Any], *keys: Any, **options: Any) -> BatchStage[Any]:
        """Join rows of batches by columns, or items by functions of them.

        `join(other, on)`, or `join(other, left_on=..., right_on=...)`, joins batches. Results have the columns of this
        stage, then those of the other one; the key columns come once, under the names they have here. Nulls and NaN
        match nothing. Both sides are partitioned by the keys, or the side that is looked up is sent to every processor
        if it is small for certain (`explain` says which); it is kept in memory.

        `join(other, left_key, right_key, fn=None)` gives all pairs of an item here and an item there with equal keys,
        or what `fn` makes of the pairs. `other` is kept in memory.

        Args:
            other: the other stage.
            on: names of the key columns, or a dict from names here to names there.
            left_on, right_on: names of the key columns here and there, instead of `on`.
            how: "inner": each pair of rows with equal keys; "left", "right", "outer": rows of that side, or of both,
                without a match too, with nulls; "semi": rows here that have a match, once; "anti": those without.
            suffix: appended to the name of a column there that this stage has too, which is an error without it.
            left_key, right_key: key of an item here and there; None: the item itself.
            fn: `fn(item, other item)` makes a result (None: no result); by default the pair.
            within: for two streams only (`StreamStage.join`).

        Raises:
            PlanError: `within` is given. TypeError, ValueError, BatchError: an argument is wrong; in the job: a column
                is missing, cannot be compared, or is on both sides.

        Example:
            >>> orders.join(customers, "customer", how="left")        # doctest: +SKIP
            >>> orders.join(payments, itemgetter("order"), itemgetter("order"), settle)        # doctest: +SKIP
        """
        if options.get("within") is not None:
            raise PlanError(f"join: within is for two streams, but {self!r} is bounded; leave it out")
        options.pop("within", None)
        if is_column_join(keys, options):
            return self._then("join", column_join(keys, options), other)
        left_key, right_key, fn = item_join(keys, options)
        project = None if fn is None else checked_fn("join", "a function of two items", fn)
        transform = t.Join(checked_key("join", left_key), checked_key("join", right_key), project)
        return self._then("join", transform, other)

    # -- all items ----------------------------------------------------------------------------------------------

    def sort(
        self,
        *keys: Any,
        key: Callable[[T], Any] | None = None,
        reverse: bool = False,
        descending: bool | Sequence[bool] = False,
        nulls_first: bool = False,
        **unknown: Never,
    ) -> BatchStage[T]:
        """Bring all rows of batches into order by columns, or all items by a function of them.

        The stages that follow one by one keep the order.

        Args:
            keys: names of columns, the most important first; or one function of an item; none: the items themselves.
            key: the function, by name.
            reverse: of items: descending; also as second argument. NaNs come last, in both directions.
            descending: of columns: one bool for all, or one for each.
            nulls_first: of columns: nulls come first; else last, behind NaN, in both directions.
            unknown: none; a TypeError says how to descend.

        Raises:
            TypeError: names and functions are mixed. BatchError: a name is there twice, or `descending` has another
                length; in the job: a column is missing.

        Example:
            >>> orders.sort("day", "price", descending=[False, True])        # doctest: +SKIP
            >>> words.sort(len, reverse=True)        # doctest: +SKIP
        """
        if unknown:
            raise TypeError(f"sort: there is no {next(iter(unknown))}=; columns take descending=, items take reverse=")
        if keys and names_columns(keys[0]):
            if key is not None or reverse:
                raise TypeError("sort: key= and reverse= are for items; columns are sorted with descending=")
            names = column_names("sort", keys)
            return self._then("sort", t.SortColumns(names, flags(names, descending), bool(nulls_first)))
        if descending is not False or nulls_first:
            raise TypeError("sort: descending= and nulls_first= need the names of columns; items have reverse=")
        if len(keys) == 2 and isinstance(keys[1], bool):  # sort(key, reverse)
            reverse, keys = keys[1], keys[:1]
        key_fn = only_key("sort", keys, key)
        return self._then("sort", t.Sort(checked_key("sort", key_fn), bool(reverse)))

    def distinct(self, *keys: Any, key: Callable[[T], Any] | None = None) -> BatchStage[T]:
        """Keep one row of each key of batches, or one item of each `key(item)`; which one of several is not defined.

        Without arguments: one of equal items; rows of batches are compared as a whole.

        Args:
            keys: names of columns, or one function of an item.
            key: the function, by name.

        Raises:
            TypeError: names and functions are mixed. BatchError: a name is there twice; in the job: it is missing.

        Example:
            >>> orders.distinct("customer", "day")        # doctest: +SKIP
        """
        if keys and names_columns(keys[0]):
            if key is not None:
                raise TypeError("distinct: give either names of columns or key=, a function of an item")
            return self._then("distinct", t.DistinctColumns(column_names("distinct", keys)))
        return self._then("distinct", t.Distinct(checked_key("distinct", only_key("distinct", keys, key))))

    def top(self, n: int, by: str | Sequence[str] | ColumnKey) -> BatchStage[Any]:
        """Return the first `n` rows of batches in descending order, nulls last, and NaN just before these.

        Args:
            n: how many rows, at least 0.
            by: the name of a column, or several, the most important first.

        Raises:
            ValueError: `n` is not a number of rows. BatchError: a name is there twice; in the job: it is missing.

        Example:
            >>> orders.top(10, "price")        # doctest: +SKIP
        """
        if not isinstance(n, int) or isinstance(n, bool) or n < 0:
            raise ValueError(f"top: expected a number of rows from 0 on, got {n!r}")
        return self._then("top", t.Top(n, column_names("top", [by])))

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

    def group_by(self, *columns: Any, **options: Any) -> ColumnGroups:
        """Group columns by columns: `stage.group_by("user").agg(total=sum_("v"), n=count())`.

        Nulls and NaN are keys. Without columns all rows are one group; of no rows there is no result then.

        Args:
            columns: names of the key columns.
            options: as for `processors.group_by`.

        Raises:
            TypeError: a key is an expression.
        """
        check_group_keys(columns, options)
        return ColumnGroups(self, columns, options)


@dataclass(frozen=True)
class ColumnGroups:
    """What `stage.group_by` returns; say `.agg(...)` next."""

    stage: BatchStage[Any]
    columns: tuple[str, ...]
    options: dict[str, Any]

    def agg(self, /, *unnamed: Never, **aggregates: Aggregate) -> BatchStage[Any]:
        """Return a stage of batches with the key columns and one column for each aggregate.

        Args:
            unnamed: none; a TypeError says that results need names.
            aggregates: name of a column → what is in it, from `shmjet.columns`.
        """
        if unnamed:
            raise TypeError(f"agg: results need names, such as agg(total=sum_('price')), got {unnamed[0]!r:.80}")
        grouping = group_by(*self.columns, **self.options).agg(**aggregates)
        return self.stage._then("group_by", t.GroupColumns(grouping))

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(name)
            keys = ", ".join(map(repr, self.columns))
            raise AttributeError(f"group_by({keys}) needs .agg(...) first, such as .agg(n=count()), then .{name}")
