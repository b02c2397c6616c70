"""The jobs of `bench/snapshot.py` count every row, save their state, and stand still where they should."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from shmjet import JetConfig, new_instance
from tests.bench.scripts import bench_script


@pytest.fixture(scope="module")
def snapshot() -> Iterator[ModuleType]:
    """The module `bench/snapshot.py`, found as its own script finds it."""
    with bench_script("snapshot") as found:
        yield found


@pytest.mark.slow
def test_each_job_does_what_its_figure_is_named_after(
    snapshot: ModuleType, tmp_path: Path, eventually: Callable[..., None]
) -> None:
    with new_instance(JetConfig(cores=1)) as jet:
        rows = 16 * snapshot.BATCH_ROWS
        for dag, vertex, taken in (
            (snapshot.native_dag(rows, 100), "groups", 4),  # batches of up to four of the source's, and marks
            (snapshot.dict_dag(500, 100), "counts", 500),
        ):
            for guarantee in (True, False):
                job = jet.new_job(dag, snapshot.config(guarantee, 0.01))
                job.run(timeout=60)
                assert job.metrics().vertices[vertex].received_count >= taken
                assert (job.metrics().last_snapshot_id > 0) is guarantee
        job = jet.new_job(snapshot.standing_dag(50, tmp_path, 1, pause=True), snapshot.config(True, 0.01))
        execution = job.execute()
        eventually((tmp_path / "full").exists)
        assert job.export_snapshot("standing", timeout=60).vertices["counts"].keys == 50
        before = job.metrics().last_snapshot_id
        eventually(lambda: job.metrics().last_snapshot_id > before + 2)
        (tmp_path / "end").touch()
        execution.result(60)
        assert json.loads((tmp_path / "waits").read_text())
