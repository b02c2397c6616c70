"""The base of sources whose items are due by a schedule: timers, catching up, event time, saved positions.

A source that is behind its schedule makes what is due in pieces, as much in a call as the policy of the job allows; so
its memory does not depend on how far behind it is. Must not know: what the items are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from time import monotonic_ns, time_ns
from typing import Any

from shmjet.core.broadcast_key import BroadcastKey
from shmjet.core.event_time import EventTimePolicy
from shmjet.core.event_time_mapper import EventTimeMapper, PartitionFacts
from shmjet.core.latency_policy import policy_in
from shmjet.core.processor import (
    MetaSupplierContext,
    Processor,
    ProcessorContext,
    ProcessorMetaSupplier,
    ProcessorSupplier,
    state_kind_of,
)
from shmjet.core.source_alignment import alignment_in
from shmjet.core.windows import LOWEST
from shmjet.data.errors import ProcessorError
from shmjet.processors.general.base import BulkProcessor, Supply
from shmjet.processors.streams.schedule import Made, NumberShare, Schedule
from shmjet.processors.time.timed_source import SKEW_PAUSE

START_DELAY_MS = 10
"""Milliseconds from the start of an execution on its coordinator to number 0, as in Jet's NEXMark."""
_MS = 1_000_000
_MARK_STEP_MS = 100
"""Watermarks by time alone are at least so far apart."""

Clock = Callable[[], int]


def steady_clock() -> Clock:
    """Return a clock of nanoseconds since the epoch that is not moved when the host's clock is."""
    offset = time_ns() - monotonic_ns()
    return lambda: offset + monotonic_ns()


def _next_goal(mapper: EventTimeMapper, policy: EventTimePolicy) -> int | None:
    """Return the time in milliseconds that brings the next watermark; None before the first watermark."""
    last = mapper.watermark
    return None if last is None else last - last % policy.stride + policy.stride + policy.allowed_lag


