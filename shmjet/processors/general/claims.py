"""A shared counter by which processors of several processes claim units of work, each exactly once.

The counter lives in a memory file of the process that made it; the others open it through `/proc/PID/fd/N`. It has no
name that could be left behind, and is gone with its maker. A file lock makes a claim atomic; the kernel frees the
lock of a claimer that is killed. A claim takes about 3 microseconds, for work that takes milliseconds.

Must not know what the units are. The idea is guided self-scheduling: who is done takes the next piece.
"""

from __future__ import annotations

import fcntl
import os
import struct

_COUNTER = struct.Struct("<QQ")


class ClaimCounter:
    """The maker's side: owns the memory file. Close it when the execution is over.

    Example:
        >>> counter = ClaimCounter()
        >>> claims = Claims(counter.address)
        >>> claims.next(), claims.next()
        (0, 1)
        >>> claims.close(); counter.close()
    """

    def __init__(self) -> None:
        self._fd = os.memfd_create("shmjet-claims", os.MFD_CLOEXEC)
        os.pwrite(self._fd, _COUNTER.pack(0, 0), 0)
        self.address = f"/proc/{os.getpid()}/fd/{self._fd}"
        """Where `Claims` finds the counter, as long as this object is open."""

    def close(self) -> None:
        """Free the counter; the second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Claims:
    """A claimer's side.

    Args:
        address: of a `ClaimCounter` of any process of the same user on this host.
        attempt: to run the job; the first claim of a later attempt begins anew.

    Raises:
        OSError: when there is no such counter (any more).
    """

    def __init__(self, address: str, attempt: int = 0) -> None:
        self._attempt = attempt
        self._fd = os.open(address, os.O_RDWR | os.O_CLOEXEC)

    def next(self) -> int:
        """Return the next number, counting from 0, that no other claimer of this attempt gets."""
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        try:
            attempt, number = _COUNTER.unpack(os.pread(self._fd, _COUNTER.size, 0))
            number = number if attempt == self._attempt else 0
            os.pwrite(self._fd, _COUNTER.pack(self._attempt, number + 1), 0)
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)
        return int(number)

    def close(self) -> None:
        """Let go of the counter; the second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
