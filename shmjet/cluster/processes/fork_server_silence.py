"""The time for which a member's fork server has not done what it was asked for.

It may be stopped, or hang. Jobs must not wait for workers that it does not fork, and a log has to say so. Time in which
the member itself stood still does not count. The server is left alone: when it goes on, so does the member.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from shmjet.host.patience import Patience, is_stopped

WARN_S = 2.0
"""Seconds after which a log record says that the fork server does not answer,"""
STOPPED_S = 10.0
"""after which no process waits for its forks when it is stopped,"""
SILENT_S = 120.0
"""and when it is not: to start, it imports much, and the machine may be busy."""
STEP_S = 0.5

logger = logging.getLogger("shmjet.member")


class ServerSilence:
    """Looks after a fork server for as long as forks are due.

    Args:
        pid: of the server.
        due: says how many forks are.
        give_up: called with the reason when they have been waited for long enough; again while further ones are due.
    """

    def __init__(self, pid: int, due: Callable[[], int], give_up: Callable[[str], None]) -> None:
        self._pid = pid
        self._due = due
        self._give_up = give_up
        self._patience = Patience(STEP_S)
        self._timer: asyncio.TimerHandle | None = None
        self._has_warned = False
        self._has_answered = False
        self._has_ended = False
        self.is_long = False
        """Whether it is of no use to ask for more."""

    def watch(self) -> None:
        """Look after a fork that has just been asked for; needs the running loop."""
        if self._timer is None and not self._has_ended:
            self._timer = asyncio.get_running_loop().call_later(STEP_S, self._look)

    def reset(self) -> None:
        """Take that the server has answered."""
        if self._has_warned:
            logger.warning("the fork server (pid %d) %s", self._pid, "answers again" if self._has_answered else "is up")
        self._patience.reset()
        self._has_answered = True
        self._has_warned = self.is_long = False

    def end(self) -> None:
        """Look no more."""
        self._has_ended = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        if not self._due():
            self._patience.reset()
            return
        self.watch()
        self.look(asyncio.get_running_loop().time())

    def look(self, now: float) -> None:
        """See how long forks have been due; `now` is of the monotonic clock, in seconds."""
        waited = self._patience.waited(now)
        if waited < WARN_S:
            return
        stopped = is_stopped(self._pid)
        state = "is stopped (SIGSTOP)" if stopped else "does not answer"
        if not self._has_warned:
            self._has_warned = True
            if stopped or self._has_answered:
                logger.warning("the fork server (pid %d) %s: no process can be started", self._pid, state)
            else:
                text = "the fork server (pid %d) is not up after %.0f s: it imports much, and the machine may be busy"
                logger.warning(text, self._pid, waited)
        if waited >= (STOPPED_S if stopped else SILENT_S):
            self.is_long = True
            self._give_up(f"the fork server (pid {self._pid}) of its member {state}, for {waited:.0f} s")
