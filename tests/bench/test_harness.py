"""The harness of the benches: who runs when, which way a ratio points, what is printed."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def harness() -> ModuleType:
    """The module `bench/_harness.py`, which is in no package."""
    path = Path(__file__).resolve().parents[2] / "bench" / "_harness.py"
    spec = importlib.util.spec_from_file_location("_harness", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["_harness"] = module
    spec.loader.exec_module(module)
    return module


def constant(value: float) -> Callable[[], float]:
    return lambda: value


@pytest.mark.parametrize(("unit", "ratio"), [("msg/s", 2.0), ("s", 0.5), ("us", 0.5), ("MB/s", 2.0)])
def test_a_ratio_above_one_means_that_shmjet_is_better(harness: ModuleType, unit: str, ratio: float) -> None:
    with harness.Bench("b", unit) as bench:
        bench.ours(constant(10.0))
        bench.peer("theirs", constant(5.0))
        assert bench.measure(rounds=1).ratio == {"theirs": ratio}


def test_contenders_alternate_and_the_median_of_the_rounds_counts(harness: ModuleType) -> None:
    order: list[str] = []
    figures = iter([1000.0, 1.0, 5.0, 3.0])

    def ours() -> float:
        order.append("shmjet")
        return next(figures)

    def theirs() -> float:
        order.append("peer")
        return 1.0

    with harness.Bench("b", "x/s") as bench:
        bench.ours(ours)
        bench.peer("peer", theirs)
        result = bench.measure(rounds=3, warm_up=1)
    assert order == ["shmjet", "peer", "peer", "shmjet"] * 2
    assert (result.shmjet, result.spread["shmjet"]) == (3.0, (1.0, 5.0))


def test_a_peer_that_is_not_installed_is_named_as_skipped(harness: ModuleType) -> None:
    def absent() -> float:
        raise harness.PeerSkipped("no java")

    with harness.Bench("b", "x/s") as bench:
        bench.ours(constant(1.0))
        bench.peer("missing", constant(1.0), needs="no_such_module.at_all")
        bench.peer("absent", absent)
        result = bench.measure(rounds=2)
    assert result.skipped == {"missing": "no_such_module.at_all is not installed", "absent": "no java"}
    assert result.peers == {}


def test_the_json_line_is_what_the_rules_say(harness: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    report = harness.Report(harness.Options(json=True))
    with harness.Bench("ring_64B", "msg/s") as bench:
        bench.ours(constant(1.4e7))
        bench.peer("multiprocessing.Queue", constant(1.8e5))
        report.add(bench.measure(rounds=1))
    line = json.loads(capsys.readouterr().out)
    assert (line["bench"], line["unit"], line["shmjet"]) == ("ring_64B", "msg/s", 1.4e7)
    assert line["peers"] == {"multiprocessing.Queue": 1.8e5}
    assert line["ratio"] == {"multiprocessing.Queue": pytest.approx(77.8)}
    assert report.finish() == 0


def test_options_have_defaults_and_refuse_nonsense(harness: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    options = harness.parse_options("doc", ["a", "b"], ["--quick", "--workers", "3", "--only", "a"])
    assert (options.quick, options.workers, options.rounds) == (True, 3, 3)
    assert (options.wants("a"), options.wants("b")) == (True, False)
    with pytest.raises(SystemExit):
        harness.parse_options("doc", ["a"], ["--workers", "0"])
    assert "at least 1" in capsys.readouterr().err


@pytest.mark.parametrize(("value", "text"), [(1.25e6, "1.25M"), (310_400, "310.4k"), (0.0032, "0.0032"), (0, "0")])
def test_figures_are_short_for_people(harness: ModuleType, value: float, text: str) -> None:
    assert harness.human(value) == text
