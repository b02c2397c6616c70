"""The services that a worker keeps between two attempts of a job.

A worker that is told to stop, by a cancel, cannot know yet whether another attempt follows: the services of a job with
a guarantee are left open until it is told (`Finish`). They are the next attempt's then, which comes within moments;
what no attempt has fetched is closed when the next has started, or after `LONGEST_NS`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from time import monotonic_ns
from typing import Any

from shmjet.execution.interrupts import Interrupts

LONGEST_NS = 60_000_000_000
"""How long services wait for the next attempt, which may have been cancelled before it began."""

_Kept = dict[Hashable, tuple[Any, Callable[[Any], None]]]


class AttemptServices:
    """The keep of one attempt: what the one before has left, and what this one leaves.

    Args:
        job_id: of the job.
        execution_id: of the attempt.
        found: what the attempt before has left.
        interrupts: for code of the user that does not return.
    """

    def __init__(self, job_id: str, execution_id: int, found: _Kept, interrupts: Interrupts) -> None:
        self.job_id = job_id
        self.keeps = False
        """Whether services are left open when the attempt closes its processors."""
        self._execution_id = execution_id
        self._found = found
        self._left: _Kept = {}
        self._interrupts = interrupts

    def take(self, place: Hashable) -> Any:
        """Return what the attempt before has left at a place, which is the caller's then; None if nothing is there."""
        return self._found.pop(place, (None, None))[0]

    def keep(self, place: Hashable, service: Any, close: Callable[[Any], None]) -> bool:
        """Take a service over, if services are left open; `close` is called with it if no attempt follows."""
        if self.keeps:
            self._left[place] = service, close
        return self.keeps

    def close_unclaimed(self) -> None:
        """Close what this attempt has not taken."""
        self._close(self._found)

    def close(self) -> None:
        """Close what was left by the attempt before, and by this one."""
        self._close(self._found)
        self._close(self._left)

    def leave(self) -> _Kept:
        """Return what the next attempt may take: what this one has left, and what it has not taken."""
        left = {**self._found, **self._left}
        self._found, self._left = {}, {}
        return left

    def _close(self, kept: _Kept) -> None:
        while kept:
            _, (service, close) = kept.popitem()
            with self._interrupts.closing(self._execution_id, f"the service {type(service).__name__}"):
                close(service)


class KeptServices:
    """What the attempts of all jobs have left in a worker.

    Args:
        interrupts: for code of the user that does not return.
        clock_ns: the time, monotonic.
    """

    def __init__(self, interrupts: Interrupts, clock_ns: Callable[[], int] = monotonic_ns) -> None:
        self._interrupts = interrupts
        self._clock_ns = clock_ns
        self._waiting: dict[str, tuple[int, AttemptServices]] = {}

    def begin(self, job_id: str, execution_id: int) -> AttemptServices:
        """Return the keep of an attempt that begins."""
        _, before = self._waiting.pop(job_id, (0, None))
        return AttemptServices(job_id, execution_id, {} if before is None else before.leave(), self._interrupts)

    def end(self, services: AttemptServices, *, is_followed: bool) -> None:
        """Take what an attempt has left, for the next if one follows; else it is closed."""
        if is_followed:
            self._waiting[services.job_id] = self._clock_ns() + LONGEST_NS, services
        else:
            services.close()

    def close_overdue(self) -> None:
        """Close what no attempt has asked for in time."""
        if not self._waiting:
            return
        now = self._clock_ns()
        for job_id in [job_id for job_id, (until, _) in self._waiting.items() if until <= now]:
            self._waiting.pop(job_id)[1].close()

    def close(self) -> None:
        """Close everything."""
        while self._waiting:
            self._waiting.popitem()[1][1].close()
