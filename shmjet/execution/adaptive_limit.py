"""How much a processor is given at once, so that each callback takes as long as it should, whatever an item costs.

Pure arithmetic on what was measured; the clock is the caller's.
"""

from __future__ import annotations

from shmjet.core import Processor, ProcessorError
from shmjet.core.latency_policy import LatencyPolicy

CALL_OVERHEAD_NS = 10_000
"""What a callback takes whatever it is given: left out, or a call with one item would make all items look dear."""
NO_CALL_NS = 1 << 62
"""The time of a call that only items bring about: later than any clock shows."""
_UNSEEN = 256
"""Most items that a call is allowed while what they cost has not been seen."""


class AdaptiveLimit:
    """How many items one call may handle so that it takes about `LatencyPolicy.call_ns`.

    Starts at one and grows at most eightfold per call, so that the first item may cost anything.

    An item is handled when it is taken or when it is emitted, and a call has handled whichever were more. A call that
    takes many items and emits none must count, or a processor that drops everything keeps the limit of its first call.

    Args:
        most: which the limit never exceeds.
        policy: of the job.
    """

    __slots__ = ("_target_ns", "_worked_ns", "most", "value")

    def __init__(self, most: int, policy: LatencyPolicy) -> None:
        self.most = most
        self._target_ns = policy.call_ns
        self._worked_ns = policy.worked_ns
        self.value = 1

    def update(self, items: int, elapsed_ns: int) -> None:
        """Learn from a call that handled `items` items in `elapsed_ns` nanoseconds; nothing, if it handled none."""
        if items <= 0:
            return
        elapsed_ns -= CALL_OVERHEAD_NS
        affordable = items * self._target_ns // (elapsed_ns if elapsed_ns > 0 else 1)
        most = self.value * 8
        if most > self.most:
            most = self.most
        self.value = most if affordable > most else affordable or 1

    def update_without_items(self, elapsed_ns: int) -> None:
        """Learn from a call that emitted nothing; it may have read as many items as it was allowed, or none.

        If it was short, it may as well have found nothing to read: then the limit grows to a few items only.
        """
        before = self.value
        self.update(before, elapsed_ns)
        if elapsed_ns < self._worked_ns:
            self.value = max(before, min(self.value, _UNSEEN))


def call_time(now_ns: int, wait: float, processor: Processor) -> int:
    """Return when a processor wants to be called, in nanoseconds of the clock; `NO_CALL_NS` for only with items.

    Args:
        now_ns: of that clock.
        wait: its `next_call`, which is not None.
        processor: whose it is, for the message.

    Raises:
        ProcessorError: it is not a number of seconds.
    """
    if not isinstance(wait, int | float) or isinstance(wait, bool) or not wait >= 0:
        raise ProcessorError(
            f"{type(processor).__name__}.next_call must be None, seconds from 0, or math.inf, got {wait!r}"
        )
    return NO_CALL_NS if wait >= 1e9 else now_ns + int(wait * 1e9)
