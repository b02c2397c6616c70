"""Lines in a log of what strangers and clients do: the first ones, and then a few, with the number of those left out.

Who may connect may do so a thousand times a second, and must not fill the disk with what is said about it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

BURST = 20
"""Lines that may come at once,"""
PER_S = 1.0
"""and in each second after that."""


class RateLimitedLog:
    """Passes warnings on to a logger.

    Args:
        logger: takes them.
        clock: gives seconds.
        burst: how many may come at once.
        per_s: how many may come in each second after that.
    """

    def __init__(
        self,
        logger: logging.Logger,
        clock: Callable[[], float] = time.monotonic,
        *,
        burst: int = BURST,
        per_s: float = PER_S,
    ) -> None:
        self._logger = logger
        self._clock = clock
        self._burst = burst
        self._per_s = per_s
        self._left = float(burst)
        self._at = clock()
        self._omitted = 0

    def warning(self, text: str, *arguments: object) -> None:
        """Log a warning, unless there have been too many; then count it for the next."""
        now = self._clock()
        self._left = min(self._burst, self._left + (now - self._at) * self._per_s)
        self._at = now
        if self._left < 1:
            self._omitted += 1
            return
        self._left -= 1
        if self._omitted:
            text, arguments = text + " (%d lines like this were left out before)", (*arguments, self._omitted)
            self._omitted = 0
        self._logger.warning(text, *arguments)
