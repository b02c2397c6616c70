"""The functions that are told each change of a job's status, one change after the other.

They are called in a thread of their own (`CallbackRunner`), for they may block; the order of changes is kept.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable

from shmjet.core import JobStatus

logger = logging.getLogger("shmjet.client")

StatusListener = Callable[[JobStatus, JobStatus], object]
"""Called with the old status and the new one."""

_BEGUN = (JobStatus.STARTING, JobStatus.RUNNING)


class StatusListeners:
    """The listeners of one job. May be used from any thread.

    Args:
        call_back: calls a function soon, in a thread that may block.
    """

    def __init__(self, call_back: Callable[[Callable[[], None]], None]) -> None:
        self._call_back = call_back
        self._lock = threading.Lock()
        self._status = JobStatus.NOT_RUNNING
        self._listeners: list[StatusListener] = []
        self._changes: deque[tuple[JobStatus, JobStatus, list[StatusListener]]] = deque()
        self._is_draining = False

    def add(self, listener: StatusListener) -> Callable[[], None]:
        """Tell a listener all changes from now on; returns what removes it, which may be called twice."""

        def remove() -> None:
            with self._lock:
                self._listeners = [each for each in self._listeners if each is not entry]

        def entry(old: JobStatus, new: JobStatus) -> object:
            return listener(old, new)

        with self._lock:
            self._listeners = [*self._listeners, entry]
        return remove

    def take(self, status: JobStatus) -> None:
        """Take the present status. Returns at once."""
        with self._lock:
            for new in passed(self._status, status):
                if self._listeners:
                    self._changes.append((self._status, new, self._listeners))
                self._status = new
            if not self._changes or self._is_draining:
                return
            self._is_draining = True
        self._call_back(self._drain)

    def _drain(self) -> None:
        while True:
            with self._lock:
                if not self._changes:
                    self._is_draining = False
                    return
                old, new, listeners = self._changes.popleft()
                present = self._listeners
            for listener in listeners:
                if listener in present:
                    _call(listener, old, new)


def _call(listener: StatusListener, old: JobStatus, new: JobStatus) -> None:
    try:
        listener(old, new)
    except BaseException:
        with contextlib.suppress(BaseException):  # formatting it runs code of the user
            logger.exception("a status listener has raised at the change from %s to %s", old.name, new.name)


def passed(old: JobStatus, new: JobStatus) -> list[JobStatus]:
    """Return the statuses that a job has passed through on its way to a new one, the new one last.

    A member does not report a status that lasted less than a millisecond. What a job must have passed through is
    filled in, so that listeners hear the same of a short job as of a long one.
    """
    if new is old:
        return []
    if new in (JobStatus.RUNNING, JobStatus.COMPLETING, JobStatus.COMPLETED):
        missed: list[JobStatus] = []
        if old not in (*_BEGUN, JobStatus.COMPLETING):
            missed = [JobStatus.STARTING]
        if new is not JobStatus.RUNNING and old not in (JobStatus.RUNNING, JobStatus.COMPLETING):
            missed += [JobStatus.RUNNING]
        return [*missed, new]
    return [new]
