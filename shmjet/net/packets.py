"""What travels on a connection between two members once both have proved themselves: packets, and how they are read.

A packet is a header of 32 bytes and a payload. `docs/formats/packet.md` has the layout, and a test holds it against
this
module. Everything that is read is bounded before it is used: a connection that brings anything impossible ends with a
`PacketError`. No socket in here, and nothing is decoded or unpickled.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from shmjet.core import ShmjetError

HEADER: Final = struct.Struct("<IBBHQIIII")
"""Bytes of the payload, kind, flags, edge, execution, producer, consumer, items, 0."""
HEADER_SIZE: Final = HEADER.size

DATA: Final = 1
"""Records of one lane, as they lie in a ring."""
BATCH: Final = 2
"""A batch of columns of one lane, as it lies in a slab."""
FLOW: Final = 3
"""How far the receiver lets senders go: `FLOW_ENTRY`s."""
CONTROL: Final = 4
"""A piece of what one member says to another."""
HEARTBEAT: Final = 5
"""A sign of life."""
GOODBYE: Final = 6
"""The connection ends as intended; the payload says why, in UTF-8."""

KIND_NAMES: Final = {
    DATA: "DATA",
    BATCH: "BATCH",
    FLOW: "FLOW",
    CONTROL: "CONTROL",
    HEARTBEAT: "HEARTBEAT",
    GOODBYE: "GOODBYE",
}

FLAG_MORE: Final = 1
"""Of a control packet: another piece of the same message follows."""

FLOW_ENTRY: Final = struct.Struct("<QHHi")
"""Execution, edge, 0, limit in blocks."""

LONGEST: Final = {DATA: 2 << 20, BATCH: 8 << 20, FLOW: 1 << 20, CONTROL: 1 << 18, HEARTBEAT: 0, GOODBYE: 1024}
"""Bytes of payload at most, by kind."""
PIECE: Final = 1 << 16
"""Bytes of a message between members that go into one packet, so that a heartbeat need not wait for all of it."""

_ROOM = 1 << 18
_LEAST_ROOM = 1 << 16


class PacketError(ShmjetError):
    """A peer has sent what is no packet; the connection cannot go on."""


class Header(NamedTuple):
    """The fields of a packet's header; `length` is that of the payload."""

    length: int
    kind: int
    flags: int
    edge: int
    execution: int
    producer: int
    consumer: int
    items: int
    reserved: int


def control_packets(payload: bytes) -> Iterator[tuple[bytes, memoryview]]:
    """Yield headers and payloads of the packets that carry one message."""
    view, at = memoryview(payload), 0
    while True:
        piece = view[at : at + PIECE]
        at += PIECE
        flags = FLAG_MORE if at < len(view) else 0
        yield HEADER.pack(len(piece), CONTROL, flags, 0, 0, 0, 0, 0, 0), piece
        if not flags:
            return


def check(header: Header) -> None:
    """Refuse a header that no peer of this version sends.

    Raises:
        PacketError: the text says what is wrong.
    """
    longest = LONGEST.get(header.kind)
    if longest is None:
        raise PacketError(f"no packet has kind {header.kind}")
    if header.length > longest:
        raise PacketError(f"a {KIND_NAMES[header.kind]} packet of {header.length} bytes; {longest} are allowed")
    allowed = FLAG_MORE if header.kind == CONTROL else 0
    if header.flags & ~allowed or header.reserved:
        raise PacketError(f"a {KIND_NAMES[header.kind]} packet with flags {header.flags} and {header.reserved}")
    if header.kind == BATCH and (header.items > 1 or header.length == 0):
        raise PacketError(f"a BATCH packet with {header.items} items and {header.length} bytes")
    if header.kind == DATA and (header.length == 0 or header.length % 16):
        raise PacketError(f"a DATA packet of {header.length} bytes is no run of records")
    if header.kind == FLOW and header.length % FLOW_ENTRY.size:
        raise PacketError(f"a FLOW packet of {header.length} bytes is no list of limits")


