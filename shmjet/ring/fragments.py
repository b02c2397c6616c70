"""An item that is larger than a record of the ring may be: written and read in pieces, over as many calls as it takes.

The writer goes on where it was refused; if another item is offered in between, the reader is told to forget what came.
`docs/formats/frame.md` has the bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shmjet._native import RingCorruptError, RingProducer
from shmjet.ring import frames


class FragmentWriter:
    """Writes one item at a time into a ring, in fragments.

    Args:
        producer: the ring's writing end.
        reserves: reserve the ring while an item is under way, so that no mark gets between its pieces.
    """

    __slots__ = (
        *("_codec", "_count", "_offset", "_part", "_parts", "_producer", "_reserves", "_sent", "_total"),
        *("begun", "item"),
    )

    def __init__(self, producer: RingProducer, *, reserves: bool = False) -> None:
        self._producer = producer
        self._reserves = reserves
        self.item: Any = None
        """The item that is being written, or None."""
        self.begun = False
        """Whether a part of it has been written."""

    def begin(self, item: Any, codec: int, parts: Sequence[Any], count: int = 1) -> bool:
        """Start with an item and write what there is room for; True when all of it has been written.

        Args:
            item: what `item` will be until then.
            codec: of the payload.
            parts: the payload's bytes, contiguous memory.
            count: items that the reader counts with the last fragment.
        """
        self.item = item
        if self._reserves:
            self._producer.reserved = True
        self._codec = codec
        self._parts = [memoryview(part).cast("B") for part in parts]
        self._total = sum(map(len, self._parts))
        self._count = count
        self._sent = self._part = self._offset = 0
        self.begun = False
        return self.go_on()

    def go_on(self) -> bool:
        """Write what there is room for; True when all of the item has been written."""
        piece = self._producer.max_record // 2
        while True:
            buffers, size = self._cut(piece)
            head = [] if self.begun else [frames.FRAGMENT_HEAD.pack(self._total)]
            is_last = self._sent + size == self._total
            flags = (0 if self.begun else frames.FLAG_FIRST) | (frames.FLAG_LAST if is_last else 0)
            count = self._count if is_last else 0
            if not self._producer.push_bytes(frames.KIND_FRAGMENT, self._codec, flags, count, [*head, *buffers]):
                return False
            self.begun = True
            self._sent += size
            self._advance(size)
            if is_last:
                self.clear()
                return True

    def cancel(self) -> bool:
        """Have the reader forget the item; False when there is no room to say so now."""
        if self.begun:
            flags = frames.FLAG_CANCEL
            if not self._producer.push_bytes(frames.KIND_FRAGMENT, self._codec, flags, 0, ()):
                return False
        self.clear()
        return True

    def clear(self) -> None:
        """Forget the item on this side."""
        self.item = None
        if self._reserves:
            self._producer.reserved = False
        self.begun = False
        self._parts = []

    def _cut(self, most: int) -> tuple[list[memoryview], int]:
        """Return views of the next `most` bytes at most, and how many they are."""
        views, size, part, offset = [], 0, self._part, self._offset
        while size < most and part < len(self._parts):
            view = self._parts[part][offset : offset + most - size]
            views.append(view)
            size += len(view)
            part, offset = part + 1, 0
        return views, size

    def _advance(self, size: int) -> None:
        while size:
            rest = len(self._parts[self._part]) - self._offset
            if size < rest:
                self._offset += size
                return
            size -= rest
            self._part, self._offset = self._part + 1, 0


class FragmentReader:
    """Puts an item together that comes in fragments."""

    __slots__ = ("_buffer", "_codec", "_filled")

    def __init__(self) -> None:
        self._buffer: bytearray | None = None
        self._codec = self._filled = 0

    @property
    def begun(self) -> bool:
        """Whether a part of an item has come and the rest has not."""
        return self._buffer is not None

    def add(self, codec: int, flags: int, payload: memoryview) -> tuple[int, bytearray] | None:
        """Take a fragment; return codec and bytes of the item when it is complete.

        Raises:
            RingCorruptError: the fragments do not make up an item.
        """
        if flags & frames.FLAG_CANCEL:
            self._buffer = None
            return None
        if flags & frames.FLAG_FIRST:
            (total,) = frames.FRAGMENT_HEAD.unpack_from(payload)
            self._buffer, self._codec, self._filled = bytearray(total), codec, 0
            with payload[frames.FRAGMENT_HEAD.size :] as rest:
                self._fill(rest)
        elif self._buffer is None:
            raise RingCorruptError("a fragment came without the beginning of its item")
        else:
            self._fill(payload)
        if not flags & frames.FLAG_LAST:
            return None
        assert self._buffer is not None
        complete, self._buffer = self._buffer, None
        if self._filled != len(complete):
            raise RingCorruptError(f"the last fragment ends an item of {len(complete)} bytes after {self._filled}")
        return self._codec, complete

    def clear(self) -> None:
        """Forget what has come."""
        self._buffer = None

    def _fill(self, piece: memoryview) -> None:
        assert self._buffer is not None
        end = self._filled + len(piece)
        if end > len(self._buffer):
            raise RingCorruptError(f"fragments of {end} bytes for an item of {len(self._buffer)}")
        self._buffer[self._filled : end] = piece
        self._filled = end
