"""The shared memory of one feed processor: slots that Spark tasks fill and batches are views of.

A slot is granted to one task, comes back filled, is held until its rows may be seen, becomes views, and is free again
when the last of them is gone. All of that is decided by the one process that made the area; tasks only write where
they were told to, so a killed task leaves nothing but bytes that are never read.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import weakref
from typing import Any

from shmjet.data.errors import ShmjetError
from shmjet.ring.arena import Arena, reserve


class FeedArea:
    """The area as its processor sees it.

    Args:
        slot_size: bytes of a slot, a multiple of a page.
        slots: how many there may be.
        label: what it is for.

    Raises:
        ArenaError: there is not even memory for one slot.
    """

    def __init__(self, slot_size: int, slots: int, label: str) -> None:
        self.slot_size = slot_size
        self.slots = slots
        self._arena = Arena.create(slot_size, label=label, later=slot_size * (slots - 1))
        self._made = 1
        self._free = [0]
        self._kind: Any = ctypes.c_ubyte * slot_size
        self._viewed: dict[int, Any] = {}

    @property
    def fd(self) -> int:
        """The descriptor that tasks get."""
        return self._arena.fd

    @property
    def viewed(self) -> int:
        """Slots that are free except for views that are still alive."""
        return len(self._viewed)

    def take(self) -> int | None:
        """Return a free slot; None when there is none now."""
        if not self._free and self._made < self.slots:
            try:
                reserve(self._arena.fd, self._made * self.slot_size, self.slot_size)
            except OSError:
                self.slots = self._made  # there is no more memory: make do with what there is
            else:
                self._free.append(self._made)
                self._made += 1
        return self._free.pop() if self._free else None

    def give_back(self, slot: int) -> None:
        """Make a slot without views free."""
        self._free.append(slot)

    def memory(self, slot: int) -> memoryview:
        """Return a slot's memory, for looking at it; views of it must not outlive the call's purpose."""
        start = slot * self.slot_size
        return self._arena.memory[start : start + self.slot_size].toreadonly()

    def view(self, slot: int) -> memoryview:
        """Return a slot's memory; the slot is free when this and everything that is made of it are gone."""
        owner = self._kind.from_buffer(self._arena.memory, slot * self.slot_size)
        self._viewed[slot] = weakref.ref(owner, lambda _: self._unviewed(slot))
        return memoryview(owner).cast("B").toreadonly()

    def _unviewed(self, slot: int) -> None:
        if self._viewed.pop(slot, None) is not None:
            self._free.append(slot)

    def close(self) -> None:
        """Let go of the memory; views that still live keep it."""
        self._viewed.clear()
        self._arena.close()


class AttachedArea:
    """The area as a Spark task's process sees it.

    Args:
        fd: its descriptor; belongs to this object, and is closed at once.
        slot_size, slots: as the processor said.

    Raises:
        ShmjetError: it cannot be mapped; the text names the limit that Spark sets.
    """

    def __init__(self, fd: int, slot_size: int, slots: int) -> None:
        self.slot_size = slot_size
        try:
            self._mapping = mmap.mmap(fd, slot_size * slots)
        except OSError as error:
            raise ShmjetError(
                f"{slot_size * slots} bytes of the job's shared memory cannot be mapped in this Spark worker: {error}; "
                "raise spark.executor.pyspark.memory (it limits the worker's address space), or lower `memory` of "
                "spark.source"
            ) from error
        finally:
            os.close(fd)
        self._memory = memoryview(self._mapping)

    def slot(self, number: int) -> memoryview:
        """Return a slot's memory, writable."""
        return self._memory[number * self.slot_size : (number + 1) * self.slot_size]

    def close(self) -> None:
        """Unmap it; where a slot's memory is still held, by the frames of an error say, it goes with that."""
        self._memory.release()
        with contextlib.suppress(BufferError):
            self._mapping.close()
