"""Services that outlive the attempt for which they were made: those of the workers that survive the loss of another.

What is costly to make (a model, a connection) is not made anew because another process has died. The engine hands the
keep in; without an engine nothing is kept. Must not know processes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from shmjet.core.context import ProcessorContext


class ServiceKeep(Protocol):
    """Keeps the services of one attempt in one process, by a place within the job."""

    def take(self, place: Hashable) -> Any:
        """Return what the attempt before has left at a place, which is the caller's then; None if nothing is there."""

    def keep(self, place: Hashable, service: Any, close: Callable[[Any], None]) -> bool:
        """Take a service over; `close` is called with it if no attempt follows. False: the caller has to close it."""


class _NothingKept:
    """Where there is no engine."""

    def take(self, place: Hashable) -> Any:
        """Return None."""

    def keep(self, place: Hashable, service: Any, close: Callable[[Any], None]) -> bool:
        """Return False."""
        return False


def keep_in(context: ProcessorContext) -> ServiceKeep:
    """Return where the processor of a context finds and leaves services.

    Example:
        >>> from shmjet.core.context import ProcessorContext
        >>> keep_in(ProcessorContext()).keep("place", object(), print)
        False
    """
    keep: ServiceKeep | None = context._service_keep
    return _NothingKept() if keep is None else keep


def hand_in_keep(context: ProcessorContext, keep: ServiceKeep) -> None:
    """Have a context tell where services are kept. The engine does, before the processor has the context."""
    object.__setattr__(context, "_service_keep", keep)
