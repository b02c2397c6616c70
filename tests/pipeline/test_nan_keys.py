"""All NaNs are one key, whichever object they are and whether they were copied; in joins they meet nothing."""

from __future__ import annotations

from collections import namedtuple
from decimal import Decimal
from math import isnan
from typing import Any

import numpy as np
import pytest

from shmjet._native import unify_nans
from shmjet.aggregate_ops import counting, grouping_by, summing, to_list
from shmjet.pipeline import BatchStage, Pipeline
from tests.pipeline.running import items_source, list_sink, results_of, run

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
