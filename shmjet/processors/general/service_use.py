"""map, filter and flat_map with a service; the service is shared by the processors of a process, or each has its own.

Must not know what services are. `async_services` has the forms for coroutine functions.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, cast, get_args

from shmjet.core.kept_services import ServiceKeep, keep_in
from shmjet.core.key_functions import KeyFn, plain
from shmjet.core.processor import NO_STATE, Processor, ProcessorContext, ProcessorSupplier, state_kind_of
from shmjet.data.errors import ProcessorError
from shmjet.processors.general.failures import OnError
from shmjet.processors.general.item_calls import Calls, CallsProcessor, Kind, ManyCallProcessor, OneCallProcessor
from shmjet.processors.general.services import ServiceFactory


class ServiceHolder:
    """A service, made by the first processor of a process that asks for it and closed after the last.

    Args:
        factory: makes the service.
    """

    def __init__(self, factory: ServiceFactory[Any]) -> None:
        self._factory = factory
        self._service: Any = None
        self._users = 0
        self._keep: ServiceKeep
        self._place: Hashable = None

    def acquire(self, context: ProcessorContext) -> Any:
        """Return the service; each call is answered by one of `release`."""
        if not self._users:
            self._keep, self._place = keep_in(context), place_of(self._factory, context)
            self._service = self._keep.take(self._place)
            if self._service is None:
                self._service = self._factory(context)
        self._users += 1
        return self._service

    def release(self) -> None:
        """Close the service if no other processor uses it."""
        self._users -= 1
        if not self._users:
            service, self._service = self._service, None
            if not self._keep.keep(self._place, service, self._factory.closing):
                self._factory.closing(service)


def place_of(factory: ServiceFactory[Any], context: ProcessorContext) -> Hashable:
    """Return where in a job a service belongs: to a vertex, or to one of its processors."""
    return context.vertex_name, None if factory.shared else context.global_index


class ServiceCall:
    """How a function is called with a service: `fn(service, item)`, or with the key between them.

    Args:
        fn: the user's function.
        key_fn: key of an item.
        keyed: hand the key over.
    """

    def __init__(self, fn: Callable[..., Any], key_fn: KeyFn, keyed: bool) -> None:
        self.fn = fn
        self.key_fn = plain(key_fn)
        self.keyed = keyed

    def one(self, service: Any, item: Any) -> Any:
        """Return what the function gives for one item."""
        if not self.keyed:
            return self.fn(service, item)
        return self.fn(service, self.key_of(item), item)

    def key_of(self, item: Any) -> Any:
        """Return the key of an item."""
        return item if self.key_fn is None else self.key_fn(item)

    def each(self, service: Any, items: list[Any]) -> list[Any]:
        """Return what the function gives for each item."""
        fn, key_fn = self.fn, self.key_fn
        if not self.keyed:
            return [fn(service, item) for item in items]
        if key_fn is None:
            return [fn(service, item, item) for item in items]
        return [fn(service, key_fn(item), item) for item in items]


class ServiceCalls(Calls):
    """Calls a function with a service, which it takes when it starts.

    Args:
        holder: of the service.
        call: of the function.
    """

    def __init__(self, holder: ServiceHolder, call: ServiceCall) -> None:
        self._holder = holder
        self._call = call
        self._service: Any = None
        self._acquired = False

    def start(self, context: ProcessorContext) -> None:
        """Take the service."""
        self._service = self._holder.acquire(context)
        self._acquired = True

    def one(self, item: Any, stamp: int | None) -> Any:
        """Call the function for one item."""
        return self._call.one(self._service, item)

    def values(self, items: list[Any], stamps: list[int] | None) -> list[Any]:
        """Call the function for a list."""
        return self._call.each(self._service, items)

    def release(self) -> None:
        """Give the service back."""
        if self._acquired:
            self._acquired = False
            self._holder.release()


class _WithService(CallsProcessor[ServiceCalls]):
    """Gives its service back when it is closed."""

    movable = False

    def close(self) -> None:
        """Give the service back."""
        self.calls.release()


class ServiceProcessor(_WithService, OneCallProcessor[ServiceCalls]):
    """map and filter with a service."""


class ServiceExpandingProcessor(_WithService, ManyCallProcessor[ServiceCalls]):
    """flat_map with a service."""


class ServiceSupplier(ProcessorSupplier):
    """Makes processors that use a service; one copy of it lives in each worker process.

    Args:
        make: makes a processor, given a holder of the service.
        factory: makes the service.
    """

    def __init__(
        self,
        make: Callable[[Any], Processor],
        holder: Callable[[ServiceFactory[Any]], Any],
        factory: ServiceFactory[Any],
        name: str,
    ) -> None:
        self._make = make
        self._holder = holder
        self._factory = factory
        self.__name__ = name
        self.is_cooperative = factory.is_cooperative
        self.movable = False
        self.state_kind = state_kind_of(make)

    @property
    def shares(self) -> bool:
        """Whether all processors of a process have one service."""
        return self._factory.shared

    def holder(self) -> Any:
        """Return a fresh holder of the service; for hosts that keep one beyond the processors that use it."""
        return self._holder(self._factory)

    def using(self, holder: Any) -> Processor:
        """Return a processor that uses the service of a holder."""
        return self._make(holder)

    def get(self, count: int) -> Sequence[Processor]:
        """Return processors that share one holder, or have one each."""
        shared = self._holder(self._factory) if self._factory.shared else None
        return [self._make(shared or self._holder(self._factory)) for _ in range(count)]


class _Maker:
    """Makes one processor; a class, so that it pickles."""

    state_kind = NO_STATE

    def __init__(self, kind: Kind, call: ServiceCall, cooperative: bool, timed: bool, on_error: OnError | None) -> None:
        self._kind = kind
        self._call = call
        self._cooperative = cooperative
        self._timed = timed
        self._on_error = on_error

    def __call__(self, holder: ServiceHolder) -> Processor:
        made = ServiceExpandingProcessor if self._kind == "flat_map" else ServiceProcessor
        processor = made(ServiceCalls(holder, self._call), self._kind, self._timed, self._on_error)
        processor.is_cooperative = self._cooperative
        return processor


def using_service(
    kind: str,
    factory: ServiceFactory[Any],
    fn: Callable[..., Any],
    key_fn: KeyFn = None,
    keyed: bool = False,
    *,
    timed: bool = False,
    on_error: OnError | None = None,
) -> ProcessorSupplier:
    """Map, filter or flat_map with a service.

    Args:
        kind: "map", "filter" or "flat_map".
        factory: makes the service.
        fn: `fn(service, item)`, or `fn(service, key, item)` when `keyed`; as for `map`, `filter` and `flat_map`.
        key_fn: key of an item.
        keyed: hand the key over.
        timed: items are pairs `(timestamp, item)`; the function sees the item, and results are pairs with its
            timestamp.
        on_error: what is done with an item whose function raises; None: the job fails.

    Raises:
        TypeError: an argument is wrong. ProcessorError: an unknown kind.

    Example:
        >>> from shmjet.testing import verify_processor
        >>> known = using_service("map", ServiceFactory(lambda: {"a": 1}), lambda names, item: names.get(item))
        >>> verify_processor(known).inputs(["a", "b"]).expect([1])
    """
    if kind not in get_args(Kind):
        raise ProcessorError(f"using_service: expected map, filter or flat_map, got {kind!r}")
    if not callable(fn):
        raise TypeError(f"using_service: expected a function of service and item, got {type(fn).__name__}: {fn!r}")
    maker = _Maker(cast(Kind, kind), ServiceCall(fn, key_fn, keyed), factory.is_cooperative, timed, on_error)
    return ServiceSupplier(maker, ServiceHolder, factory, f"{kind}_using_service")
