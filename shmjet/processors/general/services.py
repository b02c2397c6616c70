"""Services: things that stages use and that are costly to make, such as a model or a connection.

A service is made where the processors run, once for each worker process or once for each processor, and is closed when
the last of them has been closed. After Jet's `ServiceFactory`. Must not know what is done with a service.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from shmjet.core.context import ProcessorContext

S = TypeVar("S")


@dataclass(frozen=True)
class ServiceFactory(Generic[S]):
    """Makes a service, and closes it.

    Args:
        create: `(context) -> service`, or a function without arguments; it may block. For stages whose function is
            `async` it may be a coroutine function, which runs in the loop that the service is used in.
        destroy: `(service) -> None`, a coroutine function where `create` may be one; by default the service's
            `close()`, when it has such a method, else its coroutine method `aclose()`.
        shared: one service for all processors of the stage in a worker process, which take turns; False: one each.
        is_cooperative: False: calls of the service block, so that every processor needs a process of its own.

    Raises:
        TypeError: `create` or `destroy` cannot be called.

    Example:
        >>> import sqlite3
        >>> factory = ServiceFactory(lambda context: sqlite3.connect(":memory:"))
        >>> factory.shared, factory.is_cooperative
        (True, True)
    """

    create: Callable[..., S]
    destroy: Callable[[S], Any] | None = None
    shared: bool = True
    is_cooperative: bool = True

    def __post_init__(self) -> None:
        if not callable(self.create):
            raise TypeError(f"ServiceFactory: create must be callable, got {self.create!r}")
        if self.destroy is not None and not callable(self.destroy):
            raise TypeError(f"ServiceFactory: destroy must be callable or None, got {self.destroy!r}")

    @staticmethod
    def of(factory: ServiceFactory[S] | Callable[..., S]) -> ServiceFactory[S]:
        """Return a factory that calls `factory`; a `ServiceFactory` is returned as it is."""
        return factory if isinstance(factory, ServiceFactory) else ServiceFactory(factory)

    def __call__(self, context: ProcessorContext) -> S:
        """Return a new service (or the coroutine that makes it)."""
        return self.create(context) if takes_an_argument(self.create) else self.create()

    def closing(self, service: S) -> Any:
        """Close a service; returns None, or the coroutine that closes it."""
        if self.destroy is not None:
            return self.destroy(service)
        if inspect.isclass(service):
            return None
        close = getattr(service, "close", None)
        if not callable(close) and inspect.iscoroutinefunction(getattr(service, "aclose", None)):
            close = getattr(service, "aclose")  # noqa: B009
        return close() if callable(close) else None


def takes_an_argument(fn: Callable[..., Any]) -> bool:
    """Tell whether `fn` has to be given a positional argument; a builtin that does not say is taken not to.

    Example:
        >>> takes_an_argument(lambda: 1), takes_an_argument(lambda context: 1), takes_an_argument(dict)
        (False, True, False)
    """
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):
        return False
    required = [
        p
        for p in signature.parameters.values()
        if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    return len(required) > 0
