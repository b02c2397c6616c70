"""When a worker runs the cyclic garbage collector: between calls, and for a bounded part of its time.

The collector is off while tasklets are called. Young objects are looked at often, all of them so rarely that it costs a
small part of the time, however large the processors' tables are, and never while a job wants low latency.

Items that are under way are young objects, too, and most jobs make no garbage that counting references leaves. So where
looking has found next to none, a job with low latency waits with the next look as long as any other job.
"""

from __future__ import annotations

import gc
from time import perf_counter_ns

from shmjet.core.latency_policy import THROUGHPUT

RELEASED_OBJECTS = 2000
"""New containers from which on the young generation is looked at when an execution has ended. Classes and functions
that came with a job refer to each other, so that nothing else frees them; looking at so few takes a tenth of a
millisecond."""


_FEW = 100
"""Less than one in so many young objects is next to no garbage."""


class Collector:
    """Runs the collector by hand; there is one for each process."""

    def __init__(self) -> None:
        self.policy = THROUGHPUT
        """How often it runs; the owner sets it to the strictest of the jobs in this process."""
        self._count = 0
        self._next_full_ns = 0
        self._finds_some = True
        """Whether there was garbage when young objects were looked at last."""

    def take_over(self) -> None:
        """Let it run no more by itself."""
        gc.disable()

    def collect(self, now: int) -> None:
        """Run it if enough objects have been made; `now` is in nanoseconds of `perf_counter_ns`."""
        policy = self.policy
        made, threshold = gc.get_count()[0], policy.young_objects
        if made <= threshold:
            return
        if not self._finds_some:
            threshold = max(threshold, THROUGHPUT.young_objects)
            if made <= threshold:
                return
        self._count += 1
        # the middle generation after as many objects as ever: what is in it may all be in use
        if self._count % max(1, policy.young_collections * policy.young_objects // threshold):
            self._finds_some = gc.collect(0) * _FEW >= made
        elif not self._is_full_due(now):
            gc.collect(1)
        else:
            gc.collect(2)
            ended = perf_counter_ns()
            self._next_full_ns = ended + (ended - now) * policy.full_collection_share

    def _is_full_due(self, now: int) -> bool:
        """Say whether a collection of the middle generation should be one of all objects."""
        policy = self.policy
        if not policy.full_collection_share or now < self._next_full_ns:
            return False
        return self._count % (policy.young_collections * policy.middle_collections) == 0

    def collect_young(self) -> None:
        """Look at the young generation if enough objects have been made: an execution has let go of its own."""
        if gc.get_count()[0] > min(RELEASED_OBJECTS, self.policy.young_objects):
            gc.collect(0)
