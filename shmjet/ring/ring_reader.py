"""The reading end of a ring lane: columns decoded in C, pickles here, fragments put together again.

What is handed out never refers to the ring's memory: large buffers are copied once, out of the ring, into memory of
the item's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from shmjet._native import Codec, RingConsumer, RingCorruptError
from shmjet.data.marks import DONE, Barrier, Mark, Watermark
from shmjet.ring import frames
from shmjet.ring.fragments import FragmentReader
from shmjet.ring.pickling import loads
from shmjet.ring.slab import IncomingSlabs

if TYPE_CHECKING:
    from shmjet.data.batch import Batch

_SMALL_LIST = 256
"""Frames are joined as long as the list has fewer items than this, or than a quarter of a large queue."""


class RingLaneReader:
    """Reads lists of items and marks from one ring.

    Args:
        consumer: the ring's reading end.
        codec: this process's codec.
        slabs: where batches of other processes lie, or None.
    """

    def __init__(self, consumer: RingConsumer, codec: Codec, slabs: IncomingSlabs | None = None) -> None:
        self.consumer = consumer
        self.codec = codec
        self._joined = max(_SMALL_LIST, consumer.queue_size // 4)
        self._fragments = FragmentReader()
        self._slabs = slabs
        self._decode_batch: Callable[[Any], Batch] | None = None

    @property
    def has_data(self) -> bool:
        """Whether there is a record; `pull` may still return None when it is a fragment of an item."""
        return self.consumer.has_data

    @property
    def in_fragments(self) -> bool:
        """Whether a part of an item has been read and the rest is still to come."""
        return self._fragments.begun

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
            record = self.consumer.pull(self.codec, self._joined)
            if record is None or isinstance(record, list):
                return record
            if len(record) == 3:
                return _mark(*record)
            if len(record) == 4:
                return [self._in_slot(*record[:3])]
            kind, codec, flags, _, payload = record
            items: list[Any] | None = None
            whole: bytes | bytearray | None = None
            try:
                if kind == frames.KIND_FRAGMENT:
                    complete = self._fragments.add(codec, flags, payload)
                    if complete is not None:
                        codec, whole = complete
                elif kind != frames.KIND_ITEMS:
                    raise RingCorruptError(f"no frame has kind {kind}")
                elif codec == frames.CODEC_PICKLE:
                    items = loads(payload)
                else:
                    whole = bytes(payload)
            finally:
                payload.release()
                self.consumer.release()
            if whole is not None:
                items = self._items(codec, whole)
            if items is not None:
                return items

    def close(self) -> None:
        """Let go of the ring's memory; idempotent."""
        self._fragments.clear()
        self.consumer.close()

    def _items(self, codec: int, payload: bytes | bytearray) -> list[Any]:
        """Return what a payload holds that has been copied out of the ring already."""
        if codec == frames.CODEC_PICKLE:
            items: list[Any] = loads(memoryview(payload), copy=False)
            return items
        if codec == frames.CODEC_BYTES:
            return [bytes(payload)]
        if codec == frames.CODEC_BATCH:
            return [self._decode(memoryview(payload).toreadonly())]
        raise RingCorruptError(f"no frame has codec {codec}")

    def _in_slot(self, number: int, offset: int, length: int) -> Batch:
        """Return the batch at a place in a slab."""
        if self._slabs is None:
            raise RingCorruptError("a batch lies in a slab, and there is none")
        payload = self._slabs.take(number, offset, length)
        decode = self._decode_batch
        return self._decode(payload) if decode is None else decode(payload)

    def _decode(self, payload: Any) -> Batch:
        if self._decode_batch is None:
            from shmjet.ring.batch_writer import batch_codec  # only here, as it needs numpy

            self._decode_batch = batch_codec().decode
        return self._decode_batch(payload)


def _mark(kind: int, value: int, flags: int) -> Mark:
    if kind == frames.KIND_WATERMARK:
        return Watermark(value)
    if kind == frames.KIND_BARRIER:
        return Barrier(value, bool(flags & frames.FLAG_TERMINAL))
    return DONE
