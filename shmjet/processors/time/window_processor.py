"""What window processors have in common: late items, early results, and results that come with watermarks.

Must not know: what a window is.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any

from shmjet.core.context import ProcessorContext
from shmjet.core.inbox import Inbox
from shmjet.core.latency_policy import policy_in
from shmjet.core.outbox import Outbox
from shmjet.data.marks import Watermark
from shmjet.processors.general.base import BulkProcessor
from shmjet.processors.general.emission import Emission

if TYPE_CHECKING:
    from shmjet.data.batch import Batch

NEVER = -(1 << 63)
"""The time before the first watermark."""


class WindowProcessor(BulkProcessor):
    """A processor that emits results when a watermark passes their windows.

    Args:
        late_ordinal: outbound ordinal for late items, as they came; None: they are dropped.
    """

    def __init__(self, late_ordinal: int | None = None) -> None:
        self._late_ordinal = late_ordinal
        self._late: Emission | None = None
        self._passing: Watermark | None = None
        self.sent = NEVER
        """The last watermark sent."""

    def init(self, outbox: Outbox, context: ProcessorContext) -> None:
        """As `BulkProcessor.init`; results go to all ordinals but that of late items."""
        super().init(outbox, context)
        late = self._late_ordinal
        if late is not None:
            call_ns = policy_in(context).call_ns
            others = [ordinal for ordinal in range(outbox.bucket_count) if ordinal != late]
            self.emission = Emission(outbox, others, call_ns=call_ns)
            self._late = Emission(outbox, late, call_ns=call_ns)

    def passed(self, watermark: int) -> Iterable[Any] | None:
        """Return the results of the windows that a watermark passes, lazily; None: there are none."""
        raise NotImplementedError

    def onward(self, watermark: Watermark) -> Watermark | None:
        """Return the watermark that goes on, behind the results that a watermark has brought; None: none does."""
        return watermark

    def note_late(self, items: list[Any]) -> None:
        """Queue items that are late where they go to; count them where they are dropped."""
        if self._late is None:
            self.late_events_dropped += len(items)
        else:
            self._late.start(items)

    def note_late_rows(self, batches: list[Batch]) -> None:
        """As `note_late`, for the rows of batches."""
        if self._late is None:
            self.late_events_dropped += sum(batch.num_rows for batch in batches)
        else:
            self._late.start(batches)

    def process(self, ordinal: int, inbox: Inbox) -> None:
        """Empty the inbox, unless late items wait for room."""
        late = self._late
        if late is None:
            self.absorb(ordinal, inbox.take())
            return
        if not late.idle:
            if not late.flush():
                return
            self.release(inbox)
        if inbox:
            items = inbox.take()
            last = items[-1]
            self.absorb(ordinal, items)
            if not late.flush():
                self.hold(inbox, last)

    def try_process_watermark(self, watermark: Watermark) -> bool:
        """Emit what the watermark passes, then the watermark."""
        emission = self.emission
        if self._passing != watermark:
            if not emission.flush():
                return False
            self._passing = watermark
            results = self.passed(watermark.timestamp)
            if results is not None:
                emission.start(results)
        if not emission.flush():
            return False
        onward = self.onward(watermark)
        if onward is not None:
            if not self.outbox.offer(onward):
                return False
            self.sent = onward.timestamp
        self._passing = None
        return True

    def save_to_snapshot(self) -> bool:
        """Emit what has been begun, then save the state."""
        return self.emission.flush() and super().save_to_snapshot()


class EarlyResults(WindowProcessor):
    """Gives results also of windows that have not ended, every so often; put in front of the class of a processor.

    A class of its own, because the engine calls `try_process` only where it is overridden.
    """

    clock = staticmethod(monotonic)

    period: float
    """Seconds between early results, from beginning to beginning."""

    _due = inf
    _begun: float | None = None
    """When results were begun that have not all been emitted."""

    def early(self) -> Iterable[Any] | None:
        """Return results of the windows that have not ended, lazily; None: there are none."""
        raise NotImplementedError

    def start(self, context: ProcessorContext) -> None:
        """Begin to count the period."""
        self._due = self.clock() + self.period

    @property
    def next_call(self) -> float | None:  # type: ignore[override]
        """Until the results are due, infinite where no window is open; None: some have been begun."""
        return max(0.0, self._due - self.clock()) if self.emission.idle else None

    def try_process(self) -> bool:
        """Emit early results, if they are due."""
        emission = self.emission
        if emission.idle:
            now = self.clock()
            if now < self._due:
                return True
            results = self.early()
            self._due = inf if results is None else now + self.period
            if results is not None:
                self._begun = now
                emission.start(results)
        if not emission.flush():
            return False
        if self._begun is not None:  # as long as that took is for the input, be the period ever so short
            now = self.clock()
            self._due, self._begun = max(self._due, now + (now - self._begun)), None
        return True

    def process(self, ordinal: int, inbox: Inbox) -> None:
        """As `WindowProcessor.process`; where no window was open, the period begins with its first item."""
        if self._due == inf:
            self._due = self.clock() + self.period
        super().process(ordinal, inbox)
