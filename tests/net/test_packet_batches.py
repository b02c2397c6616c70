"""Batches on their way from a connection into slots, as `PacketReader` puts them there, and when it looks for more."""

from __future__ import annotations

import mmap
import select
import socket
import time
from contextlib import closing
from typing import Any

import pytest

from shmjet._native import (
    RING_HEADER,
    SLAB_UNIT,
    EdgeFlow,
    LinkLoop,
    PacketReader,
    PacketWriter,
    RingConsumer,
    RingProducer,
    SlabReader,
    SlabWriter,
    ring_format,
)
from shmjet.net.packets import BATCH, HEADER, HEADER_SIZE, Header, opened

EXECUTION, OTHER = 9, 10
SLAB = 64 * (SLAB_UNIT + 64)


def packet(body: bytes, execution: int = EXECUTION) -> bytes:
    return HEADER.pack(len(body), BATCH, 0, 5, execution, 0, 7, 1, 0) + body


class Target:
    """A lane with a ring and a slab in one piece of memory, and a reader that fills them.

    Args:
        lane_bytes: of batches that lie before its consumer at most, if they are more than two.
    """

    def __init__(self, lane_bytes: int = 1 << 20) -> None:
        self.memory = memoryview(mmap.mmap(-1, RING_HEADER + 4096 + SLAB))
        ring_format(self.memory, 0, 4096, 64)
        self.producer, self.consumer = RingProducer(self.memory, 0), RingConsumer(self.memory, 0)
        at = RING_HEADER + 4096
        self.slab = SlabWriter(self.memory, at, SLAB)
        self.slots = SlabReader(self.memory, at, SLAB)
        self.slab.usable = 16
        self.words = memoryview(bytearray(16)).cast("q")
        self.flow = EdgeFlow(False, self.words)
        self.asked: list[Header] = []
        self.delivered: list[tuple[Header, bytes, int | None]] = []
        self.reader = PacketReader(opened, self._deliver, self._place)
        self.reader.add(EXECUTION, 5, 0, 7, self.producer, self.flow)
        self.reader.add_slab_target(EXECUTION, self.slab, self.memory, 3, lane_bytes)

    def _place(self, header: Header) -> memoryview:
        self.asked.append(header)
        return memoryview(bytearray(header.length))

    def _deliver(self, header: Header, body: memoryview) -> None:
        self.delivered.append((header, bytes(body), self.reader.slot))

    def feed(self, data: bytes) -> None:
        while data:
            room = self.reader.room()
            piece, data = data[: len(room)], data[len(room) :]
            room[: len(piece)] = piece
            self.reader.received(len(piece))

    def take(self) -> list[bytes]:
        """Return the batches whose places lie in the ring, and give their slots back."""
        found = []
        while (run := self.consumer.take_run(1 << 20)) is not None:
            assert (run[0], run[3:]) == (3, (1,))
            found.append(bytes(self.slots.take(run[1], run[2])))
        self.consumer.release()
        return found


@pytest.mark.parametrize("step", [7, 1000, 1 << 20])
def test_batches_lie_in_slots_and_nobody_is_asked(step: int) -> None:
    target = Target()
    bodies = [bytes([n]) * (SLAB_UNIT + n) for n in range(1, 4)]
    stream = b"".join(map(packet, bodies))
    for at in range(0, len(stream), step):
        target.feed(stream[at : at + step])
    assert target.take() == bodies
    assert not target.asked
    assert not target.delivered
    size = sum(map(len, bodies))
    assert (target.flow.bytes, target.flow.acked, target.flow.items) == (size, size, 3)
    assert target.words.tolist() == [3, size]
    assert target.slab.taken == 0


