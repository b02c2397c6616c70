"""Changes on their way to backups, over a network that loses messages, and to backups that do not take them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shmjet.cluster.member import replicator
from shmjet.cluster.member.replicator import NoBackup, Replicator
from shmjet.cluster.membership.peer_messages import PeerMessage
from shmjet.cluster.partitions.table import Holder, PartitionTable
from shmjet.grid.change_log import ends
from shmjet.grid.errors import PartitionMovedError
from shmjet.grid.ownership import open_partitions
from shmjet.grid.partition_copy import PartitionCopy
from tests.grid.divided import COUNT, Stores

TABLE = PartitionTable.first(1, COUNT, [Holder("0", "a"), Holder("1", "b"), Holder("2", "c")], 2)


class Wires:
    """Brings messages between replicators, and loses some."""

    def __init__(self, loss: float = 0.0) -> None:
        self.replicators: dict[str, Replicator] = {}
        self.tables: dict[str, PartitionTable | None] = dict.fromkeys("012", TABLE)
        self.sent = 0
        self._loss = loss
        self._chance = random.Random(4)

    def send(self, sender: str, receiver: str, message: Any) -> None:
        self.sent += 1
        data = msgspec.msgpack.encode(message)
        there = self.replicators.get(receiver)
        if there is not None and self._chance.random() >= self._loss:
            asyncio.get_running_loop().call_soon(there.receive, sender, msgspec.msgpack.decode(data, type=PeerMessage))


class Network:
    def __init__(self, wires: Wires, me: str) -> None:
        self._wires = wires
        self._me = me

    @property
    def table(self) -> PartitionTable | None:
        return self._wires.tables[self._me]

    def send(self, identity: str, message: object) -> None:
        self._wires.send(self._me, identity, message)

    def doubt(self, identity: str) -> None:
        pass

    async def reach(self, identities: Sequence[str]) -> None:
        await asyncio.sleep(0)


@pytest.fixture
def stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stores]:
    """Three stores; all partitions are open on the first, which has two backups of each."""
    monkeypatch.setattr(replicator, "_ASK_AGAIN_S", 0.01)
    stores = Stores(tmp_path, 3)
    stores.move(list(range(COUNT)), 0)
    yield stores
    stores.close()


def connect(stores: Stores, wires: Wires, has: str = "12", late: list[str] | None = None) -> dict[str, Replicator]:
    for name in "012":
        wires.replicators[name] = Replicator(
            Network(wires, name),
            lambda name=name: stores.grids[name].opened,
            lambda _, name=name: name in has,
            lambda name=name: None if late is None else late.append(name),
        )
    return wires.replicators


def lead(stores: Stores, replicators: dict[str, Replicator], *backups: str) -> None:
    replicators["0"].follow(dict.fromkeys(range(COUNT), backups), dict.fromkeys(range(COUNT), (1, 0)))
    counts = dict.fromkeys(range(COUNT), len(backups))
    open_partitions(stores.grids["0"].opened.environments, stores.lineages, counts)


def contents(stores: Stores, name: str) -> dict[Any, Any]:
    """Return the map that a member has, as it would be if all partitions were open there."""
    open_partitions(stores.grids[name].opened.environments, stores.lineages)
    stores.primaries[:] = [int(name)] * COUNT
    return dict(stores.grid(int(name)).get_map("m"))


async def all_settled(stores: Stores, of: Replicator) -> None:
    for at in enumerate(ends(stores.grids["0"].opened.environments)):
        await of.settled(*at)


def test_changes_reach_all_backups_although_messages_are_lost(stores: Stores) -> None:
    expected = {**dict.fromkeys(range(100), "x"), 7: "y" * 100_000, 8: "z" * 3_000_000}

    async def main() -> None:
        replicators = connect(stores, Wires(0.3))
        lead(stores, replicators, "1", "2")
        there = stores.grid().get_map("m")
        await asyncio.to_thread(there.put_all, dict.fromkeys(range(100), "x"))
        await asyncio.to_thread(there.update, {7: "y" * 100_000, 8: "z" * 3_000_000, 9: "gone" * 50_000})
        await asyncio.to_thread(there.put, 9, "x")
        await all_settled(stores, replicators["0"])
        for one in replicators.values():
            await one.stop()

    asyncio.run(main())
    for name in "12":
        assert contents(stores, name) == expected


def test_a_change_goes_to_a_backup_before_anything_else_has_its_turn(stores: Stores) -> None:
    async def main() -> None:
        wires = Wires()
        replicators = connect(stores, wires)
        lead(stores, replicators, "1", "2")
        primary, there = replicators["0"], stores.grid().get_map("m")
        for value in range(3):  # the second one finds feeds that have nothing to do
            there.put("key", value)
            await all_settled(stores, primary)
            for _ in range(20):
                await asyncio.sleep(0)
        there.put("key", "last")
        before = wires.sent
        waiting = [primary.settling(*at) for at in enumerate(ends(stores.grids["0"].opened.environments))]
        assert wires.sent == before + 2
        await asyncio.gather(*(one for one in waiting if one is not None))
        for one in replicators.values():
            await one.stop()

    asyncio.run(main())
    assert contents(stores, "2") == {"key": "last"}


def test_what_was_sent_at_once_and_refused_is_sent_again(stores: Stores) -> None:
    async def main() -> None:
        wires = Wires()
        replicators = connect(stores, wires)
        lead(stores, replicators, "1")
        there = stores.grid().get_map("m")
        there.put("key", 1)
        await all_settled(stores, replicators["0"])
        for _ in range(20):
            await asyncio.sleep(0)
        wires.tables["1"] = None
        there.put("key", 2)
        waiting = asyncio.create_task(all_settled(stores, replicators["0"]))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not waiting.done()
        wires.tables["1"] = TABLE
        await waiting
        for one in replicators.values():
            await one.stop()

    asyncio.run(main())
    assert contents(stores, "1") == {"key": 2}


def test_a_backup_that_does_not_take_changes_is_late_and_no_longer_waited_for_when_it_is_none(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicator, "LATE_S", 0.01)
    late: list[str] = []

    async def main() -> None:
        replicators = connect(stores, Wires(), has="1", late=late)
        lead(stores, replicators, "1", "2")
        stores.grid().get_map("m").put_all({1: 1, 2: 2})
        waiting = asyncio.create_task(all_settled(stores, replicators["0"]))
        async with asyncio.timeout(60):
            while "2" not in replicators["0"].late:
                await asyncio.sleep(0.001)
        assert not waiting.done()
        lead(stores, replicators, "1")
        await waiting
        assert replicators["0"].late == set()
        for one in replicators.values():
            await one.stop()

    asyncio.run(main())
    assert set(late) == {"0"}
    assert contents(stores, "1") == {1: 1, 2: 2}
    assert contents(stores, "2") == {}


def test_a_backup_takes_nothing_of_another_epoch(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicator, "LATE_S", 0.01)

    async def main() -> None:
        wires = Wires()
        replicators = connect(stores, wires)
        lead(stores, replicators, "1")
        wires.tables["1"] = TABLE.after(2, [Holder("1", "b"), Holder("2", "c")], 2)[0]
        stores.grid().get_map("m").put_all({1: 1})
        waiting = asyncio.create_task(all_settled(stores, replicators["0"]))
        async with asyncio.timeout(60):
            while not replicators["0"].late:
                await asyncio.sleep(0.001)
        replicators["0"].forget()
        with pytest.raises(PartitionMovedError):
            await waiting
        with pytest.raises(PartitionMovedError):  # as well for who comes to wait only now
            await all_settled(stores, replicators["0"])
        for one in replicators.values():
            await one.stop()

    asyncio.run(main())
    assert contents(stores, "1") == {}


@pytest.mark.parametrize("lucky", "12")
def test_who_follows_a_lost_primary_agrees_with_the_other_backups(stores: Stores, lucky: str) -> None:
    async def main() -> None:
        wires = Wires(0.2)
        replicators = connect(stores, wires)
        lead(stores, replicators, lucky)
        stores.grid().get_map("m").put_all({1: 1, 2: 2})
        await all_settled(stores, replicators["0"])
        after = TABLE.after(2, [Holder("1", "b"), Holder("2", "c")], 2)[0]
        wires.tables = dict.fromkeys("012", after)
        await replicators.pop("0").stop()
        await replicators["1"].agree(2, {"2": list(range(COUNT))})
        for one in replicators.values():
            await one.stop()

    asyncio.run(main())
    for name in "12":
        assert contents(stores, name) == {1: 1, 2: 2}


def test_a_member_without_the_backup_that_it_should_have_says_so(stores: Stores) -> None:
    async def main() -> None:
        replicators = connect(stores, Wires(), has="1")
        with pytest.raises(NoBackup) as refused:
            await replicators["1"].agree(1, {"2": [3]})
        assert refused.value.member == "2"
        for one in replicators.values():
            await one.stop()

    asyncio.run(main())
    assert list(PartitionCopy(stores.grids["2"].opened).pieces(range(COUNT))) == []


def test_changes_of_a_partition_that_a_backup_has_dropped_hold_up_no_others(stores: Stores) -> None:
    dropped, asked, late = 3, list[int](), list[str]()

    async def main() -> None:
        replicators, wires = {}, Wires()
        for name in "01":
            replicators[name] = wires.replicators[name] = Replicator(
                Network(wires, name), lambda name=name: stores.grids[name].opened, has, lambda: late.append("")
            )
        lead(stores, replicators, "1")
        await asyncio.to_thread(stores.grid().get_map("m").put_all, dict.fromkeys(range(100), "x"))
        settling = asyncio.create_task(all_settled(stores, replicators["0"]))
        async with asyncio.timeout(60):
            while dropped not in asked:
                await asyncio.sleep(0)
            rows = {partition: ("1",) for partition in range(COUNT) if partition != dropped}
            replicators["0"].follow(rows, dict.fromkeys(range(COUNT), (1, 0)))
            await settling
        for one in replicators.values():
            await one.stop()

    def has(partition: int) -> bool:
        asked.append(partition)
        return partition != dropped

    asyncio.run(main())
    assert late == []
