"""The runs that a client knows: all that have not ended, and the ended ones whose executions the program still holds.

An instance must not keep what has ended. Its job, its callbacks and what they refer to may be large, and the member
remembers how it ended. Safe for several threads.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable

from shmjet.cluster.client.job_record import JobRecord
from shmjet.cluster.client.known_run import KnownRun
from shmjet.cluster.protocol import ExecutionChanged
from shmjet.cluster.settings import KEPT_RESULTS

Known = tuple[KnownRun, JobRecord]


def _nobody() -> None:
    return None


class KnownRuns:
    """Runs by their numbers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[int, Known] = {}
        self._ended: OrderedDict[int, Callable[[], KnownRun | None]] = OrderedDict()
        self._unclaimed: dict[int, list[ExecutionChanged]] = {}
        """News that came before the answer which gave the number."""

    def pending(self) -> list[int]:
        """Return the numbers of the runs that have not ended."""
        with self._lock:
            return list(self._running)

    def add(self, number: int, run: KnownRun, job: JobRecord) -> tuple[list[ExecutionChanged], bool]:
        """Take a run that has been started.

        Another thread may have joined it in between. What that one has then hears the same from now on.

        Returns:
            the news that have come already, and whether some may have come before: then the member has to be asked.
        """
        with self._lock:
            before = self._running.get(number)
            if before is not None and before[0] is not run:
                run.pass_on_to(before[0])
            was_known = number in self._ended or (before is not None and before[0] is not run)
            self._ended.pop(number, None)
            self._running[number] = run, job
            return self._unclaimed.pop(number, []), was_known

    def find(self, number: int, job: JobRecord, make: Callable[[], KnownRun]) -> tuple[KnownRun, bool]:
        """Return the run of a number, and whether it had to be made: then the member has to be asked about it."""
        with self._lock:
            if (known := self._running.get(number)) is not None:
                return known[0], False
            ended = self._ended.pop(number, None)
            run = None if ended is None else ended()
            if ended is not None and run is not None:
                self._ended[number] = ended
                return run, False
            run = make()
            self._running[number] = run, job
            return run, True

    def take(self, news: ExecutionChanged) -> Known | None:
        """Return the run that news are about; None when the program holds it no longer."""
        with self._lock:
            known = self._running.get(news.execution_id)
            if known is None and news.execution_id not in self._ended:  # else its end was on the way when we asked
                self._unclaimed.setdefault(news.execution_id, []).append(news)
            return known

    def drop(self, number: int) -> None:
        """Forget a run that the program holds no longer."""
        with self._lock:
            self._unclaimed.pop(number, None)
            self._ended[number] = _nobody

    def forget(self, number: int) -> None:
        """Note that a run ends. From now on only the program keeps it."""
        with self._lock:
            self._forget(number)

    def forget_all(self) -> list[Known]:
        """Take that all runs end; returns them."""
        with self._lock:
            left = list(self._running.values())
            for number in list(self._running):
                self._forget(number)
        return left

    def _forget(self, number: int) -> None:
        known = self._running.pop(number, None)
        if known is not None:
            self._ended[number] = weakref.ref(known[0])
        while len(self._ended) > KEPT_RESULTS:
            self._ended.popitem(last=False)
