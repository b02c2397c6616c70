"""Transport of log records from a pool's workers to the handlers of the client process.

They travel like the records of a job's workers (`shmjet/execution/logs.py`). Each record has the attributes `worker`,
`task` (the function's name) and `task_number` (a worker numbers its tasks from 1; 0: none runs). The worker rings the
client's doorbell after each record, so that the handlers get it before the future gets the result of its task.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Sequence
from typing import Any

from shmjet._native import Doorbell
from shmjet.execution.logs import SendingHandler, send_through

Running = Callable[[], tuple[int, Callable[..., Any] | None]]
"""Returns the number of the running task and what it calls; 0 and None when there is none."""


class _TaskHandler(SendingHandler):
    """Marks records with their task, sends them, and rings the client's doorbell."""

    def __init__(self, sock: socket.socket, worker: int, running: Running, bell: Doorbell) -> None:
        super().__init__(sock, worker, waits=True)
        self._running = running
        self._bell = bell
        self._pid = os.getpid()

    def emit(self, record: logging.LogRecord) -> None:
        if os.getpid() != self._pid:  # the user has forked: the pool's memory is not mapped here
            super().emit(record)
            return
        number, called = self._running()
        record.task, record.task_number = _name_of(called), number
        super().emit(record)
        self._bell.post()


def send_task_logs(sock: socket.socket, worker: int, levels: Sequence[int], running: Running, bell: Doorbell) -> None:
    """Send the log records of this process from now on.

    Args:
        sock: the socket to the client.
        worker: this process' number.
        levels: the lowest level of shmjet's own loggers, and of all others.
        running: returns the running task.
        bell: the client's doorbell.
    """
    send_through(_TaskHandler(sock, worker, running, bell), *levels)


def _name_of(called: Callable[..., Any] | None) -> str:
    """Return how a user would name what a task calls."""
    found: Any = called
    while hasattr(found, "func"):  # a partial, or joblib's batches
        found = found.func
    return "" if found is None else getattr(found, "__qualname__", "") or type(found).__qualname__
