"""Keeping a map within its limits after a write: its weight, and the length of its journal.

Both belong to the map, which lies in several environments; so this looks at all of them, and each removal is a
transaction in one of them. Functions of tables, which tell what they have.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

STRIDES = 16
"""One part in so many of a journal's capacity may be written before the length of the journal is looked at."""


class Part(Protocol):
    """A map in one environment."""

    def weight(self) -> int:
        """Return the bytes of its entries."""

    def longest_unused(self) -> float:
        """Return when the entry that is the first to be evicted was used last; infinity when there is none."""

    def evict(self) -> bool:
        """Remove that entry, and say whether there was one."""

    def log_length(self) -> int:
        """Return the number of its events."""

    def cut_log(self, count: int) -> int:
        """Remove some of the oldest events, at most so many, and return how many."""


def make_room(parts: Sequence[Part], most: int) -> None:
    """Remove the entries that were used longest ago, until all weigh at most `most` bytes."""
    while sum(part.weight() for part in parts) > most:
        if not min(parts, key=lambda part: part.longest_unused()).evict():
            return


def is_due(before: int, after: int, capacity: int, parts: int) -> bool:
    """Say whether the length of a journal has to be looked at, when the events of a part have come to be more."""
    stride = max(1, capacity // (STRIDES * parts))
    return before // stride != after // stride


def shorten(parts: Sequence[Part], capacity: int) -> None:
    """Remove the oldest events where there are most of them, until there are at most `capacity`."""
    lengths = [part.log_length() for part in parts]
    while (excess := sum(lengths) - capacity) > 0:
        longest = max(range(len(parts)), key=lengths.__getitem__)
        above = lengths[longest] - capacity // len(parts)
        removed = parts[longest].cut_log(min(excess, max(1, above)))
        lengths[longest] -= removed
        if not removed:
            return
