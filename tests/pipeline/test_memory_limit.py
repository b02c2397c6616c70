"""Which stages heed `JobConfig(memory_limit=)`: sorts, as `docs/limits.md` says, and no others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from shmjet.core import JobConfig
from shmjet.pipeline import Pipeline
from shmjet.processors.columns import sort_batches
from shmjet.processors.general import sort
from shmjet.processors.general.spill_files import memory_share
from tests.pipeline.running import INTS, items_source, list_sink, run

STAGES = {**INTS.one, **INTS.two, "table": INTS.table}
ITEMS = [n * 7 % 50 for n in range(120)]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[JobConfig]:
    """The configurations of which a processor has asked for its share of the memory."""
    found: list[JobConfig] = []

    def share(config: JobConfig, processors: int) -> float:
        found.append(config)
        return memory_share(config, processors)

    for module in (sort, sort_batches):
        monkeypatch.setattr(module, "memory_share", share)
    return found


@pytest.mark.parametrize("name", sorted(STAGES))
def test_sorts_alone_ask_how_much_memory_they_may_take(name: str, asked: list[JobConfig]) -> None:
    pipeline = Pipeline()
    left, right = (pipeline.read_from(items_source(side, ITEMS)) for side in ("left", "right"))
    make: Callable[..., Any] = STAGES[name]
    if name in INTS.one:
        stage = make(left)
        right.write_to(list_sink("unused"))
    else:
        stage = make(left, right) if name in INTS.two else make(left, right, 0)
    stage.write_to(list_sink("out"))
    run(pipeline, 1)
    assert bool(asked) == ("sort" in name), asked
