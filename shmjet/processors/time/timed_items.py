"""What goes through an `EventTimeMapper`: lists in which batches and other items may be mixed, and saved watermarks."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from shmjet.core.broadcast_key import BroadcastKey
from shmjet.core.context import ProcessorContext
from shmjet.core.event_time_mapper import EventTimeMapper
from shmjet.data.columnar import Columnar

if TYPE_CHECKING:
    from shmjet.data.batch import Batch

_WATERMARK = "watermark"


class PartitionItems(NamedTuple):
    """Items of one source partition, in their order."""

    items: list[Any]
    partition: int = 0
    native: Sequence[Any] | None = None
    """The timestamp of each item, or of a batch the int64 array of those of its rows, in milliseconds; None where the
    source does not know them."""


def timed_items(mapper: EventTimeMapper, run: PartitionItems, now: int, *, with_batches: bool) -> list[Any]:
    """Return the items of a run with event time, and the watermarks that they bring.

    Args:
        mapper: of the source.
        run: not empty; its list is given away.
        now: nanoseconds.
        with_batches: there may be batches among the items, with a column of timestamps; rows become batches unless
            the mapper makes pairs of items.
    """
    items, partition, native = run
    if not with_batches:
        return mapper.take(items, partition, now, native)
    out: list[Any] = []
    start = 0
    for are_batches, group in groupby(items, key=_is_batch):
        some = list(group)
        stamps = None if native is None else native[start : start + len(some)]
        start += len(some)
        if not are_batches:
            if stamps is None and not mapper.makes_pairs:
                for batch in _gathered(some):
                    out += mapper.take_batch(batch, partition, now)
            else:
                out += mapper.take(some, partition, now, stamps)
            continue
        for k, batch in enumerate(some):
            out += mapper.take_batch(batch, partition, now, None if stamps is None else stamps[k])
    return out


def _gathered(rows: list[Any]) -> list[Batch]:
    """Return rows as batches, as a stage behind expects a column of timestamps and no pairs.

    Raises:
        BatchError: one is not a row.
    """
    from shmjet.columns.row_gatherer import RowGatherer
    from shmjet.data.errors import BatchError

    gatherer = RowGatherer(len(rows), None, None)
    try:
        gatherer.add(rows)
        return [*gatherer.full(), *gatherer.rest()]
    except BatchError as error:
        raise BatchError(
            "timestamps by column(name) are of batches, and of rows: dicts or named tuples. Use with_timestamps(fn) "
            f"for other items: {error}"
        ) from None


def _is_batch(item: Any) -> bool:
    return isinstance(item, Columnar)


def watermark_entry(
    context: ProcessorContext, watermark: int | None, marks: Mapping[Hashable, int | None] | None = None
) -> tuple[BroadcastKey, Any]:
    """Return the entry that saves the time of a processor, for all of its vertex.

    Args:
        context: of the processor.
        watermark: the last one sent.
        marks: the watermarks of its source partitions, by a name that each has in every run.
    """
    return BroadcastKey((_WATERMARK, context.global_index)), (watermark, tuple((marks or {}).items()))


class RestoredWatermark:
    """What the processors of a vertex have saved of their time.

    Example:
        >>> found = RestoredWatermark()
        >>> saved = [(BroadcastKey(("watermark", 0)), (7, (("a", 8),))), (BroadcastKey(("watermark", 1)), (5, ()))]
        >>> found.take([*saved, ("k", 1)]), found.least, found.marks
        ([('k', 1)], 5, {'a': 8})
    """

    def __init__(self) -> None:
        self._watermarks: list[int | None] = []
        self.marks: dict[Hashable, int | None] = {}
        """The watermarks of source partitions, by name."""

    def take(self, entries: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
        """Take what is of time out of saved entries, and return the others."""
        others = []
        for key, value in entries:
            if isinstance(key, BroadcastKey) and isinstance(key.key, tuple) and key.key[:1] == (_WATERMARK,):
                watermark, marks = value
                self._watermarks.append(watermark)
                self.marks.update(marks)
            else:
                others.append((key, value))
        return others

    @property
    def is_empty(self) -> bool:
        """Whether nothing was saved."""
        return not self._watermarks

    @property
    def least(self) -> int | None:
        """The least watermark; None when a processor had none to save."""
        found = self._watermarks
        return None if None in found else min((mark for mark in found if mark is not None), default=None)
