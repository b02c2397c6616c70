"""How long another process has been waited for, and whether it cannot answer because it is stopped.

A host that is suspended, or a program that is stopped and continued with all its processes, must not take the pause for
the silence of the others. So only time in which the waiting process itself ran is counted.
"""

from __future__ import annotations

import contextlib
from pathlib import Path


class Patience:
    """Counts the seconds of one wait.

    Args:
        step: seconds between two calls of `waited` at most, when this process runs; of a longer gap twice that counts.
    """

    def __init__(self, step: float) -> None:
        self._most = 2 * step
        self._sum = 0.0
        self._last: float | None = None

    def waited(self, now: float) -> float:
        """Return the seconds since the first call, or since `reset`; `now` is of the monotonic clock."""
        if self._last is not None:
            self._sum += min(now - self._last, self._most)
        self._last = now
        return self._sum

    def reset(self) -> None:
        """Take that there is nothing to wait for now."""
        self._sum, self._last = 0.0, None


def state_of(pid: int) -> str:
    """Return the state of a process as `ps` shows it: T is stopped, Z has ended; empty where that is not known."""
    with contextlib.suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0].decode()
    return ""


def is_stopped(pid: int) -> bool:
    """Say whether a process is stopped (SIGSTOP, Ctrl-Z, a debugger)."""
    return pid > 0 and state_of(pid) in ("T", "t")


def has_ended(pid: int) -> bool:
    """Say whether a process has certainly ended, though its parent may not have looked yet."""
    return pid > 0 and state_of(pid) in ("Z", "X")
