"""`bench/nexmark.py` measures, compares answers, and names Hazelcast as skipped where there is no Java."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from shmjet import JetConfig, JetInstance, new_instance

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def bench() -> Iterator[ModuleType]:
    """The module `bench/nexmark.py`, found as its own script finds it; the package of the example comes first."""
    known = set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "bench"))
        patch.syspath_prepend(str(ROOT / "examples"))  # before it, as both have a `nexmark`
        spec = importlib.util.spec_from_file_location("bench_nexmark", ROOT / "bench" / "nexmark.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["bench_nexmark"] = module
        spec.loader.exec_module(module)
        yield module
    for name in set(sys.modules) - known:
        if str(ROOT / "bench") in str(getattr(sys.modules[name], "__file__", "")) or name.startswith("nexmark"):
            del sys.modules[name]


@pytest.fixture(scope="module")
def jet(bench: ModuleType) -> Iterator[JetInstance]:
    with new_instance(JetConfig(cores=1)) as instance:
        yield instance


def test_a_paced_run_finds_its_span_and_gives_events_a_second(bench: ModuleType) -> None:
    spans: list[int] = []

    def run(span_ms: int) -> float:
        spans.append(span_ms)
        return span_ms / 1000

    paced = bench.Paced(lambda span: 3 * span, run, warm_up=2)
    paced.find_span(1.0)
    assert paced() == paced() == 3000
    assert spans == [250, 1000, 1000, 1000, 1000, 1000]
    assert len(paced.cpu_ns) == 2


def test_queries_and_events_alone_are_replayed(bench: ModuleType, jet: JetInstance) -> None:
    for in_columns in (False, True):
        assert bench.replayed(jet, 5, bench.ANSWER_LOAD, 100, in_columns) > 0
        assert bench.generated(jet, 8, bench.ANSWER_LOAD, 100, in_columns) > 0
    assert bench.events_in(3, bench.ANSWER_LOAD, 1000) == 20_200


def test_answers_that_differ_are_told(bench: ModuleType, jet: JetInstance) -> None:
    mine = bench.answers.answer(jet, 7, bench.ANSWER_LOAD, bench.ANSWER_MS)
    rows = [[end, 0, price] for end, price in mine]

    def engines(rows: list[Any]) -> Any:
        return bench.Engines(jet, SimpleNamespace(ask=lambda *_: ("1.0", rows)), "", 1.0)

    assert bench.compare_answers(engines(rows), 7, False, [0]).startswith("equal")
    with pytest.raises(AssertionError, match="query 7"):
        bench.compare_answers(engines([[end, 0, price + 1] for end, _, price in rows]), 7, False, [0])


def test_hazelcast_is_skipped_without_java(bench: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    peer = sys.modules["_hazelcast"]
    monkeypatch.setattr(peer.shutil, "which", lambda program: None)
    with pytest.raises(bench.PeerSkipped, match="no java"), peer.member([0]):
        pass


def test_quantiles_are_those_of_samples(bench: ModuleType) -> None:
    samples = list(range(1, 101))
    assert [bench.quantile(samples, share) for share in (0.5, 0.99, 0.9999, 1.0)] == [50, 99, 100, 100]
    assert bench.quantile([7], 0.5) == 7
