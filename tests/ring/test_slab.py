"""Slots of a slab: written once, read in place, given back with the last view, never more than half of them kept."""

from __future__ import annotations

import mmap
import os
import random
import sys

import numpy as np
import pytest

from shmjet._native import SLAB_UNIT, RingCorruptError, SlabReader, SlabWriter, Slot
from shmjet.ring.slab import IncomingSlabs, OutgoingSlab

SIZE = 1 << 20


class Pair:
    """A slab with memory from the start."""

    def __init__(self, size: int = SIZE) -> None:
        self.memory = mmap.mmap(-1, size)
        self.writer = SlabWriter(self.memory, 0, size)
        self.writer.usable = self.writer.units
        self.reader = SlabReader(self.memory, 0, size)


def test_a_slot_lives_as_long_as_its_last_view() -> None:
    pair = Pair()
    offset = pair.writer.put((b"head", np.arange(4)), 1)
    slot = pair.reader.take(offset, 64 + 32)
    numbers = np.frombuffer(slot, np.int64, 4, 64)
    part = numbers[1:3]
    assert (part.tolist(), bytes(memoryview(slot)[:4])) == ([1, 2], b"head")
    with pytest.raises(ValueError, match="read-only"):
        part[0] = 1
    del slot, numbers
    assert (pair.writer.taken, pair.reader.live) == (1, 1)
    assert part.tolist() == [1, 2]
    del part
    assert (pair.writer.taken, pair.reader.live) == (0, 0)


def test_slots_come_back_in_any_order_and_are_used_again() -> None:
    pair = Pair()
    rng = random.Random(7)
    held: list[tuple[Slot | bytes, int, int]] = []
    for step in range(5000):
        size = rng.randint(1, 6 * SLAB_UNIT)
        offset = pair.writer.put((bytes([step % 251]) * size,), 1)
        if offset >= 0:
            held.append((pair.reader.take(offset, size), step % 251, size))
        if offset < 0 or rng.random() < 0.6:
            for _ in range(min(len(held), rng.randint(1, 4))):
                slot, value, length = held.pop(rng.randrange(len(held)))
                content = bytes(memoryview(slot))
                assert content == bytes([value]) * length
                del slot
    held.clear()
    assert pair.writer.taken == 0
    assert pair.writer.put((bytes((pair.writer.units - 1) * SLAB_UNIT),), 1) == 0


def test_a_full_slab_refuses_and_takes_again() -> None:
    pair = Pair()
    slots = []
    while (offset := pair.writer.put((bytes(SLAB_UNIT),), 1)) >= 0:
        slots.append(offset)
    assert len(slots) == pair.writer.units
    pair.reader.take(slots[5], SLAB_UNIT)  # and the view goes at once
    assert pair.writer.put((bytes(SLAB_UNIT + 1),), 1) == -1
    assert pair.writer.put((bytes(SLAB_UNIT),), 1) == slots[5]


def test_readers_never_keep_more_than_half_as_views() -> None:
    pair = Pair()
    kept: list[Slot | bytes] = []
    for number in range(3 * pair.writer.units):
        offset = pair.writer.put((bytes([number % 200]) * SLAB_UNIT,), 1)
        assert offset >= 0
        kept.append(pair.reader.take(offset, SLAB_UNIT))
    assert pair.reader.live == pair.writer.units // 2
    assert [memoryview(slot)[9] for slot in kept] == [n % 200 for n in range(3 * pair.writer.units)]


def test_a_slot_with_several_readers_waits_for_all() -> None:
    pair = Pair()
    offset = pair.writer.put((b"x",), 2)
    pair.writer.retain(offset)
    first, second = pair.reader.take(offset, 1), pair.reader.take(offset, 1)
    pair.writer.drop(offset)
    del first
    assert pair.writer.taken == 1
    del second
    assert pair.writer.taken == 0


