"""The callbacks of executions, each called in a thread of its own, so that it may block.

The thread that reads what the member says must not: a callback that asks the member for something, or runs the next
job, would wait for a reply that no thread reads.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

logger = logging.getLogger("concurrent.futures")

_PATIENCE_S = 2.0


class CallbackRunner:
    """The threads of one instance, one for each execution that has ended and has callbacks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads: set[threading.Thread] = set()

    def call(self, callbacks: Callable[[], None]) -> None:
        """Call the callbacks of an execution, soon; at once when the process ends and no thread can be started."""

        def run() -> None:
            try:
                callbacks()
            finally:
                with self._lock:
                    self._threads.discard(thread)

        thread = threading.Thread(target=run, name="shmjet-callbacks", daemon=True)
        try:
            with self._lock:  # so that `close` never joins a thread that has not been started
                thread.start()
                self._threads.add(thread)
        except RuntimeError:
            run()

    def close(self) -> None:
        """Wait for the callbacks that are under way, for a moment: they may wait for something themselves."""
        deadline = time.monotonic() + _PATIENCE_S
        with self._lock:
            under_way = self._threads - {threading.current_thread()}
        for thread in under_way:
            thread.join(max(0.0, deadline - time.monotonic()))


def call_all(callbacks: Sequence[Callable[[Future[Any]], object]], future: Future[Any]) -> None:
    """Call all callbacks of a future; what one raises is logged, `SystemExit` too, and the next is called."""
    for callback in callbacks:
        try:
            callback(future)
        except BaseException:
            with contextlib.suppress(BaseException):  # formatting it runs code of the user
                logger.exception("exception calling callback for %r", future)
