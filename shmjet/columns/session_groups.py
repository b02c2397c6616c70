"""Groups of rows by session and key: what sessions on columns are made of.

A row at t is the interval `[t, t + gap)`; the rows of a key whose intervals overlap are a session. The rows of a batch
are sorted by key and time and cut into sessions, and these are joined with the open ones (`SessionIndex`). One group
table has all sessions, a number that no other session has being the first key; what has gone stays in it until it is
half of it. Must not know when sessions end, nor processors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from shmjet._native import _columns
from shmjet.columns.aggregates import Aggregate
from shmjet.columns.frame_groups import LEAST_DEAD, STAMP
from shmjet.columns.group_page import Positions
from shmjet.columns.session_index import Flags, Ints, SessionIndex
from shmjet.columns.typed_groups import TypedGroups
from shmjet.core.event_timestamps import column_timestamps
from shmjet.data.batch import Batch
from shmjet.data.column_descriptors import descriptor

SESSION: Final = "\0session"
"""The first key of the table: the number of a session."""

START: Final = "\0start"
END: Final = "\0end"
"""The first keys of all sessions in one table that outlives this one."""

_GATHERED: Final = 1024
"""Sessions that `gather` moves in a step."""

_SPARSE: Final = 4


class Sessions(NamedTuple):
    """Some sessions."""

    results: Batch
    """Their keys and aggregates."""
    starts: Ints
    ends: Ints


class SessionGroups:
    """Aggregates of rows by session and key.

    Args:
        keys: the key columns; there may be none.
        aggregates: result → aggregate; the order of one is `STAMP`, if it has one.
        gap: milliseconds without a row that end a session.
        time: the column with the timestamps of rows.

    Example:
        >>> from shmjet.columns.aggregates import count
        >>> groups = SessionGroups(["k"], {"n": count()}, 10, "ts")
        >>> groups.add(Batch({"ts": [1, 15, 6, 1], "k": ["a", "a", "a", "b"]}), -100)
        >>> [(each.results.to_dict(), each.starts.tolist(), each.ends.tolist()) for each in groups.closed(None, 9)]
        [({'k': ['b', 'a'], 'n': [1, 3]}, [1, 1], [11, 25])]
    """

    def __init__(self, keys: Sequence[str], aggregates: Mapping[str, Aggregate], gap: int, time: str) -> None:
        self._keys = tuple(keys)
        self._aggregates = dict(aggregates)
        self._gap = gap
        self._time = time
        self._is_in_order = any(each.order is not None for each in aggregates.values())
        self._open = TypedGroups((SESSION, *self._keys), self._aggregates)
        self._names = TypedGroups(self._keys, {})
        self._index = SessionIndex()
        self._ids, self._positions = np.zeros(0, np.int64), np.zeros(0, np.uint32)
        """By slot: the number of its session, and where that is in the table."""
        self._next_id = 0
        self._least: int | None = None
        """No session ends before; None: there is no session."""

    def __len__(self) -> int:
        return len(self._index)

    @property
    def least_end(self) -> int | None:
        """A time before which no session ends, and the least end after a call of `closed`; None: there is none."""
        return self._least

    # -- in ------------------------------------------------------------------------------------------------------------

    def add(self, batch: Batch, lowest: int) -> Batch | None:
        """Add the rows of a batch.

        Args:
            batch: rows with their timestamps.
            lowest: the first time that is not late.

        Returns:
            the rows that are late, which are not added; None: there are none.

        Raises:
            BatchError: a column is missing, has a wrong type or a null timestamp.
        """
        if not batch.num_rows:
            return None
        stamps = column_timestamps(batch, self._time)
        late = None
        if int(stamps.min()) < lowest:
            is_late = stamps < lowest
            late = batch.filter(is_late)
            if late.num_rows == batch.num_rows:
                return late
            batch, stamps = batch.filter(~is_late), stamps[~is_late]
        sessions = self._placed_rows(self._numbers(batch), stamps)
        columns, masks = batch.parts()
        hidden: dict[str, Any] = {SESSION: self._ids[sessions]}
        if self._is_in_order:
            hidden[STAMP] = stamps
        positions = np.empty(batch.num_rows, np.uint32)
        self._open.add(Batch.trusted({**columns, **hidden}, dict(masks), batch.num_rows), positions)
        self._positions[sessions] = positions
        self._tidy()
        return late

    def _numbers(self, batch: Batch) -> Positions:
        """Return the number of the key of each row."""
        numbers = np.zeros(batch.num_rows, np.uint32)
        if self._keys:
            self._names.add(batch.select(*self._keys), numbers)
        return numbers

    def _placed_rows(self, numbers: Positions, stamps: Ints) -> Ints:
        """Return the slot of the session of each row."""
        order = _sorted(numbers, stamps)
        keys, times = numbers[order], stamps[order]
        begins = np.ones(len(order), np.bool_)
        begins[1:] = (keys[1:] != keys[:-1]) | (times[1:] >= times[:-1] + self._gap)
        first = np.flatnonzero(begins)
        last = np.append(first[1:], len(order)) - 1
        slots = self._placed(keys[first].astype(np.int64), times[first], times[last] + self._gap)
        found = np.empty(len(order), np.int64)
        found[order] = np.repeat(slots, last - first + 1)
        return found

    def _placed(self, keys: Ints, starts: Ints, ends: Ints) -> Ints:
        """Return the slots of intervals, and join the states of sessions that become one."""
        placed = self._index.place(keys, starts, ends)
        more = self._index.room - len(self._ids)
        if more:
            self._ids = np.concatenate([self._ids, np.zeros(more, np.int64)])
            self._positions = np.concatenate([self._positions, np.zeros(more, np.uint32)])
        if len(placed.joined):
            states = self._open.states_at(self._positions[placed.joined])
            self._open.merge(_with_keys(states, (SESSION,), {SESSION: self._ids[placed.into]}))
        self._ids[placed.fresh] = np.arange(self._next_id, self._next_id + len(placed.fresh))
        self._next_id += len(placed.fresh)
        least = int(ends.min())
        self._least = least if self._least is None else min(self._least, least)
        return placed.slots

    # -- out -----------------------------------------------------------------------------------------------------------

    def closed(self, below: int | None, rows: int) -> Iterator[Sessions]:
        """Let the sessions go that end before a time, or all; give them by their ends, so many at a time, lazily.

        Nothing may be added before all are given.
        """
        slots, self._least = self._index.close(below)
        return self._read(slots, rows, is_last=True)

    def open_now(self, rows: int) -> Iterator[Sessions]:
        """Give the sessions that are open; they stay."""
        return self._read(self._index.open_slots(), rows, is_last=False)

    def _read(self, slots: Ints, rows: int, *, is_last: bool) -> Iterator[Sessions]:
        found = self._positions[slots], self._index.starts[slots], self._index.ends[slots]
        return self._given(*found, rows, is_last=is_last)

    def _given(self, positions: Positions, starts: Ints, ends: Ints, rows: int, *, is_last: bool) -> Iterator[Sessions]:
        for at in range(0, len(positions), rows):
            some = slice(at, at + rows)
            results = self._open.results_at(positions[some]).select(*self._keys, *self._aggregates)
            yield Sessions(results, starts[some], ends[some])
        if is_last:
            self._tidy()

    def _tidy(self) -> None:
        """Make the tables anew where most in them has gone."""
        most = 2 * len(self._index) + LEAST_DEAD
        if len(self._open) >= most:
            slots = self._index.open_slots()
            states = self._open.states_at(self._positions[slots])
            self._open = _anew(self._open, states, TypedGroups((SESSION, *self._keys), self._aggregates))
            self._positions[slots] = np.arange(len(slots), dtype=np.uint32)
        if len(self._names) >= most:
            kept = np.unique(self._index.keys[self._index.open_slots()])
            states = self._names.states_at(kept.astype(np.uint32))
            self._names = _anew(self._names, states, TypedGroups(self._keys, {}))
            self._index.renumber(kept)

    # -- all of them ---------------------------------------------------------------------------------------------------

    def empty_table(self) -> TypedGroups:
        """Return a table for `gather`."""
        return TypedGroups((START, END, *self._keys), self._aggregates)

    def gather(self, into: TypedGroups) -> Iterator[None]:
        """Put all sessions of this moment into an empty table, with their starts and ends as first keys.

        Each item drawn is a step; whatever is added meanwhile is left out.
        """
        index = self._index  # whole arrays are copied, which is faster than to look for the sessions that are open
        found = self._positions.copy(), index.starts.copy(), index.ends.copy()
        return _gathered(self._open.captured(), index.is_open.copy(), *found, into)

    def put_back(self, groups: TypedGroups) -> None:
        """Take over a table that `gather` has filled; sessions of a key that overlap become one. There are none yet."""
        head = groups.head()
        if head is None:
            return
        self._open.merge(_with_keys(head, (START, END), {SESSION: np.zeros(0, np.int64)}))
        if not len(groups):
            return
        states, _ = groups.states(0, len(groups))
        starts, ends, numbers = groups.key_words(0, 0), groups.key_words(1, 0), self._numbers(states)
        order = np.lexsort((starts, numbers))
        slots = np.empty(len(order), np.int64)
        slots[order] = self._placed(numbers[order].astype(np.int64), starts[order], ends[order])
        self._open.merge(_with_keys(states, (START, END), {SESSION: self._ids[slots]}))
        positions = np.empty(self._next_id, np.uint32)
        positions[self._open.key_words(0, 0)] = np.arange(self._next_id, dtype=np.uint32)
        self._positions[slots] = positions[self._ids[slots]]


def _gathered(
    groups: TypedGroups, is_open: Flags, positions: Positions, starts: Ints, ends: Ints, into: TypedGroups
) -> Iterator[None]:
    yield from groups.copy_steps()
    slots = np.flatnonzero(is_open)
    yield
    head = groups.head()
    if head is None:
        return
    nothing = np.zeros(0, np.int64)
    into.merge(_with_keys(head, (SESSION,), {START: nothing, END: nothing}))
    for at in range(0, len(slots), _GATHERED):
        some = slots[at : at + _GATHERED]
        into.merge(_with_keys(groups.states_at(positions[some]), (SESSION,), {START: starts[some], END: ends[some]}))
        yield


def _with_keys(states: Batch, gone: Sequence[str], made: Mapping[str, Ints]) -> Batch:
    """Return states with other first keys."""
    columns, masks = states.parts()
    valid = {name: mask for name, mask in masks.items() if name not in gone}
    if not states.num_rows:  # the mask of a head says that values have shown what a column is
        valid |= dict.fromkeys(made, np.zeros(0, np.bool_))
    rest = {name: values for name, values in columns.items() if name not in gone}
    return Batch.trusted({**made, **rest}, valid, states.num_rows)


def _anew(before: TypedGroups, states: Batch, empty: TypedGroups) -> TypedGroups:
    """Return a table of some of the groups of another one."""
    head = before.head()
    if head is not None:
        empty.merge(head)
    if states.num_rows:
        empty.merge(states)
    return empty


def _sorted(numbers: Positions, stamps: Ints) -> Ints:
    """Return the order of rows by the number of their key, then by time."""
    order: npt.NDArray[Any]
    columns = [descriptor(numbers, None)]
    if (stamps[1:] >= stamps[:-1]).all():
        if int(numbers.max()) < _SPARSE * len(numbers):
            sizes = np.bincount(numbers)
            order = np.empty(len(numbers), np.uint32)
            _columns.bucket_rows(numbers, 0, len(numbers), (np.cumsum(sizes) - sizes).astype(np.uint32), order)
            return order
    else:
        columns.append(descriptor(stamps, None))
    order = np.empty(len(numbers), np.int64)
    _columns.argsort(columns, [False] * len(columns), False, order, -1)
    return order
