"""What the writers of a store that is kept on disk have to do with the disk: wake its writer, and perhaps wait for it.

The member's thread (`shmjet.grid.disk.writer`) sleeps on a doorbell in shared memory while nothing changes. A
transaction that has written a record of the log of changes rings it. With `storage_sync=0` it then waits until the
record is on disk; it holds no lock then, so what many writers have changed meanwhile reaches the disk together.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import threading
import time
from pathlib import Path

from shmjet._native import DOORBELL_SIZE, Doorbell
from shmjet.grid.commit_counters import DISK_ERROR, ON_DISK
from shmjet.grid.environment import Transaction
from shmjet.grid.errors import GridError, NotOnDiskError
from shmjet.grid.layout import INDEX, LAST_CHANGE

BELL_FILE = "disk"
_PAUSE_S = 0.0002
"""How long a writer sleeps before it looks again whether its change is on disk."""
_PATIENCE_S = 0.5
"""After so long a thread looks by itself, should the thread that looks for it have been interrupted."""
_LOOKS = 2000
"""After so many looks it is looked whether the store is still there."""


class _Waiting:
    """A thread that waits until an environment has a number on disk."""

    __slots__ = ("_lock", "_number", "_words")

    def __init__(self, words: memoryview, number: int) -> None:
        self._words = words
        self._number = number
        self._lock = threading.Lock()
        self._lock.acquire()

    @property
    def is_over(self) -> bool:
        """Whether it is on disk."""
        return bool(self._words[ON_DISK] >= self._number)

    def sleep(self) -> None:
        """Wait until another thread calls `wake`, or for a while."""
        self._lock.acquire(timeout=_PATIENCE_S)

    def wake(self) -> None:
        """End `sleep`, or the next call of it."""
        with contextlib.suppress(RuntimeError):  # it has been woken before
            self._lock.release()


class DiskLink:
    """See the module. Fulfils `shmjet.grid.environment.Follower`.

    Args:
        folder: of the store.
        words: the numbers of its first environment (`CommitCounters.of`).
        waits: whether a change counts only when it is on disk.
        target: the folder on disk, for errors.
    """

    def __init__(self, folder: Path, words: memoryview, target: str, *, waits: bool) -> None:
        with (folder / BELL_FILE).open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), DOORBELL_SIZE)
        self.bell = Doorbell(self._memory, 0)
        self._folder = folder
        self._words = words
        self._target = target
        self._waits = waits
        self._looking = threading.Lock()
        """Held by the thread that looks."""
        self._mutex = threading.Lock()
        self._all_waiting: dict[_Waiting, None] = {}

    @staticmethod
    def create(folder: Path) -> None:
        """Make what it lies in."""
        with (folder / BELL_FILE).open("xb") as file:
            os.posix_fallocate(file.fileno(), 0, DOORBELL_SIZE)

    def noted(self, txn: Transaction) -> int:
        """Return the number of the last record of the log."""
        found = txn.get(LAST_CHANGE)
        return 0 if found is None else INDEX.unpack(found)[0]

    def committed(self, words: memoryview, number: int) -> None:
        """Take that an environment has records up to a number.

        Raises:
            NotOnDiskError: the disk has no room or does not work, and the change should be on it: it is in memory, and
                will be on disk as soon as that is possible. So it must not be tried again.
        """
        if words[ON_DISK] >= number:
            return
        self.bell.post()
        if self._waits:
            self._wait(words, number)

    def _wait(self, words: memoryview, number: int) -> None:
        """Wait until a record is on disk. One thread of a process looks for all that wait, and wakes each of them once.

        When that thread has what it waits for, the next one looks.
        """
        own = _Waiting(words, number)
        with self._mutex:
            self._all_waiting[own] = None
        try:
            while not own.is_over:
                if self._looking.acquire(blocking=False):
                    try:
                        self._look(own)
                    finally:
                        self._looking.release()
                else:
                    own.sleep()
        finally:
            with self._mutex:
                del self._all_waiting[own]
                following = next(iter(self._all_waiting), None)
            if following is not None and not self._looking.locked():
                following.wake()

    def _look(self, own: _Waiting) -> None:
        looks = 0
        while not own.is_over:
            time.sleep(_PAUSE_S)
            if self._words[DISK_ERROR] and not own.is_over:
                raise disk_error(self._words[DISK_ERROR], self._target)
            with self._mutex:
                over = [other for other in self._all_waiting if other.is_over]
            for other in over:
                other.wake()
            looks += 1
            if looks % _LOOKS == 0 and not self._folder.exists():
                raise GridError("the member that writes maps and lists to disk is gone; the last change may be lost")

    def close(self) -> None:
        """Let go of the memory."""
        self.bell.close()


def disk_error(number: int, target: str) -> NotOnDiskError:
    """Return the error for a disk that takes nothing."""
    full = number in (errno.ENOSPC, errno.EDQUOT)
    return NotOnDiskError(
        f"{target}: maps and lists cannot be written to disk ({os.strerror(number)}); the change is in memory, and "
        f"reaches the disk as soon as it {'has room' if full else 'works'} again"
    )
