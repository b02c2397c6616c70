"""All NaNs are one key, wherever they come from; in joins they meet nothing, in an order they come last."""

from __future__ import annotations

from collections import namedtuple
from decimal import Decimal
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shmjet import processors, sliding
from shmjet._native import unify_nans
from shmjet.aggregate_ops import (
    all_of,
    bottom_n,
    counting,
    grouping_by,
    max_by,
    min_by,
    sorting,
    summing,
    to_list,
    top_n,
)
from shmjet.pipeline import BatchStage, Pipeline
from shmjet.processors import sort
from shmjet.processors.general.stateful import rolling_aggregate
from shmjet.testing import verify_processor
from tests.pipeline.running import items_source, list_sink, results_of, run
from tests.processors.driving import Driver, processors_of

NAN = float("nan")
NANS: list[Any] = [NAN, NAN, float("nan"), np.float64("nan"), np.float32("nan"), Decimal("NaN"), -float("nan")]
Point = namedtuple("Point", "x y")


@pytest.fixture(params=[(1, False), (2, False), (2, True), (4, True)], ids=["1", "2", "2 rings", "4 rings"])
def options(request: pytest.FixtureRequest) -> dict[str, Any]:
    workers, force_rings = request.param
    return {"workers": workers, "force_rings": force_rings}


def results(build: Any, options: dict[str, Any], items: list[Any] = NANS) -> list[Any]:
    def stage(pipeline: Pipeline) -> BatchStage[Any]:
        return build(pipeline.read_from(items_source("items", items)).rebalance())

    return results_of(stage, **options)


def test_nans_are_one_group(options: dict[str, Any]) -> None:
    for op in (counting(), summing(lambda _: 1), to_list()):
        ((key, result),) = results(lambda s, op=op: s.grouping_key(lambda x: x).aggregate(op), options)
        assert isnan(key)
        assert (len(result) if isinstance(result, list) else result) == len(NANS)


def test_nans_inside_tuples_are_one_group(options: dict[str, Any]) -> None:
    def by_pair(stage: BatchStage[Any]) -> BatchStage[Any]:
        return stage.grouping_key(lambda x: ("a", (x, 1))).aggregate(counting())

    ((_, result),) = results(by_pair, options)
    assert result == len(NANS)


def test_a_grouping_inside_an_aggregation_has_one_nan(options: dict[str, Any]) -> None:
    (groups,) = results(lambda s: s.aggregate(grouping_by(lambda x: x, counting())), options)
    assert list(groups.values()) == [len(NANS)]


def by_nan(item: Any) -> Any:
    return item[1]


GROUPING = grouping_by(by_nan, counting())


@pytest.mark.parametrize(
    "supplier",
    [
        processors.aggregate(GROUPING),
        processors.aggregate_by_key(len, GROUPING),
        processors.aggregate_by_key(len, all_of(grouping_by(len, GROUPING), counting())),
        rolling_aggregate(GROUPING, len),
        rolling_aggregate(GROUPING, len, ttl=9, timestamp_fn=lambda item: item[0]),
        processors.aggregate_to_sliding_window(len, lambda item: item[0], sliding(0.02, 0.01), GROUPING),
        processors.aggregate_to_session_window(len, lambda item: item[0], 0.02, GROUPING),
    ],
    ids=["all", "by key", "nested", "rolling", "rolling with ttl", "sliding", "session"],
)
def test_a_grouping_that_is_restored_has_one_nan(supplier: Any) -> None:
    """Saved dicts come back with other NaNs than the keys of what comes after."""
    items = [(number, float("nan")) for number in range(0, 60, 5)]
    (whole,), (first,), (second,) = (processors_of(supplier) for _ in range(3))
    expected = Driver(whole).feed(items).complete()
    before = Driver(first).feed(items[:6])
    assert str(before.output + Driver(second).restore(before.save()).feed(items[6:]).complete()) == str(expected)


def test_nans_have_one_state_and_one_rolling_result(options: dict[str, Any]) -> None:
    def number(state: list[int], key: Any, item: Any) -> int:
        state.append(0)
        return len(state)

    numbered = list(range(1, len(NANS) + 1))
    assert sorted(results(lambda s: s.grouping_key(lambda x: x).map_stateful(list, number), options)) == numbered
    rolling = results(lambda s: s.grouping_key(lambda x: x).rolling_aggregate(counting()), options)
    assert sorted(count for _, count in rolling) == numbered


def test_one_of_several_nans_is_distinct_and_stays_what_it_is(options: dict[str, Any]) -> None:
    (found,) = results(lambda s: s.distinct(), options)
    assert isnan(found)
    (found,) = results(lambda s: s.distinct(), options, [np.float32("nan")] * 3)
    assert type(found) is np.float32
    assert len(results(lambda s: s.distinct(lambda x: (x, 1)), options)) == 1


