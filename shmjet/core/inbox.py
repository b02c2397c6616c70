"""The inbox: a batch of items that waits for one processor.

A list and a cursor, filled whole by the engine and emptied by the processor. It knows nothing of where items come
from. `take` gives the whole batch away at once, which is how bulk processors read it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any


class Inbox:
    """Items that a processor takes in order; what it leaves is offered again before anything else comes.

    Example:
        >>> inbox = Inbox()
        >>> inbox.fill([1, 2, 3])
        >>> inbox.poll(), len(inbox), inbox.take(), bool(inbox)
        (1, 2, [2, 3], False)
    """

    __slots__ = ("_items", "_pos")

    def __init__(self) -> None:
        self._items: list[Any] = []
        self._pos = 0

    def fill(self, items: list[Any]) -> None:
        """Put a batch in; for the engine. The list belongs to the inbox from now on. O(1).

        Raises:
            ValueError: there are items left.
        """
        if self._pos < len(self._items):
            raise ValueError(f"the inbox holds {len(self)} items; it is filled only when it is empty")
        self._items = items
        self._pos = 0

    def __len__(self) -> int:
        return len(self._items) - self._pos

    def __bool__(self) -> bool:
        return self._pos < len(self._items)

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the items without removing them."""
        return islice(self._items, self._pos, None) if self._pos else iter(self._items)

    def peek(self) -> Any:
        """Return the next item without removing it; None when there is none."""
        return self._items[self._pos] if self._pos < len(self._items) else None

    def poll(self) -> Any:
        """Remove and return the next item; None when there is none."""
        pos = self._pos
        items = self._items
        if pos < len(items):
            self._pos = pos + 1
            return items[pos]
        return None

    def remove(self) -> Any:
        """Remove and return the next item.

        Raises:
            IndexError: the inbox is empty.
        """
        if self._pos >= len(self._items):
            raise IndexError("remove() from an empty inbox; look at len(inbox) or use poll()")
        return self.poll()

    def take(self, limit: int | None = None) -> list[Any]:
        """Remove the items and return them as a list of the caller's own.

        Args:
            limit: at most that many; all by default, which costs nothing when none has been removed before.
        """
        items, pos = self._items, self._pos
        left = len(items) - pos
        if limit is None or limit >= left:
            self._items = []
            self._pos = 0
            return items[pos:] if pos else items
        limit = max(limit, 0)
        self._pos = pos + limit
        return items[pos : pos + limit]

    def drain(self, fn: Callable[[Any], Any]) -> int:
        """Call `fn` with each item, removing it first; return how many there were."""
        items = self.take()
        for item in items:
            fn(item)
        return len(items)

    def drain_to(self, target: list[Any], limit: int | None = None) -> int:
        """Move all items, or at most `limit`, to the end of the list `target`; return how many.

        Example:
            >>> inbox, rows = Inbox(), []
            >>> inbox.fill(["a", "b", "c"])
            >>> inbox.drain_to(rows, 2), rows
            (2, ['a', 'b'])
        """
        items = self.take(limit)
        target += items
        return len(items)

    def clear(self) -> None:
        """Remove all items."""
        self._items = []
        self._pos = 0

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self)!r})"
