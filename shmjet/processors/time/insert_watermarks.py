"""Timestamps and watermarks for the items of another vertex, made where they come by.

For sources that cannot tell their partitions apart, and for streams that get their time later. After Jet's
`InsertWatermarksP`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import monotonic_ns
from typing import Any

from shmjet.core.event_time import EventTimePolicy
from shmjet.core.event_time_mapper import EventTimeMapper
from shmjet.core.inbox import Inbox
from shmjet.core.processor import Processor, ProcessorContext
from shmjet.core.source_partitions import PartitionFacts
from shmjet.data.errors import ConfigError
from shmjet.data.marks import Watermark
from shmjet.processors.general.base import BulkProcessor, Supply
from shmjet.processors.time.timed_items import PartitionItems, RestoredWatermark, timed_items, watermark_entry


class InsertWatermarksProcessor(BulkProcessor):
    """Puts watermarks among the items that pass, of one source partition."""

    state_kind = "insert_watermarks"

    def __init__(self, policy: EventTimePolicy) -> None:
        self._policy = policy
        self._restored = RestoredWatermark()

    def start(self, context: ProcessorContext) -> None:
        """Begin to listen."""
        self._mapper = EventTimeMapper(self._policy, 1, now=monotonic_ns())

    def process(self, ordinal: int, inbox: Inbox) -> None:
        """Emit what is left, then as many items as there is room for, with their watermarks."""
        self.next_call = None
        now = monotonic_ns()
        if not self.emission.flush():
            self._mapper.hold(now)
            return
        self.release(inbox)
        room = self.outbox.room()
        if not inbox:
            return
        if not room:
            self._mapper.hold(now)
            return
        items = inbox.take(room)
        last = items[-1]
        out = timed_items(self._mapper, PartitionItems(items), now, with_batches=self._policy.column is not None)
        if not self.emission.put(out):
            self._mapper.hold(now)
            self.hold(inbox, last)
        elif not inbox:
            self.next_call = self._mapper.next_call(now)

    def try_process(self) -> bool:
        """Emit what is due because nothing comes."""
        self.next_call = None
        if not self.emission.flush():
            return False
        now = monotonic_ns()
        marks = self._mapper.idle(now)
        if marks and not self.emission.put(list(marks)):
            return False
        self.next_call = self._mapper.next_call(now)
        return True

    def try_process_watermark(self, watermark: Watermark) -> bool:
        """Drop a watermark that comes in: it tells another time than the items get here."""
        return True

    def time_facts(self) -> list[PartitionFacts]:
        """Return what is known of the time of the items; for `job.explain_time()`."""
        return self._mapper.facts()

    def saved_entries(self) -> Iterable[tuple[Any, Any]]:
        """Return the watermark."""
        return [watermark_entry(self.context, self._mapper.watermark)]

    def restore_entries(self, entries: list[tuple[Any, Any]]) -> None:
        """Take the watermarks of all processors."""
        others = self._restored.take(entries)
        if others:
            super().restore_entries(others)

    def finish_snapshot_restore(self) -> bool:
        """Begin at the least of them."""
        if not self._restored.is_empty:
            self._mapper.restore(self._restored.least, monotonic_ns())
        return True


def insert_watermarks(policy: EventTimePolicy) -> Callable[[], Processor]:
    """Give items their event time, and put watermarks among them.

    Each processor takes what comes to it for one source partition: behind a source, join them by an isolated edge and
    give both the same local parallelism. Watermarks that come in are dropped.

    Args:
        policy: how. Timestamps are those of items (`timestamp_fn`; `column(name)` for batches) or of ingestion. The
            items go on as pairs `(timestamp, item)`; bare if the policy says `timed=False`, and batches as batches.

    Raises:
        ConfigError: the policy asks for native timestamps, which only a source has, or lacks `timestamp_fn`.

    Example:
        >>> from shmjet.testing import verify_processor
        >>> policy = EventTimePolicy(timestamp_fn=int, allowed_lag=2, stride=5)
        >>> verify_processor(insert_watermarks(policy)).inputs([1, 8, 6, 12]).expect(
        ...     [Watermark(-5), (1, 1), Watermark(5), (8, 8), (6, 6), Watermark(10), (12, 12)])
    """
    if policy.timestamps == "native":
        raise ConfigError(
            "insert_watermarks: native timestamps are those of a source, but here come only items; give timestamp_fn"
        )
    if policy.timestamps == "items" and policy.timestamp_fn is None:
        raise ConfigError(
            "insert_watermarks: the policy lacks timestamp_fn, which gives the timestamp of an item; or say "
            "timestamps='ingestion'"
        )
    return Supply(InsertWatermarksProcessor, policy)
