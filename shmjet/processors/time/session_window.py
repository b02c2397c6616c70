"""Aggregation of session windows: a session of a key ends when nothing has come for it for a while.

Must not know: how watermarks come about. After Jet's `SessionWindowP`: an event at t is the interval `[t, t + gap)`;
intervals that overlap are one session, intervals that only touch are two sessions. A session is emitted when its end is
below the watermark, and an event is late when its own time is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from typing import Any

from shmjet.core.broadcast_key import BroadcastKey
from shmjet.data.marks import Watermark
from shmjet.processors.general.state_keys import own_key, with_one_nan
from shmjet.processors.time.events import Events
from shmjet.processors.time.frames import Op
from shmjet.processors.time.window_output import WindowOutput
from shmjet.processors.time.window_processor import NEVER, EarlyResults, WindowProcessor

WATERMARK = BroadcastKey("watermark")
"""The key under which each processor saves the last watermark that it has got."""


class Session:
    """A session that is open.

    Args:
        key: whose it is.
        start, end: of the session, in milliseconds.
        accumulator: of its events.
    """

    __slots__ = ("accumulator", "end", "fresh", "is_open", "key", "start")

    def __init__(self, key: Any, start: int, end: int, accumulator: Any) -> None:
        self.key = key
        self.start = start
        self.end = end
        self.accumulator = accumulator
        self.fresh: list[Any] | None = None
        """Items that have not been accumulated yet, while a list of events is gone through."""
        self.is_open = True


class SessionWindowProcessor(WindowProcessor):
    """Aggregates events in sessions.

    Args:
        events: how items become events.
        gap: milliseconds without an event that end a session.
        op: the operation, which has `combine`.
        output: makes results.
        late_ordinal: outbound ordinal for late items; None: they are dropped.
    """

    state_kind = "session_window"

    def __init__(self, events: Events, gap: int, op: Op, output: WindowOutput, late_ordinal: int | None = None) -> None:
        super().__init__(late_ordinal)
        self._events = events
        self._gap = gap
        self._op = op
        self._output = output
        self._watermark = NEVER
        self._restored: list[int] = []
        self._sessions: dict[Any, list[Session]] = {}
        """By key, ascending. No two of a key overlap."""
        self._by_end: list[tuple[int, int, Session]] = []
        """A heap with one entry for each session, under an end that it has or had, and a number."""
        self._number = 0

    # -- events --------------------------------------------------------------------------------------------------------

    def absorb(self, ordinal: int, items: list[Any]) -> None:
        """Accumulate a list."""
        events, watermark = self._events, self._watermark
        stamps, bare = events.apart(ordinal, items)
        if min(stamps) < watermark:
            self.note_late([item for stamp, item in zip(stamps, items, strict=True) if stamp < watermark])
            bare = [item for stamp, item in zip(stamps, bare, strict=True) if stamp >= watermark]
            stamps = [stamp for stamp in stamps if stamp >= watermark]
            if not stamps:
                return
        keys = events.keys(ordinal, bare) if events.has_keys else [None] * len(bare)
        touched: list[Session] = []
        get, gap = self._sessions.get, self._gap
        for key, stamp, item in zip(keys, stamps, bare, strict=True):
            of_key = get(key)
            session = of_key[-1] if of_key is not None else None
            if session is not None and session.start <= stamp < session.end:
                if stamp + gap > session.end:
                    session.end = stamp + gap
            else:
                session = self._session(key, stamp, stamp + gap, ordinal)
            if session.fresh is None:
                session.fresh = [item]
                touched.append(session)
            else:
                session.fresh.append(item)
        fold = self._op.fold
        for session in touched:
            if session.fresh is not None:
                session.accumulator = fold(session.accumulator, session.fresh, ordinal)
                session.fresh = None

    def _accumulate(self, session: Session, ordinal: int) -> None:
        """Accumulate the fresh items of a session."""
        if session.fresh is not None:
            session.accumulator = self._op.fold(session.accumulator, session.fresh, ordinal)
            session.fresh = None

    def _session(self, key: Any, start: int, end: int, ordinal: int) -> Session:
        """Return the session of an interval: what overlaps it, joined if these are several, or a new session."""
        op = self._op
        of_key = self._sessions.get(key)
        if of_key is None:
            of_key = self._sessions[key] = []
        first = len(of_key)
        while first and of_key[first - 1].end > start:
            first -= 1
        last = first
        while last < len(of_key) and of_key[last].start < end:
            last += 1
        if first == last:
            session = Session(key, start, end, op.create())
            of_key.insert(first, session)
            self._push(end, session)
            return session
        session = of_key[first]
        if last - first > 1:
            self._accumulate(session, ordinal)
            others = of_key[first + 1 : last]
            for other in others:
                self._accumulate(other, ordinal)
                other.is_open = False
            session.accumulator = op.merge(session.accumulator, [other.accumulator for other in others])
            session.end = others[-1].end
            del of_key[first + 1 : last]
        session.start = min(session.start, start)
        session.end = max(session.end, end)
        return session

    def _push(self, end: int, session: Session) -> None:
        """Enter a session under its end."""
        self._number += 1
        heappush(self._by_end, (end, self._number, session))

    # -- results -------------------------------------------------------------------------------------------------------

    def passed(self, watermark: int) -> Iterable[Any] | None:
        """Return the results of the sessions that have ended."""
        self._watermark = max(self._watermark, watermark)
        by_end = self._by_end
        return self._closed(watermark) if by_end and by_end[0][0] < watermark else None

    def onward(self, watermark: Watermark) -> Watermark | None:
        """Hold the watermark where it would make the result of a session late, which ends with it and is open still."""
        time = watermark.timestamp
        if not self._output.timed or not self._ends_at(time):
            return watermark
        return Watermark(time - 1) if time - 1 > self.sent else None

    def _ends_at(self, time: int) -> bool:
        """Say whether an open session ends at a time that no entry of the heap is below."""
        by_end = self._by_end
        while by_end and by_end[0][0] == time:
            session = by_end[0][2]
            if session.is_open and session.end == time:
                return True
            heappop(by_end)
            if session.is_open:
                self._push(session.end, session)
        return False

    def results(self) -> Iterable[Any]:
        """Return the results of all sessions."""
        return self._closed(None)

    def _closed(self, watermark: int | None) -> Iterator[Any]:
        """Close the sessions that end before a watermark, or all, in the order of their ends."""
        by_end, sessions, make = self._by_end, self._sessions, self._output.one
        while by_end and (watermark is None or by_end[0][0] < watermark):
            end, _, session = heappop(by_end)
            if not session.is_open:
                continue
            if session.end != end:
                self._push(session.end, session)
                continue
            key = session.key
            of_key = sessions[key]
            if len(of_key) == 1:
                del sessions[key]
            else:
                of_key.remove(session)
            item = make(session.start, end, key, session.accumulator, True, False)
            if item is not None:
                yield item

    # -- state ---------------------------------------------------------------------------------------------------------

    def saved_entries(self) -> Iterable[tuple[Any, Any]]:
        """Return the sessions of each key, and the watermark."""
        yield WATERMARK, self._watermark
        own = None if self._events.has_keys else own_key(self.context)
        for key, of_key in self._sessions.items():
            saved = [(session.start, session.end, session.accumulator) for session in of_key]
            yield key if self._events.has_keys else own, saved

    def restore_entries(self, entries: list[tuple[Any, Any]]) -> None:
        """Take sessions back; those of one key from several processors become one where they overlap."""
        keyed = self._events.has_keys
        for key, value in with_one_nan(entries):
            if isinstance(key, BroadcastKey):
                self._restored.append(value)
                continue
            for start, end, accumulator in value:
                session = self._session(key if keyed else None, start, end, 0)
                session.accumulator = self._op.merge(session.accumulator, [accumulator])

    def finish_snapshot_restore(self) -> bool:
        """Set the watermark, to the least that was saved."""
        self._watermark = min(self._restored, default=NEVER)
        self._restored = []
        return True


class EarlySessionWindowProcessor(EarlyResults, SessionWindowProcessor):
    """Aggregates events in sessions, and gives early results."""

    def __init__(
        self, events: Events, gap: int, op: Op, output: WindowOutput, late_ordinal: int | None = None, *, period: float
    ) -> None:
        super().__init__(events, gap, op, output, late_ordinal)
        self.period = period

    def early(self) -> Iterable[Any] | None:
        """Return results of the sessions that are open."""
        if not self._sessions:
            return None
        make = self._output.one
        made = (
            make(session.start, session.end, key, session.accumulator, False, True)
            for key, of_key in self._sessions.items()
            for session in of_key
        )
        return (item for item in made if item is not None)
