"""A member's report to the process that starts it: its progress, then that it is up, or why not.

Lines of JSON on a pipe, one for each. The reader waits for the last kind of line, not for the end of the pipe: a
process that was forked meanwhile may hold that open for ever.
"""

from __future__ import annotations

import contextlib
import os
import sys

from shmjet.data.errors import ShmjetError
from shmjet.data.sendable_text import sendable


class StartReport:
    """The member's end.

    Args:
        ready: the pipe; -1: there is no starter, standard error takes failures.
        early: a file in which the starter looks for what this process has to say of itself while it starts (see
            `shmjet.cluster.member.main`); -1: there is none.
    """

    def __init__(self, ready: int, early: int = -1) -> None:
        self._ready = ready
        self._early = early

    @property
    def has_reader(self) -> bool:
        """Whether a process waits for this member."""
        return self._ready >= 0

    def phase(self, doing: str) -> None:
        """Say what comes now, as it follows "it was": "opening its port" for example."""
        from shmjet.cluster.settings import Starting

        self._tell(Starting(sendable(doing)))

    def up(self, folder: str, uuid: str, address: str) -> None:
        """Say that the member serves."""
        from shmjet.cluster.settings import Started

        self._tell(Started(folder, uuid, os.getpid(), address))
        self.close()

    def failed(self, error: BaseException) -> None:
        """Say why the member does not come up."""
        from shmjet.cluster.settings import StartFailed

        if isinstance(error, ShmjetError):
            answer = StartFailed(sendable(str(error)), type(error).__name__)
        else:
            from shmjet.host.process_limits import lack_text

            text = lack_text(error) if isinstance(error, Exception) else str(error)
            answer = StartFailed(sendable(f"{type(error).__name__}: {text}"))
        if self._ready < 0:
            from shmjet.host.terminal_text import clean

            print(f"shmjet: the member could not start: {clean(answer.text)}", file=sys.stderr, flush=True)
        self._tell(answer)
        self.close()

    def _tell(self, message: object) -> None:
        if self._ready < 0:
            return
        import msgspec

        with contextlib.suppress(OSError):  # the starter is gone, and this process soon will be
            os.write(self._ready, msgspec.json.encode(message) + b"\n")

    def close(self) -> None:
        """Let go of pipe and file."""
        for fd in (self._ready, self._early):
            if fd >= 0:
                os.close(fd)
        self._ready = self._early = -1
