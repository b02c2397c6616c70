"""`shmjet member --supervise`: starts a member again when its process has died.

The member is a child. It ends with this process, whatever ends that; what this process is told to end for, the child is
told, too. A member that ends by itself, because it was asked to, or because a setting is wrong, is not started again.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from types import FrameType

from shmjet.cli.outcome import CommandError, Outcome, complain

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 10.0
"""Between the death of a member and its next start; pauses double as long as it dies at once."""
AT_ONCE_S = 30.0
"""A member that has lived for less has died at once."""
MOST_DEATHS = 10
"""Deaths at once, one after the other, after which it is not started any more."""
_STOP = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class RestartPauses:
    """Says how long to wait before a member is started again. Pure."""

    def __init__(self) -> None:
        self.deaths = 0
        """At once, one after the other."""

    def after(self, lived: float) -> float | None:
        """Take that a member has died; return the seconds to wait, None when it is not to be started again.

        Args:
            lived: seconds from its start.
        """
        self.deaths = self.deaths + 1 if lived < AT_ONCE_S else 1
        if self.deaths >= MOST_DEATHS:
            return None
        return min(FIRST_PAUSE_S * (1 << (self.deaths - 1)), LONGEST_PAUSE_S)


class Supervisor:
    """See the module.

    Args:
        start: starts the member.
        say: prints a line.
    """

    def __init__(self, start: Callable[[], subprocess.Popen[bytes]], say: Callable[[str], None] | None = None) -> None:
        self._start = start
        self._say = say or complain
        self._stops = threading.Event()
        self._child: subprocess.Popen[bytes] | None = None

    def run(self) -> int:
        """Supervise until the member ends by itself, or this process is told to end; return its exit status.

        Raises:
            CommandError: it has died at once ten times.
        """
        before = {number: signal.signal(number, self._stop) for number in _STOP}
        try:
            return self._run()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _run(self) -> int:
        pauses = RestartPauses()
        while True:
            begun = time.monotonic()
            self._child = self._start()
            if self._stops.is_set():  # it was told so before there was a child
                self._end_child()
            status = self._child.wait()
            if self._stops.is_set() or status in (Outcome.OK, Outcome.USAGE):
                return max(status, 0)
            pause, how = pauses.after(time.monotonic() - begun), _text_of(status)
            if pause is None:
                text = f"the member {how}; it has died {MOST_DEATHS} times soon after its start, see its log"
                raise CommandError(text, Outcome.FAILED)
            self._say(f"the member (pid {self._child.pid}) {how}; it is started again in {pause:g} s")
            if self._stops.wait(pause):
                return Outcome.OK

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._stops.set()
        self._end_child()

    def _end_child(self) -> None:
        if self._child is not None:
            with contextlib.suppress(ProcessLookupError):
                self._child.terminate()


def _text_of(status: int) -> str:
    return f"was killed by {signal.Signals(-status).name}" if status < 0 else f"has ended with status {status}"
