"""Copies of partitions that go from keeper to keeper while tables come and go, and while they are written to."""

from __future__ import annotations

import asyncio
import itertools
import random
import re
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import pytest

from shmjet.cluster.member import local_partitions, partition_mover
from shmjet.cluster.member.copier import Copier, first_batch
from shmjet.cluster.member.partitions_on_disk import PartitionsOnDisk
from shmjet.cluster.partitions.table import PartitionTable
from shmjet.grid import Grid
from shmjet.grid.blobs import contents
from shmjet.grid.carried import CARRIED
from shmjet.grid.environment import Environment
from shmjet.grid.errors import PartitionMovedError
from shmjet.grid.layout import MAP_RECORD, PARTITION, record_key
from shmjet.grid.ownership import close_partitions, open_here
from shmjet.grid.partition_copy import Entries, File, PartitionCopy, Piece
from shmjet.grid.times import EXT_32
from tests.cluster.keepers import Keepers
from tests.cluster.test_asking_again import until

COUNT = 64
MAPS = [record_key(MAP_RECORD, name) for name in ("plain", "ending")]
_WORD = re.compile(rb"v\d{9}")
Contents = dict[tuple[bytes, bytes], bytes]


def test_no_partition_is_copied_anew_to_a_member_that_has_it(tmp_path: Path) -> None:
    async def story() -> None:
        keepers = Keepers(tmp_path, COUNT, 1)
        for _ in range(3):
            await keepers.add()
            await until(lambda: keepers.table.is_settled)
        await keepers.stop()
        assert keepers.faults == []

    asyncio.run(story())


def test_many_small_partitions_are_copied_together(tmp_path: Path) -> None:
    async def story() -> None:
        keepers = Keepers(tmp_path, COUNT, 1)
        for _ in range(2):
            await keepers.add()
            await until(lambda: keepers.table.is_settled)
        await keepers.stop()
        assert len(keepers.moves) < COUNT / 16  # once, where nothing has to be copied again

    asyncio.run(story())


@pytest.mark.parametrize(
    ("stored", "size", "batch"),
    [
        (COUNT, 0, COUNT),  # empty
        (COUNT, COUNT << 20, COUNT),  # a megabyte each
        (COUNT, COUNT << 21, 32),
        (COUNT, COUNT << 30, 16),  # never less
        (2 * COUNT, 4 << 30, 16),
        (1, 4096, COUNT),
    ],
)
def test_what_is_copied_together_has_about_so_many_bytes(stored: int, size: int, batch: int) -> None:
    assert first_batch(range(COUNT), stored, size) == range(batch)


class Writer(threading.Thread):
    """Puts and removes entries on whichever member has their partition, until it is told to end."""

    def __init__(self, grids: Mapping[str, Grid]) -> None:
        super().__init__()
        self.contents: Contents = {}
        self.changes = 0
        self._chance = random.Random(3)
        self._grids = grids
        self._ended = threading.Event()

    def end(self) -> None:
        self._ended.set()
        self.join()

    def run(self) -> None:
        while not self._ended.is_set():
            self.change()

    def change(self) -> None:
        partition, record = self._chance.randrange(COUNT), self._chance.choice(MAPS)
        key = PARTITION.pack(partition) + b"s%d" % self._chance.randrange(40)
        word = None if self._chance.random() < 0.3 else b"v%09d" % self.changes
        for grid in list(self._grids.values()):
            table = grid.opened.table(partition % 2, record)
            try:
                if word is None:
                    table.pop(key)
                else:
                    value = msgspec.msgpack.encode((b"k", word))
                    table.replace(key, value, with_blobs=False, ttl=0 if record == MAPS[0] else 10**15)
            except PartitionMovedError:
                continue
            if word is None:
                self.contents.pop((record, key), None)
            else:
                self.contents[record, key] = word
            self.changes += 1
            return


def contents_of(grid: Grid) -> Contents:
    found: Contents = {}
    for piece in PartitionCopy(grid.opened).pieces(range(COUNT)):
        if isinstance(piece, Entries):
            found |= {(piece.record, key): _WORD.findall(stored)[0] for key, stored in piece.entries}
    return found


def test_partitions_stay_open_while_they_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[int] = []

    def close(environments: Sequence[Environment], partitions: Collection[int]) -> None:
        closed.extend(partitions)
        close_partitions(environments, partitions)

    monkeypatch.setattr(local_partitions, "close_partitions", close)

    async def story() -> list[int]:
        keepers = Keepers(tmp_path, COUNT, 1)
        for _ in range(2):
            await keepers.add()
            await until(lambda: keepers.table.is_settled)
        await keepers.stop()
        return keepers.table.primaries()

    handed_over = [partition for partition, primary in enumerate(asyncio.run(story())) if primary == 1]
    assert sorted(closed) == handed_over, "partitions are closed once, to be handed over"


async def joined_under_writes(keepers: Keepers, writer: Writer, changes: int) -> None:
    """Have two members come, the second while there are writes, which have begun with so many changes."""
    await keepers.add()
    await until(lambda: len(keepers.table.members) == 1)
    while writer.changes < changes:
        await asyncio.sleep(0)
        writer.change()
    writer.start()
    try:
        await keepers.add()
        await until(lambda: keepers.table.is_settled)
        at = writer.changes
        await until(lambda: writer.changes > at + 100)
    finally:
        await asyncio.to_thread(writer.end)


