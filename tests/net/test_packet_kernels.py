"""`PacketWriter`, `PacketReader` and `LinkLoop` against a reference of a few lines: nothing is lost, doubled or
changed, whatever a socket takes, and nothing points into memory that has gone."""

from __future__ import annotations

import contextlib
import mmap
import os
import select
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet._native import (
    RING_HEADER,
    EdgeFlow,
    LinkLoop,
    PacketReader,
    PacketWriter,
    Poller,
    RingConsumer,
    RingCorruptError,
    RingProducer,
    ring_format,
)
from shmjet.net.packets import BATCH, BULK, CONTROL, DATA, HEADER, HEADER_SIZE, Header, PacketError, opened
from shmjet.ring import frames

EXECUTION = 9


class Lane:
    """A ring with both of its ends, and what may go by it."""

    def __init__(self, capacity: int = 1 << 16, *, bounded: bool = False) -> None:
        self.memory = memoryview(mmap.mmap(-1, RING_HEADER + capacity))
        ring_format(self.memory, 0, capacity, 4096)
        self.producer = RingProducer(self.memory, 0)
        self.consumer = RingConsumer(self.memory, 0)
        self.words = memoryview(bytearray(16)).cast("q")
        self.flow = EdgeFlow(bounded, self.words)

    def put(self, payload: bytes, items: int = 1) -> bool:
        return self.producer.push_bytes(frames.KIND_ITEMS, frames.CODEC_PICKLE, 0, items, (payload,))

    def content(self) -> list[bytes]:
        """Return the payloads of all records, which are gone then."""
        found = []
        while (run := self.consumer.take_run(1 << 20)) is not None:
            start, size = run[0], run[1]
            found += [payload for _, payload in records(bytes(self.memory[start : start + size]))]
        self.consumer.release()
        return found


