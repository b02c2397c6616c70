"""A connected socket as the link uses it: plain or with TLS, never waiting.

Both kinds take many buffers at once and read into given memory. What would have to wait is an answer, not an exception.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
from collections.abc import Sequence
from typing import Protocol

WOULD_BLOCK = -1
"""The answer of `send` and `receive_into` when the socket cannot now."""
MOST_BUFFERS = 512
"""Buffers that one system call gets."""
_JOINED = 16 << 10
"""Small buffers are joined up to so many bytes for TLS, which makes a record of each."""
_USER_TIMEOUT_MS = 15_000

Buffer = bytes | bytearray | memoryview


class Wire(Protocol):
    """One connected socket."""

    def fileno(self) -> int:
        """Return its descriptor."""
        ...

    def send(self, buffers: Sequence[Buffer]) -> int:
        """Send what it takes of the buffers, in order; returns bytes, or WOULD_BLOCK. OSError when it is broken."""
        ...

    def receive_into(self, view: memoryview) -> int:
        """Read into memory; returns bytes, 0 at the end of the stream, or WOULD_BLOCK. OSError when it is broken."""
        ...

    @property
    def has_more(self) -> bool:
        """Whether something has been read from the system already, which no poll will show."""
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


def _close(sock: socket.socket, hard: bool) -> None:
    if hard:
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


class PlainWire:
    """A socket in the clear. It belongs to the wire."""

    has_more = False

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self._send = sock.sendmsg
        self._receive = sock.recv_into

    def fileno(self) -> int:
        return self.socket.fileno()

    def send(self, buffers: Sequence[Buffer]) -> int:
        try:
            return self._send(buffers)
        except (BlockingIOError, InterruptedError):
            return WOULD_BLOCK

    def receive_into(self, view: memoryview) -> int:
        try:
            return self._receive(view)
        except (BlockingIOError, InterruptedError):
            return WOULD_BLOCK

    def close(self, *, hard: bool = False) -> None:
        _close(self.socket, hard)


class TlsWire:
    """A socket with TLS whose handshake is over. It belongs to the wire."""

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self.socket = sock

    def fileno(self) -> int:
        return self.socket.fileno()

    @property
    def has_more(self) -> bool:
        return self.socket.fileno() >= 0 and self.socket.pending() > 0

    def send(self, buffers: Sequence[Buffer]) -> int:
        sent, at = 0, 0
        while at < len(buffers):
            piece: Buffer = buffers[at]
            count = 1
            if len(piece) < _JOINED:
                size = len(piece)
                while at + count < len(buffers) and size + len(buffers[at + count]) <= _JOINED:
                    size += len(buffers[at + count])
                    count += 1
                piece = b"".join(buffers[at : at + count]) if count > 1 else piece
            try:
                done = self.socket.send(piece)
            except (ssl.SSLWantWriteError, ssl.SSLWantReadError, BlockingIOError, InterruptedError):
                return sent or WOULD_BLOCK
            sent += done
            if done < len(piece):
                return sent
            at += count
        return sent

    def receive_into(self, view: memoryview) -> int:
        try:
            return self.socket.recv_into(view)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError, InterruptedError):
            return WOULD_BLOCK
        except ssl.SSLEOFError:
            return 0

    def close(self, *, hard: bool = False) -> None:
        _close(self.socket, hard)
