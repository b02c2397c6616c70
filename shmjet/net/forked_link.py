"""A link process that its member has forked while it came up, as `LinkClient` uses it.

Both then have loaded once what both need. What it must not know: who forks.
"""

from __future__ import annotations

import os
import signal
import socket


class ForkedLink:
    """A child process that will be a link, with those methods of `subprocess.Popen` that `LinkClient` calls.

    Args:
        pid: of the child, for which nothing else waits.
        sock: leads to it; `LinkClient` takes it.
    """

    def __init__(self, pid: int, sock: socket.socket) -> None:
        self.pid = pid
        self.socket = sock
        self._status: int | None = None

    def poll(self) -> int | None:
        """Return its exit status, minus the number of the signal that ended it; None while it runs."""
        return self._waited(os.WNOHANG)

    def wait(self) -> int:
        """Wait for its end and return its exit status."""
        status = self._waited(0)
        assert status is not None
        return status

    def kill(self) -> None:
        """Kill it if it has not ended."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def _waited(self, options: int) -> int | None:
        if self._status is None:
            pid, status = os.waitpid(self.pid, options)
            if pid == self.pid:
                self._status = os.waitstatus_to_exitcode(status)
        return self._status
