"""What `bench/shapes.py` names a cliff, and that its sweeps run and give the items that they say."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import shmjet
from tests.bench.scripts import bench_script

if find_spec("polars") is not None:
    import polars

    polars.DataFrame({"k": [1]}).group_by("k").agg(polars.len())  # starts its threads, which no test may leave behind


@pytest.fixture(scope="module")
def shapes() -> Iterator[ModuleType]:
    """The module `bench/shapes.py`, found as its own script finds it."""
    with bench_script("shapes") as found:
        yield found


@pytest.fixture
def sweeps(shapes: ModuleType) -> ModuleType:
    return sys.modules["_sweeps"]


def points(sweeps: ModuleType, kept: list[float | None]) -> list[Any]:
    return [sweeps.Point(str(at), 1, lambda: 0.0, None, share) for at, share in enumerate(kept)]


def found(sweeps: ModuleType, ours: list[float], hand: list[float | None], **options: Any) -> list[tuple[int, int]]:
    kept = options.pop("kept", [None] * len(ours))
    sweep = sweeps.Sweep("s", points(sweeps, kept), **options)
    return list(sweeps.cliffs(sweep, sweeps.Costs(ours, hand)))


def test_a_point_that_costs_half_as_much_again_as_a_neighbour_is_a_cliff(sweeps: ModuleType) -> None:
    nothing: list[float | None] = [None] * 3
    assert found(sweeps, [100, 149, 100], nothing) == []
    assert found(sweeps, [100, 151, 100], nothing) == [(1, 0), (1, 2)]
    assert found(sweeps, [100, 140, 200], nothing) == []
    assert found(sweeps, [300, 100, 100], nothing) == [(0, 1)]


def test_what_plain_python_needs_more_is_allowed(sweeps: ModuleType) -> None:
    assert found(sweeps, [100, 280], [10, 20]) == [], "twice as much work"
    assert found(sweeps, [100, 310], [10, 20]) == [(1, 0)]
    assert found(sweeps, [100, 310], [10, 130]) == [], "120 more by hand"
    assert found(sweeps, [100, 160], [10, 5]) == [(1, 0)]


def test_items_that_are_kept_may_cost_as_much_as_where_all_are(sweeps: ModuleType) -> None:
    nothing: list[float | None] = [None] * 3
    shares = [1.0, 0.5, 0.0]
    assert found(sweeps, [100, 80, 20], nothing, kept=shares) == []
    assert found(sweeps, [100, 120, 20], nothing, kept=shares) == [(1, 2)]
    assert found(sweeps, [100, 119, 90], nothing, kept=shares, kept_limit=True) == []
    assert found(sweeps, [100, 119, 121], nothing, kept=shares, kept_limit=True) == [(2, 0)]
    by_hand: list[float | None] = [10, 10, 20]
    assert found(sweeps, [100, 119, 131], by_hand, kept=shares, kept_limit=True) == [], "10 more by hand"
    assert found(sweeps, [100, 119, 133], by_hand, kept=shares, kept_limit=True) == [(2, 0)]
    assert found(sweeps, [100, 70, 20], [10, 70, 10], kept=[1.0, 0.0, 0.0]) == []
    assert found(sweeps, [100, 70, 20], [10, 20, 10], kept=[1.0, 0.0, 0.0]) == [(1, 2)]


def test_a_cliff_is_named_only_if_it_is_there_when_it_is_measured_again(
    sweeps: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeps.gc, "collect", int)  # 22 times through all that the tests before have left

    def figures(*seconds: float) -> Callable[[], float]:
        left = list(seconds)
        return lambda: left.pop(0) if len(left) > 1 else left[0]

    steady = sweeps.Point("steady", 1e9, figures(1.0))
    once_slow = sweeps.Point("slow", 1e9, figures(1.0, 9.0, 9.0, 9.0, 1.0))
    always_slow = sweeps.Point("slow", 1e9, figures(9.0))
    result, named = sweeps.measure(sweeps.Sweep("s", [steady, once_slow]), 3)
    assert (named, result.facts["cliffs"], result.shmjet) == ([], "none", 1.0)
    result, named = sweeps.measure(sweeps.Sweep("s", [steady, always_slow]), 3)
    assert named == ["slow costs 9 times as much as steady, 9 times what the work explains"]
    assert result.facts["slow"] == "9"


@pytest.mark.slow
def test_every_sweep_runs(shapes: ModuleType, tmp_path: Path) -> None:
    harness = sys.modules["_harness"]
    names = set()
    with shmjet.new_instance(shmjet.JetConfig(cores=2)) as jet:
        lab = sys.modules["_shapes"].Lab(jet, harness.Options(quick=True), tmp_path)
        lab.items, lab.bytes = 2000, 1 << 18
        for make in shapes.SWEEPS.values():
            for sweep in make(lab):
                names.add(sweep.name)
                point = sweep.points[-1]
                point.run()
                if point.hand is not None:
                    point.hand()
    assert len(names) > 60
    assert {"filter_kept", "join_kept", "counting_keys", "hash_join_batches_inner_kept", "write_list_size"} <= names
