"""Log records of a pool's workers on their way to the handlers of the process that has the pool.

They travel as those of a job's workers (`shmjet/execution/logs.py`). Each says whose it is: `worker`, `task` (the
function's name) and `task_number` (the worker's tasks are numbered from 1; 0: none runs). After each the client's
doorbell is rung, so that the record is with the handlers before the result of its task is with the future.
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
"""Tells the number of the task that runs and what it calls; 0 and None when there is none."""


class _TaskHandler(SendingHandler):
    """Marks records with their task, sends them, and rings."""

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
    """Send the records of this process from now on.

    Args:
        sock: to the client.
        worker: this process' number.
        levels: from which on, of shmjet's own loggers and of all others.
        running: tells what runs.
        bell: the client's.
    """
    send_through(_TaskHandler(sock, worker, running, bell), *levels)


def _name_of(called: Callable[..., Any] | None) -> str:
    """Return how a user would name what a task calls."""
    found: Any = called
    while hasattr(found, "func"):  # a partial, or joblib's batches
        found = found.func
    return "" if found is None else getattr(found, "__qualname__", "") or type(found).__qualname__
