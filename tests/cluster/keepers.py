"""Keepers of partitions of several members in one process, over a network that may be watched."""

from __future__ import annotations

import asyncio
import itertools
import random
import socket
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from shmjet.cluster.member.partition_keeper import PartitionKeeper
from shmjet.cluster.member.partitions_on_disk import PartitionsOnDisk
from shmjet.cluster.membership.peer_messages import CopyPartitions, PeerMessage
from shmjet.cluster.partitions.table import Change, Holder, PartitionTable
from shmjet.grid import Grid

_decode = msgspec.msgpack.Decoder(PeerMessage).decode
_encode = msgspec.msgpack.encode


class Keepers:
    """Members "0", "1", ... with a store and a keeper each; the first one begins with all partitions.

    Args:
        folder: where the stores are.
        count: of partitions.
        backups: of each partition.
        with_lines: copies have connections of their own.
        on_disk: makes what the disk of a member knows of its partitions, in a folder; None: they have no storage.
    """

    def __init__(
        self,
        folder: Path,
        count: int,
        backups: int,
        *,
        with_lines: bool = False,
        on_disk: Callable[[Path], PartitionsOnDisk] | None = None,
    ) -> None:
        self._folder = folder
        self._count = count
        self._backups = backups
        self._chance = random.Random(7)
        self._names = itertools.count()
        self._keepers: dict[str, PartitionKeeper] = {}
        self.table = PartitionTable.first(1, count, [Holder("0", "a")], backups)
        self.faults: list[str] = []
        """What must not happen, and has."""
        self.moves: set[tuple[str, int]] = set()
        """Messages that complete copies of some partitions: their senders and numbers."""
        self.grids: dict[str, Grid] = {}
        self.connections = 0
        """How many have been made for copies."""
        self._with_lines = with_lines
        self._on_disk = on_disk

    async def add(self) -> None:
        """Have another member come."""
        name = str(next(self._names))
        Grid.create(self._folder / name, self._count, environments=2, is_divided=True)
        self.grids[name] = Grid.open(self._folder / name)
        network = _Network(self, name)
        connect = network.connect if self._with_lines else None
        disk = None if self._on_disk is None else self._on_disk(self._folder / name)
        keeper = PartitionKeeper(network, network, self._folder / name, lambda: name, connect, disk)
        self._keepers[name] = keeper
        self._members_are(list(self._keepers))
        keeper.start()
        self._tell()

    async def lose(self, name: str) -> None:
        """Have a member die."""
        keeper = self._keepers.pop(name)
        self._members_are(list(self._keepers))
        self._tell()
        await keeper.stop()
        self.grids.pop(name).close()

    def _members_are(self, names: Sequence[str]) -> None:
        members = [Holder(each, each) for each in names]
        self.table, _ = self.table.after(self.table.epoch + 1, members, self._backups)

    async def stop(self) -> None:
        """End all."""
        keepers, self._keepers = self._keepers, {}  # nothing is delivered any more
        for keeper in keepers.values():
            await keeper.stop()
        for grid in self.grids.values():
            grid.close()

    def changed(self, changes: Iterable[Change]) -> None:
        """Take what a primary reports; the others come to know it some turns of the loop later."""
        found = tuple(changes)
        loop = asyncio.get_running_loop()

        def agree() -> None:
            table = self.table.changed(found)
            if table is not self.table:
                self.table = table
                self._tell()

        loop.call_later(self._chance.random() / 500, agree)

    def send(self, sender: str, receiver: str, message: Any) -> None:
        """Bring a message."""
        if isinstance(message, CopyPartitions):
            if message.end:
                self.moves.add((sender, message.number))
            place = self.table.members.index(receiver) if receiver in self.table.members else -1
            some = [partition for partition in message.begin if place in self.table.synced[partition]]
            if some:
                self.faults.append(f"{sender} begins copies of {some} anew, which {receiver} has")
        data = _encode(message)

        def deliver() -> None:
            if receiver in self._keepers:
                self._keepers[receiver].receive(sender, _decode(data))

        asyncio.get_running_loop().call_soon(deliver)

    def connect(self, sender: str, receiver: str) -> socket.socket:
        """Return a connection for copies."""
        self.connections += 1
        ours, theirs = socket.socketpair()
        self._keepers[receiver].take_connection(sender, theirs)
        return ours

    def _tell(self) -> None:
        for keeper in self._keepers.values():
            keeper.look()


class _Network:
    def __init__(self, keepers: Keepers, me: str) -> None:
        self._keepers = keepers
        self._me = me
        self.is_cut_off = False

    @property
    def table(self) -> PartitionTable | None:
        return self._keepers.table

    def send(self, identity: str, message: object) -> None:
        self._keepers.send(self._me, identity, message)

    def report(self, changes: Iterable[Change]) -> None:
        self._keepers.changed(changes)

    def doubt(self, identity: str) -> None:
        pass

    async def connect(self, identity: str) -> socket.socket:
        return self._keepers.connect(self._me, identity)

    async def reach(self, identities: Sequence[str]) -> None:
        await asyncio.sleep(0)
