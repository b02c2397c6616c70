"""Partitions are compared with their backups, and what differs is found by name."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shmjet.cluster.member.comparer import Comparer
from shmjet.cluster.member.replicator import NotTaken, Replicator
from shmjet.cluster.membership.peer_messages import CompareSums
from shmjet.core.keys import partition_id
from shmjet.grid.layout import LIST_RECORD, MAP_RECORD, PARTITION, record_key
from shmjet.grid.store import Opened
from tests.cluster.test_replicator import Network, Wires, all_settled, connect, lead
from tests.grid.divided import COUNT, Stores

KEYS = range(60)
TERMS = dict.fromkeys(range(COUNT), (1, 0))
ROWS = dict.fromkeys(range(COUNT), ("1",))


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    """Three stores; all partitions are open on the first."""
    stores = Stores(tmp_path, 3)
    stores.move(list(range(COUNT)), 0)
    yield stores
    stores.close()


class Member:
    """Takes messages for a replicator, and those for a comparer."""

    def __init__(self, replicator: Replicator, comparer: Comparer) -> None:
        self._replicator = replicator
        self._comparer = comparer
        self._tasks: list[asyncio.Task[None]] = []

    def receive(self, sender: str, message: Any) -> None:
        if isinstance(message, CompareSums):
            self._tasks.append(asyncio.create_task(self._comparer.answer(sender, message)))
        else:
            self._replicator.receive(sender, message)


def fill(stores: Stores) -> None:
    grid = stores.grid()
    grid.get_map("m").put_all({**dict.fromkeys(KEYS, "x"), "large": "y" * 100_000})
    grid.get_map("limited").update(dict.fromkeys(KEYS, 1))
    grid.get_map("m").put("ends", 1, ttl=600)
    grid.get_map("journal").put("a", 1)
    grid.get_list("l").extend([1, 2, 3, "z" * 100_000])


def spoil(store: Opened) -> set[int]:
    """Remove an entry of a map and all of a list from a store, past all logs; return their partitions."""
    number, tagged = store.codec.key(7)
    entries = store.table(number % 2, record_key(MAP_RECORD, "m"))
    entries.is_divided = False
    assert entries.pop(PARTITION.pack(number) + tagged) is not None
    home = partition_id("l", COUNT)
    items = store.table(home % 2, record_key(LIST_RECORD, "l"))
    items.is_divided = False
    items.drop(keep_name=False)
    return {number, home}


def test_what_differs_is_found_by_name(stores: Stores, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "shmjet.member")
    found: list[tuple[int, str]] = []

    def comparer(wires: Wires, replicators: dict[str, Replicator], name: str) -> Comparer:
        return Comparer(
            Network(wires, name),
            replicators[name],
            lambda: stores.grids[name].opened,
            lambda: TERMS,
            lambda: ROWS,
            lambda partition, member: found.append((partition, member)),
        )

    async def main() -> None:
        wires = Wires()
        replicators = dict(connect(stores, wires))
        here, there = (comparer(wires, replicators, name) for name in "01")
        wires.replicators["1"] = Member(replicators["1"], there)  # type: ignore[assignment]
        lead(stores, replicators, "1")
        for partition in range(COUNT):
            replicators["1"].replica.begin(partition, (1, 0), [0, 0])  # as the end of a copy does
        fill(stores)
        await all_settled(stores, replicators["0"])
        await compare_all(here)
        assert found == []
        spoiled = spoil(stores.grids["1"].opened)
        await compare_all(here)
        assert found == [(partition, "1") for partition in sorted(spoiled)]
        assert "in map 'm'; the backup is made anew" in caplog.text
        assert "in list 'l'; the backup is made anew" in caplog.text
        replicators["1"].replica.begin(3, (1, 0), [1 << 40, 0])
        with pytest.raises(NotTaken, match="has changed meanwhile"):
            await here.compare(3, "1")
        replicators["1"].replica.begin(3, (2, 0), [0, 0])
        with pytest.raises(NotTaken, match="has changed meanwhile"):
            await here.compare(3, "1")
        assert not await here.compare(COUNT, "1"), "no member leads it"
        for one in (here, there):
            one.stop()
        for replicator in replicators.values():
            await replicator.stop()

    asyncio.run(main())


async def compare_all(here: Comparer) -> None:
    for partition in range(COUNT):
        assert await here.compare(partition, "1")
