"""Short operations on maps and lists, and short changes of backups, are done at once unless a writer is in the way."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shmjet.cluster.member.grid_requests import GridRequests
from shmjet.cluster.member.partition_keeper import PartitionKeeper
from shmjet.cluster.member.replicator import Replicator
from shmjet.cluster.membership.peer_messages import ChangesTaken, ShipChanges
from shmjet.cluster.partitions.table import Holder, PartitionTable
from shmjet.cluster.protocol import GridCall
from shmjet.core import MapConfig
from shmjet.grid import Grid
from shmjet.grid.change_log import Dropped, Puts
from shmjet.grid.layout import MAP_RECORD, PARTITION, record_key
from shmjet.grid.operations import Find, Operation, Pop, Replace
from shmjet.grid.ownership import open_here
from shmjet.grid.replica import Sent
from shmjet.grid.side_by_side import SideBySide
from shmjet.grid.store import Opened
from shmjet.grid.times import now
from tests.cluster.test_asking_again import Asker, until

_encode = msgspec.msgpack.encode
PLACE = PARTITION.pack(0)
TABLE = PartitionTable.first(1, 4, [Holder("0", "a"), Holder("1", "b")], 1)


@contextmanager
def a_writer(opened: Opened) -> Iterator[None]:
    """Have the first environment written meanwhile."""
    begun, end = threading.Event(), threading.Event()

    def work(_: object) -> None:
        begun.set()
        end.wait(60)

    writer = threading.Thread(target=opened.environment(0).write, args=(work, "a test"))
    writer.start()
    begun.wait(60)
    try:
        yield
    finally:
        end.set()
        writer.join()


def call(number: int, operation: Operation) -> GridCall:
    return GridCall(number, _encode(operation))


def test_a_short_operation_is_answered_at_once_unless_another_process_writes(tmp_path: Path) -> None:
    Grid.create(tmp_path / "grid", environments=1, maps={"j": MapConfig(journal_capacity=10)})
    plain, journal = (record_key(MAP_RECORD, name) for name in "mj")
    entry = _encode(("a", 1))

    async def story() -> None:
        grid, client = GridRequests(tmp_path / "grid"), Asker()
        grid.perform(client, call(1, Find(0, plain, PLACE + b"sa")))  # the first one opens the store
        await until(lambda: len(client.told) == 1)
        grid.perform(client, call(2, Replace(0, plain, PLACE + b"sa", entry, False)))
        grid.perform(client, call(3, Find(0, plain, PLACE + b"sa")))
        assert [msgspec.msgpack.decode(reply.body) for reply in client.told] == [None, None, entry]
        grid.perform(client, call(4, Replace(0, journal, PLACE + b"sa", entry, False)))
        assert len(client.told) == 3, "there may be room to be made"
        await until(lambda: len(client.told) == 4)
        with Grid.open(tmp_path / "grid") as store, a_writer(store.opened):
            grid.perform(client, call(5, Pop(0, plain, PLACE + b"sa")))
            grid.perform(client, call(6, Find(0, plain, PLACE + b"sa")))
            assert [reply.request for reply in client.told[4:]] == [6], "readers wait for no writer"
        await until(lambda: len(client.told) == 6)
        assert msgspec.msgpack.decode(client.told[5].body) == entry
        grid.close()

    asyncio.run(story())


def test_a_refusal_for_want_of_room_names_the_member(tmp_path: Path) -> None:
    Grid.create(tmp_path / "grid", environments=1, maps={"small": MapConfig(max_bytes=10)})
    write = Replace(0, record_key(MAP_RECORD, "small"), PLACE + b"sa", _encode(("a", "a long value")), False)

    async def story() -> None:
        grid, client = GridRequests(tmp_path / "grid", address=lambda: "10.0.0.1:5701"), Asker()
        grid.perform(client, call(1, write))
        await until(lambda: len(client.told) == 1)
        assert client.told[0].error == "GridFullError"
        assert client.told[0].text.startswith("no room for map 'small'")
        assert client.told[0].text.endswith("(on the member 10.0.0.1:5701)")
        grid.close()

    asyncio.run(story())


class Network:
    """The network of a member that hears what is said to it and remembers what it says."""

    def __init__(self) -> None:
        self.table: PartitionTable | None = TABLE
        self.is_cut_off = False
        self.said: list[Any] = []

    def send(self, _: str, message: object) -> None:
        self.said.append(message)

    def report(self, changes: object) -> None:
        pass

    def doubt(self, identity: str) -> None:
        pass

    async def reach(self, identities: Sequence[str]) -> None:
        pass


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Grid]:
    """A divided store of one environment."""
    Grid.create(tmp_path / "grid", 4, environments=1, is_divided=True)
    with Grid.open(tmp_path / "grid") as grid:
        yield grid


def ship(number: int, *changes: object) -> ShipChanges:
    sent = [Sent(0, number, [(0, (1, 0), msgspec.Raw(_encode(list(changes))))])]
    return ShipChanges(1, number, backed_up=[0], sent=_encode(sent), moment=now())


def test_a_few_changes_are_taken_at_once_unless_there_is_more_to_be_done(store: Grid) -> None:
    record = record_key(MAP_RECORD, "m")
    puts = [Puts(record, 0, [(PLACE + b"sa", _encode(("a", number)))]) for number in range(4)]

    async def story() -> None:
        network = Network()
        replicator = Replicator(network, lambda: store.opened, lambda _: True, lambda: None)
        replicator.receive("1", ship(1, puts[1]))
        assert network.said == [ChangesTaken(1, "")]
        replicator.receive("1", ship(1, puts[0]))
        await until(lambda: len(network.said) == 2)
        assert network.said[1] == ChangesTaken(1, ""), "asked again, it is not done again"
        with a_writer(store.opened):
            replicator.receive("1", ship(2, puts[2]))
            assert len(network.said) == 2
        await until(lambda: len(network.said) == 3)
        replicator.receive("1", ship(3, Dropped(record, True)))
        assert len(network.said) == 3, "what is dropped has to be swept"
        replicator.receive("1", ship(4, puts[3]))
        assert len(network.said) == 3, "in their order"
        await until(lambda: len(network.said) == 5)
        replicator.receive("of no view", ship(1, puts[1]))
        await until(lambda: len(network.said) == 6)
        assert "another table" in network.said[5].error
        await replicator.stop()

    asyncio.run(story())
    found = store.opened.table(0, record)
    found.is_divided = False
    assert found.find(PLACE + b"sa") == _encode(("a", 3))


def test_a_member_that_is_cut_off_lets_nobody_use_its_partitions(tmp_path: Path) -> None:
    Grid.create(tmp_path / "grid", 4, environments=1, is_divided=True)

    def open_ones(grid: Grid) -> dict[int, int]:
        with grid.opened.environment(0).begin() as txn:
            return open_here(txn)

    async def story() -> None:
        network = Network()
        network.table = PartitionTable.first(1, 4, [Holder("0", "a")], 1)
        keeper = PartitionKeeper(network, network, tmp_path / "grid", lambda: "0")
        with Grid.open(tmp_path / "grid") as grid:
            keeper.start()
            await until(lambda: len(open_ones(grid)) == 4)
            before, table = open_ones(grid), network.table
            network.table, network.is_cut_off = None, True
            keeper.look()
            await until(lambda: not open_ones(grid))
            network.table, network.is_cut_off = table, False
            keeper.look()
            await until(lambda: open_ones(grid) == before)
        await keeper.stop()

    asyncio.run(story())


def test_all_is_done_before_an_error_of_one_thing_is_raised() -> None:
    several, done = SideBySide(2), list[int]()
    first = threading.Event()

    def fail() -> None:
        first.set()
        raise ValueError("the first")

    def go_on() -> None:
        first.wait(60)
        done.append(1)

    with pytest.raises(ValueError, match="the first"):
        several.do_all([fail, go_on, go_on, go_on])
    assert done == [1, 1, 1]
    several.do_all([go_on])
    several.close()
    assert len(done) == 4
