"""What marks and lanes cost a worker grows with the number of workers at most, as `bench/marks.py` counts it."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

import pytest

from tests.bench.scripts import bench_script


@pytest.fixture(scope="module")
def marks() -> Iterator[ModuleType]:
    """The module `bench/marks.py`."""
    with bench_script("marks") as found:
        yield found


@pytest.mark.parametrize("event", ["watermark", "barrier", "items", "end", "lane"])
def test_no_cost_grows_faster_than_the_workers(marks: ModuleType, event: str) -> None:
    assert marks.growth(event, 16, 48) <= 1


def test_a_mark_wakes_each_other_worker_once_and_takes_a_record_of_each_lane(marks: ModuleType) -> None:
    costs = marks.costs("barrier", 8)
    assert (costs["records"], costs["wake_ups"]) == (16, 8)


def test_calls_are_those_of_python_and_of_c(marks: ModuleType) -> None:
    def absolute(number: int) -> int:
        return abs(number)

    def one_each() -> None:
        for number in range(5):
            absolute(number)

    assert marks.calls_of(one_each) - marks.calls_of(lambda: None) == 5 + 5
