"""The slabs of one execution in one process: the one it writes batches into, and those of the others, to read in place.

Memory for slots is reserved when it is first needed, in steps, because few jobs have batches; where there is none, or
all slots are taken, batches go by the ring instead, so nothing ever waits for a slot. The protocol is in
`shmjet/_native/ring/slab.h`. Must not know what a slot holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shmjet._native import SLAB_UNIT, RingCorruptError, SlabReader, SlabWriter, Slot

_FIRST_STEP = 1 << 20
_STEP = 4 << 20


class OutgoingSlab:
    """Where this process puts batches for others.

    Args:
        memory: the execution's arena.
        offset: where the slab begins in it.
        size: its bytes.
        number: the slab's, by which readers find it.
        reserve: called with an offset into the arena and a number of bytes that have to be there from then on;
            OSError when there is no memory.
    """

    def __init__(
        self, memory: memoryview, offset: int, size: int, number: int, reserve: Callable[[int, int], None]
    ) -> None:
        self.number = number
        self.size = size
        self._memory = memory
        self._offset = offset
        self._reserve = reserve
        self._writer: SlabWriter | None = None
        self._reserved = 0
        self._is_exhausted = False
        self.written = 0
        """Bytes put into slots so far."""
        self._last: tuple[Any, int, int] = (None, 0, -1)

    @property
    def largest_slot(self) -> int:
        """Bytes of the largest slot that is asked for: a quarter of the slab, so that one is free while others wait."""
        return self.size // 4

    def put(self, item: Any, row: int, parts: tuple[Any, ...], size: int) -> int:
        """Return the offset of a slot with this content, for one more reader; -1 when there is no room.

        The content that was put last is not written again: an item that goes to many readers lies here once.

        Args:
            item, row: what the content is of: the same object and number mean the same content.
            parts: the content; each part is put at a multiple of 64.
            size: its bytes.
        """
        last, last_row, offset = self._last
        if last is item and last_row == row and self._writer is not None:
            self._writer.retain(offset)
            return offset
        self.forget_last()
        offset = -1 if self._writer is None else self._writer.put(parts, 2)
        while offset < 0 and self._grow(size):
            assert self._writer is not None
            offset = self._writer.put(parts, 2)
        if offset >= 0:
            self.written += size
            self._last = (item, row, offset)
        return offset

    def claim(self, size: int) -> tuple[int, int] | None:
        """Take a slot for one reader, whose content the caller writes; None when there is no room.

        Returns:
            the slot's offset, and where its bytes are in the arena.
        """
        place = None if self._writer is None else self._writer.claim(size, 1)
        while place is None and self._grow(size):
            assert self._writer is not None
            place = self._writer.claim(size, 1)
        if place is not None:
            self.written += size
        return place

    @property
    def writer(self) -> SlabWriter | None:
        """What takes slots in the memory that is reserved already; None before the first one is taken."""
        return self._writer

    def forget_last(self) -> None:
        """Let the slot that was put last go as soon as its readers do."""
        _, _, offset = self._last
        if offset >= 0 and self._writer is not None:
            self._writer.drop(offset)
        self._last = (None, 0, -1)

    def _grow(self, size: int) -> bool:
        """Reserve memory for one more slot of `size` bytes; False when that is all there is."""
        if self._is_exhausted:
            return False
        step = _FIRST_STEP if self._reserved == 0 else _STEP
        end = min(self.size, self._reserved + max(step, size + 2 * SLAB_UNIT))
        try:
            if end == self._reserved:
                raise OSError
            self._reserve(self._offset + self._reserved, end - self._reserved)
        except OSError:
            self._is_exhausted = True
            return False
        self._reserved = end
        if self._writer is None:
            self._writer = SlabWriter(self._memory, self._offset, self.size)
        data = self.size - self._writer.units * SLAB_UNIT  # what lies before the units, and a rest behind them
        self._writer.usable = max(self._writer.usable, min(self._writer.units, max(0, end - data) // SLAB_UNIT))
        return True

    def close(self) -> None:
        """Let go of the memory; idempotent."""
        self.forget_last()
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        self._is_exhausted = True


class IncomingSlabs:
    """The slabs of all processes of an execution, for reading.

    Args:
        memory: the execution's arena.
        offsets: where each slab begins in it, by number.
        size: bytes of each.
    """

    def __init__(self, memory: memoryview, offsets: Sequence[int], size: int) -> None:
        self._memory = memory
        self._offsets = offsets
        self._size = size
        self._readers: dict[int, SlabReader] = {}

    def take(self, number: int, offset: int, length: int) -> Slot | bytes:
        """Return what lies in a slot: in place, or copied when readers hold too much of that slab already.

        Raises:
            RingCorruptError: no slot can lie there.
        """
        reader = self._readers.get(number)
        if reader is None:
            if number >= len(self._offsets):
                raise RingCorruptError(f"there is no slab {number}, only {len(self._offsets)}")
            reader = self._readers[number] = SlabReader(self._memory, self._offsets[number], self._size)
        return reader.take(offset, length)

    @property
    def live(self) -> int:
        """Slots that still have views in this process."""
        return sum(reader.live for reader in self._readers.values())

    def close(self) -> None:
        """Forget the slabs; what is still viewed keeps the memory."""
        self._readers.clear()
