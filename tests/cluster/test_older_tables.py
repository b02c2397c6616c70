"""A keeper that still does what an older table asked for, while it is being sent copies by a newer one."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shmjet.cluster.member import local_partitions
from shmjet.cluster.member.partition_keeper import PartitionKeeper
from shmjet.cluster.membership.peer_messages import AgreeOnTails, ChangesTaken, CopiedPartitions, CopyPartitions
from shmjet.cluster.partitions.table import Change, PartitionTable
from shmjet.grid import Grid
from shmjet.grid.environment import Environment
from shmjet.grid.layout import MAP_RECORD, PARTITION, record_key
from shmjet.grid.ownership import close_partitions, open_here, open_partitions
from shmjet.grid.partition_copy import Entries, PartitionCopy
from tests.cluster.test_asking_again import until

ME, OTHER, MEMBERS = 0, 1, ("me", "other")
LINEAGE = 77


def table_of(epoch: int, stamp: int, synced: Sequence[tuple[int, ...]], copying: Sequence[int] = ()) -> PartitionTable:
    """Return a table of two members, with the partitions that this one is getting."""
    coming = tuple((ME,) if partition in copying else () for partition in range(len(synced)))
    rows = tuple(synced)
    return PartitionTable(epoch, stamp, MEMBERS, rows, coming, rows)


class Network:
    """Says which table is in force, and takes what the keeper says."""

    def __init__(self, table: PartitionTable) -> None:
        self.table: PartitionTable | None = table
        self.is_cut_off = False
        self.answers: list[CopiedPartitions] = []
        self.asked: list[AgreeOnTails] = []

    def send(self, identity: str, message: object) -> None:
        if isinstance(message, CopiedPartitions):
            self.answers.append(message)
        elif isinstance(message, AgreeOnTails):
            self.asked.append(message)

    def report(self, changes: Iterable[Change]) -> None: ...
    def doubt(self, identity: str) -> None: ...
    async def reach(self, identities: Sequence[str]) -> None: ...


@contextlib.contextmanager
def held(grid: Grid) -> Iterator[None]:
    """Let nothing be written to a store meanwhile."""
    is_held, over = threading.Event(), threading.Event()

    def hold() -> None:
        grid.opened.environment(0).write(lambda txn: (is_held.set(), over.wait()), "a test")

    thread = threading.Thread(target=hold)
    thread.start()
    is_held.wait()
    try:
        yield
    finally:
        over.set()
        thread.join()


class Story:
    """One member with a keeper, whose first table has it lead partition 0.

    Args:
        folder: where its store is.
    """

    def __init__(self, folder: Path) -> None:
        Grid.create(folder, 2, environments=1, is_divided=True)
        self.grid = Grid.open(folder)
        self.network = Network(table_of(1, 0, [(ME,), (OTHER,)]))
        self.keeper = PartitionKeeper(self.network, self.network, folder, lambda: MEMBERS[ME])
        self._taken = 0

    async def begin(self) -> None:
        self.keeper.start()
        await until(lambda: 0 in self.opened)

    async def end(self) -> None:
        await self.keeper.stop()
        self.grid.close()

    @property
    def opened(self) -> dict[int, int]:
        """The open partitions with their lineages."""
        with self.grid.opened.environment(0).begin() as txn:
            return open_here(txn)

    async def show(self, table: PartitionTable) -> None:
        """Put a table in force, and let the keeper do what it can do about it at once."""
        self.network.table = table
        self.keeper.look()
        for _ in range(20):
            await asyncio.sleep(0)

    def copy(self, message: CopyPartitions) -> None:
        """Have the other member send a part of a copy."""
        self._taken += 1
        numbered = msgspec.structs.replace(message, number=self._taken, after=self._taken - 1)
        self.keeper.receive(MEMBERS[OTHER], numbered)

    async def has_taken_all(self) -> None:
        await until(lambda: len(self.network.answers) == self._taken)
        assert [answer.error for answer in self.network.answers] == [""] * self._taken


def test_what_is_copied_by_a_newer_table_is_not_removed_by_an_older_one(tmp_path: Path) -> None:
    piece = Entries(0, record_key(MAP_RECORD, "map"), 0, 0, [(PARTITION.pack(1) + b"key", b"value")])

    async def story() -> None:
        member = Story(tmp_path)
        await member.begin()
        with held(member.grid):  # so it is still closing partition 0 when the next table comes
            await member.show(table_of(1, 1, [(OTHER,), (OTHER,)]))
            await member.show(table_of(1, 2, [(OTHER,), (OTHER,)], copying=[1]))
            member.copy(CopyPartitions(1, 0, [1], pieces=msgspec.msgpack.encode([piece])))
        member.copy(CopyPartitions(1, 0, [], terms={1: (1, 0)}, numbers=[0]))
        member.copy(CopyPartitions(1, 0, [], end={1: LINEAGE}))
        await member.has_taken_all()
        await member.show(table_of(1, 3, [(OTHER,), (ME,)]))
        await until(lambda: 1 in member.opened)
        assert member.opened[1] == LINEAGE
        (found,) = PartitionCopy(member.grid.opened).pieces([1])
        assert isinstance(found, Entries)
        assert found.entries == piece.entries
        await member.end()

    asyncio.run(story())


def test_a_copy_of_a_new_view_counts_though_an_older_table_is_still_being_followed(tmp_path: Path) -> None:
    async def story() -> None:
        member = Story(tmp_path)
        await member.begin()
        with held(member.grid):
            await member.show(table_of(1, 1, [(OTHER,), (OTHER,)]))
            await member.show(table_of(2, 0, [(ME,), (OTHER,)], copying=[1]))
            member.copy(CopyPartitions(2, 0, [1]))
            member.copy(CopyPartitions(2, 0, [], end={1: LINEAGE}))
            await member.has_taken_all()
        await until(lambda: 0 in member.opened)  # now it has followed the new view
        await member.show(table_of(2, 1, [(ME,), (ME,)]))
        await until(lambda: 1 in member.opened)
        assert member.opened[1] == LINEAGE
        await member.end()

    asyncio.run(story())


def test_a_member_that_has_been_dropped_opens_nothing_by_the_table_that_it_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it is promoted for is opened only when another backup has answered: meanwhile it is dropped, and forgets."""
    opened: list[int] = []

    def open_and_note(environments: Sequence[Environment], lineages: Mapping[int, int], *counts: Any) -> None:
        opened.extend(lineages)
        open_partitions(environments, lineages, *counts)

    async def story() -> None:
        monkeypatch.setattr(local_partitions, "open_partitions", open_and_note)
        member = Story(tmp_path)
        await member.begin()
        await member.show(table_of(1, 1, [(ME,), (OTHER,)], copying=[1]))
        member.copy(CopyPartitions(1, 0, [1]))
        member.copy(CopyPartitions(1, 0, [], end={1: LINEAGE}))
        await member.has_taken_all()
        await member.show(table_of(1, 2, [(ME,), (OTHER, ME)]))
        await member.show(table_of(2, 0, [(ME,), (ME, OTHER)]))
        await until(lambda: member.network.asked)
        member.network.table = None
        member.keeper.forget()
        no_tails = msgspec.msgpack.encode([])
        member.keeper.receive(MEMBERS[OTHER], ChangesTaken(member.network.asked[0].number, "", no_tails))
        await member.show(table_of(3, 0, [(ME,), (OTHER,)]))
        await until(lambda: 0 in member.opened)  # now it has done with the older table
        assert opened == [0, 0]
        await member.end()

    asyncio.run(story())