class ScheduledProcessor(BulkProcessor):
    """Makes the items of its numbers when they are due. It never ends.

    Args:
        schedule: of all processors of the source; a restored one goes on with that of the snapshot.
        policy: of its event time; None: it has none.
        clock: gives nanoseconds since the epoch, and never goes back; None: `steady_clock`.
    """

    first_piece = 16
    """Numbers that are dealt with at once at first; as many as take about half a call later."""

    most_at_once = 2048
    """Numbers that are dealt with at once, at most."""

    least_ns = 0
    """Nanoseconds that a piece may always take."""

    def __init__(self, schedule: Schedule, policy: EventTimePolicy | None, clock: Clock | None = None) -> None:
        self._schedule = schedule
        self._policy = policy
        self._given_clock = clock
        self._saved: dict[int, tuple[Any, ...]] = {}

    def start(self, context: ProcessorContext) -> None:
        """Begin with the first numbers of this processor."""
        self._clock = self._given_clock or steady_clock()
        self._share = NumberShare(context.global_index, context.total_parallelism)
        self._call_ns = policy_in(context).call_ns
        self._piece = self.first_piece
        self._piece_ns = max(self._call_ns // 2, self.least_ns)
        self._mark_at = self._marked_ms = -math.inf
        self._mapper: EventTimeMapper | None = None
        if self._policy is not None:
            self._mapper = EventTimeMapper(self._policy, 1, now=self._clock())
        self._tell(LOWEST)

    def made(self, numbers: Sequence[int], now: int) -> list[Any]:
        """Return what is to be emitted for numbers that are due, watermarks included."""
        raise NotImplementedError

    def next_due_ns(self, number: int) -> int:
        """Return when the next number is wanted, in nanoseconds since the epoch; not before it is due."""
        return self._schedule.due_ns(number)

    def complete(self) -> bool:
        """Emit what is due, as far as there is room and time; then say when the next number is."""
        emission, mapper = self.emission, self._mapper
        begun = now = self._clock()
        if not emission.flush():
            if mapper is not None:
                mapper.hold(now)
            return False
        self.next_call = 0.0
        bound = self._schedule.count_due(now)
        share, call_ns = self._share, self._call_ns
        while share.position < bound:
            if self._is_ahead():
                self.next_call = SKEW_PAUSE
                return False
            numbers = share.take(bound, self._piece)
            made = self.made(numbers, now) if numbers else []
            if mapper is not None:
                self._tell(mapper.holds_at)
            accepted = not numbers or emission.put(made)
            before, now = now, self._clock()
            self._measure(len(numbers), now - before)
            if not accepted or now - begun >= call_ns:
                return False
        marks = [] if mapper is None else self._marks(mapper, now)
        if mapper is not None:
            self._tell(mapper.holds_at)
        if mapper is None or emission.put(marks):
            self.next_call = self._patience(mapper, now)
        return False

    def time_facts(self) -> list[PartitionFacts]:
        """Return what is known of the time of its items; for `job.explain_time()`."""
        return [] if self._mapper is None else self._mapper.facts()

    def _is_ahead(self) -> bool:
        """Say whether this source has to wait for others."""
        mapper, policy = self._mapper, self._policy
        if mapper is None or policy is None or policy.max_skew is None:
            return False
        return not mapper.may_take(0, alignment_in(self.context).least_of_others())

    def _tell(self, mark: int) -> None:
        """Tell the other sources how far this one is, if one of them asks."""
        if self._policy is not None and self._policy.is_aligned:
            alignment_in(self.context).tell(mark)

    def _measure(self, count: int, took_ns: int) -> None:
        """Adapt how many numbers are dealt with at once to what they cost."""
        if took_ns > self._piece_ns:
            self._piece = max(1, self._piece // 2)
        elif count == self._piece and took_ns < self._piece_ns // 2:
            self._piece = min(self.most_at_once, self._piece * 2)

    def _marks(self, mapper: EventTimeMapper, now: int) -> list[Any]:
        """Return the marks that time alone brings: all that was due has been emitted."""
        policy = self._policy
        assert policy is not None
        if policy.timestamps != "native" or not policy.stride:
            return list(mapper.idle(now))
        if now < self._mark_at:
            return []
        reached = min(now // _MS, self._schedule.timestamp(self._share.position))
        marks: Sequence[Any] = ()
        if (goal := _next_goal(mapper, policy)) is None or reached >= goal:  # else an item has brought the watermark
            marks = mapper.reach(0, reached, now)
            goal = _next_goal(mapper, policy)
            if marks and mapper.watermark is not None:
                self._marked_ms = mapper.watermark + policy.allowed_lag
        self._mark_at = max(reached if goal is None else goal, self._marked_ms + _MARK_STEP_MS) * _MS
        return list(marks)

    def _patience(self, mapper: EventTimeMapper | None, now: int) -> float:
        """Return the seconds until there is something to do."""
        due: float = self.next_due_ns(self._share.position)
        if mapper is None or self._policy is None:
            return max(0.0, (due - now) / 1e9)
        if self._policy.timestamps != "native":
            return max(0.0, min((due - now) / 1e9, mapper.next_call(now)))
        if self._policy.stride:
            due = min(due, self._mark_at)
        return max(0.0, (due - now) / 1e9)

    def save_to_snapshot(self) -> bool:
        """Emit what has been made, then save the position."""
        return self.emission.flush_rest() and super().save_to_snapshot()

    def saved_entries(self) -> Iterable[tuple[Any, Any]]:
        """Return the schedule, the position, and the watermark, as one entry."""
        rate, context = self._schedule.rate, self.context
        made = tuple(one.positions for one in self._share.made)
        watermark = None if self._mapper is None else self._mapper.watermark
        state = (
            *(self._schedule.start, (rate.numerator, rate.denominator)),
            *(context.total_parallelism, self._share.position, made, watermark),
        )
        return [(BroadcastKey(context.global_index), state)]

    def restore_entries(self, entries: list[tuple[Any, Any]]) -> None:
        """Take the states of all processors."""
        self._saved.update((key.key, state) for key, state in entries)

    def finish_snapshot_restore(self) -> bool:
        """Go on with the numbers that had not been made, by the schedule that the stream has had."""
        states, self._saved = [state for _, state in sorted(self._saved.items())], {}
        if not states:
            return True
        start, rate = states[0][0], Fraction(*states[0][1])
        if rate != self._schedule.rate:
            raise ProcessorError(
                f"vertex {self.context.vertex_name!r}: the snapshot is of a stream of {_shown(rate)} items a second, "
                f"this one has {_shown(self._schedule.rate)}; go on with the rate that the job began with"
            )
        self._schedule = Schedule(start, rate)
        earlier = dict.fromkeys(Made(tuple(positions)) for state in states for positions in state[4])
        self._share.restore([Made(tuple(state[3] for state in states)), *earlier])
        if self._mapper is not None:
            marks = [state[5] for state in states]
            self._mapper.restore(None if None in marks else min(marks), self._clock())
        return True


class ScheduledSupplier(ProcessorMetaSupplier):
    """Makes the processors of a source by schedule; all of them begin at the same instant.

    Args:
        make: `make(schedule)` makes a processor.
        rate: items a second, in all.
        parallelism: local parallelism that it prefers; -1: one processor per worker.
    """

    is_endless = True
    is_cooperative = True

    def __init__(self, make: Callable[..., Processor], rate: Fraction, parallelism: int) -> None:
        self._make = make
        self._rate = rate
        self._start = 0
        self.preferred_local_parallelism = parallelism
        self.state_kind = state_kind_of(make.func if isinstance(make, partial) else make)

    def init(self, context: MetaSupplierContext) -> None:
        """Choose the start."""
        self._start = time_ns() // _MS + START_DELAY_MS

    def get(self, addresses: Sequence[str]) -> Mapping[str, ProcessorSupplier]:
        """Return the supplier for each member."""
        supply = Supply(self._make, Schedule(self._start, self._rate))
        return dict.fromkeys(addresses, ProcessorSupplier.of(supply))


def _shown(rate: Fraction) -> str:
    return str(rate) if rate.denominator == 1 else f"{float(rate):g}"
