from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from shmjet import processors
from shmjet.core.keys import partition_id
from shmjet.core.latency_policy import LOW_LATENCY, THROUGHPUT, LatencyPolicy
from shmjet.data.errors import ProcessorError
from shmjet.processors.grid import maps_and_lists, writers
from shmjet.testing import TestGrid, verify_processor

from .driving import Driver, processors_of


class PartitionedMap(dict[Any, Any]):
    """A map that can be read by partitions."""

    def items_of(self, partitions: Iterable[int]) -> Iterable[tuple[Any, Any]]:
        wanted = set(partitions)
        return ((key, value) for key, value in self.items() if partition_id(key, 271) in wanted)


def outputs(supplier: Any, count: int, grid: Any) -> list[list[Any]]:
    return [
        Driver(processor, room=7, index=index, count=count, grid=grid).complete(edges=())
        for index, processor in enumerate(processors_of(supplier, count))
    ]


@pytest.mark.parametrize("count", [1, 3, 300])
def test_a_map_is_read_once_by_all_processors_together(count: int) -> None:
    grid = TestGrid()
    entries = {f"key{n}": n for n in range(500)}
    grid.maps["m"] = PartitionedMap(entries)  # type: ignore[assignment]
    shares = outputs(processors.read_map("m"), count, grid)
    everything = [pair for share in shares for pair in share]
    assert len(everything) == 500
    assert dict(everything) == entries


@pytest.mark.parametrize("count", [1, 4])
def test_a_list_is_read_once_by_all_processors_together(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maps_and_lists, "LIST_PAGE", 10)
    grid = TestGrid()
    grid.get_list("l").extend(range(95))
    shares = outputs(processors.read_list("l"), count, grid)
    assert sorted(item for share in shares for item in share) == list(range(95))
    assert shares[0][:10] == list(range(10))


def test_a_list_prefers_one_processor_so_that_its_order_is_kept() -> None:
    assert processors.read_list("l").preferred_local_parallelism == 1


def test_pairs_are_put_into_a_map() -> None:
    grid = TestGrid()
    verify_processor(processors.write_map("m")).inputs([("a", 1), ("b", 2), ("a", 3)]).context(grid=grid).expect()
    assert grid.get_map("m") == {"a": 3, "b": 2}


def test_items_are_put_into_a_map_by_key_and_value_functions() -> None:
    grid = TestGrid()
    verify_processor(processors.write_map("m", str, len)).inputs(["x", "yy"]).context(grid=grid).expect()
    assert grid.get_map("m") == {"x": 1, "yy": 2}


def test_items_are_appended_to_a_list_in_order() -> None:
    grid = TestGrid()
    driver = Driver(processors.write_list("l")(), grid=grid)
    driver.feed([3, 1]).feed([2]).complete()
    assert grid.get_list("l") == [3, 1, 2]


class Written(list[Any]):
    """A list that remembers how it was extended."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[int] = []

    def extend(self, items: Iterable[Any]) -> None:
        items = list(items)
        self.batches.append(len(items))
        super().extend(items)


@pytest.mark.parametrize("policy", [THROUGHPUT, LOW_LATENCY])
def test_small_batches_are_gathered_and_none_is_larger_than_a_write_should_be(
    monkeypatch: pytest.MonkeyPatch, policy: LatencyPolicy
) -> None:
    monkeypatch.setattr(writers, "monotonic", lambda: 100.0)  # so that none is written because it has waited
    grid = TestGrid()
    grid.lists["l"] = written = Written()
    driver = Driver(processors.write_list("l")(), grid=grid, policy=policy)
    half = 3 * policy.write_items
    for start in range(0, half, 64):
        driver.feed(range(start, start + 64))
    driver.feed(range(half, 2 * half)).complete()
    assert written == list(range(2 * half))
    assert max(written.batches) == policy.write_items
    assert len(written.batches) == 6


@pytest.mark.parametrize("policy", [THROUGHPUT, LOW_LATENCY])
def test_items_do_not_wait_for_others_for_long(monkeypatch: pytest.MonkeyPatch, policy: LatencyPolicy) -> None:
    now = 100.0
    monkeypatch.setattr(writers, "monotonic", lambda: now)
    grid = TestGrid()
    driver = Driver(processors.write_list("l")(), grid=grid, policy=policy)
    driver.feed([1])
    driver.until_true(driver.processor.try_process)
    assert grid.get_list("l") == []
    now += policy.write_delay_ns / 1e9
    driver.until_true(driver.processor.try_process)
    assert grid.get_list("l") == [1]


def test_only_one_of_the_two_functions_is_an_error() -> None:
    with pytest.raises(TypeError, match="both key_fn and value_fn"):
        processors.write_map("m", key_fn=str)


@pytest.mark.parametrize(
    "factory", [processors.read_map, processors.write_map, processors.read_list, processors.write_list]
)
def test_a_name_is_a_text(factory: Any) -> None:
    with pytest.raises(TypeError, match="expected a name"):
        factory(None)


def test_a_place_without_a_grid_is_an_error_that_names_the_vertex() -> None:
    with pytest.raises(ProcessorError, match="vertex 'v'"):
        Driver(processors.write_map("m")(), grid=None)
