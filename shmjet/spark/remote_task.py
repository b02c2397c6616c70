"""A task's connection to a processor on another host: the slots' bytes go over TCP, to the client of the feed.

The client sits on the job's host and puts them where the task would have put them (`shmjet.spark.tcp_gateway`). Nothing
else differs: a slot is granted before it is sent, so a full ring holds tasks on other hosts back as it does those here.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Any

from shmjet.data.errors import ShmjetError
from shmjet.net.dial import dial
from shmjet.spark import protocol
from shmjet.spark.errors import FeedEndedError
from shmjet.spark.links import Area, Destination, Link

CONNECT_S = 20.0
"""Seconds for a connection and its handshake."""


def dialled(destination: Destination) -> socket.socket:
    """Return a socket that is connected to the client of a feed.

    Raises:
        ShmjetError: the client cannot be reached, or does not let this task in; the text says where it was looked for.
        FeedEndedError: the client is not there any more.
    """
    assert destination.gateway is not None
    address, secret = destination.gateway
    try:
        connection = dial(address, cluster=destination.feed, secret=secret, timeout=CONNECT_S)
    except ConnectionError as error:
        raise FeedEndedError(
            f"the shmjet job that this Spark task feeds is not at {address} any more: {error}"
        ) from error
    except OSError as error:
        raise ShmjetError(
            f"this Spark task runs on host {socket.gethostname()!r}, the shmjet job on {destination.host[1]!r}, and "
            f"cannot reach it at {address}: {error}; that is where Spark's driver is said to be (spark.driver.host)"
        ) from error
    keep_watch(connection.socket)
    return connection.socket


def keep_watch(sock: socket.socket) -> None:
    """Have a connection break when the other host has been silent for about a minute, without power say."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, 20), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 4)):
        sock.setsockopt(socket.IPPROTO_TCP, option, value)


class OutsideLink(Link):
    """A link whose slots are sent.

    Args:
        sock: from `dialled`; belongs to the link.
        processor: its number.
    """

    def __init__(self, sock: socket.socket, processor: int) -> None:
        self._processor = processor
        super().__init__(sock)

    def _area(self) -> Area:
        self._channel.send(protocol.ChooseProcessor(self._processor))
        welcome, _ = self._channel.receive()
        return _OneSlot(welcome.slot_size)

    def filled(self, slot: int, used: int) -> None:
        """Send what is in a slot."""
        self._channel.send(protocol.Sent(slot, self.area.slot(slot)[:used]))  # type: ignore[arg-type]  # encodes as bytes

    def spill(self, parts: Sequence[Any]) -> None:
        """Have some buffers appended to the file."""
        self._channel.send(protocol.Spilled(b"".join(parts)))


class _OneSlot:
    """Memory for whichever slot is being filled: a task fills one at a time."""

    def __init__(self, slot_size: int) -> None:
        self.slot_size = slot_size
        self._memory = memoryview(bytearray(slot_size))

    def slot(self, number: int) -> memoryview:
        """Return the memory."""
        return self._memory

    def close(self) -> None:
        """Nothing is shared."""
