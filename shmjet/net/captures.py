"""Captures of a network as `tcpdump -w`, tshark and wireshark write them (pcap, pcapng): the TCP streams in them.

Each direction of a connection is put together again: what was sent twice is taken once, what came out of order is put
in order. A capture may begin in the middle of a connection, and may lack segments that were sent; both are told. Knows
nothing of what the streams say.
"""

from __future__ import annotations

import io
import ipaddress
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO, NamedTuple

_PCAP = {
    b"\xd4\xc3\xb2\xa1": "<",
    b"\x4d\x3c\xb2\xa1": "<",
    b"\xa1\xb2\xc3\xd4": ">",
    b"\xa1\xb2\x3c\x4d": ">",
}
"""Byte orders by the first four bytes; the second and the last have nanoseconds."""
_PCAPNG = b"\x0a\x0d\x0d\x0a"
_SECTION, _INTERFACE, _SIMPLE, _ENHANCED = 0x0A0D0D0A, 1, 3, 6
_LONGEST = 1 << 20
"""Bytes of a packet or block at most; a file with more is not a capture of a network."""
_LINK_HEADERS = {0: 4, 1: 12, 12: -1, 101: -1, 108: 4, 113: 14, 228: -1, 229: -1, 276: 0}
"""Where the type of what a link's header carries lies, by the link's type: of loopback, Ethernet, nothing at all, "any"
in its two versions. With -1 and for loopback the address family shows in the packet itself."""
_VLANS = (0x8100, 0x88A8)
_TCP = 6
_MOST_EARLY = 1 << 22
"""Bytes behind a gap that are kept in the hope that it closes."""
_STARTS = 1000
"""So many segments are remembered, at which one may look for the start of something."""


class CaptureError(Exception):
    """A file is not a capture, or is damaged; the text says where."""


class Direction(NamedTuple):
    """The source and the destination of packets, as "address:port"."""

    source: str
    destination: str

    @property
    def back(self) -> Direction:
        """The other direction of the connection."""
        return Direction(self.destination, self.source)


@dataclass
class Stream:
    """All that was said in one direction of one connection.

    `data` holds the bytes, `size` how many, `starts` where segments begin in them (the first ones), `from_start`
    whether the capture has the connection from its beginning, and `lost` how many bytes are behind a gap and not in
    `data`.
    """

    data: io.BytesIO = field(default_factory=io.BytesIO)
    starts: list[int] = field(default_factory=list)
    from_start: bool = False
    size: int = 0
    lost: int = 0
    _next: int | None = None
    _early: dict[int, bytes] = field(default_factory=dict)
    _torn: bool = False

    def begin(self, sequence: int) -> None:
        """Take the number of the first byte, which who opens the connection has said."""
        if self._next is None:
            self._next, self.from_start = sequence, True

    def add(self, sequence: int, payload: bytes) -> None:
        """Take a segment, in order or not."""
        if self._torn:
            self.lost += len(payload)
            return
        if self._next is None:
            self._next = sequence
        self._take(sequence, payload)
        while ready := [number for number in self._early if self._ahead(number) <= 0]:
            for number in ready:
                early = self._early.pop(number)
                self.lost -= len(early)
                self._take(number, early)

    def _ahead(self, sequence: int) -> int:
        """Return how many bytes are missing before a number, negative when it was reached before; numbers wrap."""
        assert self._next is not None
        return (sequence - self._next + (1 << 31)) % (1 << 32) - (1 << 31)

    def _take(self, sequence: int, payload: bytes) -> None:
        ahead = self._ahead(sequence)
        if ahead > 0:
            self.lost += len(payload)
            if sequence in self._early:
                self.lost -= len(self._early[sequence])
            self._early[sequence] = payload
            if self.lost > _MOST_EARLY:  # the gap is for good
                self._torn = True
                self._early.clear()
            return
        new = payload[-ahead:] if ahead else payload
        if new:
            if len(self.starts) < _STARTS:
                self.starts.append(self.size)
            self.data.write(new)
            self.size += len(new)
            self._next = (sequence + len(payload)) % (1 << 32)


def is_capture(start: bytes) -> bool:
    """Say whether a file that starts so is a capture."""
    return start[:4] in _PCAP or start[:4] == _PCAPNG


