"""Whether others write to a member's store now: what copies and removes partitions gives way to them.

Copies that only make members even, and removals, are in no hurry, while who writes waits for an answer. On a host whose
cores are all busy a write waits behind whatever step is being taken, here and on the members that get copies. So while
there are writes of clients or jobs, steps are small, with pauses between them; when nothing else is written, all of the
time is used. Must not know what is copied.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

from shmjet.grid.partition_copy import PIECE_BYTES

Result = TypeVar("Result")

_RECENT_S: Final = 0.05
"""For how long after a write others are expected."""
_SMALL_PIECE_BYTES: Final = PIECE_BYTES // 16
_PAUSE: Final = 4
"""So many times as long as a step has taken is the pause behind it."""
_LONGEST_PAUSE_S: Final = 0.1
"""However long a step has taken: others may have changed, or have stopped, meanwhile."""


class OtherWrites:
    """See the module.

    Args:
        committed: counts all transactions of the store.
        clock: gives seconds.

    Example:
        >>> committed = 5
        >>> writes = OtherWrites(lambda: committed)
        >>> writes.are_there(), writes.piece_bytes()
        (False, 1048576)
        >>> committed = 6
        >>> writes.are_there(), writes.piece_bytes()
        (True, 65536)
    """

    def __init__(self, committed: Callable[[], int], clock: Callable[[], float] = time.monotonic) -> None:
        self._committed = committed
        self._clock = clock
        self._own = 0
        self._lock = threading.Lock()
        self._running = 0
        self._before = 0
        """What was committed when the work that is being done began."""
        self._last: int | None = None
        self._until = 0.0

    def apart_from(self, work: Callable[[], Result]) -> Result:
        """Do something, in any thread; no transactions count while it is being done."""
        with self._lock:
            if not self._running:
                self._before = self._committed()
            self._running += 1
        try:
            return work()
        finally:
            with self._lock:
                self._running -= 1
                if not self._running:
                    self._own += self._committed() - self._before

    def are_there(self) -> bool:
        """Say whether others have written since the last call, or shortly before."""
        with self._lock:
            others = (self._before if self._running else self._committed()) - self._own
        now = self._clock()
        if self._last is not None and others > self._last:
            self._until = now + _RECENT_S
        self._last = others
        return now < self._until

    def piece_bytes(self) -> int:
        """Return how many bytes a step should be about."""
        return _SMALL_PIECE_BYTES if self.are_there() else PIECE_BYTES

    async def give_way(self, took: float) -> None:
        """Make a pause behind a step that took so many seconds, while others write."""
        if self.are_there():
            await asyncio.sleep(min(_LONGEST_PAUSE_S, _PAUSE * took))
