"""Carries bytes between a client's TLS connection and a socket that its member was given, both ways, as they are.

Each way has a bounded buffer: who does not read stops the other end, and nobody else.
"""

from __future__ import annotations

import select
import socket

from shmjet.net.wires import WOULD_BLOCK, Wire

_ROOM = 1 << 16


class _Way:
    """One direction's buffer."""

    __slots__ = ("data", "ended", "room")

    def __init__(self, data: bytes = b"") -> None:
        self.data = memoryview(data)
        self.room = memoryview(bytearray(_ROOM))
        self.ended = False


class Relay:
    """Two sockets, each of which gets what the other one says.

    Args:
        wire: to the client.
        inner: to the member; not blocking. Both belong to the relay.
    """

    def __init__(self, wire: Wire, inner: socket.socket) -> None:
        self.wire = wire
        self.inner = inner
        self._in = _Way()
        self._out = _Way()

    def wants(self) -> tuple[int, int]:
        """Return the events that wire and inner socket are waited for."""
        outer = (0 if self._in.data or self._in.ended else select.EPOLLIN) | (select.EPOLLOUT if self._out.data else 0)
        inner = (0 if self._out.data or self._out.ended else select.EPOLLIN) | (select.EPOLLOUT if self._in.data else 0)
        return outer, inner

    def advance(self) -> bool:
        """Carry what can be; False when one side has ended and all that it said has been passed on.

        Raises:
            OSError: a connection is broken.
        """
        moved = True
        while moved:
            moved = self._inwards()
            moved = self._outwards() or moved
        return not (self._in.ended and not self._in.data) and not (self._out.ended and not self._out.data)

    def _inwards(self) -> bool:
        way = self._in
        if not way.data and not way.ended:
            count = self.wire.receive_into(way.room)
            if count == WOULD_BLOCK:
                return False
            way.ended = count == 0
            way.data = way.room[:count]
        if not way.data:
            return False
        try:
            sent = self.inner.send(way.data)
        except BlockingIOError:
            return False
        way.data = way.data[sent:]
        return True

    def _outwards(self) -> bool:
        way = self._out
        if not way.data and not way.ended:
            try:
                count = self.inner.recv_into(way.room)
            except BlockingIOError:
                return False
            way.ended = count == 0
            way.data = way.room[:count]
        if not way.data:
            return False
        sent = self.wire.send([way.data])
        if sent == WOULD_BLOCK:
            return False
        way.data = way.data[sent:]
        return True

    def close(self) -> None:
        """Close both sockets."""
        self.wire.close()
        self.inner.close()
