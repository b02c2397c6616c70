"""Blocks of memory live as long as their views, and are used again after that."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from shmjet import PoolExecutor
from shmjet.pool import blocks as module
from shmjet.pool.blocks import MOST_KEPT, STEP, Blocks


def address_of(view: memoryview) -> int:
    return int(np.frombuffer(view, np.uint8).ctypes.data)


def test_a_block_is_used_again_when_its_last_view_is_gone() -> None:
    blocks = Blocks()
    first = blocks.filled(b"a" * STEP)
    assert first is not None
    part, where = first[10:20], address_of(first)
    del first
    other = blocks.filled(b"b" * STEP)
    assert other is not None
    assert address_of(other) != where
    assert bytes(part) == b"a" * 10
    del part
    assert blocks.kept == STEP
    again = blocks.filled(b"c" * (STEP - 5))
    assert again is not None
    assert (address_of(again), blocks.kept) == (where, 0)
    assert bytes(again) == b"c" * (STEP - 5)
    again[:3] = b"xyz"
    assert bytes(again[:4]) == b"xyzc"
    del again, other
    blocks.trim()
    assert blocks.kept == 0


def test_only_so_much_is_kept() -> None:
    blocks = Blocks()
    size = MOST_KEPT // 4
    views = [blocks.filled(bytes(size)) for _ in range(6)]
    del views
    assert blocks.kept == MOST_KEPT
    blocks.trim()


def test_without_memory_for_a_block_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "map_pages", lambda *_: None)
    assert Blocks().filled(bytes(STEP)) is None


def test_results_are_not_touched_by_those_that_follow() -> None:
    with PoolExecutor(2) as pool:
        kept = list(pool.map(np.full, [100_000] * 40, range(40)))
        for _ in range(2):
            assert [int(found[0]) for found in pool.map(np.full, [100_000] * 40, range(40))] == list(range(40))
        assert [int(found.sum()) for found in kept] == [100_000 * i for i in range(40)]
        kept[0][:] = 7
        del pool
    gc.collect()
    assert [int(found[-1]) for found in kept] == [7, *range(1, 40)]
