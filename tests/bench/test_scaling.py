"""The workloads of `bench/scaling.py` give right results with more workers than cores, and their costs are counted."""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.bench.scripts import bench_script

WORKLOADS = ["wordcount", "exchange", "groupby", "exchange_columns", "groupby_columns"]


@pytest.fixture(scope="module")
def scaling() -> Iterator[ModuleType]:
    """The module `bench/scaling.py`, found as its own script finds it; workers find it the same way."""
    with bench_script("scaling") as found:
        yield found


@pytest.fixture
def makers(scaling: ModuleType, tmp_path: Path) -> dict[str, Callable[[int], Any]]:
    """Small jobs of so many shares, by workload."""
    text = tmp_path / "text.txt"
    text.write_text("The quick brown fox\njumps over the lazy dog\n\nthe end\n" * 2000)
    return {
        "wordcount": functools.partial(scaling.wordcount_job, quick=True, text=text),
        "exchange": functools.partial(scaling.exchange_job, quick=True, size=20_000),
        "groupby": functools.partial(scaling.groupby_job, quick=True, size=60_000),
        "exchange_columns": functools.partial(scaling.exchange_columns_job, quick=True, size=200_001),
        "groupby_columns": functools.partial(scaling.groupby_columns_job, quick=True, size=200_001),
    }


@pytest.mark.slow
@pytest.mark.parametrize("workload", WORKLOADS)
def test_eight_workers_give_right_results_on_however_few_cores(
    scaling: ModuleType, makers: dict[str, Callable[[int], Any]], workload: str
) -> None:
    job = makers[workload](3)
    with ExitStack() as resources:
        runner = scaling.Runner(8, job, resources)
        assert len(runner.pids) == 8
        assert runner.run() > 0  # raises when the result is wrong
    for costs in runner.costs:
        assert costs.bytes > 0
        assert costs.voluntary > 0
        assert min(costs.waits, costs.steals, costs.sleeps, costs.involuntary) >= 0
    assert runner.facts().keys() == {"bytes", "waits", "steals", "sleeps", "voluntary", "involuntary"}


@pytest.mark.parametrize("workload", WORKLOADS)
def test_a_wrong_result_is_noticed(makers: dict[str, Callable[[int], Any]], workload: str) -> None:
    with pytest.raises(AssertionError, match=r"wrong|counted|groups"):
        makers[workload](2).check([])


def test_one_worker_moves_no_bytes(scaling: ModuleType, makers: dict[str, Callable[[int], Any]]) -> None:
    with ExitStack() as resources:
        runner = scaling.Runner(1, makers["exchange"](1), resources)
        runner.run()
    assert runner.costs[0].bytes == 0


@pytest.mark.parametrize(
    ("most", "steps"), [(1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6]), (8, [1, 2, 4, 8]), (48, [1, 2, 4, 8, 16, 32, 48])]
)
def test_the_numbers_of_workers_double_up_to_the_machine(scaling: ModuleType, most: int, steps: list[int]) -> None:
    assert scaling.steps(most) == steps


@pytest.mark.slow
def test_a_line_of_json_has_speed_up_and_costs(
    scaling: ModuleType, makers: dict[str, Callable[[int], Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    harness = sys.modules["_harness"]
    workload = scaling.Workload("exchange", "items", lambda shares, quick: makers["exchange"](shares))
    measured = scaling.measure(workload, 2, harness.Options(quick=True, workers=2))
    for as_json in (True, False):
        table = scaling.Table(harness.Options(json=as_json, quick=True, workers=2))
        table.add(measured)
        assert table.finish() == 0
        text = capsys.readouterr().out
        if as_json:
            line = json.loads(text)
            assert (line["bench"], line["unit"]) == ("scaling_exchange_2", "items/s")
            assert line["ratio"].keys() == {"1 worker"}
            assert line["facts"]["workers"] == 2
            assert line["facts"]["cores"] == min(2, len(os.sched_getaffinity(0)))
        else:
            assert text.splitlines()[0].split()[:4] == ["workload", "workers", "items/s", "speed-up"]
            assert text.splitlines()[1].split()[:2] == ["exchange", "2"]


def test_context_switches_are_those_of_all_the_processes(scaling: ModuleType) -> None:
    voluntary, involuntary = scaling.context_switches((os.getpid(),))
    assert voluntary + involuntary > 0
    assert scaling.context_switches((os.getpid(), os.getpid()))[0] >= 2 * voluntary
