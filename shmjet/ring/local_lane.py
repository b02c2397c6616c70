"""The lane within one worker: a deque, nothing encoded, the objects themselves.

Bounded by items like a ring, so that backpressure is the same on both. A list of items that is given away whole is
handed over itself, so a hop costs the same however long the list is. One thread uses both ends; the two callbacks let
its owner mark the tasklet at the other end as runnable.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from shmjet.data.columnar import Columnar
from shmjet.data.marks import Barrier, Done, Mark, Watermark

_MARKS = (Watermark, Barrier, Done)
_MOST_BYTES = 8 << 20


class LocalLane:
    """Both ends of a lane between two processors of one worker.

    Args:
        queue_size: items that may be in it at once.

    Example:
        >>> lane = LocalLane(4)
        >>> lane.push([1, 2, 3, 4, 5]), lane.pull(), lane.has_data
        (4, [1, 2, 3, 4], False)
    """

    __slots__ = ("_bytes", "_chunks", "_level", "_level_at", "_queued", "on_pull", "on_push", "queue_size")

    is_local = True
    in_fragments = False

    def __init__(self, queue_size: int) -> None:
        if queue_size < 1:
            raise ValueError(f"queue_size must be at least 1, got {queue_size}")
        self.queue_size = queue_size
        self.on_push: Callable[[], object] | None = None
        """Called after something was put in."""
        self.on_pull: Callable[[], object] | None = None
        """Called after items were taken out."""
        self._chunks: deque[list[Any] | Mark] = deque()
        self._queued = 0
        self._bytes = 0
        self._level: memoryview | None = None
        self._level_at = 0

    def publish_level(self, words: memoryview | None, at: int = 0) -> None:
        """Add the number of items in the lane to a word from now on, in which others may see it; None: no longer."""
        if self._level is not None:
            self._level[self._level_at] -= self._queued
        self._level, self._level_at = words, at
        if words is not None:
            words[at] += self._queued

    @property
    def queued_items(self) -> int:
        """Items in the lane."""
        return self._queued

    @property
    def reader_idle(self) -> bool:
        """Whether nothing is in the lane."""
        return not self._chunks

    @property
    def is_empty(self) -> bool:
        """Whether no item is in the lane."""
        return not self._queued

    @property
    def has_data(self) -> bool:
        """Whether `pull` would return something."""
        return bool(self._chunks)

    def push(self, items: list[Any], start: int = 0) -> int:
        """Accept as many of items[start:] as there is room for; returns how many."""
        count = min(len(items) - start, self.queue_size - self._queued)
        if count <= 0:
            return 0
        if isinstance(items[start], Columnar):
            count = self._admit_batches(items, start, count)
            if count == 0:
                return 0
        self._chunks.append(items[start : start + count])
        self._queued += count
        if self._level is not None:
            self._level[self._level_at] += count
        if self.on_push is not None:
            self.on_push()
        return count

    def give(self, items: list[Any]) -> int:
        """Accept as many of the items as there is room for; returns how many. If it was all, the list is the lane's.

        An empty lane takes a list of up to twice `queue_size`: what an outbox has gathered then goes on in one piece.
        """
        count = len(items)
        most = self.queue_size - self._queued if self._chunks else 2 * self.queue_size
        if count > most or not count or isinstance(items[0], Columnar):
            return self.push(items)
        self._chunks.append(items)
        self._queued += count
        if self._level is not None:
            self._level[self._level_at] += count
        if self.on_push is not None:
            self.on_push()
        return count

    def _admit_batches(self, items: list[Any], start: int, most: int) -> int:
        """Return how many of the batches at the start of a run fit; a lane holds as many bytes as a ring would."""
        count = 0
        while count < most and isinstance(items[start + count], Columnar):
            if self._bytes >= _MOST_BYTES:
                break
            self._bytes += items[start + count].nbytes
            count += 1
        return count

    def push_mark(self, mark: Mark) -> bool:
        """Accept a mark, always: marks take no places of items."""
        self._chunks.append(mark)
        if self.on_push is not None:
            self.on_push()
        return True

    def contents(self) -> list[list[Any] | Mark]:
        """Return the chunks and marks in the lane without taking them out."""
        return list(self._chunks)

    def pull(self) -> list[Any] | Mark | None:
        """Take the next chunk or mark; the list is the caller's."""
        if not self._chunks:
            return None
        chunk = self._chunks.popleft()
        if isinstance(chunk, _MARKS):
            return chunk
        self._queued -= len(chunk)
        if self._level is not None:
            self._level[self._level_at] -= len(chunk)
        if isinstance(chunk[0], Columnar):  # then all of them are
            self._bytes -= sum(item.nbytes for item in chunk)
        if self.on_pull is not None:
            self.on_pull()
        return chunk
