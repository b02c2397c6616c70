"""Which states have not been touched for so long that they expire: a queue of timers in event time. Pure.

Each state has one timer. A touch notes its time in the state and leaves the timer where it is; a timer that is due
looks at the state and is set anew when that was touched meanwhile. So a touch costs nothing, a state's timer is moved
once per time to live at most, and a watermark pays for what expires. Jet looks through a map in order of access, where
an expired state waits behind any state that was touched before it by a later event.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Any

_WIDTHS = 64
"""Timers within a so many-th part of the time to live lie together, unsorted until the first of them is due."""


class Cell:
    """The state of a key.

    Args:
        key: whose it is.
        state: the user's.
        touched: event time of the latest item, in milliseconds.
        order: grows with each touch of any state.
    """

    __slots__ = ("key", "order", "state", "touched")

    def __init__(self, key: Any, state: Any, touched: int, order: int) -> None:
        self.key = key
        self.state = state
        self.touched = touched
        self.order = order


class ExpiryQueue:
    """The timers of states.

    Args:
        ttl: time to live in milliseconds.

    Example:
        >>> queue = ExpiryQueue(10)
        >>> queue.add(Cell("a", None, 7, 0)); queue.add(Cell("b", None, 5, 1))
        >>> [cell.key for cell in queue.expired(8)]
        ['b', 'a']
    """

    def __init__(self, ttl: int) -> None:
        self._width = max(1, ttl // _WIDTHS)
        self._spans: dict[int, list[Cell]] = {}
        self._starts: list[int] = []  # a heap of the spans' numbers
        self._due: list[tuple[int, int, int, Cell]] = []  # a heap of the cells of spans that are due
        self._pushed = 0

    def add(self, cell: Cell) -> None:
        """Set the timer of a state. O(1), but for the first in a span of time."""
        number = cell.touched // self._width
        span = self._spans.get(number)
        if span is None:
            self._spans[number] = [cell]
            heappush(self._starts, number)
        else:
            span.append(cell)

    def may_expire(self, limit: int) -> bool:
        """Say whether `expired` may yield something. O(1).

        Args:
            limit: in milliseconds.
        """
        due, starts = self._due, self._starts
        return bool((due and due[0][0] < limit) or (starts and starts[0] * self._width < limit))

    def expired(self, limit: int) -> Iterator[Cell]:
        """Yield the states that were last touched before a time, the least recently touched first, and forget them.

        Of equal times the order of touches counts. It may be left unfinished; the rest comes next time.

        Args:
            limit: in milliseconds.
        """
        due, starts, width = self._due, self._starts, self._width
        while True:
            while starts and starts[0] * width < limit:
                for cell in self._spans.pop(heappop(starts)):
                    self._set(cell, limit)
            if not due or due[0][0] >= limit:
                return
            touched, order, _, cell = heappop(due)
            if cell.touched == touched and cell.order == order:
                yield cell
            else:
                self._set(cell, limit)

    def _set(self, cell: Cell, limit: int) -> None:
        if cell.touched // self._width * self._width < limit:
            self._pushed += 1  # cells cannot be compared
            heappush(self._due, (cell.touched, cell.order, self._pushed, cell))
        else:
            self.add(cell)
