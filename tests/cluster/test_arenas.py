"""An arena is used again only by processes that still have it mapped."""

from __future__ import annotations

from shmjet.cluster.processes.arenas import ArenaPool


def test_what_a_dead_worker_had_mapped_is_forgotten_in_free_and_in_used_arenas() -> None:
    pool = ArenaPool()
    used, free = pool.acquire(1 << 16, "used"), pool.acquire(1 << 20, "free")
    used.attached |= {0, 1}
    free.attached |= {0, 1}
    pool.give_back(free)
    pool.worker_gone(1)
    assert used.attached == free.attached == {0}
    pool.give_back(used)
    pool.close()


def test_a_free_arena_that_fits_is_used_again() -> None:
    pool = ArenaPool()
    first = pool.acquire(1 << 16, "first")
    pool.give_back(first)
    assert pool.acquire(1 << 16, "second") is first
    pool.give_back(first)
    pool.close()
