"""Tumbling and sliding windows on batches, in one stage or in two; results are batches.

What `sliding_window` is for items, with native tables (`shmjet.columns.frame_groups`, `shmjet.columns.window_groups`)
in place of dicts. Must not know: how watermarks come about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Final, cast

from shmjet.core.inbox import Inbox
from shmjet.core.latency_policy import policy_in
from shmjet.core.processor import Processor, ProcessorContext
from shmjet.core.windows import SlidingWindowPolicy
from shmjet.processors.columns.groups_state import kind_of_groups
from shmjet.processors.columns.saving import CapturedState
from shmjet.processors.general.base import Supply, require_batches
from shmjet.processors.time.column_window_state import RestoredWindows, entries_of
from shmjet.processors.time.first_stage import FirstStage
from shmjet.processors.time.grouped_windows import Grouped
from shmjet.processors.time.window_contents import windows
from shmjet.processors.time.window_processor import NEVER, EarlyResults, WindowProcessor

if TYPE_CHECKING:
    from shmjet.columns.frame_groups import FrameGroups, FrameStates
    from shmjet.columns.window_groups import CombinedWindows
    from shmjet.data.batch import Batch

EMITTED_ROWS: Final = 16384
"""Results in a batch, at most."""

LEAST_ROWS: Final = 4
"""Rows to a group, so that a first stage pays."""

MEASURED_ROWS: Final = 4096
"""Rows after which that is looked at."""

PASSED: Final = 31
"""How many times as many rows are passed on before it is looked at again."""


class ColumnFramesProcessor(WindowProcessor):
    """Aggregates rows by frame.

    Args:
        grouped: what is computed.
        late_ordinal: outbound ordinal for late rows, as batches; None: they are dropped.
    """

    def __init__(self, grouped: Grouped, late_ordinal: int | None = None) -> None:
        super().__init__(late_ordinal)
        self._grouped = grouped
        self._frames: FrameGroups
        self._next = NEVER
        """The end of the next window to be emitted; rows of earlier frames are late."""

    def start(self, context: ProcessorContext) -> None:
        """Make the tables."""
        from shmjet.columns.frame_groups import FrameGroups
        from shmjet.columns.window_groups import with_hidden

        super().start(context)
        keys, aggregates, policy, time = self._grouped[:4]
        self._frames = FrameGroups(keys, with_hidden(aggregates, policy), policy, time)

    def add(self, batch: Batch) -> Batch | None:
        """Aggregate the rows of a batch; return the late ones."""
        return self._frames.add(batch, self._next)

    def absorb(self, ordinal: int, items: list[Any]) -> None:
        """Aggregate the rows of a list of batches."""
        require_batches("window(...).group_by(...).agg(...)", items)
        late = []
        for batch in items:
            found = self.add(batch)
            if found is not None:
                late.append(found)
        if late:
            self.note_late_rows(late)


class FramesOfColumnsProcessor(FirstStage, ColumnFramesProcessor):
    """First stage of two: emits the states of a frame when a watermark passes it.

    Where there are few rows to a group this would cost more than it saves. Then it passes rows on as they are, for some
    time, and tries again.
    """

    state_kind = "column_frames"
    _frames: FrameGroups
    _rows = _groups = 0
    """Rows that have been grouped since states were emitted, and groups that were made of them."""
    _left = 0
    """Rows to be passed on before it tries again."""

    def start(self, context: ProcessorContext) -> None:
        """Make the table."""
        super().start(context)
        inputs = (name for aggregate in self._grouped.aggregates.values() for name in aggregate.names)
        self._columns = tuple(dict.fromkeys((*self._grouped.keys, *inputs, self._grouped.time)))

    def process(self, ordinal: int, inbox: Inbox) -> None:
        """Empty the inbox, unless late rows, or rows that are passed on, wait for room."""
        if not self._flushed():
            return
        self.release(inbox)
        if inbox:
            items = inbox.take()
            last = items[-1]
            self.absorb(ordinal, items)
            if not self._flushed():
                self.hold(inbox, last)

    def _flushed(self) -> bool:
        is_through = self.emission.flush()
        return (self._late is None or self._late.flush()) and is_through

    def add(self, batch: Batch) -> Batch | None:
        """Aggregate the rows of a batch, or pass them on; return the late ones."""
        if self._left <= 0:
            self._rows += batch.num_rows
            return super().add(batch)
        self._left -= batch.num_rows
        on_time, late = self._frames.apart(batch, self._next)
        if on_time is not None:
            self.emission.put([on_time.select(*self._columns)])
        return late

    def passed(self, watermark: int) -> Iterable[Any] | None:
        """Return the states of the frames that have ended."""
        policy, frames = self._grouped.policy, self._frames
        self._next = max(self._next, policy.higher_frame(watermark))
        last = policy.floor_frame(watermark)
        return self._measured(frames.taken(last, EMITTED_ROWS)) if frames and frames.ends[0] <= last else None

    def results(self) -> Iterable[Any]:
        """Return the states of all frames; rows of these may come again."""
        return self._measured(self._frames.flushed(EMITTED_ROWS))

    def _measured(self, taken: Iterator[Batch]) -> Iterator[Any]:
        for states in taken:
            self._groups += states.num_rows
            yield states
        if self._rows >= MEASURED_ROWS:
            if self._groups * LEAST_ROWS > self._rows:
                self._left = PASSED * self._rows
                yield from self._frames.flushed(EMITTED_ROWS)  # before the rows that have come behind them
            self._rows = self._groups = 0


class ColumnWindowProcessor(ColumnFramesProcessor):
    """Aggregates rows in windows."""

    state_kind = "column_windows"
    _captures = True

    def start(self, context: ProcessorContext) -> None:
        """Make the tables."""
        super().start(context)
        self._contents = self._contents_of(self._frames)
        self._saving = CapturedState()
        self._restoring: RestoredWindows | None = None
        self._emitted: RestoredWindows | None = None
        """Which keys have had windows from `_next` on before a restore; None: no key."""

    def _contents_of(self, frames: FrameStates, *, in_turn: bool = True) -> CombinedWindows:
        from shmjet.columns.window_groups import windows_over

        keys, aggregates, policy = self._grouped[:3]
        return windows_over(frames, policy, keys, aggregates, EMITTED_ROWS, in_turn=in_turn)

    # -- results -------------------------------------------------------------------------------------------------------

    def passed(self, watermark: int) -> Iterable[Any] | None:
        """Return the results of the windows that have ended."""
        policy, frames = self._grouped.policy, self._frames
        first, last = self._next, policy.floor_frame(watermark)
        self._next = max(first, policy.higher_frame(watermark))
        if not frames or last < max(first, frames.ends[0]):
            return None
        return self._emitted_windows(max(first, frames.ends[0]), last)

    def results(self) -> Iterable[Any]:
        """Return the results of all windows that have rows."""
        frames = self._frames
        return self._emitted_windows(max(self._next, frames.ends[0]), self._last()) if frames else ()

    def _last(self) -> int:
        """Return the end of the last window that has rows."""
        return self._frames.ends[-1] + self._grouped.policy.size - self._grouped.policy.slide

    def _emitted_windows(self, first: int, last: int) -> Iterator[Any]:
        frames, grouped = self._frames, self._grouped
        if grouped.policy.is_tumbling:
            from shmjet.columns.frame_tables import FRAME

            for batch in frames.results(last, EMITTED_ROWS):
                yield from self._unemitted(batch, batch.parts()[0][FRAME])
        else:
            frames.close(last)
            for end, found in _by_window(frames, self._contents, grouped.policy, first, last):
                for batch in found:
                    yield from self._unemitted(batch, end)
        if self._emitted is not None and self._emitted.emitted_to <= last:
            self._emitted = None

    def _unemitted(self, batch: Batch, ends: Any, is_early: bool = False) -> Iterator[Batch]:
        """Give the results of the keys for which they have not been emitted before a restore."""
        found = self._grouped.output(batch, ends, is_early)
        if self._emitted is not None:
            found = self._emitted.unemitted(found, ends)
        if found.num_rows:
            yield found

    # -- state ---------------------------------------------------------------------------------------------------------

    def _capture(self) -> bool:
        if not self.emission.flush():
            return False
        entries = entries_of(self._frames.captured(), self._grouped.keys, self._next, self.context, self._emitted)
        self._saving.take(self.outbox, entries)
        return True

    def save_to_snapshot(self) -> bool:
        """Emit what has been begun, then save the states by partition, each with the next window."""
        return self._saving.save(self._capture)

    def restore_from_snapshot(self, inbox: Inbox) -> None:
        """Merge pieces, for as long as a call should take."""
        deadline = monotonic_ns() + policy_in(self.context).call_ns
        if self._restoring is None:
            self._restoring = RestoredWindows(self._frames.empty_table(), self._grouped, self.context)
        while inbox:
            self._restoring.take(*inbox.poll())
            if monotonic_ns() >= deadline:
                return

    def finish_snapshot_restore(self) -> bool:
        """Set the next window, and drop frames of which no later window has need."""
        restored, self._restoring = self._restoring, None
        if restored is None:
            return True
        policy = self._grouped.policy
        if restored.least > NEVER:
            self._next = policy.higher_frame(restored.least - 1)
        self._frames.put_back(restored.groups, max(self._next - policy.size, NEVER))
        if not policy.is_tumbling and self._next > NEVER:
            self._frames.close(self._next - policy.slide)
        if restored.settled(self._next):
            self._emitted = restored
        return True


class CombiningColumnWindowProcessor(ColumnWindowProcessor):
    """Second stage of two: combines the states and the rows that `FramesOfColumnsProcessor` emits."""

    def absorb(self, ordinal: int, items: list[Any]) -> None:
        """Merge a list of batches."""
        from shmjet.columns.frame_tables import FRAME

        for batch in items:
            if FRAME in batch:
                self.late_events_dropped += self._frames.merge(batch, self._next)
            else:
                late = self._frames.add(batch, self._next)
                self.late_events_dropped += 0 if late is None else late.num_rows


class EarlyColumnWindowProcessor(EarlyResults, ColumnWindowProcessor):
    """Aggregates rows in windows, and gives early results."""

    def __init__(self, grouped: Grouped, late_ordinal: int | None = None, *, period: float) -> None:
        super().__init__(grouped, late_ordinal)
        self.period = period

    def start(self, context: ProcessorContext) -> None:
        """Make the tables, and begin to count the period."""
        ColumnWindowProcessor.start(self, context)
        EarlyResults.start(self, context)

    def early(self) -> Iterable[Any] | None:
        """Return results of the windows that have rows and have not ended."""
        return self._early(self._last()) if self._frames else None

    def _early(self, last: int) -> Iterator[Any]:
        frames, policy = self._frames.seen_now(), self._grouped.policy
        contents, first = self._contents_of(frames, in_turn=False), max(self._next, frames.ends[0])
        for end, found in _by_window(frames, contents, policy, first, last):
            for batch in found:
                yield from self._unemitted(batch, end, True)


def _by_window(
    frames: FrameStates, contents: CombinedWindows, policy: SlidingWindowPolicy, first: int, last: int
) -> Iterator[tuple[int, Iterator[Batch]]]:
    found: Iterator[Any] = windows(cast("Any", frames), cast("Any", contents), policy, first, last)
    return found


def windows_of_columns(
    grouped: Grouped, *, period: float = 0, late_ordinal: int | None = None
) -> Callable[[], Processor]:
    """Return the supplier of the one stage; `period` is that of early results in seconds, 0: there are none."""
    if period:
        return _saving(grouped, Supply(EarlyColumnWindowProcessor, grouped, late_ordinal, period=period))
    return _saving(grouped, Supply(ColumnWindowProcessor, grouped, late_ordinal))


def frames_of_columns(grouped: Grouped, *, late_ordinal: int | None = None) -> Callable[[], Processor]:
    """Return the supplier of the first of two stages; the edge out of it is partitioned by the keys."""
    return _saving(grouped, Supply(FramesOfColumnsProcessor, grouped, late_ordinal))


def combined_windows_of_columns(grouped: Grouped) -> Callable[[], Processor]:
    """Return the supplier of the second of two stages."""
    return _saving(grouped, Supply(CombiningColumnWindowProcessor, grouped))


def _saving(grouped: Grouped, supply: Supply) -> Supply:
    """Let the kind of saved state name what frames are of; the size of sliding windows may change."""
    windows = "tumbling" if grouped.policy.is_tumbling else "sliding"  # frames of these have more columns
    groups = kind_of_groups(grouped.keys, grouped.aggregates)
    supply.state_kind += f" of {groups}, {windows} in slides of {grouped.policy.slide} ms"
    return supply
