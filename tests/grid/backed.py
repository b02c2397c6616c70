"""Stores of several members in one process, with backups of each partition, and members that are lost at any moment."""

from __future__ import annotations

import random
import threading
from operator import le
from pathlib import Path

import msgspec

from shmjet.data.errors import MemberLostError
from shmjet.grid.change_log import ends
from shmjet.grid.commit_counters import BACKED_UP
from shmjet.grid.errors import PartitionMovedError
from shmjet.grid.ownership import close_partitions, open_partitions
from shmjet.grid.partition_copy import PartitionCopy, Piece
from shmjet.grid.replica import Replica, Sent
from shmjet.grid.routed import RoutedGrid
from shmjet.grid.routes import Owners
from shmjet.grid.shipping import Batch, Shipping
from shmjet.grid.times import now
from tests.grid.divided import COUNT, Losing, Stores

_encode = msgspec.msgpack.encode
_piece = msgspec.msgpack.Decoder(Piece).decode
_sent = msgspec.msgpack.Decoder(list[Sent]).decode


class BackedStores(Stores):
    """Members "0", "1", ... with a divided store each; what the keepers of members do is done here.

    Args:
        folder: where they are.
        members: how many.
        backups: of each partition.
        disk: as of `Stores`.
    """

    def __init__(self, folder: Path, members: int, backups: int, disk: Path | None = None) -> None:
        super().__init__(folder, members, disk)
        self.backups = backups
        self.alive = dict.fromkeys(self.names)
        self.replicas = {name: Replica(self.grids[name].opened) for name in self.names}
        self.shippings = {name: Shipping(self.grids[name].opened) for name in self.names}
        self.terms = dict.fromkeys(range(COUNT), (1, 0))
        self.rows = [
            [self.names[(partition + turn) % members] for turn in range(1 + backups)] for partition in range(COUNT)
        ]
        self._version = 1
        self._keeping = threading.RLock()
        for name in self.names:
            self._reopen(name)

    def _mine(self, name: str) -> list[int]:
        return [partition for partition, row in enumerate(self.rows) if row[0] == name]

    def _reopen(self, name: str) -> None:
        mine = self._mine(name)
        self.shippings[name].follow({partition: self.rows[partition][1:] for partition in mine}, self.terms)
        self.open(name, mine)
        self.shippings[name].count()

    def open(self, name: str, partitions: list[int]) -> None:
        rows = getattr(self, "rows", None)
        counts = {partition: len(rows[partition]) - 1 for partition in partitions} if rows else {}
        environments = self.grids[name].opened.environments
        open_partitions(environments, {partition: self.lineages[partition] for partition in partitions}, counts)

    # -- what goes to backups -----------------------------------------------------------------------------------

    def ship(self, name: str) -> None:
        """Bring all that a member has changed to its backups."""
        with self._keeping:
            if name not in self.alive:
                raise PartitionMovedError("the member is dead")
            shipping = self.shippings[name]
            for member in list(shipping.backups):
                while (batch := shipping.batch(member)) is not None:
                    self._deliver(name, member, batch)
                    shipping.confirmed(member, batch)
            shipping.count()

    def _deliver(self, name: str, member: str, batch: Batch) -> None:
        there, here = self.grids[member].opened, PartitionCopy(self.grids[name].opened)
        for class_id, data in batch.classes:
            there.keep_class(class_id.decode(), data)
        for file in batch.files:
            for piece in here.file(file):
                PartitionCopy(there).take(_piece(_encode(piece)))
        self.replicas[member].take(name, self.shippings[name].backed_up, _sent(_encode(batch.sent)), now())

    def settle(self, name: str, environment: int, number: int) -> None:
        """Return when all backups have the changes of a member up to a number in an environment."""
        while self.grids[name].opened.environment(environment).announced[BACKED_UP] < number:
            self.ship(name)

    # -- losses -------------------------------------------------------------------------------------------------

    def deliver(self, name: str, member: str) -> None:
        """Bring what a member has changed to one of its backups alone."""
        with self._keeping:
            batch = self.shippings[name].batch(member)
            assert batch is not None
            self._deliver(name, member, batch)

    def kill(self, names: list[str], chance: random.Random, *, delivers: bool = True) -> None:
        """Lose members at once, each after some of what it has changed has reached some of its backups."""
        with self._keeping:
            for name in names:
                for member in list(self.shippings[name].backups):
                    batch = self.shippings[name].batch(member, chance.choice([1, 1 << 20]))
                    if delivers and batch is not None and member in self.alive and chance.random() < 0.7:
                        self._deliver(name, member, batch)
                del self.alive[name]
            self._version += 1
            taken = [partition for partition, row in enumerate(self.rows) if row[0] in names]
            for row in self.rows:
                row[:] = [name for name in row if name in self.alive]
                assert row, "a partition is lost"
            for partition in taken:
                self._agree(partition)
                self.terms[partition] = (self._version, 0)
                self.primaries[partition] = self.names.index(self.rows[partition][0])
            for name in self.alive:
                self._reopen(name)
                self.replicas[name].forget_tails(self.alive.__contains__)

    def _agree(self, partition: int) -> None:
        first, *others = (self.replicas[name] for name in self.rows[partition])
        for other in others:
            brought = first.tails_of([partition], other.positions_of([partition]))
            there = other.tails_of([partition], first.positions_of([partition]))
            other.take_tails(brought)
            first.take_tails(there)
        for other in others:  # those before the last one lack what that one brought
            other.take_tails(first.tails_of([partition], other.positions_of([partition])))

    def repair(self) -> None:
        """Make the backups that are missing."""
        with self._keeping:
            for partition, row in enumerate(self.rows):
                for name in self.alive:
                    if name not in row and len(row) <= self.backups:
                        self._copy(partition, name)

    def _copy(self, partition: int, name: str) -> None:
        primary = self.rows[partition][0]
        old, new = self.grids[primary].opened, self.grids[name].opened
        close_partitions(old.environments, [partition])
        written = ends(old.environments)
        self.ship(primary)
        assert all(map(le, written, self.shippings[primary].backed_up))
        PartitionCopy(new).drop([partition])
        self.replicas[name].forget([partition])
        PartitionCopy(new).take(PartitionCopy(old).classes())
        for piece in PartitionCopy(old).pieces([partition]):
            PartitionCopy(new).take(piece)
        self.replicas[name].begin(partition, self.terms[partition], ends(old.environments))
        self.rows[partition].append(name)
        self._reopen(primary)

    def hand_over(self, partition: int, chance: random.Random) -> None:
        """Make any member that has a partition its primary."""
        self.hand_over_to(partition, chance.choice(self.rows[partition]))

    def hand_over_to(self, partition: int, name: str) -> None:
        """Make a member that has a partition its primary."""
        with self._keeping:
            row = self.rows[partition]
            old = row[0]
            close_partitions(self.grids[old].opened.environments, [partition])
            self.ship(old)
            self.replicas[old].led(partition, self.terms[partition])
            row.sort(key=lambda other: other != name)
            self._version += 1
            self.terms[partition] = (self._version, 0)
            self.primaries[partition] = self.names.index(row[0])
            self._reopen(old)
            self._reopen(row[0])

    # -- users --------------------------------------------------------------------------------------------------

    def grid(self, here: int = 0, *, is_local: bool = False, seed: int = 0) -> RoutedGrid:
        name = self.names[here]
        carrier = Asking(self, name, seed)
        if not is_local:
            return RoutedGrid(carrier)
        return RoutedGrid(carrier, self.grids[name].opened, carrier.settle)


class Asking(Losing):
    """Carries operations to members that may be lost; an answer comes when the backups have what it is about."""

    def ask(self, member: str, body: bytes) -> bytes:
        stores, name = self._stores, member or self._here
        assert isinstance(stores, BackedStores)
        if name not in stores.alive:
            raise PartitionMovedError("the member is dead")
        answer, unsettled = stores.services[name].perform_and_note(body)
        if unsettled is not None:
            stores.settle(name, *unsettled)
        if name not in stores.alive or (member and self._random.random() < self._loss):
            raise PartitionMovedError("the connection was lost")
        return answer

    def settle(self, environment: int, number: int) -> None:
        assert isinstance(self._stores, BackedStores)
        try:
            self._stores.settle(self._here, environment, number)
        except PartitionMovedError as error:
            raise MemberLostError("the member of this process is dead") from error

    def owners(self) -> Owners:
        return Owners(self._stores.names, tuple(self._stores.primaries), self._here)
