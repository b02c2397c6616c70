"""Copies and removals of partitions give way while others write, and to nothing that they do themselves."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from shmjet.cluster.member import other_writes
from shmjet.cluster.member.other_writes import OtherWrites
from shmjet.grid.partition_copy import PIECE_BYTES


class Store:
    def __init__(self) -> None:
        self.committed = 7
        self.now = 100.0

    def commit(self, count: int = 1) -> None:
        self.committed += count


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def writes(store: Store) -> OtherWrites:
    return OtherWrites(lambda: store.committed, lambda: store.now)


def test_writes_of_others_are_seen_for_a_while(store: Store, writes: OtherWrites) -> None:
    assert not writes.are_there()
    assert writes.piece_bytes() == PIECE_BYTES
    store.commit()
    assert writes.are_there()
    store.now += 0.04
    assert writes.are_there()
    assert writes.piece_bytes() < PIECE_BYTES
    store.now += 0.02
    assert not writes.are_there()


def test_own_transactions_are_not_seen_not_even_while_they_are_made(store: Store, writes: OtherWrites) -> None:
    assert not writes.are_there()

    def work() -> str:
        store.commit(3)
        assert not writes.are_there()
        return "done"

    assert writes.apart_from(work) == "done"
    assert not writes.are_there()
    store.commit()
    assert writes.are_there()


def test_work_that_fails_counts_as_own(store: Store, writes: OtherWrites) -> None:
    assert not writes.are_there()

    def work() -> None:
        store.commit(2)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        writes.apart_from(work)
    assert not writes.are_there()


def test_work_in_two_threads_is_counted_once(store: Store, writes: OtherWrites) -> None:
    assert not writes.are_there()
    both = threading.Barrier(2)

    def work() -> None:
        both.wait(10)
        store.commit()
        both.wait(10)

    with ThreadPoolExecutor(2) as threads:
        for done in [threads.submit(writes.apart_from, work) for _ in range(2)]:
            done.result()
    store.commit(0)
    assert not writes.are_there()
    store.commit()
    assert writes.are_there()


def test_a_pause_is_made_only_while_others_write(
    store: Store, writes: OtherWrites, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(other_writes.asyncio, "sleep", sleep)
    asyncio.run(writes.give_way(0.01))
    assert not pauses
    store.commit()
    asyncio.run(writes.give_way(0.01))
    asyncio.run(writes.give_way(0.0))
    assert pauses == pytest.approx([0.04, 0.0])
