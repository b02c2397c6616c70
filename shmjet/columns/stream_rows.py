"""The rows of one side of a join of streams on columns, found by key and time. After `processors.time.join_side`.

Rows are in runs. A run is sorted by the number of the key and the time, both in one integer, so that all rows of a key
in a span of time are found by two searches. Small runs are joined, so that there are few; a run is forgotten as a
whole. Must not know results, nor what keys are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from shmjet.columns.group_page import Positions
from shmjet.columns.schemas import Kind
from shmjet.columns.stream_kinds import StreamKinds
from shmjet.columns.take import Rows, take_rows
from shmjet.data.batch import Batch

Stamps = npt.NDArray[np.int64]
Marks = npt.NDArray[np.bool_]

LEAST_RUN: Final = 4096
"""Runs of fewer rows are joined, whatever time they span."""

STEP_ROWS: Final = 1 << 16
"""Pairs that are given at once."""

MATCHED: Final = "\0matched"
"""The column of saved rows that tells which have had a match."""

_NO_MARKS: Final = np.zeros(0, np.bool_)
_NEVER: Final = 1 << 63
_WIDEST: Final = 1 << 60
"""Numbers beyond are counted in Python's integers."""


class SortedRows(NamedTuple):
    """Some rows."""

    rows: Batch
    numbers: Positions
    """Of the key of each row."""
    stamps: Stamps
    low: int
    high: int
    """The least and the greatest time."""
    places: npt.NDArray[Any]
    """What each row is sorted by, ascending."""
    order: Rows
    """The number of the row that has each place."""
    matched: Marks
    """Which rows have had a match, or have come out without one; as long as `rows` where that is asked for."""
    number: int
    """Of the run: no other one of its side has it, as long as there are these rows in it."""


class Pairs(NamedTuple):
    """Some pairs of rows."""

    given: Rows
    """Which of the rows that were looked up."""
    run: SortedRows
    found: Rows
    """Which rows of the run."""


class _Sought(NamedTuple):
    """Rows that are looked up."""

    numbers: npt.NDArray[np.int64]
    stamps: Stamps
    low: int
    high: int
    """The least and the greatest time."""
    keys: int
    """All numbers of keys are below."""


def _sought(numbers: Positions, stamps: Stamps) -> _Sought:
    return _Sought(numbers.astype(np.int64), stamps, int(stamps.min()), int(stamps.max()), int(numbers.max()) + 1)


