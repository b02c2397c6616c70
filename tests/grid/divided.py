"""Stores of several members in one process, with a table of partitions, and moves between them."""

from __future__ import annotations

import random
import threading
from pathlib import Path

from shmjet.core import MapConfig
from shmjet.grid import Grid
from shmjet.grid.commit_counters import TURNED
from shmjet.grid.disk.store_on_disk import StoreOnDisk
from shmjet.grid.errors import PartitionMovedError
from shmjet.grid.ownership import close_partitions, open_partitions
from shmjet.grid.partition_copy import PartitionCopy
from shmjet.grid.routed import RoutedGrid
from shmjet.grid.routes import Owners
from shmjet.grid.service import GridService

COUNT = 13
CONFIGS = {
    "one": MapConfig(min_backups=1),
    "two": MapConfig(min_backups=2),
    "j*": MapConfig(journal_capacity=1 << 20),
    "l*": MapConfig(max_bytes=1 << 30, eviction="lru"),
}


class Stores:
    """Members "0", "1", ... with a divided store each.

    Args:
        folder: where they are.
        members: how many.
        disk: where they are kept; None: in memory alone.
    """

    def __init__(self, folder: Path, members: int, disk: Path | None = None) -> None:
        self.names = tuple(map(str, range(members)))
        self.disk = disk
        self.on_disk: dict[str, StoreOnDisk] = {}
        for name in self.names:
            if disk is None:
                Grid.create(folder / name, COUNT, environments=2, map_size=1 << 30, maps=CONFIGS, is_divided=True)
            else:
                disk.mkdir(exist_ok=True)
                place = disk / name
                self.on_disk[name] = StoreOnDisk(folder / name, place, COUNT, CONFIGS, 0.002, is_divided=True)
        self.services = {name: GridService(folder / name) for name in self.names}
        self.grids = {name: Grid.open(folder / name) for name in self.names}
        for name in self.names:
            self.lend(name, 1 << 62)
        self.primaries = [partition % members for partition in range(COUNT)]
        self.lineages = {partition: 100 + partition for partition in range(COUNT)}
        self._moving = threading.Lock()
        for place, name in enumerate(self.names):
            self.open(name, [partition for partition in range(COUNT) if self.primaries[partition] == place])

    def lend(self, name: str, until: int) -> None:
        """Have a member say when it turned last."""
        self.grids[name].opened.environment(0).announced[TURNED] = until

    def close(self) -> None:
        for name in self.names:
            self.services[name].close()
            self.grids[name].close()
            if name in self.on_disk:
                self.on_disk[name].close()

    def open(self, name: str, partitions: list[int]) -> None:
        """Open partitions on a member."""
        environments = self.grids[name].opened.environments
        open_partitions(environments, {partition: self.lineages[partition] for partition in partitions})

    def move(self, partitions: list[int], there: int) -> None:
        """Move partitions to a member."""
        with self._moving:
            for place in {self.primaries[partition] for partition in partitions} - {there}:
                some = {partition for partition in partitions if self.primaries[partition] == place}
                old, new = (self.grids[self.names[index]].opened for index in (place, there))
                close_partitions(old.environments, some)
                PartitionCopy(new).take(PartitionCopy(old).classes())
                for piece in PartitionCopy(old).pieces(some):
                    PartitionCopy(new).take(piece)
                for partition in some:
                    self.primaries[partition] = there
                self.open(self.names[there], list(some))
                PartitionCopy(old).drop(some)

    def lose(self, partition: int, there: int) -> None:
        """Have a partition begin empty on a member."""
        old = self.grids[self.names[self.primaries[partition]]].opened
        close_partitions(old.environments, [partition])
        PartitionCopy(old).drop([partition])
        self.lineages[partition] += 1000
        self.primaries[partition] = there
        self.open(self.names[there], [partition])

    def grid(self, here: int = 0, *, is_local: bool = False, seed: int = 0) -> RoutedGrid:
        """Return the maps and lists as a client of a member sees them, or a worker, which opens the member's store."""
        name = self.names[here]
        return RoutedGrid(Losing(self, name, seed), self.grids[name].opened if is_local else None)


class Losing:
    """Carries operations to members; some answers are lost, as if a connection had broken.

    Args:
        stores: the members.
        here: the nearest one.
        seed: decides which; 0: none.
    """

    def __init__(self, stores: Stores, here: str, seed: int) -> None:
        self._stores = stores
        self._here = here
        self._random = random.Random(seed)
        self._loss = 0.2 if seed else 0.0

    def ask(self, member: str, body: bytes) -> bytes:
        answer = self._stores.services[member or self._here].perform(body)
        if member and self._random.random() < self._loss:
            raise PartitionMovedError("the connection was lost")
        return answer

    def owners(self) -> Owners:
        return Owners(self._stores.names, tuple(self._stores.primaries), self._here)
