"""What one tasklet counts, and how often it publishes that: a publication costs two microseconds, more with many edges.

Must not know what is done between two publications.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import thread_time_ns
from typing import TYPE_CHECKING

from shmjet.core import Processor, ProcessorError
from shmjet.execution import counters as words
from shmjet.execution.counters import NO_WATERMARK, ProcessorCounters
from shmjet.execution.inbound_edge import InboundEdge
from shmjet.execution.input_selector import InputSelector
from shmjet.execution.outbound_edge import Outbound
from shmjet.execution.tasklet_state import State

if TYPE_CHECKING:
    from shmjet.core.event_time_mapper import PartitionFacts

_PUBLISH_NS = 2_000_000
"""How long a processor works between two publications of its numbers."""
PUBLISH_AFTER_NS = 20_000_000
"""How old numbers may get while a processor is called: others on its worker may take most of the time."""
_PER_EDGE_NS = 50_000
"""Time between two publications for each edge of the processor, at least: fifty times what an edge costs in one."""
_ALWAYS_PUBLISHED = 16
"""Calls after each of which they are published: what a job does first should be seen, also when it is stuck then."""
_FACTS_SHARE = 50
"""A source is asked for its partitions for one part in so many of the time at most."""


def _time_of(fact: PartitionFacts) -> int:
    """Return how far a source partition is; the least of all before its first event."""
    return NO_WATERMARK if fact.watermark is None else fact.watermark


class Meter:
    """The numbers of one tasklet, which counts in them itself.

    Args:
        counters: where they are published.
        ordinals: number of outbound ordinals.
        processor: which may have `time_facts()`, if it is a source.
    """

    def __init__(self, counters: ProcessorCounters, ordinals: int, processor: Processor) -> None:
        self._time_facts: Callable[[], Sequence[PartitionFacts]] | None = getattr(processor, "time_facts", None)
        self._facts_at_ns = 0
        self.calls = self.slow_calls = self.busy_ns = self.blocked = 0
        self.is_stale = True
        """Whether there is something to publish since the last time; at first what a source waits for."""
        self.is_postponed = False
        """Whether the worker is to publish that when it is due."""
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
        self.is_stale = self.is_postponed = False
        if self.calls > _ALWAYS_PUBLISHED:
            least = _PER_EDGE_NS * (len(intake.edges) + len(outbound))
            self._publish_ns = self.busy_ns + max(_PUBLISH_NS, least)
            self._publish_at_ns = now + max(PUBLISH_AFTER_NS, least)
        to = self._counters.words
        to[words.CALLS] = self.calls
        to[words.SLOW_CALLS] = self.slow_calls
        to[words.BUSY_NS] = self.busy_ns
        to[words.RECEIVED] = intake.received
        to[words.RECEIVED_BATCHES] = intake.received_batches
        to[words.STATE] = state
        to[words.BLOCKED] = self.blocked
        to[words.LATE_EVENTS_DROPPED] = processor.late_events_dropped
        to[words.FAILED_ITEMS_SKIPPED] = processor.failed_items_skipped
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
            to[at + words.RECEIVED_LISTS] = edge.batches
            if edge.top_watermark is not None:
                top = max(top, edge.top_watermark)
            self._publish_time_of(edge, at)
        to[words.TOP_OBSERVED_WATERMARK] = top
        emitted = 0
        for ordinal, out in enumerate(outbound):
            to[self._emitted_at[ordinal]] = out.emitted
            emitted += out.emitted
            if out.time is not None and out.time > to[words.LAST_FORWARDED_WATERMARK]:
                to[words.LAST_FORWARDED_WATERMARK] = out.time
                to[words.TIME_CHANGED_NS] = now
            to[words.FORWARDED_IDLE] = out.is_idle
        to[words.EMITTED] = emitted
        if self._time_facts is not None:
            self._publish_time_facts(now)

    def _publish_time_of(self, edge: InboundEdge, at: int) -> None:
        """Write how far the time of an edge is, and which lane holds it."""
        to, nothing = self._counters.words, NO_WATERMARK
        lane, lowest = edge.slowest_lane
        coalesced = edge.coalesced
        to[at + words.EDGE_COALESCED_WATERMARK] = nothing if coalesced is None else coalesced
        to[at + words.SLOWEST_LANE] = lane
        to[at + words.SLOWEST_LANE_WATERMARK] = nothing if lowest is None else lowest
        to[at + words.EDGE_STATE] = (
            words.EDGE_DONE if edge.done else words.EDGE_IDLE if edge.is_idle else words.EDGE_ACTIVE
        )

    def _publish_time_facts(self, now: int) -> None:
        """Write what a source knows of its partitions; for a fiftieth of the time at most."""
        if now < self._facts_at_ns:
            self.is_stale = True
            return
        assert self._time_facts is not None
        to, begun = self._counters.words, thread_time_ns()
        facts = self._time_facts()
        self.is_stale = not facts and self.calls <= _ALWAYS_PUBLISHED  # it may not have begun
        active = [fact for fact in facts if fact.idle_since is None]
        slowest = min(active, key=_time_of, default=None)
        to[words.SOURCE_PARTITIONS] = len(facts)
        to[words.IDLE_PARTITIONS] = len(facts) - len(active)
        to[words.SLOWEST_PARTITION] = -1 if slowest is None else slowest.partition
        to[words.SLOWEST_PARTITION_WATERMARK] = NO_WATERMARK if slowest is None else _time_of(slowest)
        to[words.SLOWEST_PARTITION_EVENTS] = 0 if slowest is None else slowest.events
        self._facts_at_ns = now + _FACTS_SHARE * (thread_time_ns() - begun)

    def export_state(self) -> tuple[int, int, int, int]:
        """Return what a twin on another worker needs to go on."""
        return self.calls, self.slow_calls, self.busy_ns, self.blocked

    def import_state(self, state: tuple[int, int, int, int]) -> None:
        """Go on where a twin on another worker stopped."""
        self.calls, self.slow_calls, self.busy_ns, self.blocked = state
