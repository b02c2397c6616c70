"""Fair shares of an event loop's time for clients that may ask for more than it can give.

Steps are done in the order in which they were asked for, for a few milliseconds at a time. Then all else that the loop
has to do comes first: its timers, its other sockets. So a member that clients keep busy still says in time that it is
there.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

SHARE_S = 0.01
"""Seconds of steps between two looks at everything else; the last step may take longer."""


class Turns:
    """The steps that wait, of one event loop.

    Args:
        clock: seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._steps: deque[Callable[[], None]] = deque()
        self._scheduled = False
        self._since = self._spent = 0.0

    def now(self, step: Callable[[], None]) -> bool:
        """Do a step at once, which is faster, if none waits and there is time for it; False if not: then `add` it."""
        begun = self._clock()
        if begun - self._since >= 2 * SHARE_S:
            self._since, self._spent = begun, 0.0
        if self._steps or self._spent >= SHARE_S:
            return False
        try:
            step()
        finally:
            self._spent += self._clock() - begun
        return True

    def add(self, step: Callable[[], None]) -> None:
        """Have a step done, after the steps that wait already; needs the running loop."""
        self._steps.append(step)
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        until = self._clock() + SHARE_S
        try:
            while self._steps:
                self._steps.popleft()()
                if self._clock() >= until:
                    break
        finally:
            self._scheduled = bool(self._steps)
            if self._scheduled:
                asyncio.get_running_loop().call_soon(self._run)
