"""How long an operation waits for a partition that is on its way."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from shmjet.grid import routes
from shmjet.grid.errors import GridError, PartitionMovedError
from shmjet.grid.routes import PATIENCE_S, Routes, Search


class Clock:
    """Time that passes only where one sleeps."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(routes, "time", found)
    return found


def waited(clock: Clock, away: float) -> tuple[float, int]:
    """Return the seconds and the tries of an operation whose partition is away for so many seconds."""
    forgotten: list[None] = []
    there: Any = SimpleNamespace(forget=lambda: forgotten.append(None))
    search, begin = Search(there), clock.now

    def work() -> None:
        if clock.now < begin + away:
            raise PartitionMovedError("closed")

    while True:
        try:
            work()
        except PartitionMovedError as error:
            search.missed(error)
        else:
            return clock.now - begin, len(forgotten)


@pytest.mark.parametrize(("away", "most"), [(0.01, 10), (0.02, 13), (0.1, 20), (1.0, 45)])
def test_an_operation_waits_little_longer_than_its_partition_is_away(clock: Clock, away: float, most: int) -> None:
    seconds, tries = waited(clock, away)
    assert away <= seconds <= 1.3 * away + 0.002
    assert tries <= most


def test_it_waits_a_minute_at_most(clock: Clock) -> None:
    begin = clock.now
    with pytest.raises(GridError, match="no member has had a partition for 60 s"):
        waited(clock, 1000.0)
    assert clock.now - begin < PATIENCE_S + 1


def test_routes_are_looked_up_anew_after_each_miss() -> None:
    carrier: Any = SimpleNamespace(ask=lambda member, body: b"")
    table, misses = Routes(carrier), iter([PartitionMovedError("once"), None])

    def work() -> str:
        error = next(misses)
        if error is not None:
            raise error
        return "done"

    assert table.until_found(work) == "done"
