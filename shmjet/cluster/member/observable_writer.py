"""A worker's way to the cluster's observables, over the socket of its member.

Writes are not waited for one by one: the member confirms each, and the writer says how many are still to be confirmed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shmjet.cluster.member.own_member import channel_to, lost
from shmjet.cluster.observable_messages import WriteObservable
from shmjet.cluster.protocol import Refused
from shmjet.data import errors
from shmjet.data.errors import ShmjetError
from shmjet.ipc.channel import ChannelClosed


class ObservableWriter:
    """The connection of one processor. For one thread.

    Args:
        path: of the member's socket.
        name: of the observable.
    """

    def __init__(self, path: Path, name: str) -> None:
        self._name = name
        self._channel = channel_to(path)
        self._number = 0
        self._confirmed = 0

    def write(self, count: int, items: bytes) -> None:
        """Send a pickled list of `count` items. Raises OwnMemberLostError when the member is gone."""
        self._number += 1
        try:
            self._channel.send(WriteObservable(self._number, self._name, count, items))
        except ChannelClosed as error:
            raise lost() from error

    @property
    def unconfirmed(self) -> int:
        """How many writes have not been confirmed yet. Raises what one has failed with."""
        if self._confirmed < self._number:
            try:
                for reply, _ in self._channel.poll():
                    self._take(reply)
            except ChannelClosed as error:
                raise lost() from error
        return self._number - self._confirmed

    def wait(self, most: int = 0) -> None:
        """Wait until at most so many writes are unconfirmed. Raises what one has failed with."""
        try:
            while self._number - self._confirmed > most:
                self._take(self._channel.receive()[0])
        except ChannelClosed as error:
            raise lost() from error

    def _take(self, reply: Any) -> None:
        if isinstance(reply, Refused):
            raise getattr(errors, reply.error, ShmjetError)(f"observable {self._name!r}: {reply.text}")
        if getattr(reply, "request", 0):
            self._confirmed += 1

    def close(self) -> None:
        """Close the connection; what has been written goes its way."""
        self._channel.close()


class WorkerGrid:
    """Maps and lists as a worker opens them, and the observables.

    Args:
        grid: opens maps and lists.
        path: of the member's socket.
    """

    def __init__(self, grid: Any, path: Path) -> None:
        self._grid = grid
        self._path = path

    def open_observable(self, name: str) -> ObservableWriter:
        """Return what writes to the observable of that name."""
        return ObservableWriter(self._path, name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._grid, name)
