"""The jobs of `bench/restart.py` go through the state that they name, and note the first item of each attempt."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from shmjet import JobConfig, JobStatus, ProcessingGuarantee, new_instance
from shmjet.core.config import JetConfig
from tests.bench.scripts import bench_script

KEYS = 300


@pytest.fixture(scope="module")
def restart() -> Iterator[ModuleType]:
    """The module `bench/restart.py`, found as its own script finds it."""
    with bench_script("restart") as found:
        yield found


@pytest.mark.slow
def test_each_attempt_notes_its_first_item_and_the_state_has_every_key(
    restart: ModuleType, tmp_path: Path, eventually: Callable[..., None]
) -> None:
    with new_instance(JetConfig(cores=1)) as jet:
        for kind, vertex in (("restart_empty", "source"), ("restart_native", "groups"), ("restart_dicts", "counts")):
            folder = tmp_path / kind
            folder.mkdir()
            config = JobConfig(processing_guarantee=ProcessingGuarantee.EXACTLY_ONCE, snapshot_interval=0.02)
            job = jet.new_job(restart.JOBS[kind](KEYS, folder), config)
            execution = job.execute()
            eventually((folder / "full").exists)
            job.restart(graceful=True)
            eventually(lambda folder=folder: len(restart.notes(folder)) == 2)
            eventually(lambda job=job: job.status is JobStatus.RUNNING)
            saved = job.export_snapshot(kind, timeout=60).vertices
            assert saved[vertex].keys >= (KEYS if vertex == "counts" else 1)
            assert saved[vertex].size >= (1 if vertex == "source" else KEYS)  # a table saves many keys in an entry
            execution.cancel()
            eventually(execution.done)