def test_a_nan_matches_nothing_in_a_join(options: dict[str, Any]) -> None:
    items = [NAN, (NAN, 1), 2.0]
    for join in ("hash_join", "join"):
        pipeline = Pipeline()
        left, right = (pipeline.read_from(items_source(name, items)) for name in ("left", "right"))
        if join == "join":
            joined = left.join(right, lambda x: x, lambda x: x)
        else:
            joined = left.inner_hash_join(right, lambda x: x, lambda x: x)
        joined.write_to(list_sink("out"))
        assert run(pipeline, **options)["out"] == [(2.0, 2.0)]


def test_a_list_without_nan_is_returned_as_it_is() -> None:
    keys = ["a", 1, 2**70, b"b", 1.5, None, True, (1, ("a", 2.0)), Point(1, 2), Decimal(1), np.float32(1), float("inf")]
    assert unify_nans(keys, NAN) is keys
    assert all(now is before for now, before in zip(unify_nans([*keys, float("nan")], NAN), keys, strict=False))


def test_only_tuples_with_a_nan_are_made_anew_and_keep_their_class() -> None:
    other = (1, 2)
    point, pair = unify_nans([Point(float("nan"), other), (other, float("nan"))], NAN)
    assert type(point) is Point
    assert point.x is NAN
    assert point.y is other
    assert type(pair) is tuple
    assert pair[1] is NAN


def test_a_key_that_is_nested_too_deeply_or_has_no_number_is_no_crash() -> None:
    class Odd:
        def __float__(self) -> float:
            raise ValueError("none")

    deep: Any = float("nan")
    for _ in range(100_000):
        deep = (deep,)
    with pytest.raises(RecursionError):
        unify_nans([deep], NAN)
    odd = [Odd()]
    assert unify_nans(odd, NAN) is odd
    with pytest.raises(TypeError, match="unify_nans"):
        unify_nans((), NAN)  # type: ignore[arg-type]


MIXED: list[Any] = [
    3,
    NAN,
    1.5,
    np.float32("nan"),
    -2.0,
    Decimal("NaN"),
    float("inf"),
    0,
    Decimal(2),
    np.float64(1),
    True,
]
IN_ORDER = sorted(item for item in MIXED if not isnan(item))


def told(items: list[Any]) -> list[Any]:
    return ["nan" if isnan(item) else float(item) for item in items]


@pytest.mark.parametrize("reverse", [False, True])
def test_nans_come_last_when_items_are_sorted(options: dict[str, Any], reverse: bool) -> None:
    expected = told([*sorted(IN_ORDER, reverse=reverse), NAN, NAN, NAN])
    assert told(results(lambda s: s.sort(reverse=reverse), options, MIXED)) == expected
    assert told(results(lambda s: s.sort(lambda x: x, reverse=reverse), options, MIXED)) == expected
    (found,) = results(lambda s: s.aggregate(sorting(reverse=reverse)), options, MIXED)
    assert told(found) == expected
    floats = [float(item) for item in MIXED]
    assert told(results(lambda s: s.sort(reverse=reverse), options, floats * 100)) == [
        x for x in expected for _ in range(100)
    ]
    pairs = [("a", item) for item in floats]
    found = results(lambda s: s.sort(lambda pair: pair, reverse=reverse), options, pairs)
    assert told([item for _, item in found]) == expected


def test_nan_is_the_greatest_and_the_last_choice(options: dict[str, Any]) -> None:
    for key in (None, float):
        for op, expected in [
            (min_by(key), -2.0),
            (max_by(key), "nan"),
            (top_n(3, key), [float("inf"), 3.0, 2.0]),
            (bottom_n(2, key), [-2.0, 0.0]),
            (top_n(len(MIXED), key), [*told(IN_ORDER[::-1]), "nan", "nan", "nan"]),
        ]:
            (whole,) = results(lambda s, op=op: s.aggregate(op), options, MIXED)
            ((_, of_key),) = results(lambda s, op=op: s.grouping_key(lambda x: 0).aggregate(op), options, MIXED)
            for found in (whole, of_key):
                assert (told(found) if isinstance(found, list) else told([found])[0]) == expected


def test_the_rolling_least_and_greatest_pass_nans(options: dict[str, Any]) -> None:
    items = [2.0, NAN, 1.0, NAN]
    for op, last in [(min_by(), 1.0), (max_by(), "nan")]:
        found = results(lambda s, op=op: s.rolling_aggregate(op), options, items)
        assert len(found) == 4
        assert told(found)[-1:] == [last] or options["workers"] > 1


def test_columns_of_floats_in_files_are_sorted_with_nans_last(tmp_path: Path) -> None:
    items = [float(n) if n % 10 else NAN for n in range(300, 0, -1)]
    spilling = sort(memory_limit=1000, folder=str(tmp_path))
    verified = verify_processor(spilling).output_checker(lambda a, b: told(a) == told(b))
    verified.inputs(items).expect(sorted(n for n in items if not isnan(n)) + [NAN] * 30)
