"""Members whose snapshots lie in folders of one process, and who talk over a bus that a test can cut."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from shmjet._native import Codec
from shmjet.cluster.jobs.lineage import Lineage
from shmjet.cluster.jobs.snapshot_keeper import SnapshotKeeper
from shmjet.cluster.lifecycle_messages import RunSettings
from shmjet.cluster.membership.views import Peer, View
from shmjet.snapshots.chunk import ChunkWriter
from shmjet.snapshots.manifest import Manifest, Piece, ProcessorRecord, SavedVertex
from shmjet.snapshots.store import SnapshotStore

LINEAGE = "l"
SETTINGS = RunSettings(guarantee="exactly_once", snapshot_interval=10.0)


class SimulatedMember:
    """A member's snapshots, and its network."""

    def __init__(self, cluster: SimulatedMembers, name: str, host: str, folder: Path, backups: int) -> None:
        self.name = name
        self.me = Peer(name, f"{host}:1", 1, (0,), 1)
        self.is_lost = self.is_silent = False
        """Lost, or stopped: it gets messages when it goes on."""
        self._cluster = cluster
        self._unread: list[tuple[str, object]] = []
        self.store = SnapshotStore(folder)
        self.keeper = SnapshotKeeper(self.store, self, backups)

    @property
    def view(self) -> View:
        return self._cluster.view

    async def reach(self, identities: Sequence[str]) -> None:
        if any(self._cluster.members[identity].is_lost for identity in identities):
            raise OSError("it is gone")

    def send(self, identity: str, message: object) -> None:
        asyncio.get_running_loop().call_soon(self._cluster.deliver, self.name, identity, message)

    def take(self, sender: str, message: object) -> None:
        if self.is_silent:
            self._unread.append((sender, message))
        elif not self.is_lost:
            self.keeper.receive(sender, message)

    def go_on(self) -> None:
        self.is_silent = False
        for sender, message in self._unread:
            self.take(sender, message)
        self._unread.clear()

    def lineage(self) -> Lineage:
        """Return the snapshots as this member has them when it coordinates."""
        return Lineage(LINEAGE, self.store, SETTINGS, self.keeper.copies)

    def write(self, file: str, text: str) -> Piece:
        """Write a chunk file with one piece."""
        writer = ChunkWriter(self.store.make(LINEAGE) / file, Codec())
        piece = writer.write([("key", text)], 0, 1)
        writer.close()
        assert piece is not None
        return piece

    @property
    def files(self) -> set[str]:
        return set(self.store.names(LINEAGE))


class SimulatedMembers:
    """All of them, the first one coordinates.

    Args:
        folder: for theirs.
        hosts: of the members, "a", "b" and so on.
        backups: copies that a file has in addition to the first.
    """

    def __init__(self, folder: Path, hosts: Sequence[str], backups: int = 1) -> None:
        self.members: dict[str, SimulatedMember] = {}
        self.tamper: Callable[[str, str, object], object] = lambda sender, receiver, message: message
        """Gets each message; returns what arrives, None for nothing."""
        self._folder, self._backups = folder, backups
        for host in hosts:
            self.add(host)

    def add(self, host: str) -> SimulatedMember:
        name = chr(97 + len(self.members))
        member = SimulatedMember(self, name, host, self._folder / name, self._backups)
        self.members[name] = member
        return member

    @property
    def living(self) -> list[SimulatedMember]:
        return [member for member in self.members.values() if not member.is_lost]

    @property
    def coordinator(self) -> SimulatedMember:
        return self.living[0]

    @property
    def view(self) -> View:
        peers = tuple(member.me for member in self.living)
        return View(len(self.members), peers, tuple(0 for _ in peers))

    def deliver(self, sender: str, receiver: str, message: object) -> None:
        if self.members[sender].is_lost:
            return
        arrives = self.tamper(sender, receiver, message)
        if arrives is not None:
            self.members[receiver].take(sender, arrives)

    def lose(self, name: str) -> None:
        """Lose a member and all that it had."""
        self.members[name].is_lost = True
        for member in self.living:
            member.keeper.member_gone(name, f"member {name} is gone")

    def stop(self) -> None:
        for member in self.members.values():
            member.keeper.stop()

    def snapshot(self, number: int, makers: Sequence[str], *older: Piece) -> tuple[Manifest, dict[str, list[str]]]:
        """Have members write chunk files; return the manifest, which is nowhere yet, and who has them."""
        pieces = [self.members[name].write(f"{number}-7-{place}.chunk", name) for place, name in enumerate(makers)]
        holders = {piece.file: [name] for piece, name in zip(pieces, makers, strict=True)}
        record = ProcessorRecord(0, False, [*pieces, *older])
        vertex = SavedVertex("count", 1, 1, [record])
        return Manifest(LINEAGE, number, "job", "a job", 1.0, False, [vertex]), holders

    async def take(self, number: int, makers: Sequence[str]) -> Manifest:
        """Take a snapshot, as an attempt does."""
        manifest, holders = self.snapshot(number, makers)
        lineage = self.coordinator.lineage()
        await lineage.copy(manifest, holders, None, prepared=True, least_s=60.0)
        lineage.write(manifest, None, prepared=True)
        return manifest
