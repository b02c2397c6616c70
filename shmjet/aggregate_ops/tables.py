"""Tables from keys to accumulators, other than dicts: native ones, and those of composed operations.

Must not know: what an operation computes. A table keeps its keys in the order in which they first came, and takes as
keys whatever a dict takes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from typing import Any

from shmjet._native import Tally, Totals

ABSENT: Any = object()
"""Stands for "no accumulator", because None may be one."""

_CHUNK = 4096


class KeyedTable(ABC):
    """As much of a dict as the processors and composed operations need."""

    __slots__ = ()

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def items(self) -> Iterable[tuple[Any, Any]]:
        """Return the (key, accumulator) pairs, lazily."""

    @abstractmethod
    def get(self, key: Any, default: Any = None) -> Any:
        """Return the accumulator of a key."""

    @abstractmethod
    def touch(self, keys: Iterable[Any]) -> None:
        """Give each key that has none a fresh accumulator."""

    @abstractmethod
    def put(self, pairs: list[tuple[Any, Any]]) -> None:
        """Enter (key, accumulator) pairs, of keys that have none."""


def put_pairs(table: Any, pairs: list[tuple[Any, Any]]) -> None:
    """Enter (key, accumulator) pairs into a dict or another table, whose keys they are not yet."""
    if isinstance(table, KeyedTable):
        table.put(pairs)
    else:
        table.update(pairs)


class NativeTable(KeyedTable):
    """A native table with numbers inside.

    Args:
        pairs: (key, accumulator) pairs to begin with.
    """

    __slots__ = ("native",)

    make: Callable[[], Tally | Totals]
    content: str
    """What the accumulators are, for an error's text."""

    def __init__(self, pairs: Iterable[tuple[Any, Any]] = ()) -> None:
        self.native = type(self).make()
        self.add_pairs(list(pairs))

    def __len__(self) -> int:
        return len(self.native)

    def add_pairs(self, pairs: list[tuple[Any, Any]]) -> None:
        """Combine (key, accumulator) pairs with what is there.

        Raises:
            TypeError: an item is not a `(key, accumulator)` pair.
        """
        taken = self.native.add_pairs(pairs)
        if taken < len(pairs):
            raise TypeError(f"expected (key, accumulator) pairs with {self.content}, got {pairs[taken]!r:.200}")

    def items(self, start: int = 0) -> Iterator[tuple[Any, Any]]:
        """Return the (key, accumulator) pairs in the order in which their keys came, from number `start` on."""
        return chain.from_iterable(self._chunks(start))

    def _chunks(self, position: int) -> Iterator[list[tuple[Any, Any]]]:
        while position >= 0:
            pairs, position = self.native.chunk(position, _CHUNK)
            yield pairs

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the accumulator of a key."""
        return self.native.get(key, default)

    def put(self, pairs: list[tuple[Any, Any]]) -> None:
        """As `add_pairs`."""
        self.add_pairs(pairs)

    def append(self, pair: tuple[Any, Any]) -> None:
        """Combine one (key, accumulator) pair; for pickle."""
        self.add_pairs([pair])

    def extend(self, pairs: list[tuple[Any, Any]]) -> None:
        """As `add_pairs`; for pickle."""
        self.add_pairs(list(pairs))

    def __reduce__(self) -> tuple[Any, ...]:
        # As a flow of pairs: a caller that wants only small tables can stop it before there is a copy of a large one.
        return type(self), (), None, self.items()


class Counts(NativeTable):
    """The table of `counting`."""

    __slots__ = ()

    native: Tally
    make = Tally
    content = "an int of 64 bits"

    def touch(self, keys: Iterable[Any]) -> None:
        """Count each key no times."""
        self.add_pairs([(key, 0) for key in keys])


class _Numbers(NativeTable):
    """The table of an operation that puts a number to a key."""

    __slots__ = ()

    native: Totals

    def touch(self, keys: Iterable[Any]) -> None:
        """Enter the keys that are not there."""
        self.native.touch(keys)


class Sums(_Numbers):
    """The table of `summing`."""

    __slots__ = ()

    make = partial(Totals, "sum")
    content = "a number"


class Means(_Numbers):
    """The table of `averaging`."""

    __slots__ = ()

    make = partial(Totals, "mean")
    content = "a tuple of a number and an int of 64 bits"


class Least(_Numbers):
    """The table of `min_by`."""

    __slots__ = ()

    make = partial(Totals, "min")
    content = "an item or None"


class Most(_Numbers):
    """The table of `max_by`."""

    __slots__ = ()

    make = partial(Totals, "max")
    content = "an item or None"
