"""Builders for joins and aggregations of any number of stages.

What is found for a stage, its matches or its result, has the tag that `add` returned when the stage was added. After
Jet's `HashJoinBuilder` and `AggregateBuilder`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from shmjet.aggregate_ops import ItemsByTag, Tag, co_aggregate_operation_builder
from shmjet.data.errors import PlanError
from shmjet.pipeline import transforms as t
from shmjet.pipeline.checks import checked_fn, checked_operation
from shmjet.pipeline.join_clauses import On, parsed_sides

if TYPE_CHECKING:
    from shmjet.aggregate_ops import AggregateOperation
    from shmjet.pipeline.keyed import KeyedBatchStage
    from shmjet.pipeline.stages import BatchStage

T = TypeVar("T")
R = TypeVar("R")
R1 = TypeVar("R1")


class _WithMatches:
    """Calls `fn(item, matches)`; a class, so that it pickles."""

    def __init__(self, fn: Callable[[Any, ItemsByTag], Any]) -> None:
        self._fn = fn

    def __call__(self, item: Any, *matches: Any) -> Any:
        return self._fn(item, ItemsByTag(matches))


class _Spread:
    """Calls `fn(*pair)`; a class, so that it pickles."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self._fn = fn

    def __call__(self, pair: tuple[Any, Any]) -> Any:
        return self._fn(*pair)


class HashJoinBuilder(Generic[T]):
    """Joins a stage with any number of others; made by `stage.hash_join_builder()`.

    Example:
        >>> builder = trades.hash_join_builder()        # doctest: +SKIP
        >>> product = builder.add(products, on_keys(itemgetter(1), itemgetter(0)))        # doctest: +SKIP
        >>> broker = builder.add_inner(brokers, on_keys(itemgetter(2), itemgetter(0)))        # doctest: +SKIP
        >>> joined = builder.build(lambda trade, found: (trade, found[product], found[broker]))        # doctest: +SKIP
    """

    def __init__(self, stage: BatchStage[T]) -> None:
        self._stage = stage
        self._sides: list[BatchStage[Any]] = []
        self._clauses: list[t.JoinClause] = []
        self._inner: list[bool] = []

    def add(self, stage: BatchStage[R], on: On) -> Tag[R | None]:
        """Add `stage` as a side, joined as `on` says, and return its tag; items without a match have None for it.

        Raises:
            TypeError: an argument is wrong.
        """
        return self._add("add", stage, on, False)

    def add_inner(self, stage: BatchStage[R], on: On) -> Tag[R]:
        """Add `stage` as a side, joined as `on` says, and return its tag; items without a match are left out.

        Raises:
            TypeError: an argument is wrong.
        """
        return self._add("add_inner", stage, on, True)

    def _add(self, method: str, stage: BatchStage[Any], on: On, inner: bool) -> Tag[Any]:
        sides, clauses, _ = parsed_sides(f"hash_join_builder.{method}", (stage, on), None)
        self._sides += sides
        self._clauses += clauses
        self._inner.append(inner)
        return Tag(len(self._sides) - 1)

    def build(self, fn: Callable[[T, ItemsByTag], R | None]) -> BatchStage[R]:
        """Return the stage of `fn(item, matches)`, where `matches[tag]` is what matches on a side.

        Raises:
            PlanError: no side was added. TypeError: `fn` cannot be called.
        """
        if not self._sides:
            raise PlanError("hash_join_builder: add() at least one side before build()")
        project = _WithMatches(checked_fn("hash_join_builder.build", "a function of an item and its matches", fn))
        transform = t.HashJoin(tuple(self._clauses), project, tuple(self._inner))
        return self._stage._then("hash_join", transform, *self._sides)


class AggregateBuilder(Generic[R]):
    """Aggregates several stages together, each by an operation of its own; made by `aggregate_builder(op)`.

    Example:
        >>> builder = views.grouping_key(by_user).aggregate_builder(counting())        # doctest: +SKIP
        >>> paid = builder.add(payments.grouping_key(by_user), summing(amount))        # doctest: +SKIP
        >>> both = builder.build()      # (user, results): results[builder.tag0], results[paid]   # doctest: +SKIP
    """

    def __init__(self, stage: BatchStage[Any] | KeyedBatchStage[Any, Any], op: AggregateOperation[Any, Any, R]) -> None:
        self._stages = [stage]
        self._ops = co_aggregate_operation_builder()
        self.tag0: Tag[R] = self._ops.add(checked_operation("aggregate_builder", op, 1))
        """The tag of the stage that made the builder."""

    def add(self, stage: BatchStage[Any] | KeyedBatchStage[Any, Any], op: AggregateOperation[Any, Any, R1]) -> Tag[R1]:
        """Add a stage, keyed when the first one is, and return its tag.

        Raises:
            TypeError: it is not of the first one's kind, or `op` no operation on one input.
        """
        if type(stage) is not type(self._stages[0]):
            raise TypeError(
                f"aggregate_builder.add: expected a {type(self._stages[0]).__name__} like the first one, got {stage!r}"
            )
        tag: Tag[R1] = self._ops.add(checked_operation("aggregate_builder.add", op, 1))
        self._stages.append(stage)
        return tag

    def build(self, fn: Callable[..., Any] | None = None) -> BatchStage[Any]:
        """Return the stage of the results by tag (of `(key, results)` when the stages are keyed).

        Args:
            fn: `fn(results)`, or `fn(key, results)`, makes what is emitted instead; None drops it.

        Raises:
            TypeError: `fn` cannot be called.
        """
        from shmjet.pipeline.keyed import KeyedBatchStage

        first = self._stages[0]
        op = self._ops.build()
        made: BatchStage[Any]
        if isinstance(first, KeyedBatchStage):
            keyed = [stage for stage in self._stages if isinstance(stage, KeyedBatchStage)]
            made = first._together("aggregate_by_key", op, keyed[1:])
            if fn is None:
                return made
            return made.map(_Spread(checked_fn("aggregate_builder.build", "a function", fn)))._named_with(made)
        plain = [stage for stage in self._stages if not isinstance(stage, KeyedBatchStage)]
        made = first._then("aggregate", t.Aggregate(op, None), *plain[1:])
        if fn is None:
            return made
        return made.map(checked_fn("aggregate_builder.build", "a function", fn))._named_with(made)
