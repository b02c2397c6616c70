"""The table that a join keeps in memory: the items of one side by their keys.

Must not know: edges and results. Most tables have one item for most keys, so the first item of a key lies in a dict of
its own: a list for each key would take 80 bytes more, and be one more container for the garbage collector to look at.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, repeat
from typing import Any, Final

_CHUNK = 64
"""Items that are saved together."""


class _Nothing:
    __slots__ = ()

    def __reduce__(self) -> str:
        return "NOTHING"  # the one of this module, wherever it is unpickled


NOTHING: Final = _Nothing()
"""Stands for no match, as any object may be an item."""


class MatchTable:
    """Items by key, each key with one or several.

    A dict entry for each key; a key with several items also has a list of them.

    Example:
        >>> table = MatchTable()
        >>> table.add("aab", [1, 2, 3])
        >>> table.matches("a"), table.matches("b"), table.matches("c")
        ([1, 2], (3,), ())
        >>> table.is_unique
        False
    """

    __slots__ = ("_first", "_several")

    def __init__(self) -> None:
        self._first: dict[Any, Any] = {}
        self._several: dict[Any, list[Any]] = {}

    @property
    def is_unique(self) -> bool:
        """True while no key has several items."""
        return not self._several

    def add(self, keys: Iterable[Any], items: Sequence[Any]) -> None:
        """Add items, each with its key, in order.

        Raises:
            TypeError: a key cannot be hashed.
        """
        keys = keys if isinstance(keys, list) else list(keys)
        if len(keys) != len(items):
            raise ValueError(f"{len(keys)} keys for {len(items)} items")
        first = self._first
        before = len(first)
        try:
            deque(map(first.setdefault, keys, items), 0)  # all in C, and each key is looked up once
        except BaseException:
            for key in list(islice(reversed(first), len(first) - before)):
                del first[key]
            raise
        entered = len(first) - before
        if entered == len(items):
            return
        fresh = set(islice(reversed(first), entered))  # a dict keeps the order in which keys came
        several = self._several
        for key, item in zip(keys, items, strict=True):
            if key in fresh:
                fresh.remove(key)  # this is its first item
            elif key in several:
                several[key].append(item)
            else:
                several[key] = [first[key], item]

    def matches(self, key: Any, default: Sequence[Any] = ()) -> Sequence[Any]:
        """Return the items of a key in the order in which they came, `default` when it has none."""
        item = self._first.get(key, NOTHING)
        if item is NOTHING:
            return default
        return self._several.get(key) or (item,)

    def firsts(self, keys: Iterable[Any]) -> Iterable[Any]:
        """Return the first item of each of some keys, lazily; `NOTHING` for keys without items."""
        return map(self._first.get, keys, repeat(NOTHING))

    def chunks(self) -> Iterator[tuple[list[Any], list[Any]]]:
        """Yield all items with their keys, a few at a time, those of a key in their order; what `add` takes back.

        Example:
            >>> table = MatchTable()
            >>> table.add("aab", [1, 2, 3])
            >>> list(table.chunks())
            [(['a', 'a', 'b'], [1, 2, 3])]
        """
        keys: list[Any] = []
        items: list[Any] = []
        several = self._several
        for key, item in self._first.items():
            there = several.get(key)
            if there is None:
                keys.append(key)
                items.append(item)
            else:
                for each in there:
                    keys.append(key)
                    items.append(each)
                    if len(keys) == _CHUNK:
                        yield keys, items
                        keys, items = [], []
            if len(keys) >= _CHUNK:
                yield keys, items
                keys, items = [], []
        if keys:
            yield keys, items
