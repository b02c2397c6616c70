"""How a processor that waits for something outside is called as soon as that comes, without polling.

A processor whose `next_call` is far away has a thread of its own wait (for a file, a socket) and call what
`wake_up_in(context)` returns. The engine sets it before `init`; without an engine nothing waits, so nothing is done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shmjet.core.context import ProcessorContext

WakeUp = Callable[[], None]
"""Has the processor called soon, whatever its `next_call`. Any thread may call it until the processor's `close`."""


def wake_up_in(context: ProcessorContext) -> WakeUp:
    """Return what wakes the processor of a context.

    Example:
        >>> from shmjet.core.context import ProcessorContext
        >>> wake_up_in(ProcessorContext())()
    """
    wake_up: WakeUp | None = context._wake_up
    return wake_up or _nothing


def set_wake_up(context: ProcessorContext, wake_up: WakeUp) -> None:
    """Have a context tell what wakes its processor. The engine does, before the processor has the context."""
    object.__setattr__(context, "_wake_up", wake_up)


def _nothing() -> None:
    """Do nothing: without an engine no one waits."""
