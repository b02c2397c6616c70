"""When a worker runs the cyclic garbage collector: between calls, and for a bounded part of its time.

The collector is off while tasklets are called. Young objects are looked at often, all of them so rarely that it costs a
twentieth of the time at most, however large the processors' tables are.
"""

from __future__ import annotations

import gc
from time import perf_counter_ns

_YOUNG = 20_000
"""New containers after which the young generation is looked at."""
_MIDDLE_EVERY = 20
_FULL_SHARE = 20


class Collector:
    """Runs the collector by hand; there is one for each process."""

    def __init__(self) -> None:
        self._count = 0
        self._next_full_ns = 0

    def take_over(self) -> None:
        """Let it run no more by itself."""
        gc.disable()

    def collect(self, now: int) -> None:
        """Run it if enough objects have been made; `now` is in nanoseconds of `perf_counter_ns`."""
        if gc.get_count()[0] <= _YOUNG:
            return
        self._count += 1
        if now >= self._next_full_ns and self._count % (_MIDDLE_EVERY * 5) == 0:
            gc.collect(2)
            ended = perf_counter_ns()
            self._next_full_ns = ended + (ended - now) * _FULL_SHARE
        else:
            gc.collect(1 if self._count % _MIDDLE_EVERY == 0 else 0)

    def collect_young(self) -> None:
        """Look at the young generation if enough objects have been made: an execution has let go of its own."""
        if gc.get_count()[0] > _YOUNG:
            gc.collect(0)