def tcp_streams(capture: BinaryIO) -> dict[Direction, Stream]:
    """Return the streams of a capture, in the order in which their first segments came; their data is at its start.

    Args:
        capture: the file, from its beginning.

    Raises:
        CaptureError: it is none, or is damaged.
    """
    streams: dict[Direction, Stream] = {}
    for link, packet in _packets(capture):
        found = _segment(link, packet)
        if found is None:
            continue
        direction, sequence, opens, payload = found
        if opens and direction in streams and streams[direction].size:
            continue  # another connection with the same ports, later on
        stream = streams.setdefault(direction, Stream())
        if opens:
            stream.begin((sequence + 1) % (1 << 32))
        elif payload:
            stream.add(sequence, payload)
    for stream in streams.values():
        stream.data.seek(0)
    return streams


# -- the files ---------------------------------------------------------------------------------------------------------


def _packets(capture: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield the link's type and the bytes of each packet."""
    start = capture.read(4)
    if start == _PCAPNG:
        yield from _blocks(capture)
        return
    if start not in _PCAP:
        raise CaptureError(f"a capture does not start with {start.hex()}")
    order = _PCAP[start]
    head = capture.read(20)
    if len(head) < 20:
        raise CaptureError("the header of the capture is cut off")
    link = struct.unpack(f"{order}I", head[16:])[0] & 0xFFFF
    at, record = 24, struct.Struct(f"{order}IIII")
    while head := capture.read(record.size):
        if len(head) < record.size:
            return  # it was still being written
        size = record.unpack(head)[2]
        if size > _LONGEST:
            raise CaptureError(f"a packet of {size} bytes at {at}")
        packet = capture.read(size)
        if len(packet) < size:
            return
        at += record.size + size
        yield link, packet


def _blocks(capture: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield the packets of a pcapng file, whose first four bytes have been read."""
    order, links, at = "<", list[int](), 0
    start = _PCAPNG
    while len(start) == 4:
        rest = capture.read(8)
        if len(rest) < 8:
            return
        if start == _PCAPNG:  # which reads the same in both byte orders
            order, links = "<" if rest[4:] == b"\x4d\x3c\x2b\x1a" else ">", []
        kind, size = struct.unpack(f"{order}II", start + rest[:4])
        if not 12 <= size <= _LONGEST or size % 4:
            raise CaptureError(f"a block of {size} bytes at {at}")
        body = (rest[4:] + capture.read(size - 12))[:-4]
        if len(body) < size - 12:
            return
        if kind == _INTERFACE and len(body) >= 8:
            links.append(struct.unpack_from(f"{order}H", body)[0])
        elif kind == _ENHANCED and len(body) >= 20:
            interface, _, _, captured = struct.unpack_from(f"{order}IIII", body)
            if interface < len(links):
                yield links[interface], body[20 : 20 + captured]
        elif kind == _SIMPLE and len(body) >= 4 and links:
            yield links[0], body[4 : 4 + struct.unpack_from(f"{order}I", body)[0]]
        at += size
        start = capture.read(4)


# -- the packets -------------------------------------------------------------------------------------------------------


def _segment(link: int, packet: bytes) -> tuple[Direction, int, bool, bytes] | None:
    """Return direction, sequence number, whether it opens the connection, and payload of a TCP segment; else None."""
    body = _network_part(link, packet)
    if len(body) < 20:
        return None
    if body[0] >> 4 == 4:
        head, size = (body[0] & 15) * 4, int.from_bytes(body[2:4])
        if body[9] != _TCP or int.from_bytes(body[6:8]) & 0x3FFF:  # nor a piece of one
            return None
        source, destination = body[12:16], body[16:20]
        tcp = body[head : size or len(body)]  # what follows is padding; 0: the kernel had not cut it yet
    elif body[0] >> 4 == 6 and len(body) >= 40 and body[6] == _TCP:
        source, destination = body[8:24], body[24:40]
        size = int.from_bytes(body[4:6])
        tcp = body[40 : 40 + size if size else len(body)]
    else:
        return None
    if len(tcp) < 20:
        return None
    source_port, destination_port, sequence, _, offset, flags = struct.unpack_from("!HHIIBB", tcp)
    direction = Direction(_named(source, source_port), _named(destination, destination_port))
    return direction, sequence, bool(flags & 2), tcp[(offset >> 4) * 4 :]


def _network_part(link: int, packet: bytes) -> bytes:
    """Return what a link's header carries when that may be IP, else nothing."""
    at = _LINK_HEADERS.get(link)
    if at is None:
        return b""
    if at == -1:
        return packet
    if link in (0, 108):
        return packet[4:]
    if link == 276:
        return packet[20:]
    while len(packet) >= at + 2 and int.from_bytes(packet[at : at + 2]) in _VLANS:
        at += 4
    return packet[at + 2 :]


def _named(address: bytes, port: int) -> str:
    ip = ipaddress.ip_address(address)
    return f"{ip}:{port}" if ip.version == 4 else f"[{ip}]:{port}"
