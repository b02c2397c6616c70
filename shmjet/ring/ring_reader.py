"""The reading end of a ring lane: columns decoded in C, pickles here, fragments put together again.

What is handed out never refers to the ring's memory: large buffers are copied once, out of the ring, into memory of
the item's.
"""

from __future__ import annotations

from typing import Any

from shmjet._native import Codec, RingConsumer, RingCorruptError
from shmjet.ring import frames
from shmjet.ring.marks import DONE, Barrier, Mark, Watermark
from shmjet.ring.pickling import loads

_SMALL_LIST = 256
"""Frames are joined as long as the list has fewer items than this."""


class _Assembly:
    """An item that comes in fragments."""

    __slots__ = ("buffer", "codec", "filled")

    def __init__(self, codec: int, total: int) -> None:
        self.codec = codec
        self.buffer = bytearray(total)
        self.filled = 0

    def add(self, piece: memoryview) -> None:
        end = self.filled + len(piece)
        if end > len(self.buffer):
            raise RingCorruptError(f"fragments of {end} bytes for an item of {len(self.buffer)}")
        self.buffer[self.filled : end] = piece
        self.filled = end

    def finish(self) -> list[Any]:
        if self.filled != len(self.buffer):
            raise RingCorruptError(f"the last fragment ends an item of {len(self.buffer)} bytes after {self.filled}")
        if self.codec == frames.CODEC_BYTES:
            return [bytes(self.buffer)]
        items: list[Any] = loads(memoryview(self.buffer), copy=False)
        return items


class RingLaneReader:
    """Reads lists of items and marks from one ring.

    Args:
        consumer: the ring's reading end.
        codec: this process's codec.
    """

    def __init__(self, consumer: RingConsumer, codec: Codec) -> None:
        self.consumer = consumer
        self.codec = codec
        self._assembly: _Assembly | None = None

    @property
    def has_data(self) -> bool:
        """Whether there is a record; `pull` may still return None when it is a fragment of an item."""
        return self.consumer.has_data

    @property
    def in_fragments(self) -> bool:
        """Whether a part of an item has been read and the rest is still to come."""
        return self._assembly is not None

    @property
    def queued_items(self) -> int:
        """Items in the lane."""
        return self.consumer.queued_items

    def pull(self) -> list[Any] | Mark | None:
        """Take the next frame; None when there is none, or only a part of an item yet. The list is the caller's.

        Raises:
            RingCorruptError: what lies in the ring cannot be a frame.
            Exception: whatever unpickling an item raises; the frame is gone then.
        """
        while True:
            record = self.consumer.pull(self.codec, _SMALL_LIST)
            if record is None or isinstance(record, list):
                return record
            if len(record) == 3:
                return _mark(*record)
            kind, codec, flags, _, payload = record
            try:
                if kind == frames.KIND_ITEMS and codec == frames.CODEC_PICKLE:
                    items: list[Any] | None = loads(payload)
                elif kind == frames.KIND_FRAGMENT:
                    items = self._assemble(codec, flags, payload)
                else:
                    raise RingCorruptError(f"no frame has kind {kind} and codec {codec}")
            finally:
                payload.release()
                self.consumer.release()
            if items is not None:
                return items

    def close(self) -> None:
        """Let go of the ring's memory; idempotent."""
        self._assembly = None
        self.consumer.close()

    def _assemble(self, codec: int, flags: int, payload: memoryview) -> list[Any] | None:
        """Add a fragment; return the item, in a list, when it is complete."""
        if flags & frames.FLAG_CANCEL:
            self._assembly = None
            return None
        if flags & frames.FLAG_FIRST:
            (total,) = frames.FRAGMENT_HEAD.unpack_from(payload)
            self._assembly = _Assembly(codec, total)
            with payload[frames.FRAGMENT_HEAD.size :] as rest:
                self._assembly.add(rest)
        elif self._assembly is None:
            raise RingCorruptError("a fragment came without the beginning of its item")
        else:
            self._assembly.add(payload)
        if not flags & frames.FLAG_LAST:
            return None
        assembly, self._assembly = self._assembly, None
        return assembly.finish()


def _mark(kind: int, value: int, flags: int) -> Mark:
    if kind == frames.KIND_WATERMARK:
        return Watermark(value)
    if kind == frames.KIND_BARRIER:
        return Barrier(value, bool(flags & frames.FLAG_TERMINAL))
    return DONE
