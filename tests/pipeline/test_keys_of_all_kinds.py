"""Keys that Python calls equal meet in every keyed stage, with any number of workers, or are refused."""

from __future__ import annotations

import datetime as dt
import enum
from collections import namedtuple
from collections.abc import Callable
from decimal import Decimal
from operator import itemgetter
from typing import Any

import numpy as np
import pytest

from shmjet.aggregate_ops import counting
from shmjet.pipeline import BatchStage, Table
from tests.pipeline.running import items_source, results_of

Stage = BatchStage[Any]
Point = namedtuple("Point", "x y")


class Level(enum.IntEnum):
    LOW = 1


class Colour(enum.StrEnum):
    RED = "a"


class AnyCase(str):
    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and self.lower() == other.lower()

    def __hash__(self) -> int:
        return hash(self.lower())


KEYS: dict[str, list[Any]] = {
    "numbers": [1, 1.0, True, np.int8(1), np.float32(1), Level.LOW, 0, -0.0, False, 2**70, 2.0**70, 2**53 + 1],
    "fractions": [0.5, np.float16(0.5), np.float64(0.5), 1e22, 10**22, 0.1],
    "decimals": [
        Decimal("0.5"),
        0.5,
        Decimal("1.00"),
        1,
        Decimal("1e22"),
        10**22,
        Decimal("0.1"),
        Decimal("0.10"),
        0.1,
    ],
    "texts": ["a", np.str_("a"), Colour.RED, "b", b"a", np.bytes_(b"a"), "", "\ud800", "\0"],
    "tuples": [(1, "a"), (np.int64(1), Colour.RED), Point(True, "a"), (), ((),), (None,)],
    "times": [
        dt.datetime(2020, 1, 1, tzinfo=dt.UTC),
        dt.datetime(2020, 1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1))),
    ],
}


def _number(state: list[int], key: Any, item: Any) -> int:
    state.append(1)
    return len(state)


def _joined(stage: Stage) -> Stage:
    table = Table("table")
    stage.map(lambda item: (item[1], "there")).send_to(table)
    return stage.join_table(table, itemgetter(1), lambda item, value: (item[0], value))


STAGES: dict[str, Callable[[Stage], Stage]] = {
    "distinct": lambda s: s.distinct(itemgetter(1)).aggregate(counting()),
    "distinct items": lambda s: s.map(itemgetter(1)).distinct().aggregate(counting()),
    "aggregate": lambda s: s.grouping_key(itemgetter(1)).aggregate(counting()).map(itemgetter(1)),
    "aggregate2": lambda s: (
        s.grouping_key(itemgetter(1))
        .aggregate2(counting(), s.grouping_key(itemgetter(1)), counting())
        .map(itemgetter(1))
    ),
    "map_stateful": lambda s: s.grouping_key(itemgetter(1)).map_stateful(list, _number),
    "rolling_aggregate": lambda s: s.grouping_key(itemgetter(1)).rolling_aggregate(counting()).map(itemgetter(1)),
    "join": lambda s: s.join(s, itemgetter(1), itemgetter(1), lambda a, b: (a[0], b[0])),
    "join_table": _joined,
}


def results(stage: str, items: list[Any], workers: int, rings: bool) -> list[Any]:
    def build(pipeline: Any) -> Stage:
        return STAGES[stage](pipeline.read_from(items_source("items", list(enumerate(items)), 2)))

    return sorted(results_of(build, workers, force_rings=rings, seed=1))


def in_python(stage: str, keys: list[Any]) -> list[Any]:
    counts: dict[Any, int] = {}
    for key in keys:
        counts[key] = counts.get(key, 0) + 1
    sizes = sorted(counts.values())
    match stage:
        case "distinct" | "distinct items":
            return [len(sizes)]
        case "aggregate":
            return sizes
        case "aggregate2":
            return [(size, size) for size in sizes]
        case "join":
            groups: dict[Any, list[int]] = {}
            for number, key in enumerate(keys):
                groups.setdefault(key, []).append(number)
            return sorted((a, b) for group in groups.values() for a in group for b in group)
        case "join_table":
            return [(number, "there") for number in range(len(keys))]
    return sorted(number for size in sizes for number in range(1, size + 1))


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("kind", KEYS)
def test_equal_keys_meet_with_any_number_of_workers(stage: str, kind: str) -> None:
    keys = KEYS[kind] * 2
    expected = in_python(stage, keys)
    for workers, rings in ((1, False), (2, False), (3, True)):
        assert results(stage, keys, workers, rings) == expected, f"{workers} workers"


@pytest.mark.parametrize("stage", STAGES)
def test_keys_that_are_equal_in_a_way_of_their_own_fail_with_any_number_of_workers(stage: str) -> None:
    for workers in (1, 3):
        with pytest.raises(Exception, match="has an __eq__\\(\\) of its own"):
            results(stage, [AnyCase("a"), AnyCase("A")], workers, False)
