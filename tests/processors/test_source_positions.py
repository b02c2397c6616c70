from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any

import pytest

from shmjet import processors, sources
from shmjet.data.errors import ProcessorError
from shmjet.testing import TestGrid
from tests.examples import seeds

from .crashing import Attempt, Snapshot, run_source


def counted(index: int, count: int) -> Any:
    """An endless-looking lazy share: not a sequence, so it is drawn anew."""
    return (n for n in range(index, 200, count))


SUPPLIERS: dict[str, Callable[[], Any]] = {
    "items": lambda: processors.read_items(range(200)),
    "many items": lambda: sources.items(range(200), partitions=7, key=lambda n: n).supplier,
    "ranges": lambda: processors.generate(lambda index, count: range(index, 200, count)),
    "generators": lambda: processors.generate(counted),
}


@pytest.mark.parametrize("name", SUPPLIERS)
@pytest.mark.parametrize("seed", seeds(12))
def test_each_item_is_emitted_once_through_kills_and_other_parallelism(name: str, seed: int) -> None:
    assert sorted(chain.from_iterable(run_source(SUPPLIERS[name], seed))) == list(range(200))


@pytest.mark.parametrize("seed", seeds(8))
def test_a_single_processor_keeps_its_order_through_kills(seed: int) -> None:
    emitted = run_source(SUPPLIERS["generators"], seed, counts=[1])
    assert list(chain.from_iterable(emitted)) == list(range(200))


class OrderedMap(dict[int, int]):
    """A map whose partitions are those of the key's remainder."""

    def items_of(self, partitions: Any) -> Any:
        return ((key, value) for part in partitions for key, value in self.items() if key % 271 == part)


@pytest.mark.parametrize("seed", seeds(8))
def test_maps_and_lists_are_read_once_through_kills(seed: int) -> None:
    grid = TestGrid()
    grid.get_list("given").extend(range(3000))
    grid.maps["given"] = OrderedMap((n, n) for n in range(500))  # type: ignore[assignment]
    read = run_source(lambda: processors.read_list("given"), seed, grid=grid)
    assert sorted(chain.from_iterable(read)) == list(range(3000))
    read = run_source(lambda: processors.read_map("given"), seed, grid=grid)
    assert sorted(chain.from_iterable(read)) == [(n, n) for n in range(500)]


def test_what_is_appended_while_a_job_is_suspended_is_not_read_and_a_cleared_list_is_an_error() -> None:
    grid = TestGrid()
    grid.get_list("given").extend(range(3))
    first = Attempt(processors.read_list("given"), 1, grid=grid, room=lambda: 1)
    for _ in range(2):  # one call has a bound in time, and may give one item only
        first.complete(0)
    snapshot = Snapshot({0: first.save(0)}, (), 1)
    assert first.outputs == [[0, 1]]
    grid.get_list("given").append(3)
    second = Attempt(processors.read_list("given"), 1, grid=grid)
    second.restore(snapshot)
    while second.live:  # what is skipped has a bound in time
        second.complete(0)
    assert second.outputs == [[2]]
    grid.get_list("given").clear()
    third = Attempt(processors.read_list("given"), 1, grid=grid)
    third.restore(snapshot)
    with pytest.raises(ProcessorError, match="'given' had 3 items when the job began and has 0 now"):
        third.complete(0)


def test_items_that_are_others_than_those_of_the_snapshot_are_refused() -> None:
    first = Attempt(processors.read_items("abc"), 1)
    snapshot = Snapshot({0: first.save(0)}, (), 1)
    second = Attempt(processors.read_items("abcd"), 1)
    with pytest.raises(ProcessorError, match="snapshot is of a source of 3 items, this one has 4"):
        second.restore(snapshot)


def test_a_long_skip_does_not_hold_up_the_worker() -> None:
    first = Attempt(processors.generate(lambda index, count: iter(range(10**6))), 1, room=lambda: 2048)
    while len(first.outputs[0]) < 400_000:
        first.complete(0)
    snapshot = Snapshot({0: first.save(0)}, (), 1)
    position = len(first.outputs[0])
    second = Attempt(processors.generate(lambda index, count: iter(range(10**6))), 1)
    second.restore(snapshot)
    calls = 0
    while not second.outputs[0]:
        second.complete(0)
        calls += 1
    assert calls > 2
    assert second.outputs[0][0] == position
