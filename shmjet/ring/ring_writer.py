"""The writing end of a ring lane: columns where the items allow, else pickles, fragments for a too large item.

Encoding goes straight into the ring for columns; a pickle is gathered into it from its parts. What was encoded and
found no room is kept until the caller offers the same items again.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import is_
from typing import TYPE_CHECKING, Any

from shmjet._native import Codec, RingProducer, index_of_special
from shmjet.data.columnar import Columnar
from shmjet.data.marks import Mark
from shmjet.ring import frames
from shmjet.ring.fragments import FragmentWriter
from shmjet.ring.pickling import Buffer, ItemEncodingError, Pickling
from shmjet.ring.slab import OutgoingSlab

if TYPE_CHECKING:
    from shmjet.data.batch import Batch
    from shmjet.ring.batch_writer import BatchWriter

SLOT_BYTES = 1 << 20
"""Bytes that lie in slots for one reader, if it is more than two batches: what both cores' second-level caches hold, so
that a slot that is written again is near still. With 4 MiB batches of 128 KiB took 1.3 times as long."""
_MAX_SKIPPED = 63
"""Frames that are pickled without trying columns, once columns have been refused several times."""


@dataclass(slots=True)
class _Waiting:
    """A pickled frame for which there was no room."""

    items: list[Any]
    parts: list[Buffer]


class RingLaneWriter:
    """Writes lists of items and marks into one ring.

    A refusal leaves a wake mark in the ring, so that a worker that sleeps on the producer's `Poller` is woken. An
    item larger than a record goes out in fragments over several calls and counts as accepted with the last of them;
    when the caller offers something else in between (it has given the item to another lane), the fragments are
    cancelled.

    Args:
        producer: the ring's writing end.
        codec: this process's codec.
        slab: where this process puts batches, or None.
        slot_bytes: bytes of batches, if they are more than two, that lie in slots for this lane's reader at most.
    """

    is_local = False

    def __init__(
        self, producer: RingProducer, codec: Codec, slab: OutgoingSlab | None = None, slot_bytes: int = SLOT_BYTES
    ) -> None:
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
        self._fragments = FragmentWriter(producer, reserves=True)
        self._slab = slab
        self._slot_bytes = slot_bytes
        self._batches: BatchWriter | None = None

    @property
    def reader_idle(self) -> bool:
        """Whether the ring is empty and the worker at its other end sleeps."""
        return self.producer.reader_idle

    @property
    def is_empty(self) -> bool:
        """Whether no item is in the ring."""
        return self.producer.free_items == self.producer.queue_size

    @property
    def in_fragments(self) -> bool:
        """Whether a part of an item has been written and the rest has to follow."""
        return self._fragments.begun or (self._batches is not None and self._batches.in_pieces)

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
        item = self._fragments.item
        if item is not None and position < stop and not isinstance(items[position], Columnar):
            if item is not items[position]:
                if not self._fragments.cancel():
                    return 0
            elif self._fragments.go_on():
                position += 1
            else:
                return 0
        while position < stop:
            if isinstance(items[position], Columnar):
                if not self._push_batch(items[position]):
                    break
                position += 1
                continue
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

    def give(self, items: list[Any]) -> int:
        """As `push`."""
        return self.push(items)

    def push_mark(self, mark: Mark) -> bool:
        """Write a mark; False when there is no room now."""
        if self._fragments.item is not None and not self._fragments.cancel():
            return False
        return self.producer.push_mark(*frames.numbers_of(mark))

    def close(self) -> None:
        """Let go of the ring's memory; idempotent."""
        self._waiting = None
        self._fragments.clear()
        if self._batches is not None:
            self._batches.close()
        self.producer.close()

    def _push_batch(self, batch: Batch) -> bool:
        if self._batches is None:
            from shmjet.ring.batch_writer import BatchWriter  # only here, as it needs numpy

            self._batches = BatchWriter(self.producer, self._slab, self._fragments, self._slot_bytes)
        return self._batches.push(batch)

    # -- pickled frames ------------------------------------------------------------------------------------------

    def _push_pickled(self, items: list[Any], position: int, stop: int) -> int:
        """Write one frame of items[position:stop] as a pickle; returns how many went, 0 when there is no room."""
        waiting = self._waiting
        if waiting is not None:
            count = len(waiting.items)
            if count <= stop - position and all(map(is_, waiting.items, items[position : position + count])):
                return self._write_pickled(waiting)
            self._waiting = None
        stop = _next_batch(items, position, stop)
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
                return self._push_large(chunk[0], parts)
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

    def _push_large(self, item: Any, parts: list[Buffer]) -> int:
        if type(item) is bytes:
            return int(self._fragments.begin(item, frames.CODEC_BYTES, [item]))
        return int(self._fragments.begin(item, frames.CODEC_PICKLE, parts))


def _next_batch(items: list[Any], start: int, stop: int) -> int:
    """Return where the first batch in items[start:stop] is, or `stop`."""
    at = index_of_special(items, start, Columnar)
    while 0 <= at < stop and items[at] is None:  # which is special too
        at = index_of_special(items, at + 1, Columnar)
    return at if 0 <= at < stop else stop
