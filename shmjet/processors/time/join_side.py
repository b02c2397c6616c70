"""The rows of one side of a join of streams, by key and time. Pure.

A row is found by key and a span of time, and goes when its time has passed. Must not know: results.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from operator import itemgetter
from typing import Any

_SPANS = 64
"""Rows go in steps of a so many-th part of the time for which they are kept."""

_CHUNK = 64
"""Rows of a key that are saved together."""

TIME, ITEM, ORDER, KEY, IS_MATCHED = range(5)
"""Places in a row that waits for a match, a list. Other rows are timed items, with the same first two places."""

_time_of = itemgetter(TIME)


class JoinSide:
    """The rows of one side.

    Args:
        within: how far apart the times of rows that match may be, in milliseconds.
        keeps_unmatched: rows without a match are results, too.

    Example:
        >>> side = JoinSide(10, False)
        >>> side.add("a", (100, "x"), 0); side.add("a", (115, "y"), 1)
        >>> side.between("a", 105, 125)
        [(115, 'y')]
    """

    def __init__(self, within: int, keeps_unmatched: bool) -> None:
        self.keeps_unmatched = keeps_unmatched
        self._keys: dict[Any, list[Any]] = {}
        self._width = max(1, within // _SPANS)
        self._spans: dict[int, set[Any]] = {}  # the keys with rows in each span of time
        self._starts: list[int] = []  # a heap of the spans' numbers
        self._waiting: dict[int, list[Any]] = {}  # the rows that wait for a match, in spans, too
        self._waiting_starts: list[int] = []
        self._due: list[tuple[int, int, Any]] = []  # a heap of the rows of spans that are due

    def __len__(self) -> int:
        return sum(map(len, self._keys.values()))

    def add(self, key: Any, pair: tuple[int, Any], order: int, is_matched: bool = False) -> None:
        """Add a row.

        Args:
            key: its key; rows with None match nothing.
            pair: the timed item.
            order: grows from row to row.
            is_matched: it has had a match.
        """
        row: Any = pair
        time = pair[0]
        number = time // self._width
        if self.keeps_unmatched:
            row = [time, pair[1], order, key, is_matched]
            if not is_matched:
                self._wait(number, row)
        rows = self._keys.get(key)
        if rows is None:
            self._keys[key] = [row]
        elif time >= rows[-1][0]:
            rows.append(row)
        else:
            rows.insert(bisect_right(rows, time, key=_time_of), row)
        span = self._spans.get(number)
        if span is None:
            self._spans[number] = {key}
            heappush(self._starts, number)
        else:
            span.add(key)

    def _wait(self, number: int, row: Any) -> None:
        span = self._waiting.get(number)
        if span is None:
            self._waiting[number] = [row]
            heappush(self._waiting_starts, number)
        else:
            span.append(row)

    def between(self, key: Any, low: int, high: int) -> Sequence[Any]:
        """Return the rows of a key whose times are in a span, both ends included, by time; of equal times as they came.

        The answer holds until the next row is added.
        """
        rows = self._keys.get(key)
        if rows is None:
            return ()
        first, last = rows[0][0], rows[-1][0]
        if first >= low and last <= high:
            return rows
        if first > high or last < low:
            return ()
        return rows[bisect_left(rows, low, key=_time_of) : bisect_right(rows, high, key=_time_of)]

    def may_expire(self, limit: int) -> bool:
        """Say whether `expired` may yield something. O(1).

        Args:
            limit: in milliseconds.
        """
        due, starts = self._due, self._waiting_starts
        return bool((due and due[0][0] < limit) or (starts and starts[0] * self._width < limit))

    def expired(self, limit: int) -> Iterator[Any]:
        """Yield the rows before a time that have had no match, by time; each once, but for a restore.

        Args:
            limit: in milliseconds.
        """
        due, starts = self._due, self._waiting_starts
        while starts and starts[0] * self._width < limit:
            for row in self._waiting.pop(heappop(starts)):
                if not row[IS_MATCHED]:
                    heappush(due, (row[TIME], row[ORDER], row))
        while due and due[0][0] < limit:
            row = heappop(due)[2]
            if not row[IS_MATCHED]:
                yield row

    def forget(self, limit: int) -> None:
        """Let rows before a time go; some stay a little longer, as they go in spans of time."""
        keys, width, starts = self._keys, self._width, self._starts
        while starts and (starts[0] + 1) * width <= limit:
            for key in self._spans.pop(heappop(starts)):
                rows = keys.get(key)
                if rows is None:
                    continue
                if rows[-1][0] < limit:
                    del keys[key]
                elif rows[0][0] < limit:
                    del rows[: bisect_left(rows, limit, key=_time_of)]

    def chunks(self) -> Iterator[tuple[Any, list[tuple[Any, ...]]]]:
        """Yield all rows by key, a few at a time: (key, arguments of `add` after the key)."""
        for key, rows in self._keys.items():
            for start in range(0, len(rows), _CHUNK):
                chunk = rows[start : start + _CHUNK]
                if self.keeps_unmatched:
                    yield key, [((row[TIME], row[ITEM]), row[ORDER], row[IS_MATCHED]) for row in chunk]
                else:
                    yield key, [(pair, 0) for pair in chunk]
