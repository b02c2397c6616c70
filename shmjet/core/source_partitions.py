"""The partitions of one source processor in time: which are active, how far each has come. Pure: the clock comes in.

A partition is active until it has been silent for the idle timeout. Its watermark rises with its events; with
`advance_when_idle` also by time alone. Must not know items, or what has been sent.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from shmjet.core.event_time import EventTimePolicy
from shmjet.core.windows import HIGHEST, LOWEST

_MS = 1_000_000
_STALL_NS = 5_000_000_000
"""A call that comes so much later than asked for was held up: the process stood still, nothing can be said of the
partitions, and their silence is counted anew."""
_LEAST_STEP_MS = 100
"""By time alone, watermarks rise in steps of so much at least, so that a silent stream costs little."""


class PartitionFacts(NamedTuple):
    """What is known of a source partition; for `job.explain_time()`."""

    partition: int
    watermark: int | None
    """Milliseconds; None before its first event."""
    idle_since: int | None
    """Nanoseconds, of the clock that comes in: its last event, if it is idle; else None."""
    events: int


class _Partition:
    """One source partition."""

    __slots__ = ("base", "events", "heard", "idle", "mark", "waits")

    def __init__(self, now: int) -> None:
        self.mark = self.base = LOWEST
        """Its watermark, and what it was at its last event."""
        self.heard = now
        """When its last event came, less the time in which none could come."""
        self.idle = False
        self.waits = False
        """It is not asked for events, as it is too far ahead."""
        self.events = 0


class SourcePartitions:
    """The partitions, numbered from 0. Times are nanoseconds of a monotonic clock, watermarks milliseconds.

    Args:
        policy: of the source.
        count: of the partitions that there are at first.
        now: when they begin.

    Example:
        >>> partitions = SourcePartitions(EventTimePolicy(idle_timeout=1_000), 2, 0)
        >>> partitions.hear(0, 1, now=0); partitions.reach(0, 7)
        >>> partitions.least, partitions.next_due(7, 10), partitions.go_on(10**9), partitions.least
        (-9223372036854775808, 1000000000, None, 7)
    """

    def __init__(self, policy: EventTimePolicy, count: int, now: int) -> None:
        self._timeout = None if policy.idle_timeout is None else policy.idle_timeout * _MS
        self._patience = None if policy.advance_when_idle is None else policy.advance_when_idle * _MS
        self._skew = policy.max_skew
        self._step = 1 if policy.stride >= _LEAST_STEP_MS else _LEAST_STEP_MS
        self._all = [_Partition(now) for _ in range(count)]
        self._top = LOWEST
        self._asked_for: float = math.inf
        self._held_since: int | None = None

    def __len__(self) -> int:
        return len(self._all)

    @property
    def are_idle(self) -> bool:
        """Whether none is active."""
        return not any(one for one in self._all if not one.idle)

    @property
    def least(self) -> int:
        """The least watermark of the active partitions; when all are idle, the highest that any has had."""
        return min([one.mark for one in self._all if not one.idle], default=self._top)

    @property
    def holds_at(self) -> int:
        """How far others may go by these: the least watermark of the active partitions, `HIGHEST` without any."""
        return min([one.mark for one in self._all if not one.idle], default=HIGHEST)

    def mark(self, partition: int) -> int:
        """Return the watermark of a partition; `LOWEST` before its first event."""
        return self._all[partition].mark

    def least_of_others(self, partition: int) -> int:
        """Return the least watermark of the other active partitions; `HIGHEST` without any."""
        if len(self._all) == 1:
            return HIGHEST
        one = self._all[partition]
        return min([other.mark for other in self._all if not other.idle and other is not one], default=HIGHEST)

    def restore(self, watermark: int, marks: list[int | None] | None, now: int) -> None:
        """Begin at a watermark, or each partition at its own where that is known."""
        self._top = watermark
        for i, one in enumerate(self._all):
            mark = None if marks is None else marks[i]
            one.mark = one.base = watermark if mark is None else mark
            one.heard = now
            self._top = max(self._top, one.mark)

    def add(self, count: int, now: int) -> None:
        """Add partitions behind the others."""
        self._all += [_Partition(now) for _ in range(count)]

    def remove(self, partition: int) -> None:
        """Remove a partition; those behind it move up by one."""
        del self._all[partition]

    def hear(self, partition: int, count: int, now: int) -> None:
        """Note that a partition gives events now; after `go_on`."""
        one = self._all[partition]
        one.events += count
        one.heard = now
        one.idle = one.waits = False

    def reach(self, partition: int, mark: int) -> None:
        """Note how far a partition has come by its events."""
        one = self._all[partition]
        one.mark = one.base = mark
        if mark > self._top:
            self._top = mark

    def hold(self, now: int) -> None:
        """Note that no partition is asked from now on, until the next `go_on`."""
        if self._held_since is None:
            self._held_since = now

    def may_take(self, partition: int, others: int) -> bool:
        """Say whether a partition may be asked: as `EventTimeMapper.may_take`."""
        if self._skew is None:
            return True
        one = self._all[partition]
        least = min(self.holds_at, others)
        one.waits = one.mark > least and one.mark - least >= self._skew
        return not one.waits

    def facts(self) -> list[PartitionFacts]:
        """Return what is known of each partition."""
        return [
            PartitionFacts(i, None if one.mark == LOWEST else one.mark, one.heard if one.idle else None, one.events)
            for i, one in enumerate(self._all)
        ]

    def go_on(self, now: int) -> None:
        """Note the time: which partitions have become idle, and how far silent ones have come by time alone."""
        if self._held_since is not None:
            for one in self._all:
                one.heard += now - self._held_since
            self._held_since = None
        elif now - self._asked_for > _STALL_NS:
            for one in self._all:
                one.heard, one.base = now, one.mark
        self._asked_for = math.inf
        timeout, patience = self._timeout, self._patience
        for one in self._all:
            if one.waits:
                one.heard = now
            silent = now - one.heard
            if timeout is not None and silent >= timeout:
                one.idle = True
            if patience is not None and silent >= patience and one.base > LOWEST:
                passed = (silent - patience) // _MS
                one.mark = max(one.mark, one.base + passed - passed % self._step)
                self._top = max(self._top, one.mark)

    def next_due(self, now: int, goal: int) -> float:
        """Return when something may change by time alone, and expect a call then; `math.inf`: nothing will.

        Args:
            now: what is due before is due now.
            goal: the next watermark that counts.
        """
        active = [one for one in self._all if not one.idle]
        due: float = math.inf
        if self._timeout is not None and active:
            due = min([one.heard for one in active]) + self._timeout
        if self._patience is not None:
            if active:
                due = min(due, max(self._reaches(one, goal) for one in active))
            else:
                due = min((self._reaches(one, goal) for one in self._all), default=math.inf)
        self._asked_for = max(due, now)
        return self._asked_for

    def _reaches(self, one: _Partition, goal: int) -> float:
        """Return when a partition that stays silent has come to a watermark, by time alone."""
        if one.mark >= goal:
            return -math.inf
        if one.base == LOWEST or self._patience is None:
            return math.inf
        steps = -(-(goal - one.base) // self._step)
        return one.heard + self._patience + steps * self._step * _MS
