"""A worker's access to the maps and lists of a cluster: in its own member's store, and through its member in others."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path
from typing import Any

from shmjet.cluster.member.own_member import channel_to, lost
from shmjet.cluster.protocol import AwaitBackups, DescribePartitions, GridCall, PartitionsReply, Refused
from shmjet.data import errors as data_errors
from shmjet.grid import Grid, errors
from shmjet.grid.errors import GridError
from shmjet.grid.routed import RoutedGrid
from shmjet.grid.routes import Owners
from shmjet.ipc.channel import ChannelClosed


class GridCaller(RoutedGrid):
    """The cluster's maps and lists, over the socket of this host's member, and in its store.

    Args:
        path: of the member's socket.
        folder: of its store.
    """

    def __init__(self, path: Path, folder: Path) -> None:
        self._caller = _Caller(path)
        self._here = Grid.open(folder)
        super().__init__(self._caller, self._here.opened, self._caller.await_backups)

    def close(self) -> None:
        """Close the connection and the store."""
        super().close()
        self._caller.close()
        self._here.close()


class _Caller:
    """Asks members, see `shmjet.grid.routes.Carrier`."""

    def __init__(self, path: Path) -> None:
        self._channel = channel_to(path)
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    def ask(self, member: str, body: bytes) -> bytes:
        answer: bytes = self._answer(GridCall(next(self._numbers), body, 0, False, member)).body
        return answer

    def owners(self) -> Owners:
        reply = self._answer(DescribePartitions(next(self._numbers)))
        assert isinstance(reply, PartitionsReply)
        return Owners(tuple(reply.members), tuple(row[0] for row in reply.replicas), reply.me)

    def await_backups(self, environment: int, number: int) -> None:
        self._answer(AwaitBackups(next(self._numbers), environment, number))

    def _answer(self, request: Any) -> Any:
        with self._lock:
            return self._answer_now(request)

    def _answer_now(self, request: Any) -> Any:
        try:
            self._channel.send(request)
            while True:
                reply, _ = self._channel.receive()
                if getattr(reply, "request", 0) == request.request:
                    if isinstance(reply, Refused):
                        kind: Any = getattr(errors, reply.error, getattr(data_errors, reply.error, GridError))
                        refused = kind(reply.text)
                        if isinstance(refused, errors.NotOnDiskError):
                            refused.result = reply.result
                        raise refused
                    return reply
        except ChannelClosed as error:
            raise lost() from error

    def close(self) -> None:
        self._channel.close()