def test_mistakes_are_errors() -> None:
    pair = Pair()
    with pytest.raises(ValueError, match="no slab fits"):
        SlabWriter(pair.memory, 0, 4096)
    with pytest.raises(ValueError, match="no slab of"):
        SlabReader(mmap.mmap(-1, SIZE), 0, SIZE)
    with pytest.raises(ValueError, match="at least one reader"):
        pair.writer.put((b"a",), 0)
    with pytest.raises(ValueError, match="no slot starts"):
        pair.writer.retain(SLAB_UNIT)
    with pytest.raises(ValueError, match="usable"):
        pair.writer.usable = pair.writer.units + 1
    for place in ((1, 1), (SIZE, 1), (0, SIZE), (0, 0)):
        with pytest.raises(RingCorruptError):
            pair.reader.take(*place)
    with pytest.raises(TypeError):
        Slot()
    pair.writer.close()
    with pytest.raises(ValueError, match="closed"):
        pair.writer.put((b"a",), 1)


def test_a_forked_copy_of_the_reader_gives_nothing_back() -> None:
    pair = Pair()
    slot = pair.reader.take(pair.writer.put((b"x",), 1), 1)
    pid = os.fork()
    if pid == 0:
        del slot
        os._exit(0)
    os.waitpid(pid, 0)
    assert pair.writer.taken == 1
    assert bytes(memoryview(slot)) == b"x"


class TestOutgoingSlab:
    def make(self, memory: int = 1 << 30) -> tuple[OutgoingSlab, IncomingSlabs, list[tuple[int, int]]]:
        area = memoryview(mmap.mmap(-1, 4096 + 2 * (8 << 20)))
        reserved: list[tuple[int, int]] = []

        def reserve(offset: int, size: int) -> None:
            if sum(length for _, length in reserved) + size > memory:
                raise OSError("full")
            reserved.append((offset, size))

        offsets = [4096, 4096 + (8 << 20)]
        return OutgoingSlab(area, offsets[1], 8 << 20, 1, reserve), IncomingSlabs(area, offsets, 8 << 20), reserved

    def test_memory_is_reserved_when_it_is_needed(self) -> None:
        outgoing, incoming, reserved = self.make()
        assert reserved == []
        offset = outgoing.put(object(), 0, (b"a" * 9000,), 9000)
        assert reserved == [(4096 + (8 << 20), 1 << 20)]
        assert bytes(memoryview(incoming.take(1, offset, 9000))) == b"a" * 9000
        big = bytes(3 << 20)
        places = [outgoing.put(object(), 0, (big,), len(big)) for _ in range(3)]
        assert places[0] >= 0
        assert places[1] >= 0
        assert places[2] == -1  # the others have not been read
        assert sum(size for _, size in reserved) == 8 << 20
        assert [end for end, _ in reserved[1:]] == [a + b for a, b in reserved[:-1]]

    def test_without_memory_it_has_no_room(self) -> None:
        outgoing, _, _ = self.make(memory=0)
        assert outgoing.put(object(), 0, (b"a",), 1) == -1
        outgoing, _, reserved = self.make(memory=2 << 20)
        assert outgoing.put(object(), 0, (b"a",), 1) == 0
        assert outgoing.put(object(), 0, (bytes(1 << 20),), 1 << 20) == -1
        assert len(reserved) == 1

    def test_what_goes_to_several_readers_lies_there_once(self) -> None:
        outgoing, incoming, _ = self.make()
        item, other = object(), object()
        first = outgoing.put(item, 0, (b"abc",), 3)
        assert outgoing.put(item, 0, (b"abc",), 3) == first
        assert outgoing.put(item, 5, (b"def",), 3) != first
        assert outgoing.put(other, 0, (b"ghi",), 3) != first
        views = [incoming.take(1, first, 3) for _ in range(2)]
        assert [bytes(memoryview(view)) for view in views] == [b"abc"] * 2
        assert incoming.live == 2
        del views
        assert outgoing.put(object(), 0, (b"jkl",), 3) == first
        assert sys.getrefcount(item) == 2 + 0

    def test_views_outlive_the_slabs(self) -> None:
        outgoing, incoming, _ = self.make()
        slot = incoming.take(1, outgoing.put(object(), 0, (b"abc",), 3), 3)
        outgoing.close()
        incoming.close()
        assert bytes(memoryview(slot)) == b"abc"
        assert outgoing.put(object(), 0, (b"abc",), 3) == -1
