"""Event time around any processor: it sees bare items, and what it emits keeps the time of what it is handling.

Items that it emits while it handles an item have the time of that item; while it handles a watermark, that of the
watermark; with neither at hand, as in `complete`, that of the last watermark, or of the last item before the first.
Must not know what it wraps.
"""

from __future__ import annotations

from typing import Any

from shmjet.core.broadcast_key import BroadcastKey
from shmjet.core.inbox import Inbox
from shmjet.core.processor import Processor, ProcessorMetaSupplier, SupplierLike
from shmjet.data.marks import Watermark
from shmjet.processors.general.wrapping import ActiveWrapping, WrappingProcessor, is_active, wrapping

_TIMES = BroadcastKey("times at hand")


class TimedProcessor(WrappingProcessor):
    """Takes timed items apart in front of another processor, and makes them again behind it.

    Args:
        wrapped: the other processor.
    """

    def __init__(self, wrapped: Processor) -> None:
        super().__init__(wrapped)
        self._run = Inbox()
        """Items of equal time, for the other processor."""
        self._time = 0
        self._watermark: int | None = None
        self._is_restored = False
        self._saving = False

    def process(self, ordinal: int, inbox: Inbox) -> None:
        """Hand items on in runs of equal time, until the other processor leaves some or is refused."""
        run, outbox = self._run, self.outbox
        while inbox:
            if not run:
                self._fill(inbox)
            size = len(run)
            self._at(self._time, "process", ordinal, run)
            for _ in range(size - len(run)):
                inbox.remove()
            if run or outbox.has_unfinished_item:
                return

    def _fill(self, inbox: Inbox) -> None:
        pairs = iter(inbox)
        time, item = next(pairs)
        items = [item]
        for other, item in pairs:
            if other != time:
                break
            items.append(item)
        self._time = time
        self._run.fill(items)

    def try_process_watermark(self, watermark: Watermark) -> bool:
        """Pass on; what is emitted has the time of the watermark."""
        self._watermark = watermark.timestamp
        return super().try_process_watermark(watermark)

    def save_to_snapshot(self) -> bool:
        """Pass on; then save the times."""
        if not self._saving:
            if not super().save_to_snapshot():
                return False
            self._saving = True
        if not self.outbox.offer_to_snapshot(_TIMES, (self._time, self._watermark)):
            return False
        self._saving = False
        return True

    def restore_from_snapshot(self, inbox: Inbox) -> None:
        """Take the times back, the least of those saved; pass on what else there is."""
        entries = inbox.take()
        for time, watermark in (value for key, value in entries if key == _TIMES):
            known = self._watermark if self._is_restored else watermark
            self._watermark = None if known is None or watermark is None else min(known, watermark)
            self._time = min(self._time, time) if self._is_restored else time
            self._is_restored = True
        rest = [entry for entry in entries if entry[0] != _TIMES]
        if rest:
            inbox.fill(rest)
            super().restore_from_snapshot(inbox)

    def passed_on(self, callback: str, *args: Any) -> Any:
        """Call a method of the other processor; what it emits has the time of the last watermark."""
        return self._at(self._time if self._watermark is None else self._watermark, callback, *args)

    def _at(self, time: int, callback: str, *args: Any) -> Any:
        buckets = self.outbox.buckets
        before = [len(bucket) for bucket in buckets]
        answer = getattr(self.wrapped, callback)(*args)
        for bucket, size in zip(self.outbox.buckets, before, strict=True):
            if len(bucket) > size:
                bucket[size:] = [item if type(item) is Watermark else (time, item) for item in bucket[size:]]
        return answer


class TimedActiveProcessor(ActiveWrapping, TimedProcessor):
    """For processors that work without an inbox."""


def _around(processor: Processor) -> Processor:
    return (TimedActiveProcessor if is_active(processor) else TimedProcessor)(processor)


def timed_wrapping(supplier: SupplierLike | ProcessorMetaSupplier) -> Any:
    """Return what makes the processors of a supplier, for timed items.

    Args:
        supplier: what a vertex takes, for bare items.

    Example:
        >>> from shmjet.processors import map
        >>> from shmjet.testing import verify_processor
        >>> verify_processor(timed_wrapping(map(str))).inputs([(10, 1), (20, 2)]).expect([(10, "1"), (20, "2")])
    """
    return wrapping(supplier, _around)
