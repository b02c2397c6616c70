"""Rings between processes: a hundred million items with a checksum, a killed producer, half a gigabyte in one item."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from shmjet._native import DOORBELL_SIZE, RING_HEADER, Codec, Doorbell, Poller, RingConsumer, RingProducer, ring_format
from shmjet.data.marks import DONE
from shmjet.ring.arena import Arena
from shmjet.ring.lane import RingLaneReader, RingLaneWriter

SECOND = 1_000_000_000
RING_AT = 4096


class Side:
    """One process's end of a lane whose arena the fork has shared."""

    def __init__(self, arena: Arena, own: int) -> None:
        bells = [Doorbell(arena.memory, i * DOORBELL_SIZE) for i in range(2)]
        self.bell, self.other, self.memory = bells[own], bells[1 - own], arena.memory

    def wait(self, poller: Poller) -> None:
        self.bell.wait([poller], 0, 20_000, SECOND)


@contextmanager
def lane_from_child(
    capacity: int, queue_size: int, child: Callable[[RingLaneWriter, Side], None]
) -> Iterator[tuple[RingLaneReader, Side, int]]:
    """Fork a child that writes a lane; yields the reading end and the child's pid."""
    with Arena.create(RING_AT + RING_HEADER + capacity, label="test") as arena:
        ring_format(arena.memory, RING_AT, capacity, queue_size)
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                side = Side(arena, 0)
                child(RingLaneWriter(RingProducer(side.memory, RING_AT, side.other), Codec()), side)
                status = 0
            finally:
                os._exit(status)
        try:
            side = Side(arena, 1)
            reader = RingLaneReader(RingConsumer(side.memory, RING_AT, side.other), Codec())
            yield reader, side, pid
        finally:
            os.kill(pid, signal.SIGKILL)  # dead or not: it is still ours to wait for
            os.waitpid(pid, 0)


def push_all(writer: RingLaneWriter, side: Side, items: list[object]) -> None:
    poller, position = Poller([], [writer.producer]), 0
    while position < len(items):
        accepted = writer.push(items, position)
        position += accepted
        if not accepted:
            side.wait(poller)


def push_done(writer: RingLaneWriter, side: Side) -> None:
    poller = Poller([], [writer.producer])
    while not writer.push_mark(DONE):
        side.wait(poller)


@pytest.mark.slow
def test_twenty_million_items_arrive_once_and_in_order() -> None:
    chunk, chunks = 10_000, 2_000

    def child(writer: RingLaneWriter, side: Side) -> None:
        for n in range(chunks):
            push_all(writer, side, list(range(n * chunk, (n + 1) * chunk)))
        push_done(writer, side)

    with lane_from_child(1 << 18, 1 << 14, child) as (reader, side, _):
        poller = Poller([reader.consumer], [])
        total = count = 0
        while (got := reader.pull()) is not DONE:
            if got is None:
                side.wait(poller)
                continue
            assert isinstance(got, list)
            assert got[0] == count
            assert got[-1] == count + len(got) - 1
            total += sum(got)
            count += len(got)
    assert count == chunk * chunks
    assert total == count * (count - 1) // 2


@pytest.mark.slow
def test_an_item_of_100_megabytes_goes_through_a_small_ring() -> None:
    size = 100_000_000

    def child(writer: RingLaneWriter, side: Side) -> None:
        push_all(writer, side, [bytes(range(256)) * (size // 256)])
        push_done(writer, side)

    with lane_from_child(1 << 16, 1024, child) as (reader, side, _):
        poller = Poller([reader.consumer], [])
        items: list[bytes] = []
        while (got := reader.pull()) is not DONE:
            if isinstance(got, list):
                items += got
            elif got is None:
                side.wait(poller)
    assert len(items) == 1
    assert len(items[0]) == size // 256 * 256
    assert items[0][-256:] == items[0][:256] == bytes(range(256))


@pytest.mark.slow
@pytest.mark.parametrize("pause", range(12))
def test_a_producer_killed_at_any_moment_never_shows_a_part_of_a_record(pause: int) -> None:
    """Each frame says how often its number occurs; the child is killed while it writes as fast as it can."""

    def child(writer: RingLaneWriter, side: Side) -> None:
        n = 0
        while True:
            n += 1
            push_all(writer, side, [(n, "x" * (n % 50))] * (n % 97 + 1) if n % 3 else [complex(n, n)] * (n % 7 + 1))

    with lane_from_child(1 << 14, 1 << 12, child) as (reader, side, pid):
        poller = Poller([reader.consumer], [])
        kill_after, frames_seen, idle = 50 + 131 * pause, 0, 0
        seen: dict[int, int] = {}
        while idle < 3:
            got = reader.pull()
            if got is None:
                idle += side.bell.wait([poller], 0, 0, SECOND // 50) is False and frames_seen >= kill_after
                continue
            assert isinstance(got, list)
            frames_seen += 1
            if frames_seen == kill_after:
                os.kill(pid, signal.SIGKILL)
            for item in got:
                n = int(item.real) if isinstance(item, complex) else item[0]
                assert item == (complex(n, n) if n % 3 == 0 else (n, "x" * (n % 50)))
                seen[n] = seen.get(n, 0) + 1
        last = max(seen)
        assert sorted(seen) == list(range(1, last + 1))
        assert all(seen[n] == (n % 97 + 1 if n % 3 else n % 7 + 1) for n in range(1, last))