def records(run: bytes) -> Iterator[tuple[int, bytes]]:
    """The reference: items and payloads of a run of records."""
    at = 0
    while at < len(run):
        length, _, _, _, count, _ = frames.RECORD.unpack_from(run, at)
        yield count, run[at + 16 : at + 16 + length]
        at += -(-(16 + length) // 16) * 16


def packets(stream: bytes) -> Iterator[tuple[Header, bytes]]:
    """The reference: a complete stream as packets."""
    at = 0
    while at < len(stream):
        header = Header._make(HEADER.unpack_from(stream, at))
        at += HEADER_SIZE + header.length
        yield header, stream[at - header.length : at]


def no_slot(*_: int) -> bytes:
    raise AssertionError("no batch was put into a slab")


def control(body: bytes) -> bytes:
    return HEADER.pack(len(body), CONTROL, 0, 0, 0, 0, 0, 0, 0) + body


def bulk(body: bytes) -> bytes:
    return HEADER.pack(len(body), BULK, 0, 0, 0, 0, 0, 0, 0) + body


def drained(writer: PacketWriter, step: int = 1 << 20) -> bytes:
    room, out = bytearray(step), b""
    while count := writer.copy(room):
        out += bytes(room[:count])
    return out


def test_what_may_wait_is_one_packet_behind_the_data() -> None:
    writer, lane = PacketWriter(), Lane()
    writer.add(EXECUTION, 5, 0, 7, lane.consumer, lane.flow, 1000, no_slot)
    for _ in range(2):
        writer.queue_bulk(bulk(b"some of a file"))
    assert writer.has_output
    writer.queue(control(b"urgent"))
    assert lane.put(b"first", 1)
    room = bytearray(1)
    assert writer.copy(room) == 1
    assert lane.put(b"second", 1)
    kinds = [header.kind for header, _ in packets(bytes(room) + drained(writer))]
    assert kinds == [CONTROL, DATA, BULK, DATA, BULK]
    assert not writer.has_output


payloads = st.lists(st.tuples(st.integers(0, 2), st.binary(max_size=400)), max_size=60)


@given(payloads, st.integers(1, 2000), st.integers(1, 300))
def test_what_a_writer_sends_is_what_the_reference_reads(sent: list[tuple[int, bytes]], limit: int, step: int) -> None:
    writer, lanes = PacketWriter(), [Lane() for _ in range(3)]
    for number, lane in enumerate(lanes):
        writer.add(EXECUTION, 5, number, 7, lane.consumer, lane.flow, limit, no_slot)
    stream = b""
    for at, (number, payload) in enumerate(sent):
        assert lanes[number].put(payload, at + 1)
        if at % 7 == 3:
            writer.queue(control(bytes([at])))
        if at % 5 == 4:
            stream += drained(writer, step)
    stream += drained(writer, step)
    found: dict[int, list[tuple[int, bytes]]] = {0: [], 1: [], 2: []}
    for header, body in packets(stream):
        if header.kind == CONTROL:
            assert len(body) == 1
            continue
        assert header[1:6:1] == (DATA, 0, 5, EXECUTION, header.producer)
        assert header.consumer == 7
        run = list(records(body))
        assert header.items == sum(count for count, _ in run)
        assert len(run) == 1 or header.length <= limit
        found[header.producer] += run
    for number, lane in enumerate(lanes):
        mine = [(at + 1, payload) for at, (to, payload) in enumerate(sent) if to == number]
        assert found[number] == mine
        assert lane.flow.items == sum(count for count, _ in mine)
        assert lane.words.tolist() == [lane.flow.items, lane.flow.bytes]
        assert lane.producer.free_bytes == lane.producer.capacity
    assert sum(header.kind == CONTROL for header, _ in packets(stream)) == len(range(3, len(sent), 7))
    assert (writer.bytes_out, writer.queued, writer.has_output) == (len(stream), 0, False)


@given(payloads, st.integers(1, 300))
def test_what_a_reader_puts_into_rings_is_what_was_sent(sent: list[tuple[int, bytes]], step: int) -> None:
    writer, sources = PacketWriter(), [Lane() for _ in range(3)]
    targets = [Lane(4096) for _ in range(2)]
    rest: list[tuple[int, bytes]] = []
    reader = PacketReader(opened, lambda header, body: rest.append((header.producer, bytes(body))), no_slot)
    for number, lane in enumerate(sources):
        writer.add(EXECUTION, 5, number, 7, lane.consumer, lane.flow, 1000, no_slot)
    for number, lane in enumerate(targets):  # the third one is not known here
        reader.add(EXECUTION, 5, number, 7, lane.producer, lane.flow)
    for number, payload in sent:
        assert sources[number].put(payload)
    stream = memoryview(drained(writer))
    while stream:
        room = reader.room()
        count = min(len(room), len(stream), step)
        room[:count] = stream[:count]
        reader.received(count)
        stream = stream[count:]
    assert reader.pending == 0
    for number in range(3):
        mine = [payload for to, payload in sent if to == number]
        over = [payload for to, run in rest if to == number for _, payload in records(run)]
        if number == 2:
            assert over == mine
            continue
        flow = targets[number].flow
        assert targets[number].words[0] == len(mine)  # noted when it came, whether or not there was room
        assert flow.bytes == flow.acked
        assert flow.items == len(mine) - len(over)
        got = targets[number].content()
        if not over:
            assert got == mine
        else:  # Python got what found no room, and what came behind it may have fitted again
            assert sorted(got + over) == sorted(mine)


def test_a_lane_that_is_held_is_pythons() -> None:
    lane, got = Lane(), []
    reader = PacketReader(opened, lambda header, body: got.append(bytes(body)), no_slot)
    reader.add(EXECUTION, 5, 0, 7, lane.producer, lane.flow)
    record = frames.RECORD.pack(16, frames.KIND_ITEMS, frames.CODEC_PICKLE, 0, 1, 0) + b"x" * 16
    packet = HEADER.pack(len(record), DATA, 0, 5, EXECUTION, 0, 7, 1, 0) + record
    for reserved in (False, True, False):
        lane.producer.reserved = reserved
        reader.room()[: len(packet)] = packet
        reader.received(len(packet))
    assert got == [record]
    assert lane.content() == [b"x" * 16] * 2
    reader.drop(EXECUTION)
    reader.room()[: len(packet)] = packet
    reader.received(len(packet))
    assert len(got) == 2


def test_a_window_that_closes_stops_its_lanes_alone() -> None:
    writer, shut, free = PacketWriter(), Lane(1 << 18, bounded=True), Lane(1 << 18, bounded=True)
    shut.flow.bytes = 1 << 16
    shut.flow.limit = 1
    free.flow.limit = 100
    for number, lane in enumerate((shut, free)):
        writer.add(EXECUTION, number, 0, 7, lane.consumer, lane.flow, 1000, no_slot)
        for _ in range(3):
            assert lane.put(bytes(30_000))
    poller = Poller([shut.consumer], [])
    by_edge = [header.edge for header, _ in packets(drained(writer))]
    assert sorted(by_edge) == [0, 0, 0, 1, 1, 1]  # 2 x 30,000 still lie in block 1
    assert shut.put(b"one more")
    assert not poller.ready()
    assert drained(writer) == b""
    shut.flow.limit = 2
    shut.consumer.enabled = True
    assert len(list(packets(drained(writer)))) == 1


def test_what_is_under_way_survives_the_end_of_its_execution() -> None:
    writer, lane = PacketWriter(), Lane()
    writer.add(EXECUTION, 5, 0, 7, lane.consumer, lane.flow, 1000, no_slot)
    assert lane.put(b"a" * 500)
    first = bytearray(100)
    assert writer.copy(first) == 100
    with pytest.raises(BufferError):
        lane.consumer.close()
    writer.drop(EXECUTION)
    lane.consumer.close()
    lane.memory[RING_HEADER:] = bytes(len(lane.memory) - RING_HEADER)
    ((header, body),) = packets(bytes(first) + drained(writer))
    assert header.items == 1
    assert list(records(body)) == [(1, b"a" * 500)]


def test_batches_are_sent_from_where_they_lie_and_let_go() -> None:
    writer, lane, slot, asked = PacketWriter(), Lane(), bytearray(b"batch" * 1000), []

    def open_slot(slab: int, offset: int, length: int) -> memoryview:
        asked.append((slab, offset, length))
        return memoryview(slot)[offset : offset + length]

    writer.add(EXECUTION, 5, 0, 7, lane.consumer, lane.flow, 1000, open_slot)
    assert lane.producer.push_bytes(frames.KIND_ITEMS, frames.CODEC_SLOT, 0, 1, (frames.SLOT.pack(3, 0, 100, 4000),))
    room = bytearray(2000)
    assert writer.copy(room) == 2000
    with pytest.raises(BufferError):
        slot.clear()
    ((header, body),) = packets(bytes(room) + drained(writer))
    assert (header.kind, header.items, body) == (BATCH, 1, bytes(slot[100:4100]))
    assert asked == [(3, 100, 4000)]
    slot.clear()


def test_damage_in_a_ring_is_an_error_of_this_connection() -> None:
    writer, lane = PacketWriter(), Lane()
    writer.add(EXECUTION, 5, 0, 7, lane.consumer, lane.flow, 1000, no_slot)
    assert lane.put(b"x")
    lane.memory[RING_HEADER : RING_HEADER + 4] = b"\xff" * 4
    with pytest.raises(RingCorruptError, match="impossible length"):
        drained(writer)


def test_a_flow_lets_go_of_its_words() -> None:
    words = memoryview(bytearray(16)).cast("q")
    flow = EdgeFlow(False, words)
    flow.note(3, 400)
    assert words.tolist() == [3, 400]
    with pytest.raises(BufferError):
        words.release()
    flow.close()
    flow.note(1, 1)
    words.release()
    with pytest.raises(ValueError, match="two of 64 bits"):
        EdgeFlow(False, bytearray(8))


def test_a_reader_refuses_to_be_called_by_what_it_calls() -> None:
    errors = []

    def deliver(header: Header, body: memoryview) -> None:
        with pytest.raises(RuntimeError, match="in use") as caught:
            reader.received(0)
        errors.append(caught)

    reader = PacketReader(opened, deliver, no_slot)
    packet = control(b"hello")
    reader.room()[: len(packet)] = packet
    reader.received(len(packet))
    assert len(errors) == 1
    with pytest.raises(ValueError, match="room"):
        reader.received(1 << 30)
    reader.close()
    with pytest.raises(ValueError, match="closed"):
        reader.room()


class Station:
    """A link loop with one connection."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.epoll = select.epoll()
        self.link_loop = LinkLoop(self.epoll.fileno(), None)
        self.writer = PacketWriter()
        self.got: list[tuple[int, bytes]] = []
        self.reader = PacketReader(opened, lambda header, body: self.got.append((header.kind, bytes(body))), no_slot)
        self.link_loop.add(sock.fileno(), self.writer, self.reader)

    def carry(self) -> list[tuple[int, int]]:
        return self.link_loop.carry([], 0)

    def close(self) -> None:
        self.link_loop.remove(self.sock.fileno())
        self.reader.close()
        self.epoll.close()
        self.sock.close()


@contextlib.contextmanager
def stations(**options: int) -> Iterator[tuple[Station, Station]]:
    with contextlib.ExitStack() as stack:
        pair = socket.socketpair()
        for sock in pair:
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, options.get("buffer", 1 << 16))
        both = Station(pair[0]), Station(pair[1])
        for station in both:
            stack.callback(station.close)
        yield both


def test_a_link_loop_waits_for_a_full_socket_and_goes_on() -> None:
    with stations(buffer=4096) as (first, second):
        source, target = Lane(1 << 18), Lane(1 << 18)
        first.writer.add(EXECUTION, 5, 0, 7, source.consumer, source.flow, 16384, no_slot)
        second.reader.add(EXECUTION, 5, 0, 7, target.producer, target.flow)
        sent = [bytes([n % 251]) * (n * 13 % 900) for n in range(200)]
        for payload in sent:
            assert source.put(payload)
        first.carry()
        assert first.writer.has_output  # more than the socket takes
        for _ in range(1000):
            assert second.carry() == first.carry() == []
            if target.flow.items == len(sent):
                break
        assert target.content() == sent
        assert not first.writer.has_output
        assert source.producer.free_bytes == source.producer.capacity


def test_a_link_loop_says_what_is_not_its_own() -> None:
    with stations() as (first, second):
        bell = os.eventfd(0)
        try:
            second.epoll.register(bell, select.EPOLLIN)
            first.writer.queue(control(b"for Python"))
            first.carry()
            os.eventfd_write(bell, 1)
            assert second.link_loop.carry([], 10_000_000_000) == [(bell, select.EPOLLIN)]
            assert second.got == [(CONTROL, b"for Python")]
        finally:
            os.close(bell)


def test_a_link_loop_returns_for_a_packet_that_is_pythons() -> None:
    with stations() as (first, second):
        first.writer.queue(control(b"for Python"))
        first.carry()
        assert second.link_loop.carry([], 60_000_000_000) == []
        assert second.got == [(CONTROL, b"for Python")]


def test_the_end_of_a_connection_and_what_breaks_it_are_told() -> None:
    with stations() as (first, second):
        first.writer.queue(b"\xff" * HEADER_SIZE)
        first.carry()
        with pytest.raises(PacketError, match="no packet has kind 255"):
            second.carry()
        assert second.link_loop.current == second.sock.fileno()
    with stations() as (first, second):
        first.sock.shutdown(socket.SHUT_WR)
        assert second.carry() == [(second.sock.fileno(), 0)]


def test_a_poller_that_is_ready_ends_the_wait() -> None:
    with stations() as (first, _):
        lane: Any = Lane()
        assert lane.put(b"x")
        began = time.monotonic()
        assert first.link_loop.carry([Poller([lane.consumer], [])], 60_000_000_000) == []
        assert time.monotonic() - began < 60
