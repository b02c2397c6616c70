"""The background tasks of one owner on an event loop.

A loop holds its tasks weakly, so the owner has to keep a running task alive; and an exception that no one awaits must
not pass unseen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class BackgroundTasks:
    """Tasks that no one awaits, kept until they end.

    Args:
        on_failure: called with the exception that ended a task; by default the loop's exception handler logs it.
    """

    def __init__(self, on_failure: Callable[[BaseException], None] | None = None) -> None:
        self._on_failure = on_failure
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a coroutine in the background, and return its task. Needs the running loop."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        if self._on_failure is not None:
            self._on_failure(error)
        else:
            context = {"message": "a background task has failed", "exception": error, "task": task}
            task.get_loop().call_exception_handler(context)

    async def cancel(self) -> None:
        """Cancel all tasks and wait for their ends."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
