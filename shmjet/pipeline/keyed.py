"""Keyed stages: the operations for each key of bounded data, of endless data, and of both.

A keyed stage is a stage and a key function, and makes no node of its own. After Jet's `GeneralStageWithKey`,
`BatchStageWithKey` and `StreamStageWithKey`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from shmjet.aggregate_ops import AggregateOperation
from shmjet.core.durations import Duration
from shmjet.core.key_functions import KeyFn
from shmjet.core.windows import WindowDefinition
from shmjet.data.errors import PlanError
from shmjet.data.suggestions import unknown_attribute
from shmjet.pipeline import transforms as t
from shmjet.pipeline.builders import AggregateBuilder
from shmjet.pipeline.checks import checked_fn, checked_operation
from shmjet.pipeline.endless import NEEDS_ALL, needs_window
from shmjet.pipeline.general import GeneralStage, OnEvict, ServiceLike
from shmjet.pipeline.handles import SinkStage
from shmjet.pipeline.join_clauses import co_aggregation
from shmjet.pipeline.stages import BatchStage
from shmjet.pipeline.tables import Table
from shmjet.pipeline.windows import KeyedStageWithWindow

if TYPE_CHECKING:
    from shmjet.pipeline.stream_stage import StreamStage

T = TypeVar("T")
K = TypeVar("K")
A = TypeVar("A")
R = TypeVar("R")
S = TypeVar("S")
St = TypeVar("St")


@dataclass(frozen=True, repr=False)
class KeyedStage(Generic[T, K]):
    """A stage whose items are grouped by a key: what can be done with bounded and with endless data alike."""

    stage: GeneralStage[T]
    key_fn: KeyFn

    def rolling_aggregate(
        self, op: AggregateOperation[T, A, R], ttl: Duration | None = None
    ) -> GeneralStage[tuple[K, R]]:
        """Emit `(key, result so far)` after each item.

        Args:
            op: an operation with one input.
            ttl: how long the accumulator of a key lives without an item, in event time; as for `map_stateful`.
        """
        return self.stage._rolling("rolling_aggregate_by_key", op, self.key_fn, True, ttl)

    def map_stateful(
        self,
        create: Callable[[], St],
        fn: Callable[[St, K, T], R | None],
        ttl: Duration | None = None,
        on_evict: OnEvict | None = None,
    ) -> GeneralStage[R]:
        """Map with a state for each key.

        Args:
            create: makes the state of a key, which is mutable.
            fn: `fn(state, key, item)`; it may change the state, and a result of None drops the item.
            ttl: how long a state lives without an item, in event time: seconds or a `timedelta`; None: for ever.
            on_evict: `on_evict(state, key, watermark_ms)`, called when a state expires, or at the end of the input;
                what it returns is emitted, unless it is None.

        Raises:
            PlanError: `ttl` is given, but the items have no event time. TypeError, ConfigError: an argument is wrong.

        Example:
            >>> def number(state, key, item):
            ...     state.append(item)
            ...     return key, len(state), item
            >>> items.grouping_key(by_user).map_stateful(list, number)        # doctest: +SKIP
        """
        return self.stage._stateful("map_stateful_by_key", t.MapStateful, create, fn, self.key_fn, True, ttl, on_evict)

    def filter_stateful(
        self,
        create: Callable[[], St],
        fn: Callable[[St, K, T], Any],
        ttl: Duration | None = None,
        on_evict: OnEvict | None = None,
    ) -> GeneralStage[T]:
        """Keep the items for which `fn(state, key, item)` is true; `create()` makes the state of a key.

        `ttl` and `on_evict` are those of `map_stateful`.
        """
        return self.stage._stateful(
            "filter_stateful_by_key", t.FilterStateful, create, fn, self.key_fn, True, ttl, on_evict
        )

    def flat_map_stateful(
        self,
        create: Callable[[], St],
        fn: Callable[[St, K, T], Iterable[R]],
        ttl: Duration | None = None,
        on_evict: OnEvict | None = None,
    ) -> GeneralStage[R]:
        """Make all items of the iterable `fn(state, key, item)`; `create()` makes the state of a key.

        `ttl` and `on_evict` are those of `map_stateful`.
        """
        return self.stage._stateful(
            "flat_map_stateful_by_key", t.FlatMapStateful, create, fn, self.key_fn, True, ttl, on_evict
        )

    def map_using_service(self, factory: ServiceLike[S], fn: Callable[[S, K, T], R | None]) -> GeneralStage[R]:
        """Make `fn(service, key, item)` of each item; items of one key meet the same service.

        Args:
            factory: a `ServiceFactory`, or a function that makes a service in each worker.
            fn: a result of None drops the item.
        """
        return self.stage._using("map", factory, fn, self.key_fn, True)

    def filter_using_service(self, factory: ServiceLike[S], fn: Callable[[S, K, T], Any]) -> GeneralStage[T]:
        """Keep the items for which `fn(service, key, item)` is true; `factory` is that of `map_using_service`."""
        return self.stage._using("filter", factory, fn, self.key_fn, True)

    def flat_map_using_service(self, factory: ServiceLike[S], fn: Callable[[S, K, T], Iterable[R]]) -> GeneralStage[R]:
        """Make all items of the iterable `fn(service, key, item)`; `factory` is that of `map_using_service`."""
        return self.stage._using("flat_map", factory, fn, self.key_fn, True)

    def map_using_service_async(
        self,
        factory: ServiceLike[S],
        fn: Callable[[S, K, T], Coroutine[Any, Any, R | None]],
        max_concurrent_ops: int = 4,
        preserve_order: bool = True,
    ) -> GeneralStage[R]:
        """Make `await fn(service, key, item)` of each item.

        Args:
            factory, max_concurrent_ops, preserve_order: as for `BatchStage.map_using_service_async`.
            fn: a coroutine function.
        """
        return self.stage._using_async("map", factory, fn, max_concurrent_ops, preserve_order, self.key_fn, True)

    def filter_using_service_async(
        self,
        factory: ServiceLike[S],
        fn: Callable[[S, K, T], Coroutine[Any, Any, Any]],
        max_concurrent_ops: int = 4,
        preserve_order: bool = True,
    ) -> GeneralStage[T]:
        """Keep the items for which `await fn(service, key, item)` is true.

        Args:
            factory, max_concurrent_ops, preserve_order: as for `BatchStage.map_using_service_async`.
            fn: a coroutine function.
        """
        return self.stage._using_async("filter", factory, fn, max_concurrent_ops, preserve_order, self.key_fn, True)

    def flat_map_using_service_async(
        self,
        factory: ServiceLike[S],
        fn: Callable[[S, K, T], Coroutine[Any, Any, Iterable[R]]],
        max_concurrent_ops: int = 4,
        preserve_order: bool = True,
    ) -> GeneralStage[R]:
        """Make all items of the iterable `await fn(service, key, item)`.

        Args:
            factory, max_concurrent_ops, preserve_order: as for `BatchStage.map_using_service_async`.
            fn: a coroutine function.
        """
        return self.stage._using_async("flat_map", factory, fn, max_concurrent_ops, preserve_order, self.key_fn, True)

    def custom_transform(self, name: str, supplier: Any) -> GeneralStage[Any]:
        """Add a processor of your own; all items of a key come to one of them. As `stage.custom_transform`."""
        return self.stage._custom(name, supplier, self.key_fn, True)

    def map_using_map(self, name: str, fn: Callable[[T, Any], R | None]) -> GeneralStage[R]:
        """Make `fn(item, value)` of each item and the value that a map has for its key; as `stage.map_using_map`."""
        return self.stage.map_using_map(name, self.key_fn, fn)

    def join_table(self, table: Table, fn: Callable[[T, Any], R | None]) -> GeneralStage[R]:
        """Make `fn(item, value)` of each item and the value that a table has for its key."""
        return self.stage.join_table(table, self.key_fn, fn)

    def send_to(self, table: Table) -> SinkStage:
        """Put each item into a table under its key."""
        checked_fn("send_to", "a grouping key that is a function", self.key_fn)
        return self.stage.send_to(table, self.key_fn)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.stage.name!r}>"


@dataclass(frozen=True, repr=False)
class KeyedBatchStage(KeyedStage[T, K]):
    """A stage whose items are grouped by a key; made by `stage.grouping_key(key_fn)`.

    Args:
        stage: the stage.
        key_fn: key of an item.

    Example:
        >>> trades.grouping_key(lambda trade: trade.user).aggregate(aggregate_ops.counting())        # doctest: +SKIP
    """

    stage: BatchStage[T]

    if TYPE_CHECKING:  # what is made of a keyed BatchStage is a stage of that kind

        def rolling_aggregate(
            self, op: AggregateOperation[T, A, R], ttl: Duration | None = None
        ) -> BatchStage[tuple[K, R]]: ...
        def map_stateful(
            self,
            create: Callable[[], St],
            fn: Callable[[St, K, T], R | None],
            ttl: Duration | None = None,
            on_evict: OnEvict | None = None,
        ) -> BatchStage[R]: ...
        def filter_stateful(
            self,
            create: Callable[[], St],
            fn: Callable[[St, K, T], Any],
            ttl: Duration | None = None,
            on_evict: OnEvict | None = None,
        ) -> BatchStage[T]: ...
        def flat_map_stateful(
            self,
            create: Callable[[], St],
            fn: Callable[[St, K, T], Iterable[R]],
            ttl: Duration | None = None,
            on_evict: OnEvict | None = None,
        ) -> BatchStage[R]: ...
        def map_using_service(self, factory: ServiceLike[S], fn: Callable[[S, K, T], R | None]) -> BatchStage[R]: ...
        def filter_using_service(self, factory: ServiceLike[S], fn: Callable[[S, K, T], Any]) -> BatchStage[T]: ...
        def flat_map_using_service(
            self, factory: ServiceLike[S], fn: Callable[[S, K, T], Iterable[R]]
        ) -> BatchStage[R]: ...
        def map_using_service_async(
            self,
            factory: ServiceLike[S],
            fn: Callable[[S, K, T], Coroutine[Any, Any, R | None]],
            max_concurrent_ops: int = 4,
            preserve_order: bool = True,
        ) -> BatchStage[R]: ...
        def filter_using_service_async(
            self,
            factory: ServiceLike[S],
            fn: Callable[[S, K, T], Coroutine[Any, Any, Any]],
            max_concurrent_ops: int = 4,
            preserve_order: bool = True,
        ) -> BatchStage[T]: ...
        def flat_map_using_service_async(
            self,
            factory: ServiceLike[S],
            fn: Callable[[S, K, T], Coroutine[Any, Any, Iterable[R]]],
            max_concurrent_ops: int = 4,
            preserve_order: bool = True,
        ) -> BatchStage[R]: ...
        def custom_transform(self, name: str, supplier: Any) -> BatchStage[Any]: ...
        def map_using_map(self, name: str, fn: Callable[[T, Any], R | None]) -> BatchStage[R]: ...
        def join_table(self, table: Table, fn: Callable[[T, Any], R | None]) -> BatchStage[R]: ...

    def aggregate(self, op: AggregateOperation[T, A, R]) -> BatchStage[tuple[K, R]]:
        """Fold the items of each key into one result; `(key, result)` is emitted at the end.

        Args:
            op: from `shmjet.aggregate_ops`, with one input.

        Example:
            >>> words.grouping_key(lambda word: word).aggregate(aggregate_ops.counting())        # doctest: +SKIP
        """
        transform = t.Aggregate(checked_operation("aggregate", op, 1), (self.key_fn,))
        return self.stage._then("aggregate_by_key", transform)

    def aggregate2(self, *arguments: Any) -> BatchStage[Any]:
        """Aggregate this and another keyed stage together, for each key: `(key, result)`.

        Args:
            arguments: either `keyed1, op` with an operation of two inputs, or `op0, keyed1, op1`, whose result is the
                pair of both.

        Raises:
            TypeError: they are something else.
        """
        stages, op = co_aggregation("aggregate2", arguments, 2, KeyedBatchStage)
        return self._together("aggregate2_by_key", op, stages)

    def aggregate3(self, *arguments: Any) -> BatchStage[Any]:
        """Aggregate this and two other keyed stages together, for each key: `(key, result)`.

        Args:
            arguments: either `keyed1, keyed2, op` with an operation of three inputs, or `op0, keyed1, op1, keyed2,
                op2`, whose result is the triple of all.

        Raises:
            TypeError: they are something else.
        """
        stages, op = co_aggregation("aggregate3", arguments, 3, KeyedBatchStage)
        return self._together("aggregate3_by_key", op, stages)

    def aggregate_builder(self, op: AggregateOperation[T, Any, R]) -> AggregateBuilder[R]:
        """Return a builder that aggregates this by `op` and any number of other keyed stages, each by its own."""
        return AggregateBuilder(self, op)

    def _together(self, name: str, op: Any, others: list[Any]) -> BatchStage[Any]:
        keys = (self.key_fn, *(other.key_fn for other in others))
        return self.stage._then(name, t.Aggregate(op, keys), *(other.stage for other in others))

    def distinct(self) -> BatchStage[T]:
        """Keep one item of each key."""
        return self.stage.distinct(self.key_fn)


@dataclass(frozen=True, repr=False)
class KeyedStreamStage(KeyedStage[T, K]):
    """A stage of endless data whose items are grouped by a key; made by `stage.grouping_key(key_fn)`.

    Example:
        >>> from shmjet import Pipeline, sources
        >>> numbers = Pipeline().read_from(sources.item_stream(10)).without_timestamps()
        >>> type(numbers.grouping_key(lambda event: event.sequence % 2)).__name__
        'KeyedStreamStage'
    """

    stage: StreamStage[T]

    if TYPE_CHECKING:  # what is made of a keyed StreamStage is a stage of that kind

        def rolling_aggregate(
            self, op: AggregateOperation[T, A, R], ttl: Duration | None = None
        ) -> StreamStage[tuple[K, R]]: ...
        def map_stateful(
            self,
            create: Callable[[], St],
            fn: Callable[[St, K, T], R | None],
            ttl: Duration | None = None,
            on_evict: OnEvict | None = None,
        ) -> StreamStage[R]: ...
        def filter_stateful(
            self,
            create: Callable[[], St],
            fn: Callable[[St, K, T], Any],
            ttl: Duration | None = None,
            on_evict: OnEvict | None = None,
        ) -> StreamStage[T]: ...
        def flat_map_stateful(
            self,
            create: Callable[[], St],
            fn: Callable[[St, K, T], Iterable[R]],
            ttl: Duration | None = None,
            on_evict: OnEvict | None = None,
        ) -> StreamStage[R]: ...
        def map_using_service(self, factory: ServiceLike[S], fn: Callable[[S, K, T], R | None]) -> StreamStage[R]: ...
        def filter_using_service(self, factory: ServiceLike[S], fn: Callable[[S, K, T], Any]) -> StreamStage[T]: ...
        def flat_map_using_service(
            self, factory: ServiceLike[S], fn: Callable[[S, K, T], Iterable[R]]
        ) -> StreamStage[R]: ...
        def map_using_service_async(
            self,
            factory: ServiceLike[S],
            fn: Callable[[S, K, T], Coroutine[Any, Any, R | None]],
            max_concurrent_ops: int = 4,
            preserve_order: bool = True,
        ) -> StreamStage[R]: ...
        def filter_using_service_async(
            self,
            factory: ServiceLike[S],
            fn: Callable[[S, K, T], Coroutine[Any, Any, Any]],
            max_concurrent_ops: int = 4,
            preserve_order: bool = True,
        ) -> StreamStage[T]: ...
        def flat_map_using_service_async(
            self,
            factory: ServiceLike[S],
            fn: Callable[[S, K, T], Coroutine[Any, Any, Iterable[R]]],
            max_concurrent_ops: int = 4,
            preserve_order: bool = True,
        ) -> StreamStage[R]: ...
        def custom_transform(self, name: str, supplier: Any) -> StreamStage[Any]: ...
        def map_using_map(self, name: str, fn: Callable[[T, Any], R | None]) -> StreamStage[R]: ...
        def join_table(self, table: Table, fn: Callable[[T, Any], R | None]) -> StreamStage[R]: ...

    def window(self, definition: WindowDefinition) -> KeyedStageWithWindow[T, K]:
        """Cut the stream into windows by the time of its items; as `StreamStage.window`, for each key."""
        windowed = self.stage.window(definition)
        return KeyedStageWithWindow(self.stage, windowed.definition, key_fn=self.key_fn)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name in NEEDS_ALL:
                raise PlanError(needs_window(f"{self.stage.name}.grouping_key(...).{name}()", self.stage.name))
            raise unknown_attribute("grouping_key(...)", name, type(self))
