"""An event loop whose clock shows no time that a busy machine takes."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Skipping(selectors.SelectSelector):
    """Does not wait for a timer: it has the clock show that its time has come."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(None if timeout is None else 0)
        if not ready and timeout is not None:
            self.now += timeout
        return ready


class SkippingLoop(asyncio.SelectorEventLoop):
    """Time passes only while nothing can run, and then at once to the next timer: how long code takes does not show.

    Only for what waits for timers and tasks; threads and other processes take real time, in which a loop of this kind
    comes to its last timer.
    """

    def __init__(self) -> None:
        self.skipping = _Skipping()
        super().__init__(self.skipping)

    def time(self) -> float:
        """Return the seconds that have passed."""
        return self.skipping.now


def skipping(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in such a loop."""
    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        return runner.run(main)
