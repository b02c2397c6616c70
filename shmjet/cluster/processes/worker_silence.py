"""The silence of workers: which has not answered, and for how long; logged while jobs may be waiting.

A worker shows a sign of life in its control block after every round, and once a second when it has nothing to do; a
carrier every four seconds then.
A stopped worker shows none, and neither does a worker in a long call of user code. Both may go on, so they are left
alone; the log names the silent worker and the jobs that wait. Time in which the member itself stood still does not
count.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

import msgspec

from shmjet.cluster.processes.workers import Child
from shmjet.execution import control
from shmjet.host.patience import Patience, is_stopped

STOPPED_S = 3.0
"""Seconds of silence after which a log record tells of a process that is stopped,"""
BUSY_S = 30.0
"""and of a worker that is in a call."""
AGAIN = 10
"""The next record comes after so many times the seconds of the one before."""
STEP_S = 1.0

logger = logging.getLogger("shmjet.member")


class _Silence(msgspec.Struct):
    """What is known of one process."""

    sign: int = -1
    patience: Patience = msgspec.field(default_factory=lambda: Patience(STEP_S))
    said_at: float = 0.0


class WorkerSilence:
    """Looks after the processes of a member while executions are under way.

    Args:
        children: gives the workers and carriers that have been forked.
        is_needed: says whether something is under way.
        name_of: how the job of an execution is called, by its number; None when it is unknown.
    """

    def __init__(
        self,
        children: Callable[[], Iterable[Child]],
        is_needed: Callable[[], bool],
        name_of: Callable[[int], str | None],
    ) -> None:
        self._children = children
        self._is_needed = is_needed
        self._name_of = name_of
        self._silences: dict[Child, _Silence] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._has_ended = False

    def watch(self) -> None:
        """Look after them from now on; needs the running loop."""
        if self._timer is None and not self._has_ended:
            self._timer = asyncio.get_running_loop().call_later(STEP_S, self._look)

    def end(self) -> None:
        """Look no more."""
        self._has_ended = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        if not self._is_needed():
            self._silences.clear()
            return
        self.watch()
        self.look(asyncio.get_running_loop().time())

    def look(self, now: float) -> None:
        """See who has shown no sign of life; `now` is of the monotonic clock, in seconds."""
        children = [child for child in self._children() if child.pid and not (child.lost or child.stopping)]
        self._silences = {child: self._silences.get(child) or _Silence() for child in children}
        for child, silence in self._silences.items():
            sign = child.block.words[control.HEARTBEAT_NS]
            if sign != silence.sign:
                waited = silence.patience.waited(now)
                if silence.said_at:
                    logger.warning("%s answers again, after %.0f s", _named(child), waited)
                self._silences[child] = _Silence(sign)
                self._silences[child].patience.waited(now)
            else:
                self._consider(child, silence, silence.patience.waited(now))

    def _consider(self, child: Child, silence: _Silence, waited: float) -> None:
        if waited < max(STOPPED_S, silence.said_at * AGAIN):
            return
        if is_stopped(child.pid):
            logger.warning(
                "%s is stopped (SIGSTOP), and has not answered for %.0f s: jobs that need it wait; "
                "`kill -CONT %d` lets it go on",
                _named(child),
                waited,
                child.pid,
            )
        elif waited >= BUSY_S and not child.is_carrier:  # a carrier's code may take as long as it likes
            name = self._name_of(child.block.words[control.CURRENT_EXECUTION])
            doing = f"has not come back from code of job {name}" if name is not None else "has not answered"
            logger.warning("%s %s for %.0f s: all else that it has to do waits", _named(child), doing, waited)
        else:
            return
        silence.said_at = waited


def _named(child: Child) -> str:
    return f"{'carrier' if child.is_carrier else 'worker'} {child.index} (pid {child.pid})"
