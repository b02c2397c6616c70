"""The memory in which a feed's rows wait until they may be seen, and its assignment to tasks.

Slots of shared memory first. A task waits for a slot as long as rows that may be seen already take up the memory: they
leave as fast as the job takes them, which is backpressure. When what cannot be seen yet fills it, waiting would never
end, so the task is given a file. Nothing here can hold up the end of an attempt.
"""

from __future__ import annotations

import enum
import os
import tempfile
from dataclasses import dataclass
from typing import Any

from shmjet.spark.mapping import copied, map_file
from shmjet.spark.protocol import Mode
from shmjet.spark.shm_area import FeedArea


class Room(enum.Enum):
    """What a task that wants memory gets."""

    SLOT = enum.auto()
    FILE = enum.auto()
    WAIT = enum.auto()


def room_for(mode: Mode, free: bool, visible_slots: int, visible_bytes: int, limit: int) -> Room:
    """Return what a task that wants memory gets.

    Args:
        mode: of its round.
        free: whether there is a free slot.
        visible_slots: slots whose rows may be seen and are not emitted yet.
        visible_bytes: all such bytes, in files too.
        limit: bytes of them that are enough.

    Example:
        >>> room_for(Mode.PARTITION, False, 0, 0, 100)
        <Room.FILE: 2>
    """
    if mode is not Mode.STREAM and visible_bytes >= limit:
        return Room.WAIT
    if free:
        return Room.SLOT
    if mode is Mode.STREAM or visible_slots:
        return Room.WAIT
    return Room.FILE


@dataclass(eq=False)
class Extent:
    """Some records of one attempt: in a slot, in memory of its own, or in a file."""

    used: int
    slot: int = -1
    memory: Any = None
    file: int = -1


class StagingMemory:
    """The memory of one feed processor, and what of it may be seen.

    Args:
        area: the slots.
        limit: bytes of visible rows that are enough.
    """

    def __init__(self, area: FeedArea, limit: int) -> None:
        self.area = area
        self._limit = limit
        self.visible_slots = 0
        self.visible_bytes = 0
        self.spilled = 0
        """Files given to tasks so far."""

    def room(self, mode: Mode) -> tuple[Room, int]:
        """Return what a task gets, and the slot or the file's descriptor, which is the caller's.

        Raises:
            OSError: there is neither memory nor room for a file.
        """
        slot = self.area.take()
        wanted = room_for(mode, slot is not None, self.visible_slots, self.visible_bytes, self._limit)
        if slot is not None and wanted is not Room.SLOT:
            self.area.give_back(slot)
        if wanted is Room.SLOT:
            assert slot is not None
            return wanted, slot
        if wanted is Room.FILE:
            self.spilled += 1
            return wanted, _nameless_file()
        return wanted, -1

    def compact(self, extent: Extent) -> None:
        """Move the few records of a hardly used slot out of it, so that small partitions do not take whole slots."""
        if extent.slot >= 0 and extent.used <= self.area.slot_size // 8:
            extent.memory = copied(self.area.memory(extent.slot), extent.used)
            self.area.give_back(extent.slot)
            extent.slot = -1

    def mark_visible(self, extent: Extent) -> None:
        """Note that an extent may be seen now."""
        self.visible_bytes += extent.used
        self.visible_slots += extent.slot >= 0

    def open(self, extent: Extent) -> Any:
        """Return a visible extent's memory, which lives as long as views of it; the extent has had its use then."""
        self.visible_bytes -= extent.used
        if extent.slot >= 0:
            self.visible_slots -= 1
            slot, extent.slot = extent.slot, -1
            return self.area.view(slot)
        if extent.file >= 0:
            try:
                return map_file(extent.file, extent.used)
            finally:
                os.close(extent.file)
                extent.file = -1
        return extent.memory

    def drop(self, extent: Extent) -> None:
        """Free an extent that will not become visible."""
        if extent.slot >= 0:
            self.area.give_back(extent.slot)
        if extent.file >= 0:
            os.close(extent.file)
        extent.slot = extent.file = -1
        extent.memory = None

    @property
    def must_copy(self) -> bool:
        """Whether consumers keep views of so many slots that further batches have to own their memory."""
        return self.area.viewed > max(1, self.area.slots // 4)


def _nameless_file() -> int:
    with tempfile.TemporaryFile(prefix="shmjet-spark-", buffering=0) as file:
        return os.dup(file.fileno())
