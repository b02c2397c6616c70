"""The jobs of `bench/recovery.py` note the items of each attempt, and go on with each number where they were."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from shmjet import JobConfig, ProcessingGuarantee, new_instance
from shmjet.core.config import JetConfig
from tests.bench.scripts import bench_script

KEYS = 300


@pytest.fixture(scope="module")
def recovery() -> Iterator[ModuleType]:
    """The module `bench/recovery.py`, found as its own script finds it."""
    with bench_script("recovery") as found:
        yield found


@pytest.mark.slow
def test_each_attempt_notes_its_items_and_keeps_what_it_has_of_a_key(
    recovery: ModuleType, tmp_path: Path, eventually: Callable[..., None]
) -> None:
    with new_instance(JetConfig(cores=1)) as jet:
        config = JobConfig(processing_guarantee=ProcessingGuarantee.EXACTLY_ONCE, snapshot_interval=0.02)
        job = jet.new_job(recovery.counting(KEYS, 50, tmp_path), config)
        execution = job.execute()
        eventually(lambda: sum(attempt.items for attempt in recovery.attempts(tmp_path).values()) >= KEYS)
        (first,) = recovery.attempts(tmp_path).values()
        job.restart(graceful=True)
        eventually(lambda: len(recovery.attempts(tmp_path)) == 2)
        later = max(recovery.attempts(tmp_path).values(), key=lambda attempt: attempt.first)
        assert first.first <= first.last <= later.first <= later.last
        assert later.items < KEYS
        state = job.export_snapshot("s", timeout=60).vertices["state"]
        assert (state.keys, state.size > 50 * KEYS) == (KEYS, True)
        execution.cancel()
        eventually(execution.done)
        jet.new_job(recovery.bounded(KEYS, 2 * KEYS)).run(timeout=60)
