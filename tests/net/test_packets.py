"""The packet reader: streams cut anywhere give the same packets, and no bytes whatever do anything but end it."""

from __future__ import annotations

import contextlib
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet.net.packets import (
    BATCH,
    CONTROL,
    DATA,
    FLAG_MORE,
    FLOW,
    FLOW_ENTRY,
    GOODBYE,
    HEADER,
    HEADER_SIZE,
    HEARTBEAT,
    LONGEST,
    PIECE,
    Header,
    PacketError,
    message_packets,
    packet_reader,
)
from shmjet.net.wire_dump import dump


def packet(kind: int, body: bytes = b"", *, items: int = 0, flags: int = 0) -> bytes:
    return HEADER.pack(len(body), kind, flags, 3, 9, 1, 2, items, 0) + body


class Sink:
    """A reader that remembers what it delivers."""

    def __init__(self) -> None:
        self.got: list[tuple[int, bytes]] = []
        self.placed = 0
        self.reader = packet_reader(self._deliver, self._place)

    def _deliver(self, header: Header, body: memoryview) -> None:
        assert len(body) == header.length
        self.got.append((header.kind, bytes(body)))

    def _place(self, header: Header) -> memoryview:
        self.placed += 1
        return memoryview(bytearray(header.length))

    def feed(self, data: bytes, most: int = 1 << 20) -> None:
        view = memoryview(data)
        while view:
            room = self.reader.room()
            count = min(len(room), len(view), most)
            room[:count] = view[:count]
            self.reader.received(count)
            view = view[count:]


packets = st.one_of(
    st.integers(1, 40).map(lambda n: (DATA, bytes(range(16)) * n)),
    st.integers(1, 5000).map(lambda n: (BATCH, b"b" * n)),
    st.integers(0, 4).map(lambda n: (FLOW, FLOW_ENTRY.pack(1, 2, 0, -3) * n)),
    st.binary(max_size=300).map(lambda body: (CONTROL, body)),
    st.just((HEARTBEAT, b"")),
    st.binary(max_size=50).map(lambda body: (GOODBYE, body)),
)


@given(st.lists(packets, max_size=20), st.integers(1, 300))
def test_a_stream_cut_anywhere_gives_the_same_packets(sent: list[tuple[int, bytes]], step: int) -> None:
    sink = Sink()
    sink.feed(b"".join(packet(kind, body) for kind, body in sent), step)
    assert sink.got == sent
    assert sink.reader.pending == 0


def test_a_packet_larger_than_the_buffer_is_read_whole() -> None:
    sink = Sink()
    large = bytes(LONGEST[DATA])
    sink.feed(packet(HEARTBEAT) + packet(DATA, large) + packet(DATA, b"x" * 16), 60_000)
    assert [len(body) for _, body in sink.got] == [0, len(large), 16]


def test_a_batch_is_read_into_its_place() -> None:
    sink = Sink()
    batches = [bytes([n]) * 1_000_000 for n in range(3)]
    sink.feed(b"".join(packet(BATCH, body, items=1) for body in batches))
    assert [body for _, body in sink.got] == batches
    assert sink.placed == 3


@given(st.binary(max_size=400), st.integers(1, 64))
def test_no_bytes_do_anything_but_end_it(data: bytes, step: int) -> None:
    sink = Sink()
    with contextlib.suppress(PacketError):
        sink.feed(data, step)
    assert sink.reader.capacity <= 1 << 18 or sink.reader.needed <= HEADER_SIZE + max(LONGEST.values())


@given(st.tuples(*[st.integers(0, 255)] * HEADER_SIZE), st.binary(max_size=64))
def test_a_header_of_any_bytes_is_bounded(head: tuple[int, ...], body: bytes) -> None:
    sink = Sink()
    length = Header._make(HEADER.unpack(bytes(head))).length
    try:
        sink.feed(bytes(head) + body)
    except PacketError:
        return
    assert length <= max(LONGEST.values())


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (packet(99), "no packet has kind 99"),
        (HEADER.pack(LONGEST[CONTROL] + 1, CONTROL, 0, 0, 0, 0, 0, 0, 0), "262145 bytes; 262144 are allowed"),
        (HEADER.pack(0xFFFFFFFF, BATCH, 0, 0, 0, 0, 0, 1, 0), "4294967295 bytes"),
        (packet(DATA, b"x" * 15), "not a run of records"),
        (packet(DATA), "not a run of records"),
        (packet(FLOW, b"x" * 15), "not a list of limits"),
        (packet(BATCH, b"x", items=2), "2 items"),
        (packet(HEARTBEAT, flags=1), "flags 1"),
        (HEADER.pack(0, HEARTBEAT, 0, 0, 0, 0, 0, 0, 7), "and 7"),
    ],
)
def test_what_is_wrong_is_named(data: bytes, said: str) -> None:
    with pytest.raises(PacketError, match=said):
        Sink().feed(data)


@given(st.integers(0, 3 * PIECE + 1))
def test_a_message_goes_in_pieces(size: int) -> None:
    payload = bytes(size)
    parts = list(message_packets(payload))
    assert b"".join(bytes(piece) for _, piece in parts) == payload
    flags = [Header._make(HEADER.unpack(head)).flags for head, _ in parts]
    assert flags == [FLAG_MORE] * (len(parts) - 1) + [0]


def test_a_dump_shows_every_packet_and_record() -> None:
    from shmjet.ring import frames

    def record(kind: int, codec: int, count: int, payload: bytes, flags: int = 0) -> bytes:
        head = frames.RECORD.pack(len(payload), kind, codec, flags, count, 0)
        return head + payload + bytes(-len(payload) % 16)

    run = record(1, 1, 5, b"x" * 20) + record(2, 0, 0, (77).to_bytes(8, "little")) + record(3, 0, 0, bytes(8), 1)
    run += record(5, 3, 0, b"y" * 30, 1) + record(4, 0, 0, bytes(8))
    stream = packet(HEARTBEAT) + packet(DATA, run, items=5) + packet(BATCH, b"z" * 99, items=1)
    stream += packet(FLOW, FLOW_ENTRY.pack(9, 3, 0, 800)) + packet(CONTROL, b"hello", flags=1) + packet(GOODBYE, b"bye")
    lines = list(dump(io.BytesIO(stream)))
    text = "\n".join(lines)
    for said in (
        "HEARTBEAT",
        "DATA execution 9 edge 3 lane 1->2",
        "5 items columns, 20 bytes",
        "watermark 77",
        "barrier 0 terminal",
        "fragment bytes first",
        "DONE",
        "BATCH execution 9",
        "up to block 800 (52428800 bytes)",
        "CONTROL: 5 bytes, more follows: b'hello'",
        "GOODBYE: bye",
        f"{len(stream)}  end",
    ):
        assert said in text
    assert "cut off" in list(dump(io.BytesIO(stream[:-1])))[-1]


@given(st.binary(max_size=300))
def test_a_dump_of_any_bytes_ends(data: bytes) -> None:
    assert list(dump(io.BytesIO(data)))
