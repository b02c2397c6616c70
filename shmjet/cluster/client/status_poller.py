"""The poller for the status of executions that run: news are lost with the connections that they travel on.

It asks when a connection has been made again, when nothing has been heard for a while, and again when no member could
answer. Asking does no harm: the coordinator answers with the status, and sends every change from then on.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from shmjet.cluster.protocol import Refused, watches
from shmjet.core import ShmjetError

AGAIN_S = 1.0
"""When to ask again about executions of which no member knew the status."""


class ExecutionStatusPoller:
    """See the module.

    Args:
        post: sends what it makes of a number; the future brings the reply.
        pending: gives the ids of executions that have not ended.
    """

    def __init__(self, post: Callable[[Callable[[int], Any]], Future[Any]], pending: Callable[[], list[int]]) -> None:
        self._post = post
        self._pending = pending

    def all(self) -> None:
        """Ask about all. Raises ShmjetError when there is no connection."""
        self.some(self._pending())

    def some(self, executions: list[int]) -> None:
        """Ask for the status of executions, now and at each change. Raises ShmjetError when there is no connection."""
        for watch in watches(executions, logs=True):
            self._post(watch).add_done_callback(self._told)

    def _told(self, reply: Future[Any]) -> None:
        if reply.exception() is None and isinstance(reply.result(), Refused):  # there is no coordinator now
            timer = threading.Timer(AGAIN_S, self._later)
            timer.daemon = True
            timer.start()

    def _later(self) -> None:
        with contextlib.suppress(ShmjetError):  # closed, or lost: then everything has been told
            self.all()