def test_what_is_being_opened_when_a_member_is_dropped_is_closed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening, closed = threading.Event(), threading.Event()

    def open_late(*args: Any) -> None:
        opening.set()
        closed.wait(0.2)  # no longer: it has to be closed behind this
        open_partitions(*args)

    def close(*args: Any) -> None:
        close_partitions(*args)
        closed.set()

    async def story() -> None:
        member = Story(tmp_path)
        await member.begin()
        monkeypatch.setattr(local_partitions, "open_partitions", open_late)
        monkeypatch.setattr(local_partitions, "close_partitions", close)
        await member.show(table_of(2, 0, [(ME,), (ME,)]))
        await until(opening.is_set)
        member.network.table = None
        member.keeper.forget()
        for _ in range(20):
            await asyncio.sleep(0)
        assert not member.opened
        await member.end()

    asyncio.run(story())


def test_a_member_that_leads_what_only_others_have_says_that_it_is_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        member = Story(tmp_path)
        await member.begin()
        assert not caplog.records, "a partition that no member has begins empty without a word"
        await member.show(table_of(2, 0, [(ME,), (ME, OTHER)]))
        await until(lambda: 1 in member.opened)
        await member.end()

    asyncio.run(story())
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    text = record.getMessage()
    assert "does not have all of them: 1; they begin empty, and what their backups on other have is lost" in text
