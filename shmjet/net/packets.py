"""What travels on a connection between two members once both have proved themselves: packets, and which are wrong.

A packet is a header of 32 bytes and a payload. `docs/formats/packet.md` has the layout, and a test holds it against
this module. Everything that is read is bounded before it is used: a connection that brings anything impossible ends
with a `PacketError`. Reading and writing packets is the business of `PacketReader` and `PacketWriter`, in C. No socket
in here, and nothing is decoded or unpickled.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from shmjet._native import PacketReader
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
BULK: Final = 7
"""As CONTROL, of a message that may wait: data goes first."""

KIND_NAMES: Final = {
    DATA: "DATA",
    BATCH: "BATCH",
    FLOW: "FLOW",
    CONTROL: "CONTROL",
    HEARTBEAT: "HEARTBEAT",
    GOODBYE: "GOODBYE",
    BULK: "BULK",
}

FLAG_MORE: Final = 1
"""Of a control or bulk packet: another piece of the same message follows."""
FLAG_LZ4: Final = 2
"""Of a packet with data: the payload is an LZ4 block, see `compression`."""
FLAGS: Final = {DATA: FLAG_LZ4, BATCH: FLAG_LZ4, CONTROL: FLAG_MORE, BULK: FLAG_MORE}

FLOW_ENTRY: Final = struct.Struct("<QHHi")
"""Execution, edge, 0, limit in blocks."""

LONGEST: Final = {
    DATA: 2 << 20,
    BATCH: 8 << 20,
    FLOW: 1 << 20,
    CONTROL: 1 << 18,
    HEARTBEAT: 0,
    GOODBYE: 1024,
    BULK: 1 << 18,
}
"""Bytes of payload at most, by kind."""
PIECE: Final = 1 << 16
"""Bytes of a message between members that go into one packet, so that a heartbeat need not wait for all of it."""


class PacketError(ShmjetError):
    """A peer has sent what is not a packet; the connection cannot go on."""


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


def message_packets(payload: bytes, kind: int = CONTROL) -> Iterator[tuple[bytes, memoryview]]:
    """Yield headers and payloads of the packets, of kind CONTROL or BULK, that carry one message."""
    view, at = memoryview(payload), 0
    while True:
        piece = view[at : at + PIECE]
        at += PIECE
        flags = FLAG_MORE if at < len(view) else 0
        yield HEADER.pack(len(piece), kind, flags, 0, 0, 0, 0, 0, 0), piece
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
    if header.flags & ~FLAGS.get(header.kind, 0) or header.reserved:
        raise PacketError(f"a {KIND_NAMES[header.kind]} packet with flags {header.flags} and {header.reserved}")
    if header.kind == BATCH and (header.items > 1 or header.length == 0):
        raise PacketError(f"a BATCH packet with {header.items} items and {header.length} bytes")
    is_records = header.kind == DATA and not header.flags
    if (is_records and header.length % 16) or (header.kind == DATA and header.length == 0):
        raise PacketError(f"a DATA packet of {header.length} bytes is not a run of records")
    if header.kind == FLOW and header.length % FLOW_ENTRY.size:
        raise PacketError(f"a FLOW packet of {header.length} bytes is not a list of limits")


def opened(raw: memoryview) -> Header:
    """Return the header that lies in 32 bytes, if a peer of this version sends it.

    Raises:
        PacketError: as `check`.
    """
    header = Header._make(HEADER.unpack(raw))
    check(header)
    return header


def packet_reader(deliver: Callable[[Header, memoryview], None], place: Callable[[Header], memoryview]) -> PacketReader:
    """Return what cuts a stream into packets.

    The caller lets it read from a socket, or reads into `room()` and says how much came.

    Args:
        deliver: called with header and payload of each complete packet, or of what a lane's ring has not taken of one;
            the payload is valid during the call only, unless it was placed.
        place: called with the header of a BATCH packet; returns writable memory of its length, into which the payload
            is read and which `deliver` gets then.
    """
    return PacketReader(opened, deliver, place)