def test_python_places_what_finds_no_slot() -> None:
    target = Target()
    largest = bytes(SLAB // 3)  # more than a quarter of the slab
    target.feed(packet(largest))
    assert [header.length for header in target.asked] == [len(largest)]
    assert [(body, slot) for _, body, slot in target.delivered] == [(largest, None)]
    bodies = [bytes([n]) * 4 * SLAB_UNIT for n in range(6)]  # of which the usable part has room for four
    target.feed(b"".join(map(packet, bodies)))
    assert target.take() == bodies[:4]
    assert [body for _, body, _ in target.delivered[1:]] == bodies[4:]
    assert target.words.tolist() == [4, 16 * SLAB_UNIT]  # the reader notes the others when it takes them


def test_python_keeps_what_finds_no_room_in_the_ring() -> None:
    target = Target(lane_bytes=SLAB_UNIT)
    bodies = [bytes([n]) * SLAB_UNIT for n in range(4)]
    target.feed(packet(bodies[0]) + packet(bodies[1]) + packet(bodies[2]))
    (kept,) = target.delivered
    assert (kept[0].length, kept[1]) == (SLAB_UNIT, bodies[2])
    assert kept[2] is not None
    assert bytes(target.slots.take(kept[2], SLAB_UNIT)) == bodies[2]
    assert target.words.tolist() == [2, 2 * SLAB_UNIT]
    target.producer.reserved = True  # as Python does while something waits
    target.feed(packet(bodies[3]))
    assert len(target.asked) == 1
    assert target.take() == bodies[:2]


def test_the_end_of_another_execution_leaves_a_batch_alone() -> None:
    target = Target()
    body = bytes(range(256)) * 64
    stream = packet(body)
    target.feed(stream[: HEADER_SIZE + 100])
    target.reader.drop(OTHER)
    target.feed(stream[HEADER_SIZE + 100 :])
    assert target.take() == [body]


def test_the_end_of_its_own_execution_takes_its_slot_away() -> None:
    target = Target()
    body = bytes(range(256)) * 64
    stream = packet(body) + packet(b"next", OTHER)
    target.feed(stream[: HEADER_SIZE + 100])
    target.reader.drop(EXECUTION)
    for closing_one in (target.slots, target.slab, target.producer, target.consumer):
        getattr(closing_one, "close", lambda: None)()
    target.feed(stream[HEADER_SIZE + 100 :])
    assert [(header.execution, slot) for header, _, slot in target.delivered] == [(EXECUTION, None), (OTHER, None)]
    assert target.delivered[1][1] == b"next"


def test_a_slab_target_is_given_once_and_checked() -> None:
    target = Target()
    with pytest.raises(ValueError, match="already"):
        target.reader.add_slab_target(EXECUTION, target.slab, target.memory, 3, 1)
    wrong: Any = b""
    with pytest.raises(TypeError, match="SlabWriter"):
        target.reader.add_slab_target(OTHER, wrong, target.memory, 3, 1)


def test_the_rest_of_a_fast_stream_is_looked_for_though_nobody_wakes_the_link() -> None:
    size = 1 << 20
    target = Target()
    with socket.create_server(("127.0.0.1", 0)) as listener, select.epoll() as epoll:
        sender = socket.create_connection(listener.getsockname())
        sock, _ = listener.accept()
        with closing(sender), closing(sock):
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 << 20)
            link_loop = LinkLoop(epoll.fileno(), None)
            link_loop.add(sock.fileno(), PacketWriter(), target.reader)
            body = bytes(size)
            stream = packet(body) + packet(body)
            until = time.monotonic() + 60

            def carry_until(came: int) -> None:
                while target.reader.bytes_in < came and time.monotonic() < until:
                    link_loop.carry([], 1_000_000_000)

            sender.sendall(stream[: size + size // 2])
            carry_until(size + size // 2)
            sender.sendall(stream[size + size // 2 :])  # less than the system has been asked for
            carry_until(len(stream))
            assert target.reader.bytes_in == len(stream)
            assert [body for _, body, _ in target.delivered] == [body, body]
            link_loop.remove(sock.fileno())
