"""An arena is used again only by processes that still have it mapped, and free ones make way for new ones."""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from shmjet.cluster.processes.arenas import ArenaPool, PooledArena
from shmjet.ring.arena import ArenaError


@contextmanager
def no_more_descriptors(but: int = 0) -> Iterator[None]:
    """Leave this process only as many descriptors as it has open, and `but` more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with open(os.devnull) as lowest:
        free = lowest.fileno()
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + but, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def forgotten() -> list[PooledArena]:
    return []


@pytest.fixture
def pool(forgotten: list[PooledArena]) -> Iterator[ArenaPool]:
    pool = ArenaPool(forgotten.append)
    yield pool
    pool.close()


def test_what_a_dead_worker_had_mapped_is_forgotten_in_free_and_in_used_arenas(pool: ArenaPool) -> None:
    used, free = pool.acquire(1 << 16, "used"), pool.acquire(1 << 20, "free")
    used.attached |= {0, 1}
    free.attached |= {0, 1}
    pool.give_back(free)
    pool.worker_gone(1)
    assert used.attached == free.attached == {0}
    pool.give_back(used)


def test_a_free_arena_that_fits_is_used_again(pool: ArenaPool) -> None:
    first = pool.acquire(1 << 16, "first")
    pool.give_back(first)
    assert pool.acquire(1 << 16, "second") is first
    pool.give_back(first)


def test_free_arenas_make_way_for_one_that_finds_no_descriptor(pool: ArenaPool, forgotten: list[PooledArena]) -> None:
    small = [pool.acquire(1 << 16, "small") for _ in range(3)]
    for pooled in small:
        pool.give_back(pooled)
    with no_more_descriptors():
        large = pool.acquire(1 << 24, "large")
    assert large not in small
    assert set(forgotten) == set(small)
    pool.give_back(large)


def test_without_a_free_arena_the_lack_of_descriptors_is_an_error(pool: ArenaPool) -> None:
    with no_more_descriptors(), pytest.raises(ArenaError, match="RLIMIT_NOFILE"):
        pool.acquire(1 << 16, "first")
    with no_more_descriptors(1), pytest.raises(ArenaError, match="RLIMIT_NOFILE"):  # enough for the file alone
        pool.acquire(1 << 16, "second")


def test_not_all_free_arenas_are_kept(pool: ArenaPool, forgotten: list[PooledArena]) -> None:
    used = [pool.acquire(1 << 16, str(n)) for n in range(40)]
    for pooled in used:
        pool.give_back(pooled)
    assert forgotten == used[: len(forgotten)]
    assert 20 <= len(forgotten) < 40


def test_an_arena_of_which_a_view_lives_is_not_used_again(pool: ArenaPool, forgotten: list[PooledArena]) -> None:
    viewed = pool.acquire(1 << 16, "viewed")
    viewed.is_viewed = True
    pool.give_back(viewed)
    assert forgotten == [viewed]
    assert not pool.can_make_room


def test_room_is_made_by_what_processes_still_hold(pool: ArenaPool, forgotten: list[PooledArena]) -> None:
    async def story() -> None:
        held, free = pool.acquire(1 << 16, "held"), pool.acquire(1 << 16, "free")
        pool.give_back(free)
        gone = asyncio.Event()

        async def end() -> None:
            await gone.wait()

        pool.give_back_after(held, end())
        assert pool.can_make_room
        room = asyncio.ensure_future(pool.make_room(60))
        await asyncio.sleep(0)
        assert forgotten == []
        gone.set()
        await room
        assert set(forgotten) == {held, free}
        assert not pool.can_make_room

    asyncio.run(story())


def test_room_is_not_waited_for_without_a_bound(pool: ArenaPool) -> None:
    async def story() -> None:
        held = pool.acquire(1 << 16, "held")
        gone = asyncio.Event()

        async def end() -> None:
            await gone.wait()

        pool.give_back_after(held, end())
        await pool.make_room(0.01)
        assert pool.can_make_room
        gone.set()
        await pool.make_room(60)

    asyncio.run(story())


def test_room_is_made_by_attempts_that_are_over_and_let_go(pool: ArenaPool, forgotten: list[PooledArena]) -> None:
    async def story() -> None:
        over, running = pool.acquire(1 << 16, "over"), pool.acquire(1 << 16, "running")
        pool.expect(over)
        room = asyncio.ensure_future(pool.make_room(60))
        await asyncio.sleep(0)
        assert not room.done()
        pool.give_back(over)
        await room
        assert forgotten == [over]
        assert not pool.can_make_room
        pool.give_back(running)

    asyncio.run(story())


def test_large_arenas_wait_for_the_next_job_and_go_when_none_comes(forgotten: list[PooledArena]) -> None:
    async def run() -> None:
        pool = ArenaPool(forgotten.append, kept_bytes=1 << 20, idle_s=0.05)
        large, small = pool.acquire(4 << 20, "large"), pool.acquire(1 << 16, "small")
        pool.give_back(large)
        assert pool.acquire(4 << 20, "again") is large
        pool.give_back(large)
        pool.give_back(small)
        assert not forgotten
        async with asyncio.timeout(30):
            while not forgotten:
                await asyncio.sleep(0.01)
        assert forgotten == [large]
        assert pool.acquire(1 << 16, "small again") is small
        pool.give_back(small)
        pool.close()

    asyncio.run(run())