class StreamRows:
    """The rows of one side.

    Args:
        within: how far apart the times of rows that match may be, in milliseconds.
        keeps_unmatched: rows are told that have had no match when they are forgotten.

    Example:
        >>> side = StreamRows(10)
        >>> side.add(Batch({"v": ["x", "y"]}), np.zeros(2, np.uint32), np.array([100, 115]))
        >>> [pairs.run.rows.take(pairs.found).to_dict() for pairs in side.near(np.zeros(1, np.uint32), np.array([120]))]
        [{'v': ['y']}]
    """

    def __init__(self, within: int, keeps_unmatched: bool = False) -> None:
        self._within = within
        self.keeps_unmatched = keeps_unmatched
        self._kinds = StreamKinds()
        self._runs: list[SortedRows] = []
        self._next = 0
        self._limit = -_NEVER
        self._oldest = _NEVER
        """No run has a greatest time below."""
        self.forgotten = 0
        """Rows that have been added and are here no more."""

    @property
    def num_rows(self) -> int:
        """Rows that are kept."""
        return sum(run.rows.num_rows for run in self._runs)

    @property
    def kinds(self) -> dict[str, Kind]:
        """The kinds of the columns; empty before the first batch."""
        return self._kinds.kinds

    def head(self) -> Batch | None:
        """Return a batch without rows that tells the columns; None before the first batch."""
        return self._kinds.head() if self._kinds.kinds else None

    def tell(self, head: Batch) -> None:
        """Note the columns of what comes, by a batch that `head` gave."""
        self._kinds.add(head)

    def add(self, rows: Batch, numbers: Positions, stamps: Stamps, matched: Marks = _NO_MARKS) -> None:
        """Add rows with the numbers of their keys, and their times. Raises BatchError when the columns differ.

        Args:
            rows, numbers, stamps: equally many.
            matched: which of them have had a match, with `keeps_unmatched`.
        """
        self._kinds.add(rows)
        if not rows.num_rows:
            return
        runs = self._runs
        runs.append(self._made(rows, numbers, stamps, matched))
        while len(runs) > 1 and self._may_join(runs[-2], runs[-1]):
            one, two = runs[-2:]
            del runs[-2:]
            self.forgotten += one.rows.num_rows + two.rows.num_rows
            if min(one.low, two.low) >= self._limit:
                runs.append(self._joined(one, two))
                self.forgotten -= one.rows.num_rows + two.rows.num_rows
                continue
            lasting = _lasting(one, self._limit), _lasting(two, self._limit)
            parts = [part for part in lasting if part[0].num_rows]
            if parts:
                batches, *others = zip(*parts, strict=True)
                whole = Batch.concat([self._kinds.of(batch) for batch in batches])
                runs.append(self._made(whole, *map(np.concatenate, others)))
                self.forgotten -= whole.num_rows

    def _made(self, rows: Batch, numbers: Positions, stamps: Stamps, matched: Marks) -> SortedRows:
        self._next += 1
        made = _run(rows, numbers, stamps, matched, self._next)
        self._oldest = min(self._oldest, made.high)
        return made

    def _joined(self, one: SortedRows, two: SortedRows) -> SortedRows:
        """Return all rows of two runs as one."""
        self._next += 1
        numbers, stamps = np.concatenate((one.numbers, two.numbers)), np.concatenate((one.stamps, two.stamps))
        rows = Batch.concat([self._kinds.of(one.rows), self._kinds.of(two.rows)])
        order = np.concatenate((one.order, two.order + one.rows.num_rows))
        return _run(rows, numbers, stamps, np.concatenate((one.matched, two.matched)), self._next, order)

    def _may_join(self, one: SortedRows, two: SortedRows) -> bool:
        if one.rows.num_rows > 2 * two.rows.num_rows:
            return False
        is_small = one.rows.num_rows < LEAST_RUN
        return is_small or max(one.high, two.high) - min(one.low, two.low) <= self._within

    def may_expire(self, limit: int) -> bool:
        """Say whether rows before a time may have had no match."""
        return self.keeps_unmatched and any(run.low < limit for run in self._runs)

    def unmatched(self, limit: int) -> Iterator[tuple[Batch, Stamps]]:
        """Give the rows before a time that have had no match, with their times; each of them once."""
        if not self.keeps_unmatched:
            return
        for run in list(self._runs):
            if run.low < limit:
                rows = np.flatnonzero((run.stamps < limit) & (run.stamps >= self._limit) & ~run.matched)
                if len(rows):
                    run.matched[rows] = True  # what is captured from now on has come out
                    yield take_rows(run.rows, rows), run.stamps[rows]

    def forget(self, limit: int) -> None:
        """Let rows before a time go; some stay a little longer, as they go in runs."""
        self._limit = max(self._limit, limit)
        if limit > self._oldest:
            before = self.num_rows
            self._runs = [run for run in self._runs if run.high >= limit]
            self._oldest = min((run.high for run in self._runs), default=_NEVER)
            self.forgotten += before - self.num_rows

    def near(self, numbers: Positions, stamps: Stamps) -> Iterator[Pairs]:
        """Give the pairs of rows that are looked up and rows here, of equal keys and times that are close, in steps.

        They are those of the rows that are here when it is called, whatever is added before they are drawn.

        Args:
            numbers: of the keys of the rows that are looked up; one or more.
            stamps: their times.
        """
        sought = _sought(numbers, stamps)
        return self._near(self._close(sought), sought)

    def have_near(self, numbers: Positions, stamps: Stamps) -> Marks:
        """Tell of each row that is looked up whether a row here matches it; arguments as of `near`."""
        found = np.zeros(len(numbers), np.bool_)
        if len(numbers):
            sought = _sought(numbers, stamps)
            for run in self._close(sought):
                first, stop = self._found(run, sought)
                found |= stop > first
        return found

    def _close(self, sought: _Sought) -> list[SortedRows]:
        low, high = sought.low - self._within, sought.high + self._within
        return [run for run in self._runs if run.low <= high and low <= run.high]

    def _near(self, runs: list[SortedRows], sought: _Sought) -> Iterator[Pairs]:
        for run in runs:
            first, stop = self._found(run, sought)
            counts = np.maximum(stop - first, 0)
            ends = np.cumsum(counts)
            total = int(ends[-1])
            shifts = first - ends + counts if total else ends
            for at in range(0, total, STEP_ROWS):
                pairs = np.arange(at, min(at + STEP_ROWS, total))
                given = np.searchsorted(ends, pairs, "right")
                rows = run.order[pairs + shifts[given]]
                if self.keeps_unmatched:
                    run.matched[rows] = True
                yield Pairs(given, run, rows)

    def _found(self, run: SortedRows, sought: _Sought) -> tuple[Rows, Rows]:
        """Return the first place in a run of the rows that match each row, and the place after the last one."""
        within, span = self._within, run.high - run.low + 1
        edge = max(abs(sought.low), abs(sought.high), abs(run.low), abs(run.high)) + within
        is_wide = edge >= _WIDEST or sought.keys * span >= _WIDEST or run.places.dtype == object
        numbers: Any = sought.numbers.astype(object) if is_wide else sought.numbers
        shifts = numbers * span
        begin: Any = 0
        end: Any = span - 1
        if sought.high - within > run.low or sought.low + within < run.high:  # else the times of all rows are close
            times = (sought.stamps.astype(object) if is_wide else sought.stamps) - run.low
            begin = np.minimum(np.maximum(times - within, 0), span)
            end = np.minimum(np.maximum(times + within, -1), span - 1)
        first = np.searchsorted(run.places, shifts + begin, "left")
        return first, np.searchsorted(run.places, shifts + end, "right")

    def batches(self) -> Iterator[tuple[int | None, Batch]]:
        """Give all rows that may still match, and others; those of the moment of the call, whatever comes meanwhile.

        With `keeps_unmatched` the marks are a column `MATCHED`. With each batch comes the number of its run, or None
        where rows of the run are left out, or where it has marks, which change.
        """
        runs = [run._replace(matched=run.matched.copy()) for run in self._runs]  # marks change in place
        return self._lasting_of(runs, self._limit, self._kinds.copy())

    @staticmethod
    def _lasting_of(runs: list[SortedRows], limit: int, kinds: StreamKinds) -> Iterator[tuple[int | None, Batch]]:
        for run in runs:
            rows, _, _, matched = _lasting(run, limit)
            found = kinds.of(rows)
            if len(run.matched):
                columns, masks = found.parts()
                yield None, Batch.trusted({**columns, MATCHED: matched}, masks, rows.num_rows)
            else:
                yield run.number if run.low >= limit else None, found

    def used(self, count: int) -> npt.NDArray[np.bool_]:
        """Tell of each of so many numbers whether a row has it."""
        found = np.zeros(count, np.bool_)
        for run in self._runs:
            found[run.numbers] = True
        return found

    def renumber(self, places: Positions) -> None:
        """Give each row the number that stands at the place of its own number; their order stays as it is."""
        self._runs = [_run(run.rows, places[run.numbers], run.stamps, run.matched, run.number) for run in self._runs]


