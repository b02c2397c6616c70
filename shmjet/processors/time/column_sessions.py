"""Session windows on batches; results are batches.

What `session_window` is for items, with native tables (`shmjet.columns.session_groups`) in place of dicts. Must not
know: how watermarks come about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from shmjet.core.inbox import Inbox
from shmjet.core.latency_policy import policy_in
from shmjet.core.processor import Processor, ProcessorContext
from shmjet.data.marks import Watermark
from shmjet.processors.columns.groups_state import GroupsState, kind_of_groups
from shmjet.processors.columns.saving import CapturedState
from shmjet.processors.general.base import Supply, require_batches
from shmjet.processors.time.column_windows import EMITTED_ROWS
from shmjet.processors.time.grouped_windows import GroupedSessions
from shmjet.processors.time.session_window import WATERMARK
from shmjet.processors.time.window_processor import NEVER, EarlyResults, WindowProcessor

if TYPE_CHECKING:
    from shmjet.columns.session_groups import SessionGroups, Sessions
    from shmjet.columns.typed_groups import TypedGroups
    from shmjet.data.batch import Batch


class ColumnSessionsProcessor(WindowProcessor):
    """Aggregates rows in sessions.

    Args:
        grouped: what is computed.
        late_ordinal: outbound ordinal for late rows, as batches; None: they are dropped.
    """

    state_kind = "column_sessions"
    _captures = True

    def __init__(self, grouped: GroupedSessions, late_ordinal: int | None = None) -> None:
        super().__init__(late_ordinal)
        self._grouped = grouped
        self._watermark = NEVER
        self._saving = CapturedState()
        self._restored: _Restored | None = None
        self._sessions: SessionGroups

    def start(self, context: ProcessorContext) -> None:
        """Make the tables."""
        from shmjet.columns.session_groups import SessionGroups
        from shmjet.columns.window_groups import in_time

        super().start(context)
        keys, aggregates, gap, time = self._grouped[:4]
        self._sessions = SessionGroups(keys, in_time(aggregates), gap, time)

    def absorb(self, ordinal: int, items: list[Any]) -> None:
        """Aggregate the rows of a list of batches."""
        require_batches("window(session(...)).group_by(...).agg(...)", items)
        late = [found for batch in items if (found := self._sessions.add(batch, self._watermark)) is not None]
        if late:
            self.note_late_rows(late)

    # -- results -------------------------------------------------------------------------------------------------------

    def passed(self, watermark: int) -> Iterable[Any] | None:
        """Return the results of the sessions that have ended."""
        self._watermark = max(self._watermark, watermark)
        least = self._sessions.least_end
        if least is None or least > watermark:
            return None
        return self._output(self._sessions.closed(watermark, EMITTED_ROWS))

    def onward(self, watermark: Watermark) -> Watermark | None:
        """Hold the watermark where it would make the result of a session late, which ends with it and is open still."""
        time = watermark.timestamp
        if self._grouped.time_column is None or self._sessions.least_end != time:
            return watermark
        return Watermark(time - 1) if time - 1 > self.sent else None

    def results(self) -> Iterable[Any]:
        """Return the results of all sessions."""
        return self._output(self._sessions.closed(None, EMITTED_ROWS))

    def _output(self, found: Iterator[Sessions], is_early: bool = False) -> Iterator[Batch]:
        for each in found:
            yield self._grouped.output(each.results, each.starts, each.ends, is_early)

    # -- state ---------------------------------------------------------------------------------------------------------

    def _capture(self) -> bool:
        if not self.emission.flush():
            return False
        groups = self._sessions.empty_table()
        self._saving.take(self.outbox, self._entries(self._watermark, groups, self._sessions.gather(groups)))
        return True

    def save_to_snapshot(self) -> bool:
        """Emit what has been begun, then save the sessions by partition, and the watermark."""
        return self._saving.save(self._capture)

    def _entries(
        self, watermark: int, groups: TypedGroups, gathering: Iterator[None]
    ) -> Iterator[tuple[Any, Any] | None]:
        yield WATERMARK, watermark
        yield from gathering
        yield from GroupsState(groups, self._grouped.keys, self.context).entries(0)

    def restore_from_snapshot(self, inbox: Inbox) -> None:
        """Merge pieces, for as long as a call should take."""
        deadline = monotonic_ns() + policy_in(self.context).call_ns
        if self._restored is None:
            self._restored = _Restored(self._sessions, self._grouped.keys, self.context)
        while inbox:
            self._restored.take(*inbox.poll())
            if monotonic_ns() >= deadline:
                return

    def finish_snapshot_restore(self) -> bool:
        """Put the sessions back, and set the watermark, to the least that was saved."""
        restored, self._restored = self._restored, None
        if restored is not None:
            self._watermark = min(restored.watermarks, default=NEVER)
            self._sessions.put_back(restored.groups)
        return True


class _Restored:
    """What comes back of entries."""

    def __init__(self, sessions: SessionGroups, keys: tuple[str, ...], context: ProcessorContext) -> None:
        self.groups = sessions.empty_table()
        self.watermarks: list[int] = []
        self._state = GroupsState(self.groups, keys, context)

    def take(self, key: Any, value: Any) -> None:
        """Take one entry of any processor. Raises as `GroupsState.restore`."""
        if key == WATERMARK:
            self.watermarks.append(value)
        else:
            self._state.restore(key, value)


class EarlyColumnSessionsProcessor(EarlyResults, ColumnSessionsProcessor):
    """Aggregates rows in sessions, and gives early results."""

    def __init__(self, grouped: GroupedSessions, late_ordinal: int | None = None, *, period: float) -> None:
        super().__init__(grouped, late_ordinal)
        self.period = period

    def start(self, context: ProcessorContext) -> None:
        """Make the tables, and begin to count the period."""
        ColumnSessionsProcessor.start(self, context)
        EarlyResults.start(self, context)

    def early(self) -> Iterable[Any] | None:
        """Return results of the sessions that are open."""
        return self._output(self._sessions.open_now(EMITTED_ROWS), is_early=True) if len(self._sessions) else None


def sessions_of_columns(
    grouped: GroupedSessions, *, period: float = 0, late_ordinal: int | None = None
) -> Callable[[], Processor]:
    """Return the supplier; `period` is that of early results in seconds, 0: there are none."""
    if period:
        supply = Supply(EarlyColumnSessionsProcessor, grouped, late_ordinal, period=period)
    else:
        supply = Supply(ColumnSessionsProcessor, grouped, late_ordinal)
    supply.state_kind += f" of {kind_of_groups(grouped.keys, grouped.aggregates)}"
    return supply
