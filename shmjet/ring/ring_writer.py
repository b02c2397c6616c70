"""The writing end of a ring lane: columns where the items allow, else pickles, fragments for a too large item.

Encoding goes straight into the ring for columns; a pickle is gathered into it from its parts. What was encoded and
found no room is kept until the caller offers the same items again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import is_
from typing import Any

from shmjet._native import Codec, RingProducer
from shmjet.ring import frames
from shmjet.ring.marks import Barrier, Mark, Watermark
from shmjet.ring.pickling import Buffer, ItemEncodingError, Pickling

_MAX_SKIPPED = 63
"""Frames that are pickled without trying columns, once columns have been refused several times."""


@dataclass(slots=True)
class _Waiting:
    """A pickled frame for which there was no room."""

    items: list[Any]
    parts: list[Buffer]


@dataclass(slots=True)
class _Partial:
    """An item of which some fragments have been written."""

    item: Any
    codec: int
    parts: list[memoryview]
    total: int
    sent: int = 0
    part: int = 0
    offset: int = 0
    begun: bool = field(default=False)


class RingLaneWriter:
    """Writes lists of items and marks into one ring.

    A refusal leaves a wake mark in the ring, so that a worker that sleeps on the producer's `Poller` is woken. An
    item larger than a record goes out in fragments over several calls and counts as accepted with the last of them;
    when the caller offers something else in between (it has given the item to another lane), the fragments are
    cancelled.

    Args:
        producer: the ring's writing end.
        codec: this process's codec.
    """

    is_local = False

    def __init__(self, producer: RingProducer, codec: Codec) -> None:
        self.producer = producer
        self.codec = codec
        self._pickling = Pickling()
        self._frame_items = max(1, producer.queue_size // 4)
        self._least_items = max(1, producer.queue_size // 8)
        self._max_record = producer.max_record
        self._skip = 0
        self._next_skip = 1
        self._pickled_bytes = 64.0
        self._waiting: _Waiting | None = None
        self._partial: _Partial | None = None

    @property
    def hungry(self) -> bool:
        """Whether the ring is empty and the worker at its other end sleeps."""
        return self.producer.hungry

    @property
    def in_fragments(self) -> bool:
        """Whether a part of an item has been written and the rest has to follow."""
        return self._partial is not None and self._partial.begun

    @property
    def queue_size(self) -> int:
        """Items that may be in the lane at once."""
        return self.producer.queue_size

    def push(self, items: list[Any], start: int = 0) -> int:
        """Write as many of items[start:] as there is room for, in one or more frames; returns how many.

        Raises:
            ItemEncodingError: an item cannot be pickled; those before it may have been written.
        """
        position, stop = start, len(items)
        if self._partial is not None and position < stop:
            if self._partial.item is items[position]:
                position += self._go_on_with_partial()
            else:
                self._cancel_partial()
            if self._partial is not None:
                return 0
        while position < stop:
            if self._skip == 0:
                accepted = self.producer.push(self.codec, items, position, stop)
                if accepted > 0:
                    position += accepted
                    self._next_skip = 1
                    continue
                if accepted == 0:
                    break
                if accepted == -1:
                    self._skip, self._next_skip = self._next_skip, min(2 * self._next_skip + 1, _MAX_SKIPPED)
            else:
                self._skip -= 1
            accepted = self._push_pickled(items, position, stop)
            if accepted == 0:
                break
            position += accepted
        return position - start

    def push_mark(self, mark: Mark) -> bool:
        """Write a mark; False when there is no room now."""
        if self._partial is not None and not self._cancel_partial():
            return False
        if isinstance(mark, Watermark):
            return self.producer.push_mark(frames.KIND_WATERMARK, mark.timestamp)
        if isinstance(mark, Barrier):
            flags = frames.FLAG_TERMINAL if mark.terminal else 0
            return self.producer.push_mark(frames.KIND_BARRIER, mark.snapshot_id, flags)
        return self.producer.push_mark(frames.KIND_DONE, 0)

    def close(self) -> None:
        """Let go of the ring's memory; idempotent."""
        self._waiting = self._partial = None
        self.producer.close()

    # -- pickled frames ------------------------------------------------------------------------------------------

    def _push_pickled(self, items: list[Any], position: int, stop: int) -> int:
        """Write one frame of items[position:stop] as a pickle; returns how many went, 0 when there is no room."""
        waiting = self._waiting
        if waiting is not None:
            count = len(waiting.items)
            if count <= stop - position and all(map(is_, waiting.items, items[position : position + count])):
                return self._write_pickled(waiting)
            self._waiting = None
        wanted = min(stop - position, self._frame_items)
        if self._pickled_bytes * wanted > self._max_record:
            wanted = max(1, int(self._max_record / self._pickled_bytes))
        count = min(wanted, self.producer.free_items)
        if count < min(wanted, self._least_items):
            count = wanted
        expected = min(int(self._pickled_bytes * count), self._max_record)
        if not self.producer.admit(count, expected):
            return 0
        return self._encode_pickled(items, position, count)

    def _encode_pickled(self, items: list[Any], position: int, count: int) -> int:
        while True:
            chunk = items[position : position + count]
            parts = self._pickle(chunk)
            size = sum(map(len, parts))
            self._pickled_bytes = max(size / count, 0.75 * self._pickled_bytes + 0.25 * size / count)
            if size <= self._max_record:
                return self._write_pickled(_Waiting(chunk, parts))
            if count == 1:
                self._pickled_bytes = 64.0
                return self._begin_partial(chunk[0], parts)
            count = max(1, min(count // 2, int(self._max_record * count / size)))

    def _write_pickled(self, frame: _Waiting) -> int:
        count = len(frame.items)
        if self.producer.push_bytes(frames.KIND_ITEMS, frames.CODEC_PICKLE, 0, count, frame.parts):
            self._waiting = None
            return count
        self._waiting = frame
        return 0

    def _pickle(self, chunk: list[Any]) -> list[Buffer]:
        try:
            return self._pickling.dumps(chunk)
        except ItemEncodingError:
            for item in chunk:
                self._pickling.dumps(item)  # the culprit raises, and is named alone
            raise

    # -- fragments -----------------------------------------------------------------------------------------------

    def _begin_partial(self, item: Any, parts: list[Buffer]) -> int:
        codec = frames.CODEC_PICKLE
        if type(item) is bytes:
            codec, parts = frames.CODEC_BYTES, [item]
        views = [memoryview(part).cast("B") for part in parts]
        self._partial = _Partial(item, codec, views, sum(map(len, views)))
        return self._go_on_with_partial()

    def _cancel_partial(self) -> bool:
        partial = self._partial
        if partial is not None and partial.begun:
            flags = frames.FLAG_CANCEL
            if not self.producer.push_bytes(frames.KIND_FRAGMENT, partial.codec, flags, 0, ()):
                return False
        self._partial = None
        return True

    def _go_on_with_partial(self) -> int:
        """Write fragments while there is room; 1 when the item is complete, else 0."""
        partial = self._partial
        assert partial is not None
        piece = self._max_record // 2
        while True:
            buffers, size = self._cut(partial, piece)
            head = [] if partial.begun else [frames.FRAGMENT_HEAD.pack(partial.total)]
            is_last = partial.sent + size == partial.total
            flags = (0 if partial.begun else frames.FLAG_FIRST) | (frames.FLAG_LAST if is_last else 0)
            if not self.producer.push_bytes(
                frames.KIND_FRAGMENT, partial.codec, flags, int(is_last), [*head, *buffers]
            ):
                return 0
            partial.begun = True
            partial.sent += size
            self._advance(partial, size)
            if is_last:
                self._partial = None
                return 1

    @staticmethod
    def _cut(partial: _Partial, most: int) -> tuple[list[memoryview], int]:
        """Return views of the next `most` bytes at most, and how many they are."""
        views, size, part, offset = [], 0, partial.part, partial.offset
        while size < most and part < len(partial.parts):
            view = partial.parts[part][offset : offset + most - size]
            views.append(view)
            size += len(view)
            part, offset = part + 1, 0
        return views, size

    @staticmethod
    def _advance(partial: _Partial, size: int) -> None:
        while size:
            rest = len(partial.parts[partial.part]) - partial.offset
            if size < rest:
                partial.offset += size
                return
            size -= rest
            partial.part, partial.offset = partial.part + 1, 0
