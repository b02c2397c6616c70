"""A connected socket as the link uses it: plain or with TLS, never waiting.

A plain one is the business of the packet kernels in C; what goes by TLS they copy to and from memory. What would have
to wait is an answer, not an exception.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
from pathlib import Path
from typing import Protocol

from shmjet._native import PacketReader, PacketWriter

WOULD_BLOCK = -1
"""The answer of `send` and `receive_into` when the socket cannot now."""
DONE, MORE, BLOCKED = 0, 1, 2
"""The answers of `flush`: nothing is left to be sent; there is more; the socket is full."""
_STAGED = 64 << 10
"""Bytes that are gathered for TLS, which makes a record of each 16 KiB."""
_MOST_TURNS = 8
"""Times that one call writes or reads, so that no peer keeps the link for itself."""
_USER_TIMEOUT_MS = 15_000
NEAR_US = 100
"""Microseconds of a round trip up to which a peer is near: 100 Gbit/s need 1.2 MB under way on a longer one."""
NEAR_BUFFER = 512 << 10
"""Bytes of the send buffer towards a near peer; the system counts its own records in it, and so doubles it."""
_MIN_RTT = 148
"""Where `struct tcp_info` has the shortest round trip."""

Buffer = bytes | bytearray | memoryview


class Wire(Protocol):
    """One connected socket."""

    @property
    def socket(self) -> socket.socket:
        """The socket itself."""
        ...

    @property
    def is_plain(self) -> bool:
        """Whether the system gets packets as they are."""
        ...

    def fileno(self) -> int:
        """Return its descriptor."""
        ...

    def flush(self, writer: PacketWriter) -> int:
        """Send packets; returns DONE, MORE or BLOCKED. OSError when it is broken."""
        ...

    def receive(self, reader: PacketReader) -> bool:
        """Read packets; False at the end of the stream. OSError when it is broken, and what they raise."""
        ...

    def send(self, data: Buffer) -> int:
        """Send what it takes of some bytes; returns how many, or WOULD_BLOCK. OSError when it is broken."""
        ...

    def receive_into(self, view: memoryview) -> int:
        """Read into memory; returns bytes, 0 at the end of the stream, or WOULD_BLOCK. OSError when it is broken."""
        ...

    @property
    def has_more(self) -> bool:
        """Whether something has been read from the system already, which no poll will show."""
        ...

    @property
    def has_staged(self) -> bool:
        """Whether packets have been taken from a writer that have not left."""
        ...

    def close(self, *, hard: bool = False) -> None:
        """Close it; `hard`: with a reset, whatever has not been sent."""
        ...


def tune(sock: socket.socket) -> None:
    """Set what every connection between members has."""
    sock.setblocking(False)
    if sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _USER_TIMEOUT_MS)


def tune_near(sock: socket.socket) -> None:
    """Keep little under way to a member that is near, so that buffers are used again while they are in the cache.

    The system lets a send buffer grow to megabytes, which a long way needs. On one host or in one rack they only make
    each copy slower: 64 Ki rows took 0.20 ms of the sender's time for each MiB, and 0.15 ms with this bound. Nothing is
    changed where the way is long, or where the system allows less than that.
    """
    if sock.family not in (socket.AF_INET, socket.AF_INET6) or round_trip_us(sock) > NEAR_US:
        return
    try:
        allowed = int(Path("/proc/sys/net/core/wmem_max").read_text())
    except (OSError, ValueError):
        return
    if allowed >= NEAR_BUFFER:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, NEAR_BUFFER)


def round_trip_us(sock: socket.socket) -> int:
    """Return the shortest round trip that the system has seen on a connection; very long where it does not say."""
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _MIN_RTT + 4)
    found: int = struct.unpack_from("=I", info, _MIN_RTT)[0] if len(info) >= _MIN_RTT + 4 else 1 << 32
    return found


def _close(sock: socket.socket, hard: bool) -> None:
    if hard:
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


class PlainWire:
    """A socket in the clear. It belongs to the wire."""

    is_plain = True
    has_more = False
    has_staged = False

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock

    def fileno(self) -> int:
        return self.socket.fileno()

    def flush(self, writer: PacketWriter) -> int:
        return writer.flush(self.socket.fileno())

    def receive(self, reader: PacketReader) -> bool:
        return reader.receive(self.socket.fileno())

    def send(self, data: Buffer) -> int:
        try:
            return self.socket.send(data)
        except (BlockingIOError, InterruptedError):
            return WOULD_BLOCK

    def receive_into(self, view: memoryview) -> int:
        try:
            return self.socket.recv_into(view)
        except (BlockingIOError, InterruptedError):
            return WOULD_BLOCK

    def close(self, *, hard: bool = False) -> None:
        _close(self.socket, hard)


class TlsWire:
    """A socket with TLS whose handshake is over. It belongs to the wire."""

    is_plain = False

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self.socket = sock
        self._stage: memoryview | None = None
        self._staged = memoryview(b"")

    def fileno(self) -> int:
        return self.socket.fileno()

    @property
    def has_more(self) -> bool:
        return self.socket.fileno() >= 0 and self.socket.pending() > 0

    @property
    def has_staged(self) -> bool:
        return bool(self._staged)

    def flush(self, writer: PacketWriter) -> int:
        if self._stage is None:
            self._stage = memoryview(bytearray(_STAGED))
        for _ in range(_MOST_TURNS):
            if not self._staged:
                self._staged = self._stage[: writer.copy(self._stage)]
                if not self._staged:
                    return DONE
            sent = self.send(self._staged)  # a record that was begun has to be offered again as it is
            if sent == WOULD_BLOCK:
                return BLOCKED
            self._staged = self._staged[sent:]
        return MORE

    def receive(self, reader: PacketReader) -> bool:
        for _ in range(_MOST_TURNS):
            count = self.receive_into(reader.room())
            if count == WOULD_BLOCK:
                return True
            if count == 0:
                return False
            reader.received(count)
        return True

    def send(self, data: Buffer) -> int:
        try:
            return self.socket.send(data)
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError, BlockingIOError, InterruptedError):
            return WOULD_BLOCK

    def receive_into(self, view: memoryview) -> int:
        try:
            return self.socket.recv_into(view)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError, InterruptedError):
            return WOULD_BLOCK
        except ssl.SSLEOFError:
            return 0

    def close(self, *, hard: bool = False) -> None:
        _close(self.socket, hard)
