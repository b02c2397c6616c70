"""The writing end of a lane for batches: small ones in the ring, others in a slot, in fragments as a last resort.

A batch that is larger than `MOST_BYTES` goes as several. A lane has a few batches in slots at once, so that a slow
reader takes neither all slots nor more memory than the caches hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from shmjet._native import RECORD_HEADER, RingProducer
from shmjet.data.batch import Batch
from shmjet.ring import frames
from shmjet.ring.batch_frames import BatchCodec, padded
from shmjet.ring.fragments import FragmentWriter
from shmjet.ring.slab import OutgoingSlab

MOST_BYTES = 4 << 20
"""A larger batch is cut into pieces of about this many bytes."""
SMALL_BYTES = 4096
"""Batches of up to so many bytes lie in the ring itself."""
_SLOT_BYTES = frames.SLOT.size
_SLOT_RECORD = RECORD_HEADER + -(-_SLOT_BYTES // 16) * 16
_pack_slot = frames.SLOT.pack


@cache
def batch_codec() -> BatchCodec:
    """Return this process's codec for batches."""
    return BatchCodec()


@dataclass(slots=True)
class _Cut:
    """A batch that goes in pieces."""

    batch: Batch
    rows: int
    row: int = 0


class BatchWriter:
    """Writes batches into one ring and the slab next to it.

    Args:
        producer: the ring's writing end.
        slab: this process's, or None.
        fragments: of the same ring.
        slot_bytes: bytes of batches, if they are more than two, that lie in slots for this lane's reader at most.
    """

    def __init__(
        self, producer: RingProducer, slab: OutgoingSlab | None, fragments: FragmentWriter, slot_bytes: int
    ) -> None:
        self._producer = producer
        self._slab = slab if slab is not None and slab.size else None
        self._fragments = fragments
        self._codec = batch_codec()
        self._small = min(SMALL_BYTES, producer.max_record // 4)
        self._largest = MOST_BYTES if self._slab is None else min(MOST_BYTES, self._slab.largest_slot)
        self._largest_slot = 0 if self._slab is None else self._slab.largest_slot
        self._capacity = producer.capacity
        self._share = slot_bytes if self._slab is None else min(slot_bytes, self._slab.size // 8)
        self._cut: _Cut | None = None
        self._piece: tuple[Batch, int, tuple[Any, ...], int] | None = None

    @property
    def in_pieces(self) -> bool:
        """Whether a part of a batch has been written and the rest has to follow."""
        return self._cut is not None and self._cut.row > 0

    def push(self, batch: Batch) -> bool:
        """Write a batch; False when there was no room for all of it, and the same has to be offered again."""
        cut = self._cut
        if cut is None or cut.batch is not batch:
            piece = self._piece
            if piece is None or piece[0] is not batch:
                parts, size = self._codec.encode(batch)
                piece = (batch, 0, parts, size)
            if piece[3] <= self._largest or batch.num_rows < 2:
                self._piece = piece
                return self._push_piece(batch, 0, batch.num_rows)
            rows = max(1, batch.num_rows * self._largest // (2 * piece[3]))
            cut = self._cut = _Cut(batch, rows)
        while True:
            stop = min(cut.row + cut.rows, batch.num_rows)
            if not self._push_piece(batch, cut.row, stop):
                return False
            cut.row = stop
            if stop == batch.num_rows:
                self._cut = None
                return True

    def _push_piece(self, whole: Batch, row: int, stop: int) -> bool:
        """Write rows [row, stop) of a batch."""
        kept = self._piece
        if kept is None or kept[0] is not whole or kept[1] != row:
            parts, size = self._codec.encode(whole[row:stop])
            kept = self._piece = (whole, row, parts, size)
        _, _, parts, size = kept
        if self._write(whole, row, parts, size, int(stop == whole.num_rows)):
            self._piece = None
            return True
        return False

    def _write(self, whole: Batch, row: int, parts: tuple[Any, ...], size: int, count: int) -> bool:
        producer = self._producer
        if self._fragments.item is parts:
            return self._fragments.go_on()
        if self._fragments.item is not None and not self._fragments.cancel():
            return False
        if size <= self._small:
            return producer.push_bytes(frames.KIND_ITEMS, frames.CODEC_BATCH, 0, count, padded(parts))
        slab = self._slab
        while slab is not None and size <= self._largest_slot:
            if not producer.admit(count, _SLOT_BYTES):
                return False
            queued = (self._capacity - producer.free_bytes) // _SLOT_RECORD
            if queued < 2 or queued * size <= self._share:
                offset = slab.put(whole, row, parts, size)
                if offset >= 0:
                    place = _pack_slot(slab.number, 0, offset, size)
                    return producer.push_bytes(frames.KIND_ITEMS, frames.CODEC_SLOT, 0, count, (place,))
                if queued == 0:
                    break  # all slots are taken by others: this lane must not wait for them
            if producer.leave_mark(_SLOT_BYTES):
                return False
        pieces = [part if isinstance(part, bytes) else part.view("u1") for part in padded(parts)]
        return self._fragments.begin(parts, frames.CODEC_BATCH, pieces, count)

    def close(self) -> None:
        """Forget what was being written."""
        self._cut = self._piece = None
