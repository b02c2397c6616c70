from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shmjet import JobConfig, ProcessingGuarantee, processors
from shmjet.core.grid_calls import extend_once, put_once
from shmjet.core.inbox import Inbox
from shmjet.grid import Grid
from shmjet.processors.general.base import Supply
from shmjet.processors.grid import writers
from shmjet.processors.grid.merge_sink import WriteMergingProcessor
from tests.examples import seeds

from .crashing import Attempt, Snapshot, run_sink

AT_LEAST_ONCE = JobConfig(processing_guarantee=ProcessingGuarantee.AT_LEAST_ONCE)


@pytest.fixture
def grid(tmp_path: Path) -> Iterator[Grid]:
    Grid.create(tmp_path / "grid", environments=2)
    with Grid.open(tmp_path / "grid") as opened:
        yield opened


def add(old: int, new: int) -> int | None:
    return old + new or None


@pytest.mark.parametrize("seed", seeds(8))
def test_a_list_has_each_item_once_through_kills_at_any_step(
    grid: Grid, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writers, "PIECE", 1 + seed * 3)
    run_sink(lambda: processors.write_list("out"), range(150), seed, grid=grid)
    assert sorted(grid.get_list("out")) == list(range(150))
    run_sink(lambda: processors.write_list("single"), range(150), seed, grid=grid, counts=[1])
    assert list(grid.get_list("single")) == list(range(150))


@pytest.mark.parametrize("seed", seeds(8))
def test_values_are_merged_once_through_kills_at_any_step(
    grid: Grid, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writers, "PIECE", 1 + seed * 3)
    pairs = [(n % 7, n + 1) for n in range(150)]
    pairs += [("gone", 1), ("gone", -1)]
    grid.get_map("out").put(3, 1000)
    run_sink(lambda: Supply(WriteMergingProcessor, "out", add), pairs, seed, grid=grid, counts=[1])
    expected = {key: sum(value for k, value in pairs if k == key) for key in range(7)}
    expected[3] += 1000
    assert dict(grid.get_map("out").items()) == expected


@pytest.mark.parametrize("seed", seeds(4))
def test_a_plain_map_has_every_entry_through_kills(grid: Grid, seed: int) -> None:
    run_sink(lambda: processors.write_map("out"), [(n, n) for n in range(100)], seed, grid=grid)
    assert dict(grid.get_map("out").items()) == {n: n for n in range(100)}


@pytest.mark.parametrize("seed", seeds(4))
def test_at_least_once_a_list_loses_nothing(grid: Grid, seed: int) -> None:
    run_sink(lambda: processors.write_list("out"), range(100), seed, grid=grid, config=AT_LEAST_ONCE)
    assert set(grid.get_list("out")) == set(range(100))


def feed(attempt: Attempt, *items: Any) -> None:
    inbox = Inbox()
    inbox.fill(list(items))
    while inbox:
        attempt.call(0, attempt.processors[0].process, 0, inbox)


def test_items_come_with_a_valid_snapshot_and_two_jobs_may_go_on_from_it(grid: Grid) -> None:
    first = Attempt(processors.write_list("out"), 1, grid=grid)
    feed(first, "a")
    assert list(grid.get_list("out")) == []
    snapshot = Snapshot({0: first.save(0)}, (), 1)
    first.finish(0, False)
    assert list(grid.get_list("out")) == []
    first.save(0)
    feed(first, "later")
    first.finish(0)
    assert list(grid.get_list("out")) == ["a"]
    for _ in range(2):
        job = Attempt(processors.write_list("out"), 1, grid=grid)
        job.restore(snapshot)
        feed(job, "b")
        job.save(0)
        job.finish(0)
    assert list(grid.get_list("out")) == ["a", "b", "b"]


def test_large_items_leave_no_files_behind_when_they_are_written_again(grid: Grid, tmp_path: Path) -> None:
    def files() -> int:
        return len(list((tmp_path / "grid" / "blobs").iterdir()))

    large = b"x" * 5_000_000
    before = files()
    for _ in range(3):
        extend_once(grid.get_list("out"), [large], b"of the list", 1)
        put_once(grid.get_map("map"), {"key": large}, b"of the map", 1)
    assert files() - before == 2
    assert list(grid.get_list("out")) == [large]
    put_once(grid.get_map("map"), {"key": None}, b"of the map", 2)
    assert (files() - before, len(grid.get_map("map"))) == (1, 0)


def test_nothing_is_kept_back_without_a_guarantee(grid: Grid) -> None:
    attempt = Attempt(processors.write_list("out"), 1, grid=grid, config=JobConfig())
    feed(attempt, "a")
    attempt.complete(0)
    assert list(grid.get_list("out")) == ["a"]
