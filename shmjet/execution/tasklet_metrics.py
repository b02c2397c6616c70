"""What one tasklet counts, and how often it publishes that: a publication costs two microseconds, more with many edges.

Must not know what is done between two publications.
"""

from __future__ import annotations

from collections.abc import Sequence

from shmjet.core import Processor, ProcessorError
from shmjet.execution import counters as words
from shmjet.execution.counters import NO_WATERMARK, ProcessorCounters
from shmjet.execution.input_selector import InputSelector
from shmjet.execution.outbound_edge import Outbound
from shmjet.execution.tasklet_state import State

_PUBLISH_NS = 200_000
"""How long a processor works between two publications of its numbers."""
_PUBLISH_AFTER_NS = 20_000_000
"""How old numbers may get while a processor is called: others on its worker may take most of the time."""
_PER_EDGE_NS = 50_000
"""Time between two publications for each edge of the processor, at least: fifty times what an edge costs in one."""
_ALWAYS_PUBLISHED = 16
"""Calls after each of which they are published: what a job does first should be seen, also when it is stuck then."""


class Meter:
    """The numbers of one tasklet, which counts in them itself.

    Args:
        counters: where they are published.
        ordinals: number of outbound ordinals.
    """

    def __init__(self, counters: ProcessorCounters, ordinals: int) -> None:
        self.calls = self.slow_calls = self.busy_ns = self.blocked = 0
        self.is_stale = False
        """Whether there is something to publish since the last time."""
        self._publish_ns = self._publish_at_ns = 0
        self._counters = counters
        self._emitted_at = [counters.emitted_at(ordinal) for ordinal in range(ordinals)]

    def is_due(self, now: int) -> bool:
        """Whether to publish while work goes on: the processor has worked for a while, or the last time is long ago.

        Args:
            now: nanoseconds, monotonic.
        """
        return self.busy_ns >= self._publish_ns or now >= self._publish_at_ns

    def publish(
        self, now: int, state: State, processor: Processor, intake: InputSelector, outbound: Sequence[Outbound]
    ) -> None:
        """Write all numbers to where anyone can read them; `now` as for `is_due`."""
        self.is_stale = False
        if self.calls > _ALWAYS_PUBLISHED:
            least = _PER_EDGE_NS * (len(intake.edges) + len(outbound))
            self._publish_ns = self.busy_ns + max(_PUBLISH_NS, least)
            self._publish_at_ns = now + max(_PUBLISH_AFTER_NS, least)
        to = self._counters.words
        to[words.CALLS] = self.calls
        to[words.SLOW_CALLS] = self.slow_calls
        to[words.BUSY_NS] = self.busy_ns
        to[words.RECEIVED] = intake.received
        to[words.RECEIVED_BATCHES] = intake.received_batches
        to[words.STATE] = state
        to[words.BLOCKED] = self.blocked
        if not intake.edges:
            work = processor.progress()
            try:
                to[words.WORK_DONE], to[words.WORK_TOTAL] = work
            except (TypeError, ValueError):
                raise ProcessorError(
                    f"progress() of {type(processor).__name__} returned {work!r}; return the pair (done, total), two "
                    "ints of at most 64 bits"
                ) from None
        top = NO_WATERMARK
        for edge in intake.edges:
            at = self._counters.received_at(edge.ordinal)
            to[at] = edge.received
            to[at + 1] = edge.batches
            if edge.top_watermark is not None:
                top = max(top, edge.top_watermark.timestamp)
        to[words.TOP_OBSERVED_WATERMARK] = top
        emitted = 0
        for ordinal, out in enumerate(outbound):
            to[self._emitted_at[ordinal]] = out.emitted
            emitted += out.emitted
        to[words.EMITTED] = emitted

    def export_state(self) -> tuple[int, int, int, int]:
        """Return what a twin on another worker needs to go on."""
        return self.calls, self.slow_calls, self.busy_ns, self.blocked

    def import_state(self, state: tuple[int, int, int, int]) -> None:
        """Go on where a twin on another worker stopped."""
        self.calls, self.slow_calls, self.busy_ns, self.blocked = state