def _lasting(run: SortedRows, limit: int) -> tuple[Batch, Positions, Stamps, Marks]:
    """Return the rows of a run from a time on, with their keys, times and marks."""
    if run.low >= limit:
        return run.rows, run.numbers, run.stamps, run.matched
    rows = np.flatnonzero(run.stamps >= limit)
    matched = run.matched[rows] if len(run.matched) else run.matched
    return take_rows(run.rows, rows), run.numbers[rows], run.stamps[rows], matched


def _run(
    rows: Batch, numbers: Positions, stamps: Stamps, matched: Marks, number: int, order: Rows | None = None
) -> SortedRows:
    """Return rows as a run; `order`: they are in a few pieces that are sorted by it, which are only to be merged."""
    low, high = int(stamps.min()), int(stamps.max())
    span = high - low + 1
    is_wide = max(abs(low), abs(high)) >= _WIDEST or (int(numbers.max()) + 1) * span >= _WIDEST
    kind: Any = object if is_wide else np.int64
    by_number, by_time = (numbers, stamps) if order is None else (numbers[order], stamps[order])
    places = by_number.astype(kind) * span + (by_time.astype(kind) - low)
    sorting = np.argsort(places, kind="stable")
    ordered = sorting if order is None else order[sorting]
    return SortedRows(rows, numbers, stamps, low, high, places[sorting], ordered, matched, number)
