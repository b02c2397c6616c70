"""A worker's access to maps and lists of another member, through its own member."""

from __future__ import annotations

import itertools
import socket
from pathlib import Path

from shmjet.cluster.protocol import GridCall, GridReply, Refused, Reply
from shmjet.data.errors import MemberLostError
from shmjet.grid import errors
from shmjet.grid.errors import GridError
from shmjet.grid.remote import RemoteGrid
from shmjet.ipc import unix_sockets
from shmjet.ipc.channel import Channel, ChannelClosed


class GridCaller(RemoteGrid):
    """The cluster's maps and lists, over the socket of this host's member. For one thread.

    Args:
        path: of the member's socket.
    """

    def __init__(self, path: Path) -> None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        unix_sockets.connect(sock, path)
        self._channel = Channel(sock, Reply)
        self._numbers = itertools.count(1)
        self._store = 0
        super().__init__(self._ask)

    def _ask(self, body: bytes) -> bytes:
        number = next(self._numbers)
        try:
            self._channel.send(GridCall(number, body, self._store))
            while True:
                reply, _ = self._channel.receive()
                if isinstance(reply, GridReply) and reply.request == number:
                    self._store = reply.store
                    return reply.body
                if isinstance(reply, Refused) and reply.request == number:
                    raise getattr(errors, reply.error, GridError)(reply.text)
        except ChannelClosed as error:
            raise MemberLostError("the member of this worker is gone") from error

    def close(self) -> None:
        """Close the connection."""
        self.end_listeners()
        self._channel.close()
