"""Waits for changes of a run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class RunChanges:
    """Wakes the coroutines that wait for a change of one run."""

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[None]] = []

    def tell(self) -> None:
        """Take that the run has changed."""
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait for changes until a condition holds, at most so many seconds; return whether it holds."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while not condition():
            change = loop.create_future()
            self._waiting.append(change)
            try:
                async with asyncio.timeout_at(deadline):
                    await change
            except TimeoutError:
                return condition()
        return True
