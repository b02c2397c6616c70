"""Groups of rows by frame and key: what windows on columns are made of.

A frame is named by its end (see `shmjet.core.windows`). Rows of frames that may still grow are in one table, whose
first key is the frame, so that any number of open frames costs one table. A few frames that get many rows at a time
have tables of their own instead (`frame_tables`); all rows of a frame are in one place. A frame that closes is read out
once, as partial states, which are combined and deducted from then on. What has closed stays in the table of many frames
until it is half of it. Must not know which windows there are, nor processors.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np

from shmjet.columns.aggregates import Aggregate
from shmjet.columns.frame_tables import FRAME, Ends, FrameTables
from shmjet.columns.group_page import Positions
from shmjet.columns.typed_groups import TypedGroups
from shmjet.core.event_timestamps import column_timestamps
from shmjet.core.windows import SlidingWindowPolicy
from shmjet.data.batch import Batch

STAMP: Final = "\0stamp"
"""The column with the milliseconds of rows, which `first` and `last` go by."""

LEAST_DEAD: Final = 4096
"""Groups of closed frames, at least, for which a table is made anew."""

_GATHERED_ROWS: Final = 1024
"""Groups that `gather` moves in a step."""

_FAR: Final = 1 << 60
"""Timestamps beyond are cut one by one, in integers of Python."""

_SPARSE: Final = 4


class FrameStates:
    """Partial states of frames to which nothing is added any more.

    Args:
        states: by the end of the frame.
    """

    def __init__(self, states: dict[int, Batch]) -> None:
        self._closed = states
        self.ends = sorted(states)
        """Of the frames that there are, ascending."""

    def __bool__(self) -> bool:
        return bool(self.ends)

    def states(self, end: int) -> Batch | None:
        """Return the states of a frame that has closed; None where there is no such frame."""
        return self._closed.get(end)

    def remove(self, end: int) -> Batch | None:
        """Forget a frame that has closed and return its states; None where there is no such frame."""
        states = self._closed.pop(end, None)
        if states is not None:
            del self.ends[bisect_left(self.ends, end)]
        return states

    def any_within(self, after: int, last: int) -> bool:
        """Tell whether there is a frame whose end is above `after` and at most `last`."""
        return bisect_right(self.ends, after) < bisect_right(self.ends, last)

    def within(self, after: int, last: int) -> list[int]:
        """Return the ends of the frames that are there, from above `after` to `last`."""
        return self.ends[bisect_right(self.ends, after) : bisect_right(self.ends, last)]


class FrameGroups(FrameStates):
    """Aggregates of rows by frame and key.

    Args:
        keys: the key columns; there may be none.
        aggregates: result → aggregate; the order of one is `STAMP`, if it has one.
        policy: of the frames.
        time: the column with the timestamps of rows.

    Example:
        >>> from shmjet.columns.aggregates import count
        >>> frames = FrameGroups(["k"], {"n": count()}, SlidingWindowPolicy(20, 10), "ts")
        >>> frames.add(Batch({"ts": [1, 12, 3], "k": ["a", "a", "a"]}), 0)
        >>> frames.ends
        [10, 20]
        >>> frames.close(10)
        >>> frames.states(10).to_dict()
        {'\\x00frame': [10], 'k': ['a'], 'n#n': [2]}
    """

    def __init__(
        self, keys: Sequence[str], aggregates: Mapping[str, Aggregate], policy: SlidingWindowPolicy, time: str
    ) -> None:
        super().__init__({})
        self._policy = policy
        self._time = time
        self._aggregates = dict(aggregates)
        self._keys = tuple(keys)
        self._is_in_order = any(each.order is not None for each in aggregates.values())
        self._open = TypedGroups((FRAME, *keys), aggregates)
        self._tables = FrameTables(keys, aggregates)
        self._learnt: list[tuple[str, Any, bool]] = []
        """The form of the last own table of a frame whose knowledge of columns the open table has."""
        self._closed_to = -(1 << 63)
        """The end of the last frame that has been closed; the table may have groups up to there, which are dead."""
        self._dead = 0

    # -- in ------------------------------------------------------------------------------------------------------------

    def add(self, batch: Batch, lowest: int) -> Batch | None:
        """Add the rows of a batch.

        Args:
            batch: rows with their timestamps.
            lowest: the end of the first frame that is not late.

        Returns:
            the rows that are late, which are not added; None: there are none.

        Raises:
            BatchError: a column is missing, has a wrong type or a null timestamp.
        """
        if not batch.num_rows:
            return None
        stamps = column_timestamps(batch, self._time)
        ends, distinct = frames_of(stamps, self._policy)
        late = None
        if distinct[0] < lowest:
            is_late = ends < lowest
            late = batch.filter(is_late)
            on_time = ~is_late
            batch, ends, stamps = batch.filter(on_time), ends[on_time], stamps[on_time]
            distinct = distinct[bisect_left(distinct, lowest) :]
            if not distinct:
                return late
        columns, masks = batch.parts()
        hidden = {FRAME: ends, STAMP: stamps} if self._is_in_order else {FRAME: ends}
        batch = Batch.trusted({**columns, **hidden}, dict(masks), batch.num_rows)
        for part, table in self._tables.apart(batch, ends, distinct, self.ends, self._open.head):
            (self._open if table is None else table).add(part)
        self._note(distinct)
        return late

    def apart(self, batch: Batch, lowest: int) -> tuple[Batch | None, Batch | None]:
        """Return the rows of a batch that are not late, and the late ones; None for none. Nothing is added."""
        if not batch.num_rows:
            return None, None
        is_late = column_timestamps(batch, self._time) < lowest - self._policy.slide
        if not is_late.any():
            return batch, None
        return (None if is_late.all() else batch.filter(~is_late)), batch.filter(is_late)

    def merge(self, states: Batch, lowest: int) -> int:
        """Merge partial states with the ends of their frames, as `states` gives them; return how many were late.

        Raises:
            BatchError: they are states of other groups.
        """
        ends: Any = states.parts()[0][FRAME]
        late = 0
        if len(ends) and int(ends.min()) < lowest:
            on_time = ends >= lowest
            late = int(len(ends) - on_time.sum())
            states = states.filter(on_time)
            ends = states.parts()[0][FRAME]
        if len(ends):
            distinct = np.unique(ends).tolist()
            for part, table in self._tables.apart(states, ends, distinct, self.ends, self._open.head):
                (self._open if table is None else table).merge(part)
            self._note(distinct)
        return late

    def _note(self, distinct: list[int]) -> None:
        have = self.ends
        if distinct[0] > (have[-1] if have else self._closed_to):
            have += distinct
        elif not (len(distinct) == 1 and have[bisect_left(have, distinct[0]) :][:1] == distinct):
            self.ends = sorted({*have, *distinct})

    # -- frames that close ---------------------------------------------------------------------------------------------

    def close(self, last: int) -> None:
        """Read the frames up to one out of the table, as states; nothing is added to them any more."""
        positions, ends = self._closing(last)
        for start, stop in _runs(ends):
            self._closed[int(ends[start])] = self._open.states_at(positions[start:stop])
        for end in self._tables.ends_to(last):
            self._closed[end] = self._tables.states(end)
            self._forget(end)
        self._let_go(last, len(positions))

    def results(self, last: int, rows: int) -> Iterator[Batch]:
        """Give the results of the frames up to one, with their ends, some rows at a time, and forget these frames."""
        return self._taken(last, rows, self._open.results_at, self._tables.results_of)

    def taken(self, last: int, rows: int) -> Iterator[Batch]:
        """Give the states of the frames up to one, some rows at a time, and forget these frames."""
        return self._taken(last, rows, self._open.states_at, self._tables.states_of)

    def flushed(self, rows: int) -> Iterator[Batch]:
        """Give the states of all frames, some rows at a time, and forget them; rows may be added to them again."""
        if self.ends:
            positions, _ = self._closing(self.ends[-1])
            for at in range(0, len(positions), rows):
                yield self._open.states_at(positions[at : at + rows])
            own = self._tables.ends_to()
            for end in own:
                yield from self._tables.states_of(end, rows)
            self.ends.clear()
            for end in own:
                self._forget(end)
            self._make_anew(positions[:0])

    def _taken(
        self,
        last: int,
        rows: int,
        read: Callable[[Positions], Batch],
        read_own: Callable[[int, int], Iterator[Batch]],
    ) -> Iterator[Batch]:
        positions, _ = self._closing(last)
        for at in range(0, len(positions), rows):
            yield read(positions[at : at + rows])
        own = self._tables.ends_to(last)
        for end in own:
            yield from read_own(end, rows)
        for end in own:
            self._forget(end)
        del self.ends[: bisect_right(self.ends, last)]
        self._let_go(last, len(positions))

    def _forget(self, end: int) -> None:
        """Forget a frame's own table, but what it has learnt of the columns."""
        head = self._tables.remove(end)
        if head is None:
            return
        columns, masks = head.parts()
        form = [(name, column.dtype, name in masks) for name, column in columns.items()]
        if form != self._learnt:
            self._open.merge(head)
            self._learnt = form

    def _closing(self, last: int) -> tuple[Positions, Ends]:
        """Return the positions in the table of the groups of the frames up to one, by frame, and the frame of each."""
        count = bisect_right(self.ends, last) - bisect_right(self.ends, self._closed_to)
        if count <= 0 or len(self._open) == self._dead:
            return np.zeros(0, np.uint32), np.zeros(0, np.int64)
        words = self._open.key_words(0, 0)
        found = np.flatnonzero((words > self._closed_to) & (words <= last)).astype(np.uint32)
        ends = words[found]
        if count == 1:
            return found, ends
        order = np.argsort(ends, kind="stable")
        return found[order], ends[order]

    def _let_go(self, last: int, groups: int) -> None:
        """Note that the frames up to one, with so many groups, are closed; make the table anew where most is dead."""
        self._closed_to = max(self._closed_to, last)
        self._dead += groups
        live = len(self._open) - self._dead
        if self._dead >= live + LEAST_DEAD:
            self._make_anew(np.flatnonzero(self._open.key_words(0, 0) > self._closed_to).astype(np.uint32))

    def _make_anew(self, left: Positions) -> None:
        """Make the table anew, of the groups at some positions."""
        head = self._open.head()
        states = self._open.states_at(left)
        self._open = self.empty_table()
        self._dead = 0
        if head is not None:
            self._open.merge(head)
        if len(left):
            self._open.merge(states)

    # -- all of them ---------------------------------------------------------------------------------------------------

    def seen_now(self) -> FrameStates:
        """Return the states of all frames; the frames stay as they are."""
        found = dict(self._closed)
        if self.ends:
            positions, ends = self._closing(self.ends[-1])
            for start, stop in _runs(ends):
                found[int(ends[start])] = self._open.states_at(positions[start:stop])
            found |= {end: self._tables.states(end) for end in self._tables.ends_to()}
        return FrameStates(found)

    def empty_table(self) -> TypedGroups:
        """Return a table for `gather`."""
        return TypedGroups((FRAME, *self._keys), self._aggregates)

    def gather(self, into: TypedGroups) -> Iterator[None]:
        """Put all frames into an empty table, with the frame as first key; each item drawn is a step.

        Nothing may be added to the frames meanwhile.
        """
        yield from self._open.copy_steps()
        yield from self._tables.copy_steps()
        head = self._open.head()
        if head is not None:
            into.merge(head)
        for _, states in sorted(self._closed.items()):
            for at in range(0, states.num_rows, _GATHERED_ROWS):
                into.merge(states[at : at + _GATHERED_ROWS])
                yield None
        for at in range(0, len(self._open), _GATHERED_ROWS):
            states, _ = self._open.states(at, _GATHERED_ROWS)
            ends: Any = states.parts()[0][FRAME]
            is_open = ends > self._closed_to
            if is_open.any():  # no rows with a mask would say what a column is
                into.merge(states if is_open.all() else states.filter(is_open))
            yield None
        for end in self._tables.ends_to():
            for states in self._tables.states_of(end, _GATHERED_ROWS):
                into.merge(states)
                yield None

    def captured(self) -> FrameGroups:
        """Return the frames of this moment, for `gather` only, whatever is added to these."""
        made = FrameGroups(self._keys, self._aggregates, self._policy, self._time)
        made._open, made._closed, made._closed_to = self._open.captured(), dict(self._closed), self._closed_to
        made._tables = self._tables.captured()
        return made

    def put_back(self, groups: TypedGroups, above: int) -> None:
        """Take over a table that `gather` has filled; frames that end at `above` or before are left out.

        The frames are open, and nothing has been added before.
        """
        self._open = groups
        self._learnt = []
        self._closed_to = above
        words = groups.key_words(0, 0)
        self._dead = int((words <= above).sum())
        self.ends = np.unique(words[words > above]).tolist()


