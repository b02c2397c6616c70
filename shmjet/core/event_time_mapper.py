"""From events to timed items and watermarks: the state machine of one source processor. Pure: the clock comes in.

After Jet's `EventTimeMapper`, for lists instead of single events. A list of events of one source partition becomes the
list of their timed pairs with a few watermarks in between, each at the place where Jet would send it; items between
two watermarks are not looked at one by one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from time import time_ns
from typing import TYPE_CHECKING, Any

from shmjet._native import ascends
from shmjet.core.event_time import EventTimePolicy
from shmjet.core.event_timestamps import column_timestamps, plain_timestamps, timestamps_by, with_timestamps
from shmjet.core.source_partitions import PartitionFacts, SourcePartitions
from shmjet.core.watermark_places import Places, Rise, rounded_down
from shmjet.core.windows import HIGHEST, LOWEST
from shmjet.data.errors import ConfigError
from shmjet.data.marks import IDLE, Watermark

if TYPE_CHECKING:
    from shmjet.data.batch import Batch

__all__ = ["EventTimeMapper", "PartitionFacts"]

_NOT_NATIVE = (
    "the source gives its items no timestamps of their own; say with_timestamps(fn) or with_ingestion_timestamps() "
    "instead of with_native_timestamps()"
)


def _wall_clock() -> int:
    return time_ns() // 1_000_000


class EventTimeMapper:
    """Makes timed items and watermarks of the events of one source processor.

    Times that come in as `now` are nanoseconds of a monotonic clock. Watermarks are `Watermark` objects among the
    items, as an outbox takes them (`give`, `offer_all`). A source calls, each time that it is called itself:

        out = mapper.take(items, partition, now) if items else mapper.idle(now)
        self.next_call = mapper.next_call(now)

    The rules: the watermark of a partition is its highest timestamp minus the lag; that of the source is the least of
    those of its active partitions, rounded down to the stride, never above the timestamp of the event behind it, and
    never falls. A partition is active from its beginning until it has had no event for the idle timeout, and again from
    its next event. When all are idle, the highest watermark is sent, if that is news, and `IDLE`, once. Without
    partitions a source is idle.

    An item costs about a tenth of a microsecond, half of it for the pair, and a watermark two microseconds. A call
    without items costs less than half a microsecond while nothing is due.

    Args:
        policy: of the source.
        partitions: how many there are at first, numbered from 0.
        now: the time at which they begin.
        wall_clock: milliseconds since the epoch, for ingestion timestamps. They never fall when it is set back, and are
            never below the watermark, a restored one neither.

    Example:
        >>> mapper = EventTimeMapper(EventTimePolicy(timestamp_fn=int, allowed_lag=1, stride=10), 1)
        >>> mapper.take([18, 15, 25], 0, now=0)
        [Watermark(timestamp=10), (18, 18), (15, 15), Watermark(timestamp=20), (25, 25)]
        >>> mapper.next_call(now=0), mapper.idle(now=60 * 10**9)
        (60.0, [Watermark(timestamp=9223372036854775807)])
    """

    def __init__(
        self,
        policy: EventTimePolicy,
        partitions: int = 0,
        *,
        now: int = 0,
        wall_clock: Callable[[], int] = _wall_clock,
    ) -> None:
        self._policy = policy
        self._stride = policy.stride
        self._lag = policy.allowed_lag
        self._timed = policy.timed
        self._wall_clock = wall_clock
        self._ingested = LOWEST
        self._partitions = SourcePartitions(policy, partitions, now)
        self._last = LOWEST
        """The last watermark sent."""
        self._said_idle = False
        self._quiet_until = -math.inf
        """Until then, in nanoseconds, nothing is due without an event."""

    @property
    def partition_count(self) -> int:
        """Number of source partitions."""
        return len(self._partitions)

    @property
    def watermark(self) -> int | None:
        """The last watermark sent, to be saved; None before the first."""
        return None if self._last == LOWEST else self._last

    @property
    def makes_pairs(self) -> bool:
        """Whether items go out as pairs with their timestamps, and not bare."""
        return self._timed

    def restore(self, watermark: int | None, now: int, marks: Sequence[int | None] | None = None) -> None:
        """Begin at the least of the saved watermarks; before any event, with all partitions of the restored source.

        Args:
            watermark: the least of those saved by all processors; None when one of them had none.
            now: silence is counted from here.
            marks: the watermark of each partition, as `facts` gave it; None where it was not known. Without marks,
                all begin at the watermark.
        """
        self._last = LOWEST if watermark is None else watermark
        self._quiet_until = -math.inf
        self._partitions.restore(self._last, None if marks is None else list(marks), now)

    def add_partitions(self, count: int, now: int) -> None:
        """Add partitions behind the others. They are active, and hold the watermark where it is until they speak."""
        self._quiet_until = -math.inf
        self._partitions.add(count, now)

    def remove_partition(self, partition: int, now: int) -> list[Watermark]:
        """Remove a partition that ends; those behind it move up by one.

        Returns:
            the marks that it has held back.
        """
        self._quiet_until = -math.inf
        self._partitions.remove(partition)
        return self.idle(now)

    def take(self, items: list[Any], partition: int, now: int, native: Sequence[int] | None = None) -> list[Any]:
        """Return timed items with watermarks in between; bare items where the policy is not `timed`.

        Args:
            items: of one source partition, in their order; the list is the mapper's.
            partition: its index.
            now: nanoseconds.
            native: the timestamps of the items, of sources that know them.

        Raises:
            TypeError, OverflowError: one has no timestamp; the text names it.
            ConfigError: native timestamps are asked for, but the source has none.
        """
        if not items:
            return self.idle(now)
        stamps = self._timestamps(items, native)
        out = list(zip(stamps, items, strict=True)) if self._timed else items
        rise = self._heard(partition, now, len(items))
        if rise is None:
            return out
        highest = stamps[-1] if ascends(stamps) else max(stamps)
        places = rise.places(stamps) if rise.end(highest) > rise.last else []
        self._rose(partition, rise, highest, places)
        return _with_marks(out, places) if places else out

    def take_batch(self, batch: Batch, partition: int, now: int, native: Any = None) -> list[Any]:
        """Return a batch with the watermarks that its rows bring.

        The batch is in one piece, with the watermark behind it, unless a row is late by a watermark that the rows
        before it bring; with a stride of a millisecond it is cut at every watermark. Native timestamps and those of
        ingestion come to be the policy's column, as `datetime64[ms]`.

        Args:
            batch: of one source partition.
            partition: its index.
            now: nanoseconds.
            native: the timestamps of its rows, as an int64 array, of sources that know them.

        Raises:
            BatchError: the column is missing, has another type or a null.
            ConfigError: the policy names no column, or native timestamps are asked for, but the source has none.
        """
        if not len(batch):
            return self.idle(now)
        batch, stamps = self._batch_timestamps(batch, native)
        rise = self._heard(partition, now, len(stamps))
        if rise is None:
            return [batch]
        highest = int(stamps.max())
        end = min(rise.end(highest), rounded_down(highest, self._stride))
        places: Places = []
        if end > rise.last:
            places = rise.places(stamps) if self._stride == 1 else rise.cuts(stamps)
        self._rose(partition, rise, highest, places)
        out: list[Any] = []
        start = 0
        for at, mark in places:
            if at > start:
                out.append(batch[start:at])
            out.append(Watermark(mark))
            start = at
        out.append(batch[start:] if start else batch)
        if end > self._last:
            self._last = end
            out.append(Watermark(end))
        return out

    def idle(self, now: int) -> list[Watermark]:
        """Return the marks that are due although no event has come; called when the source was asked and had none."""
        if now < self._quiet_until or not self._stride:
            return []
        self._quiet_until = -math.inf
        partitions = self._partitions
        partitions.go_on(now)
        marks = []
        due = rounded_down(partitions.least, self._stride)
        if due > self._last:
            self._last = due
            marks.append(Watermark(due))
        if partitions.are_idle:
            if marks or not self._said_idle:
                marks.append(IDLE)
            self._said_idle = True
        else:
            self._said_idle = False
        return marks

    def reach(self, partition: int, timestamp: int, now: int) -> list[Watermark]:
        """Note that the events of a partition below a timestamp have all come, though none has just now.

        For sources that know what comes next; such a partition is not silent.

        Returns:
            the marks that are due.

        Example:
            >>> mapper = EventTimeMapper(EventTimePolicy("native", stride=10), 1)
            >>> mapper.take(["a"], 0, 0, [15]), mapper.reach(0, 39, 0)
            ([Watermark(timestamp=10), (15, 'a')], [Watermark(timestamp=30)])
        """
        partitions = self._partitions
        self._quiet_until = -math.inf
        partitions.go_on(now)
        partitions.hear(partition, 0, now)
        partitions.reach(partition, max(partitions.mark(partition), timestamp - self._lag))
        self._said_idle = False
        return self.idle(now)

    def next_call(self, now: int) -> float:
        """Return the seconds until `idle` may have something to tell without an event; `math.inf`: it will not."""
        if now < self._quiet_until:
            return (self._quiet_until - now) / 1e9
        partitions, last, stride = self._partitions, self._last, self._stride
        if not stride:
            return math.inf
        if rounded_down(partitions.least, stride) > last or (not self._said_idle and partitions.are_idle):
            return 0.0
        self._quiet_until = partitions.next_due(now, last - last % stride + stride)
        return (self._quiet_until - now) / 1e9

    def hold(self, now: int) -> None:
        """Note that the source is not asked for events from now on (the outbox is full): silence does not count."""
        self._quiet_until = -math.inf
        self._partitions.hold(now)

    @property
    def holds_at(self) -> int:
        """The watermark at which this source holds others: the least of its active partitions.

        `LOWEST` while one of them has had no event, `HIGHEST` when none is active.
        """
        return self._partitions.holds_at

    def may_take(self, partition: int, others: int = HIGHEST) -> bool:
        """Say whether the events of a partition may be asked for.

        False when its watermark is as far ahead as the policy's `max_skew` of the least one of the active partitions.
        A partition that has had no event yet is behind all that have; before its own first event each may be asked. One
        that waits is not silent meanwhile.

        Args:
            partition: its index.
            others: the watermark at which other processors hold this one.
        """
        may = self._partitions.may_take(partition, others)
        if not may:
            self._quiet_until = -math.inf
        return may

    def facts(self) -> list[PartitionFacts]:
        """Return what is known of each partition."""
        return self._partitions.facts()

    def _timestamps(self, items: list[Any], native: Sequence[int] | None) -> list[int]:
        source = self._policy.timestamps
        if source == "items":
            assert self._policy.timestamp_fn is not None
            return timestamps_by(self._policy.timestamp_fn, items)
        if source == "ingestion":
            return [self._ingestion_time()] * len(items)
        if native is None:
            raise ConfigError(_NOT_NATIVE)
        return plain_timestamps(native, items)

    def _ingestion_time(self) -> int:
        """Return the wall clock's time, but no time that items or a watermark, also a restored one, have passed."""
        self._ingested = max(self._ingested, self._last, self._wall_clock())
        return self._ingested

    def _batch_timestamps(self, batch: Batch, native: Any) -> tuple[Batch, Any]:
        """Return a batch that has its timestamps, and these as an int64 array."""
        source, column = self._policy.timestamps, self._policy.column
        if column is None:
            raise ConfigError(
                "batches need a column with the timestamps of their rows: with_timestamps(column('ts')), or "
                "add_timestamps(column('ts'))"
            )
        if source == "items":
            return batch, column_timestamps(batch, column)
        if source == "ingestion":
            native = self._ingestion_time()
        elif native is None:
            raise ConfigError(_NOT_NATIVE)
        return with_timestamps(batch, column, native)

    def _heard(self, partition: int, now: int, count: int) -> Rise | None:
        """Note that events came from a partition, and return how the watermark rises by them; None without any."""
        partitions = self._partitions
        if not self._stride:
            partitions.hear(partition, count, now)
            return None
        self._quiet_until = -math.inf
        partitions.go_on(now)
        partitions.hear(partition, count, now)
        self._said_idle = False
        others = partitions.least_of_others(partition)
        return Rise(self._last, partitions.mark(partition), others, self._lag, self._stride)

    def _rose(self, partition: int, rise: Rise, highest: int, places: Places) -> None:
        """Note the events' highest timestamp and the watermarks sent."""
        self._partitions.reach(partition, max(rise.own, highest - rise.lag))
        if places:
            self._last = places[-1][1]


def _with_marks(items: list[Any], places: Places) -> list[Any]:
    """Return items with the watermarks at their places."""
    out: list[Any] = []
    start = 0
    for at, mark in places:
        if at > start:
            out += items[start:at]
        out.append(Watermark(mark))
        start = at
    out += items[start:]
    return out
