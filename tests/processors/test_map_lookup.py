"""Items meet the values of a map as they are when the items come."""

from __future__ import annotations

import math
from typing import Any

import pytest

from shmjet.data.marks import Watermark
from shmjet.processors.grid.map_lookup import map_using_map
from shmjet.testing import TestGrid, verify_processor

from .driving import Driver, processors_of


def both(item: Any, value: Any) -> Any:
    return (item, value)


@pytest.fixture
def grid() -> TestGrid:
    found = TestGrid()
    found.get_map("names").put_all({"a": 1, "b": 2})
    return found


def test_each_item_meets_the_value_of_its_key_or_none(grid: TestGrid) -> None:
    lookup = map_using_map("names", str.lower, both)
    verify_processor(lookup).context(grid=grid).inputs(["A", "c", "b"]).expect([("A", 1), ("c", None), ("b", 2)])
    lookup = map_using_map("names", None, lambda item, value: value)
    verify_processor(lookup).context(grid=grid).inputs(["a", "c", "b"]).expect([1, 2])


def test_timed_items_give_their_times_to_results(grid: TestGrid) -> None:
    lookup = map_using_map("names", None, both, timed=True)
    items = [(5, "a"), Watermark(5), (6, "c")]
    verify_processor(lookup).context(grid=grid).inputs(items).expect([(5, ("a", 1)), Watermark(5), (6, ("c", None))])


def test_what_changes_is_seen_by_the_next_item(grid: TestGrid) -> None:
    driver = Driver(processors_of(map_using_map("names", None, both))[0], grid=grid).feed(["a"])
    grid.get_map("names").put("a", "new")
    assert driver.feed(["a"]).output == [("a", 1), ("a", "new")]


def test_a_list_of_items_is_one_look_at_the_map(grid: TestGrid) -> None:
    looks: list[list[Any]] = []
    names = grid.get_map("names")
    get_all = names.get_all

    def counted(keys: Any) -> Any:
        looks.append(list(keys))
        return get_all(looks[-1])

    names.get_all = counted  # type: ignore[method-assign]
    lookup = map_using_map("names", lambda item: item[0], both)
    driver = Driver(processors_of(lookup)[0], grid=grid).feed([("a", 1), ("b", 2), ("a", 3), (None, 4), (math.nan, 5)])
    assert [value for _, value in driver.output] == [1, 2, 1, None, None]
    assert len(looks) == 1
    assert looks[0][:2] == ["a", "b"]
    assert None not in looks[0]


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(TypeError, match="map_using_map: expected the name of a map, got ''"):
        map_using_map("", None, both)
    with pytest.raises(TypeError, match="map_using_map: expected a function of item and value, got int"):
        map_using_map("names", None, 3)  # type: ignore[arg-type]
