"""The path of bytes between a client's TLS connection and the socket that its member was given, both ways, unchanged.

Each way has a bounded buffer: an end that does not read stops the other end, and no other connection.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Callable
from typing import Protocol

from shmjet.net.wire_socket import WOULD_BLOCK, Wire

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
        sent = self.wire.send(way.data)
        if sent == WOULD_BLOCK:
            return False
        way.data = way.data[sent:]
        return True

    def close(self) -> None:
        """Close both sockets."""
        self.wire.close()
        self.inner.close()


class Watching(Protocol):
    """The event loop that relays run on."""

    def watch(self, fd: int, mask: int, handler: Callable[[int], None]) -> None:
        """Have `handler` called with the events of a descriptor."""

    def mask(self, fd: int, mask: int) -> None:
        """Change the events that a descriptor is watched for."""

    def unwatch(self, fd: int) -> None:
        """Watch a descriptor no longer; before it is closed."""


class Relays:
    """All relays of a link.

    Args:
        loop: that they run on.
    """

    def __init__(self, loop: Watching) -> None:
        self._loop = loop
        self._relays: list[Relay] = []

    def add(self, wire: Wire) -> socket.socket:
        """Carry what goes by a connection from now on; returns the socket for the other end, the caller's."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        relay = Relay(wire, ours)
        self._relays.append(relay)
        for fd in (wire.fileno(), ours.fileno()):
            self._loop.watch(fd, select.EPOLLIN, lambda _: self._advance(relay))
        self._advance(relay)
        return theirs

    def _advance(self, relay: Relay) -> None:
        try:
            lives = relay.advance()
        except OSError:
            lives = False
        if lives:
            outer, inner = relay.wants()
            self._loop.mask(relay.wire.fileno(), outer)
            self._loop.mask(relay.inner.fileno(), inner)
            return
        self._loop.unwatch(relay.wire.fileno())
        self._loop.unwatch(relay.inner.fileno())
        self._relays.remove(relay)
        relay.close()

    def close(self) -> None:
        """Close them all."""
        for relay in self._relays:
            relay.close()
        self._relays.clear()
