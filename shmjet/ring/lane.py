"""What a lane is: the one-way path from one processor to one processor of the next vertex, whatever it is made of.

`LocalLane` serves two processors of the same worker, `RingLaneWriter` and `RingLaneReader` two in different
processes. Both carry lists of items and marks in order, bound the items in flight by `queue_size`, and never block: a
refusal is an answer.
"""

from __future__ import annotations

from typing import Any, Protocol

from shmjet.data.marks import Mark
from shmjet.ring.local_lane import LocalLane
from shmjet.ring.ring_reader import RingLaneReader
from shmjet.ring.ring_writer import RingLaneWriter

__all__ = ["LaneReader", "LaneWriter", "LocalLane", "RingLaneReader", "RingLaneWriter"]


class LaneWriter(Protocol):
    """The end that a producer holds."""

    @property
    def is_local(self) -> bool:
        """Whether both ends are in this worker, so that nothing is encoded."""
        ...

    @property
    def reader_idle(self) -> bool:
        """Whether the lane is empty and its reader has nothing else to do, as far as this end can see."""
        ...

    @property
    def is_empty(self) -> bool:
        """Whether the reader has taken all items that were written."""
        ...

    @property
    def in_fragments(self) -> bool:
        """Whether a part of an item has been written, so that the same item should be offered here again."""
        ...

    def push(self, items: list[Any], start: int = 0) -> int:
        """Accept as many of items[start:] as there is room for, in order; returns how many. The list is not kept."""
        ...

    def give(self, items: list[Any]) -> int:
        """As `push`; if all items were accepted, the list is the lane's from then on."""
        ...

    def push_mark(self, mark: Mark) -> bool:
        """Accept a mark behind the items accepted so far; False when there is no room now."""
        ...


class LaneReader(Protocol):
    """The end that a consumer holds."""

    @property
    def has_data(self) -> bool:
        """Whether `pull` is worth a call."""
        ...

    def pull(self) -> list[Any] | Mark | None:
        """Take the next chunk of items (a fresh list, the caller's) or mark; None when there is nothing now."""
        ...
