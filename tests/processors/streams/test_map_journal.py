"""The source that reads a map's journal: each change once, also after a restore with another parallelism."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shmjet import MapConfig, sources
from shmjet.core.event_time import EventTimePolicy
from shmjet.core.wake_up import set_wake_up
from shmjet.data.errors import ConfigError
from shmjet.data.marks import Watermark
from shmjet.grid import Grid, MapEvent
from shmjet.processors.streams.map_journal import MapJournalProcessor
from shmjet.testing import TestContext, TestInbox, TestOutbox


@pytest.fixture
def grid(tmp_path: Path) -> Iterator[Grid]:
    maps = {"m": MapConfig(journal_capacity=100_000), "small": MapConfig(journal_capacity=10)}
    Grid.create(tmp_path / "grid", environments=4, map_size=1 << 30, maps=maps)
    with Grid.open(tmp_path / "grid") as opened:
        yield opened


class Run:
    """One processor, with what it has emitted."""

    def __init__(
        self, grid: Grid, index: int = 0, count: int = 1, *, name: str = "m", start: str = "oldest", policy: Any = None
    ) -> None:
        self.processor = MapJournalProcessor(name, start, policy)
        self.outbox = TestOutbox(100)
        context = TestContext(grid=grid, global_index=index, total_parallelism=count)
        set_wake_up(context, lambda: None)
        self.processor.init(self.outbox, context)
        self.items: list[Any] = []

    def emit(self, calls: int) -> None:
        """Call the processor."""
        for _ in range(calls):
            assert not self.processor.complete()
            self.items += self.outbox.drain()

    def emit_all(self) -> list[Any]:
        """Call the processor until it emits nothing, and return what it has emitted in all."""
        before = -1
        while before < len(self.items):
            before = len(self.items)
            self.emit(30)
        return self.items

    def save(self) -> list[tuple[Any, Any]]:
        """Return the processor's state; what it had read has been emitted before."""
        while not self.processor.emission.flush_rest():
            self.items += self.outbox.drain()
        self.items += self.outbox.drain()
        assert self.processor.save_to_snapshot()
        return self.outbox.drain_snapshot()


def test_changes_come_in_the_order_of_their_commits(grid: Grid) -> None:
    jet, run = grid.get_map("m"), Run(grid)
    for number in range(300):
        jet[number] = number
    assert [event.key for event in run.emit_all()] == list(range(300))
    jet[5] = "again"
    assert run.emit_all()[300:] == [MapEvent("updated", 5, 5, "again", *run.items[300][4:])]


def test_lost_changes_are_counted(grid: Grid) -> None:
    jet, run = grid.get_map("small"), Run(grid, name="small")
    for number in range(100):
        jet[number % 3] = number
    events = run.emit_all()
    assert sum(event.lost or 1 for event in events) == 100
    assert sum(event.kind != "lost" for event in events) == 10


def test_latest_is_from_when_the_job_begins(grid: Grid) -> None:
    jet = grid.get_map("m")
    jet["before"] = 1
    run = Run(grid, start="latest")
    jet["after"] = 2
    assert [event.key for event in run.emit_all()] == ["after"]


def test_timestamps_are_those_of_the_values(grid: Grid) -> None:
    jet = grid.get_map("m")
    run = Run(grid, policy=EventTimePolicy(timestamp_fn=lambda event: event.new, stride=1))
    for number in range(20):
        jet[number] = number
    items = run.emit_all()
    assert [item[0] for item in items if not isinstance(item, Watermark)] == list(range(20))
    assert items[-1][0] == 19
    assert Watermark(19) in items


@pytest.mark.parametrize("start", ["oldest", "latest"])
@pytest.mark.parametrize(("before", "after"), [(1, 1), (1, 3), (3, 2), (2, 6)])
def test_a_restored_source_reads_each_change_once(grid: Grid, start: str, before: int, after: int) -> None:
    jet = grid.get_map("m")
    runs = [Run(grid, index, before, start=start) for index in range(before)]
    jet.put_all((key, 0) for key in range(12_000))
    for run in runs:
        run.emit(1)
    saved = [entry for run in runs for entry in run.save()]
    seen = [event for run in runs for event in run.items]
    assert 0 < len(seen) < 12_000
    jet.put_all((key, 1) for key in range(1000))
    later = [Run(grid, index, after, start=start) for index in range(after)]
    for run in later:
        run.processor.restore_from_snapshot(TestInbox(*saved))
        assert run.processor.finish_snapshot_restore()
        seen += run.emit_all()
    assert len(seen) == 13_000
    assert len({(event.partition, event.sequence) for event in seen}) == 13_000


def test_a_map_without_a_journal_is_refused(grid: Grid) -> None:
    with pytest.raises(ConfigError, match="map 'other' has no journal"):
        Run(grid, name="other")


def test_arguments_are_checked() -> None:
    with pytest.raises(TypeError, match="map_journal: expected a name"):
        sources.map_journal("")
    with pytest.raises(ValueError, match='start must be "oldest" or "latest"'):
        sources.map_journal("m", "first")  # type: ignore[arg-type]