class PacketReader:
    """Cuts a stream into packets.

    The caller reads into `room()`, says how much came, and gets each complete packet by `deliver`.

    Args:
        deliver: called with header and payload; the payload is valid during the call only, unless it was placed.
        place: called with the header of a BATCH packet; returns writable memory of its length, into which the payload
            is read and which `deliver` gets then.
    """

    def __init__(self, deliver: Callable[[Header, memoryview], None], place: Callable[[Header], memoryview]) -> None:
        self._deliver = deliver
        self._place = place
        self._buffer = bytearray(_ROOM)
        self._view = memoryview(self._buffer)
        self._start = self._end = 0
        self._needed = HEADER_SIZE
        self._placed: memoryview | None = None
        self._header: Header | None = None
        self._filled = 0
        self._after_batch = False

    @property
    def pending(self) -> int:
        """Bytes that have come of packets that are not complete."""
        return self._filled if self._placed is not None else self._end - self._start

    def room(self) -> memoryview:
        """Return memory for the next bytes; never empty."""
        if self._placed is not None:
            return self._placed[self._filled :]
        if self._start == self._end:
            self._start = self._end = 0
            if (
                self._after_batch
            ):  # another one is likely: read its header alone, so that the rest goes where it belongs
                return self._view[:HEADER_SIZE]
        size = len(self._buffer)
        if self._start + self._needed > size or size - self._end < min(_LEAST_ROOM, self._needed):
            self._compact()
        return self._view[self._end :]

    def _compact(self) -> None:
        """Make room behind what is here; the buffer grows with what has come, and not with what a header promises."""
        kept, size = self._end - self._start, len(self._buffer)
        if self._needed > size and 2 * kept >= size:
            larger = bytearray(min(2 * size, -(-self._needed // _ROOM) * _ROOM))
            larger[:kept] = self._view[self._start : self._end]
            self._buffer = larger
            self._view = memoryview(larger)
        elif self._start:
            self._buffer[:kept] = self._buffer[self._start : self._end]
        self._start, self._end = 0, kept

    def received(self, count: int) -> None:
        """Take `count` bytes that were put into `room()`, and deliver what they complete.

        Raises:
            PacketError: this is no packet.
        """
        if self._placed is not None:
            self._filled += count
            if self._filled == len(self._placed):
                self._complete()
            return
        self._end += count
        view, unpack = self._view, HEADER.unpack_from
        while True:
            available = self._end - self._start
            if available < HEADER_SIZE:
                self._needed = HEADER_SIZE
                return
            header = Header._make(unpack(view, self._start))
            check(header)
            if header.kind == BATCH:
                if self._begin_batch(header, available):
                    continue
                return
            self._after_batch = False
            self._needed = HEADER_SIZE + header.length
            if available < self._needed:
                return
            at = self._start + HEADER_SIZE
            self._start += self._needed
            self._deliver(header, view[at : at + header.length])

    def forget_placed(self) -> None:
        """Read the rest of a BATCH packet into memory of its own: what it was read into goes away."""
        if self._placed is not None:
            self._placed = memoryview(bytearray(len(self._placed)))

    def _begin_batch(self, header: Header, available: int) -> bool:
        """Put what is here of a batch into its place; True when that is all of it."""
        placed = self._place(header)
        at = self._start + HEADER_SIZE
        here = min(available - HEADER_SIZE, header.length)
        placed[:here] = self._view[at : at + here]
        self._start = at + here
        self._needed = HEADER_SIZE
        self._placed, self._header, self._filled = placed, header, here
        if here < header.length:
            return False
        self._complete()
        return True

    def _complete(self) -> None:
        header, placed = self._header, self._placed
        assert header is not None
        assert placed is not None
        self._placed = self._header = None
        self._after_batch = True
        self._deliver(header, placed)