def _runs(values: Ends) -> list[tuple[int, int]]:
    """Return where runs of equal values start and stop."""
    if not len(values):
        return []
    bounds = [0, *(np.flatnonzero(values[1:] != values[:-1]) + 1).tolist(), len(values)]
    return list(pairwise(bounds))


def frames_of(stamps: Ends, policy: SlidingWindowPolicy) -> tuple[Ends, list[int]]:
    """Return the end of the frame of each timestamp, and which there are, ascending.

    Args:
        stamps: one or more.
        policy: of the frames.

    Example:
        >>> frames_of(np.array([5, 12, -1]), SlidingWindowPolicy(10, 10))
        (array([10, 20,  0]), [0, 10, 20])
    """
    low, high = int(stamps.min()), int(stamps.max())
    first, last = policy.higher_frame(low), policy.higher_frame(high)
    if first == last:
        return np.full(len(stamps), first, np.int64), [first]
    if low < -_FAR or high > _FAR:
        ends = np.array(list(map(policy.higher_frame, stamps.tolist())), np.int64)
        return ends, np.unique(ends).tolist()
    slide, base = policy.slide, first - policy.slide
    count = (last - first) // slide + 1
    if count == 2:
        return np.where(stamps < first, np.int64(first), np.int64(last)), [first, last]
    numbers = (stamps - base) // slide
    ends = numbers * slide
    ends += first
    if count > _SPARSE * len(stamps):
        return ends, np.unique(ends).tolist()
    is_there = np.zeros(count, np.bool_)
    is_there[numbers] = True
    return ends, (np.flatnonzero(is_there) * slide + first).tolist()
