"""`TimedSource`: the base of endless sources, with event time or without.

It keeps the `EventTimeMapper`, emits lists with the watermarks in between, and saves the watermark with the positions
of the subclass. Must not know what is read.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from time import monotonic_ns
from typing import Any

from shmjet.core.event_time import EventTimePolicy
from shmjet.core.event_time_mapper import EventTimeMapper
from shmjet.core.outbox import Outbox
from shmjet.core.processor import ProcessorContext
from shmjet.core.source_alignment import alignment_in
from shmjet.core.source_partitions import PartitionFacts
from shmjet.core.windows import HIGHEST, LOWEST
from shmjet.data.marks import Watermark
from shmjet.processors.general.base import BulkProcessor
from shmjet.processors.time.timed_items import PartitionItems, RestoredWatermark, timed_items, watermark_entry

SKEW_PAUSE = 0.002
"""Seconds after which a source that is too far ahead looks again how far the others are."""


class TimedSource(BulkProcessor):
    """A source that gives what is there now, each time that it is asked.

    A subclass overrides `read`; where it has several source partitions `first_partitions`, and then tells of others
    with `add_partitions` and `remove_partition`; and for its positions `saved_positions` and `restore_positions`. In
    `start` it opens what it reads, and in `close` it closes it, as every `BulkProcessor`.

    What `read` has returned has been emitted before positions are saved: so positions are simply how far it has read.
    When the outbox is full it is not asked, and that is not counted as silence of its partitions.

    Args:
        policy: how timestamps and watermarks are made; None: items go out bare, without watermarks.

    Example:
        >>> class Ticks(TimedSource):
        ...     count = 0
        ...     def read(self):
        ...         self.count += 1
        ...         self.ended = self.count == 3
        ...         return [PartitionItems([self.count])]
        ...     def saved_positions(self):
        ...         return [("count", self.count)]
        ...     def restore_positions(self, entries):
        ...         self.count = dict(entries)["count"]
        >>> from shmjet.testing import verify_processor
        >>> verify_processor(lambda: Ticks(EventTimePolicy(timestamp_fn=int, stride=2))).expect(
        ...     [Watermark(0), (1, 1), Watermark(2), (2, 2), (3, 3)])
    """

    _saves_at_end = True
    is_endless = True

    ended: bool = False
    """Set by `read` when nothing comes any more; what it returns then is still emitted."""

    read_again: float = 0.001
    """Seconds after which `read` is called again at the latest; set by the subclass whenever it likes. 0: at once, as
    there may be more. `math.inf`: when it is woken up (`shmjet.core.wake_up`)."""

    def __init__(self, policy: EventTimePolicy | None) -> None:
        self.policy = policy
        self.mapper: EventTimeMapper | None = None
        """From the first call of `read` or of `add_partitions` on; None without a policy."""
        self._names: list[Hashable] = []
        self._marks: list[Watermark] = []
        self._restored = RestoredWatermark()
        self._mixed = policy is not None and policy.column is not None

    def init(self, outbox: Outbox, context: ProcessorContext) -> None:
        """As `BulkProcessor.init`."""
        self._begun = False
        super().init(outbox, context)
        self._tell(LOWEST)

    def first_partitions(self) -> Sequence[Hashable]:
        """Return names of the source partitions that this processor has when it begins, after a restore too.

        Runs and `may_read` mean a partition by its index in here. A partition whose name was saved goes on at its
        watermark, on whichever processor; any other begins at the least watermark saved. By default each processor has
        a single partition.
        """
        return [(self.context.global_index, self.context.total_parallelism)]

    def read(self) -> Iterable[PartitionItems]:
        """Return what is there now, in runs of one source partition; nothing when there is nothing.

        It must not block, and should return about as much as a call may take: `outbox.room()` items, for which the
        subclass may ask. Partitions that `may_read` refuses are left out.
        """
        raise NotImplementedError

    def saved_positions(self) -> Iterable[tuple[Any, Any]]:
        """Return entries that say how far `read` has come; of keys that are not those of watermarks."""
        return ()

    def restore_positions(self, entries: list[tuple[Any, Any]]) -> None:
        """Take saved positions back; before `first_partitions` is asked."""

    def may_read(self, partition: int) -> bool:
        """Say whether a partition may be read now: False when it is too far ahead of the others (`max_skew`)."""
        mapper = self.mapper
        return mapper is None or mapper.may_take(partition, alignment_in(self.context).least_of_others())

    def add_partitions(self, *names: Hashable) -> None:
        """Note that there are more source partitions, with the next indices; in `read`, before their first items."""
        self._names += names
        if self.mapper is not None:
            self.mapper.add_partitions(len(names), monotonic_ns())

    def remove_partition(self, partition: int) -> None:
        """Note that a source partition has ended, after its last items; those with higher indices move up by one."""
        del self._names[partition]
        if self.mapper is not None:
            self._marks += self.mapper.remove_partition(partition, monotonic_ns())

    def time_facts(self) -> list[PartitionFacts]:
        """Return what is known of the time of each source partition; for `job.explain_time()`."""
        return [] if self.mapper is None else self.mapper.facts()

    def complete(self) -> bool:
        """Emit what is there; True when the stream has ended."""
        self._begin()
        mapper, emission = self.mapper, self.emission
        self.next_call = None
        if not emission.flush():
            return self._wait()
        if self.ended:
            return True
        waits = self._is_ahead
        runs = [] if waits else [run for run in self.read() if run.items]
        out = self._timed(mapper, runs) if mapper is not None else self._bare(runs)
        if mapper is not None:
            self._tell(HIGHEST if self.ended else mapper.holds_at)
        if out and not emission.put(out):
            return self._wait()
        if not self._has_ended:
            wait = SKEW_PAUSE if waits else self.read_again
            self.next_call = wait if mapper is None else min(wait, mapper.next_call(monotonic_ns()))
        return self._has_ended

    @property
    def _has_ended(self) -> bool:
        return self.ended

    @property
    def _is_ahead(self) -> bool:
        """Whether all partitions have to wait for others."""
        if self.policy is None or self.policy.max_skew is None or not self._names:
            return False
        return not any(self.may_read(i) for i in range(len(self._names)))

    def _tell(self, mark: int) -> None:
        """Tell the other sources how far this one is, if one of them asks."""
        if self.policy is not None and self.policy.is_aligned:
            alignment_in(self.context).tell(mark)

    def _wait(self) -> bool:
        """Wait for room in the outbox."""
        if self.mapper is not None:
            self.mapper.hold(monotonic_ns())
        return False

    def saved_entries(self) -> Iterable[tuple[Any, Any]]:
        """Return the positions and the watermark."""
        self._begin()
        entries = list(self.saved_positions())
        if self.mapper is not None and self._names:
            marks = [fact.watermark for fact in self.mapper.facts()]
            entries.append(
                watermark_entry(self.context, self.mapper.watermark, dict(zip(self._names, marks, strict=True)))
            )
        return entries

    def save_to_snapshot(self) -> bool:
        """Emit what has been read, then save."""
        return self.emission.flush_rest() and super().save_to_snapshot()

    def restore_entries(self, entries: list[tuple[Any, Any]]) -> None:
        """Take the positions and watermarks of all processors."""
        positions = self._restored.take(entries)
        if positions:
            self.restore_positions(positions)

    def _begin(self) -> None:
        """Make the mapper, when all that was saved is known."""
        if self._begun:
            return
        self._begun = True
        self._names = list(self.first_partitions())
        if self.policy is not None:
            now = monotonic_ns()
            self.mapper = EventTimeMapper(self.policy, len(self._names), now=now)
            restored = self._restored
            if not restored.is_empty:
                self.mapper.restore(restored.least, now, [restored.marks.get(name) for name in self._names])

    def _timed(self, mapper: EventTimeMapper, runs: list[PartitionItems]) -> list[Any]:
        """Return the items of runs with event time, or what is due without any."""
        now = monotonic_ns()
        out: list[Any] = self._marks
        self._marks = []
        for run in runs:
            out += timed_items(mapper, run, now, with_batches=self._mixed)
        if not runs:
            out += mapper.idle(now)
        return out

    def _bare(self, runs: list[PartitionItems]) -> list[Any]:
        if len(runs) == 1:
            return runs[0].items
        return [item for run in runs for item in run.items]
