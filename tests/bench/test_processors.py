"""What drives single processors in `bench/processors.py` hands everything on, also where an outbox was given a list."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from shmjet import processors

BENCH = Path(__file__).resolve().parents[2] / "bench"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCH))
    spec = importlib.util.spec_from_file_location("bench_processors", BENCH / "processors.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_driven_processor_emits_all_that_it_is_given(bench: ModuleType) -> None:
    items = list(range(10_000))
    assert bench.drive(processors.map_(lambda x: x + 1), bench.batches_of(items)) == 10_000
    assert bench.drive(processors.filter_(lambda x: x % 2), bench.batches_of(items)) == 5_000
    assert bench.drive(processors.sort(), bench.batches_of(items)) == 10_000