@pytest.mark.parametrize("with_lines", [False, True], ids=["by-the-network", "by-connections-of-their-own"])
def test_what_is_written_while_partitions_move_is_on_all_members_that_have_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, with_lines: bool
) -> None:
    monkeypatch.setattr(partition_mover, "MUCH_BYTES", 0)

    async def story() -> None:
        keepers = Keepers(tmp_path, COUNT, 1, with_lines=with_lines)
        writer = Writer(keepers.grids)
        await joined_under_writes(keepers, writer, 2000)
        await until(lambda: all(contents_of(grid) == writer.contents for grid in keepers.grids.values()))
        assert (keepers.connections > 0) == with_lines
        await keepers.stop()
        assert keepers.faults == []

    asyncio.run(story())


class Files:
    """Values of a store that lie in files, each replaced as soon as someone asks for its file."""

    def __init__(self, grid: Grid, partitions: Collection[int]) -> None:
        self._grid = grid
        self._numbers = itertools.count()
        self._partitions: dict[bytes, int] = {}
        for partition in partitions:
            self._put(partition)

    def _put(self, partition: int) -> None:
        key, word = PARTITION.pack(partition) + b"sk", b"v%09d" % next(self._numbers)
        data = b"".join(bytes(part) for part in contents([word * 10_000]))
        value = b"\x92\xa1k" + EXT_32.pack(0xC9, len(data), CARRIED) + data
        table = self._grid.opened.divided_table(partition % 2, MAPS[0])
        table.replace(key, value, with_blobs=True)
        stored = table.find(key)
        assert stored is not None
        self._partitions[bytes(self._grid.opened.codec.blobs_of(stored)[0])] = partition

    def asked_for(self, name: bytes) -> bool:
        """Replace the value that has a file, and say whether there was one."""
        partition = self._partitions.pop(name, None)
        if partition is not None:
            self._put(partition)
            self._grid.opened.blobs.delete([name])
        return partition is not None


def files_of(grid: Grid) -> Contents:
    """Return what the files say that the entries of a store name."""
    found: Contents = {}
    pieces = list(PartitionCopy(grid.opened).pieces(range(COUNT)))
    files = {piece.name: piece.data for piece in pieces if isinstance(piece, File) and not piece.offset}
    for piece in pieces:
        if isinstance(piece, Entries):
            for key, stored in piece.entries:
                (name,) = grid.opened.codec.blobs_of(stored)
                found[piece.record, key] = _WORD.findall(files.get(bytes(name), b"v" + b"0" * 9))[0]
    return found


def test_partitions_whose_files_are_gone_whenever_one_asks_are_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []
    joined = threading.Event()
    file, join = PartitionCopy.file, Copier.join

    def gone(self: PartitionCopy, name: bytes) -> Iterator[Piece]:
        if files and not joined.is_set():
            asked.append(files[0].asked_for(name))
        return file(self, name)

    def joins(self: Copier) -> None:
        joined.set()
        join(self)

    files: list[Files] = []
    monkeypatch.setattr(PartitionCopy, "file", gone)
    monkeypatch.setattr(Copier, "join", joins)

    async def story() -> None:
        keepers = Keepers(tmp_path, COUNT, 1)
        await keepers.add()
        await until(lambda: len(keepers.grids["0"].opened.environments) == 2 and keepers.table.is_settled)
        await until(lambda: len(open_here_of(keepers.grids["0"])) == COUNT)
        files.append(Files(keepers.grids["0"], range(8)))
        await keepers.add()
        await until(lambda: keepers.table.is_settled)
        await until(lambda: files_of(keepers.grids["0"]) == files_of(keepers.grids["1"]))
        assert len(files_of(keepers.grids["1"])) == 8
        assert 8 < sum(asked) < 100
        await keepers.stop()
        assert keepers.faults == []

    asyncio.run(story())


def open_here_of(grid: Grid) -> dict[int, int]:
    found: dict[int, int] = {}
    for env in grid.opened.environments:
        with env.begin() as txn:
            found |= open_here(txn)
    return found


class SlowDisk(PartitionsOnDisk):
    """One on which a note takes longer than many a table is in force."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, dict)
        self._chance = random.Random(folder.name)

    def note(self, me: str, table: PartitionTable, lineages: Mapping[int, int]) -> None:
        time.sleep(self._chance.choice([0.0, 0.0, 0.05]))
        super().note(me, table, lineages)


@pytest.mark.parametrize("on_disk", [None, SlowDisk], ids=["in-memory", "on-a-slow-disk"])
def test_nothing_is_lost_while_members_come_and_die_one_by_one(
    tmp_path: Path, on_disk: Callable[[Path], PartitionsOnDisk] | None
) -> None:
    async def story() -> None:
        keepers = Keepers(tmp_path, COUNT, 1, on_disk=on_disk)
        await keepers.add()
        await until(lambda: len(keepers.table.members) == 1)
        writer = Writer(keepers.grids)
        while writer.changes < 500:
            await asyncio.sleep(0)
            writer.change()
        for number in range(8):
            await keepers.add()
            if number == 0:
                await until(lambda: keepers.table.is_settled)
            await asyncio.sleep(0.001 * (number % 4))
            await keepers.add()
            await until(lambda: keepers.table.is_settled)
            for name in (2 * number, 2 * number + 1):
                await keepers.lose(str(name))
                await until(lambda: keepers.table.is_settled)
        [grid] = keepers.grids.values()
        await until(lambda: contents_of(grid).keys() == writer.contents.keys())
        assert contents_of(grid) == writer.contents
        await keepers.stop()
        assert keepers.faults == []

    asyncio.run(story())
