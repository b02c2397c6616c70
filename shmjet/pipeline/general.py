"""`GeneralStage`: transformations of single items, by a function, with a state or with a service.

Each method adds a node to the pipeline and returns the stage of it. Must not know how anything is done, nor what needs
all items at once: that is `stages`. After Jet's `GeneralStage`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from shmjet.aggregate_ops import AggregateOperation
from shmjet.pipeline import transforms as t
from shmjet.pipeline.checks import checked_count, checked_fn, checked_operation, checked_service
from shmjet.pipeline.handles import Stage
from shmjet.processors.columns.map_batches import map_batches
from shmjet.processors.general.input_keys import KeyFn

if TYPE_CHECKING:
    from shmjet.pipeline.stages import BatchStage

T = TypeVar("T")
A = TypeVar("A")
R = TypeVar("R")
S = TypeVar("S")
S_co = TypeVar("S_co", covariant=True)
St = TypeVar("St")


class ServiceLike(Protocol[S_co]):
    """A `ServiceFactory`, or a function that makes a service.

    A protocol and not a `Callable`: type checkers then know the service when they look at a lambda that uses it.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> S_co:
        """Make a service."""


class GeneralStage(Stage, Generic[T]):
    """A stage whose items, of type `T`, are looked at one by one; users hold it as a `BatchStage`."""

    # -- item by item -------------------------------------------------------------------------------------------

    def map(self, fn: Callable[[T], R | None]) -> BatchStage[R]:
        """Make `fn(item)` of each item; a result of None drops the item.

        The results come in any order when the stage has several processors, as it has by default.

        Raises:
            TypeError: `fn` cannot be called, or is a coroutine function.

        Example:
            >>> numbers.map(lambda n: n * n)        # doctest: +SKIP
        """
        return self._then("map", t.Map(checked_fn("map", "a function of one item", fn)))

    def filter(self, predicate: Callable[[T], Any]) -> BatchStage[T]:
        """Keep the items for which `predicate(item)` is true.

        Raises:
            TypeError: `predicate` cannot be called, or is a coroutine function.

        Example:
            >>> numbers.filter(lambda n: n % 2)        # doctest: +SKIP
        """
        return self._then("filter", t.Filter(checked_fn("filter", "a function of one item", predicate)))

    def flat_map(self, fn: Callable[[T], Iterable[R]]) -> BatchStage[R]:
        """Make all items of the iterable `fn(item)` of each item.

        A list or tuple is best; a generator is drawn as far as there is room and may be endless.

        Example:
            >>> lines.flat_map(lambda line: line.split())        # doctest: +SKIP
        """
        what = "a function of one item that returns an iterable"
        return self._then("flat_map", t.FlatMap(checked_fn("flat_map", what, fn)))

    def map_batches(self, fn: Callable[[Any], Any], as_: type | None = None) -> BatchStage[Any]:
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

    def peek(self, to_text: Callable[[T], str] = str, predicate: Callable[[T], Any] | None = None) -> BatchStage[T]:
        """Log the items that pass, where the stage runs.

        Args:
            to_text: what to write of an item.
            predicate: which items to write; all of them by default.
        """
        if predicate is not None:
            checked_fn("peek", "a predicate of one item", predicate)
        return self._then("peek", t.Peek(predicate, checked_fn("peek", "a function from item to text", to_text)))

    # -- with a state -------------------------------------------------------------------------------------------

    def map_stateful(self, create: Callable[[], St], fn: Callable[[St, T], R | None]) -> BatchStage[R]:
        """Map with one state for the whole stage, which therefore runs on a single processor.

        Group by a key first to have a state for each key, and all cores.

        Args:
            create: makes the state, which is mutable.
            fn: `fn(state, item)`; it may change the state.

        Example:
            >>> def number(state, item):
            ...     state.append(item)
            ...     return len(state), item
            >>> items.map_stateful(list, number)        # doctest: +SKIP
        """
        return self._stateful("map_stateful", t.MapStateful, create, fn, None, False)

    def filter_stateful(self, create: Callable[[], St], fn: Callable[[St, T], Any]) -> BatchStage[T]:
        """Keep the items for which `fn(state, item)` is true, with one state, made by `create()`, for the stage."""
        return self._stateful("filter_stateful", t.FilterStateful, create, fn, None, False)

    def flat_map_stateful(self, create: Callable[[], St], fn: Callable[[St, T], Iterable[R]]) -> BatchStage[R]:
        """Make all items of the iterable `fn(state, item)`, with one state, made by `create()`, for the stage."""
        return self._stateful("flat_map_stateful", t.FlatMapStateful, create, fn, None, False)

    def rolling_aggregate(self, op: AggregateOperation[T, A, R]) -> BatchStage[R]:
        """Emit the result of the aggregation so far after each item; on a single processor.

        Args:
            op: from `shmjet.aggregate_ops`, with one input.

        Example:
            >>> payments.rolling_aggregate(aggregate_ops.summing())        # doctest: +SKIP
        """
        return self._then(
            "rolling_aggregate", t.RollingAggregate(checked_operation("rolling_aggregate", op, 1), None, False)
        )

    # -- with a service -----------------------------------------------------------------------------------------

    def map_using_service(self, factory: ServiceLike[S], fn: Callable[[S, T], R | None]) -> BatchStage[R]:
        """Make `fn(service, item)` of each item.

        Args:
            factory: a `ServiceFactory`, or a function that makes a service (a model, a connection) in each worker; it
                is closed at the end.
            fn: a result of None drops the item.

        Example:
            >>> texts.map_using_service(load_model, lambda model, text: model.classify(text))        # doctest: +SKIP
        """
        return self._using("map", factory, fn, None, False)

    def filter_using_service(self, factory: ServiceLike[S], fn: Callable[[S, T], Any]) -> BatchStage[T]:
        """Keep the items for which `fn(service, item)` is true; `factory` is that of `map_using_service`."""
        return self._using("filter", factory, fn, None, False)

    def flat_map_using_service(self, factory: ServiceLike[S], fn: Callable[[S, T], Iterable[R]]) -> BatchStage[R]:
        """Make all items of the iterable `fn(service, item)`; `factory` is that of `map_using_service`."""
        return self._using("flat_map", factory, fn, None, False)

    def map_using_service_async(
        self,
        factory: ServiceLike[S],
        fn: Callable[[S, T], Coroutine[Any, Any, R | None]],
        max_concurrent_ops: int = 4,
        preserve_order: bool = True,
    ) -> BatchStage[R]:
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
        self,
        factory: ServiceLike[S],
        fn: Callable[[S, T], Coroutine[Any, Any, Any]],
        max_concurrent_ops: int = 4,
        preserve_order: bool = True,
    ) -> BatchStage[T]:
        """Keep the items for which `await fn(service, item)` is true.

        Args:
            factory, max_concurrent_ops, preserve_order: as for `map_using_service_async`.
            fn: a coroutine function.
        """
        return self._using_async("filter", factory, fn, max_concurrent_ops, preserve_order, None, False)

    def flat_map_using_service_async(
        self,
        factory: ServiceLike[S],
        fn: Callable[[S, T], Coroutine[Any, Any, Iterable[R]]],
        max_concurrent_ops: int = 4,
        preserve_order: bool = True,
    ) -> BatchStage[R]:
        """Make all items of the iterable `await fn(service, item)`.

        Args:
            factory, max_concurrent_ops, preserve_order: as for `map_using_service_async`.
            fn: a coroutine function whose result is an iterable.
        """
        return self._using_async("flat_map", factory, fn, max_concurrent_ops, preserve_order, None, False)

    # -- making nodes -------------------------------------------------------------------------------------------

    def _then(self, name: str, transform: t.Transform, *others: Stage) -> BatchStage[Any]:
        from shmjet.pipeline.stages import BatchStage

        return BatchStage(self.pipeline, self.pipeline._add(name, transform, self, *others))

    def _stateful(
        self, name: str, kind: type[t.MapStateful], create: Any, fn: Any, key_fn: KeyFn, keyed: bool
    ) -> BatchStage[Any]:
        checked_fn(name, "a function without arguments that makes a state", create)
        checked_fn(name, f"a function of state, {'key and item' if keyed else 'and item'}", fn)
        return self._then(name, kind(create, fn, key_fn, keyed))

    def _using(self, kind: str, factory: Any, fn: Any, key_fn: KeyFn, keyed: bool) -> BatchStage[Any]:
        name = f"{kind}_using_service"
        service = checked_service(name, factory)
        checked_fn(name, f"a function of service{', key' if keyed else ''} and item", fn)
        return self._then(name, t.UsingService(kind, service, fn, key_fn, keyed))

    def _using_async(
        self, kind: str, factory: Any, fn: Any, most: int, in_order: bool, key_fn: KeyFn, keyed: bool
    ) -> BatchStage[Any]:
        name = f"{kind}_using_service_async"
        service = checked_service(name, factory)
        checked_fn(name, f"a coroutine function of service{', key' if keyed else ''} and item", fn, is_async=True)
        checked_count(name, "max_concurrent_ops", most)
        return self._then(name, t.UsingServiceAsync(kind, service, fn, key_fn, keyed, most, bool(in_order)))
