"""One change of a map, and how far the changes of a map have been read."""

from __future__ import annotations

from typing import Any, NamedTuple

Position = tuple[int, dict[int, int]]
"""Of one log: the incarnation of the map there, 0 if it was not there, and the next sequence by partition."""
STARTS = ("oldest", "latest")


class MapEvent(NamedTuple):
    """One change of a map.

    Args:
        kind: "added", "updated", "removed", or "lost": the reader was overtaken, and events are missing.
        key: of the entry; None of lost events.
        old: its value before, None where it was added.
        new: its value now, None where it was removed.
        partition: of the key.
        sequence: its place among the events of the partition, from 0; of "lost" the first that is missing.
        lost: how many are missing; 0 but for "lost".

    Example:
        >>> MapEvent("added", "a", None, 1, 7, 0).new
        1
    """

    kind: str
    key: Any
    old: Any
    new: Any
    partition: int
    sequence: int
    lost: int = 0
