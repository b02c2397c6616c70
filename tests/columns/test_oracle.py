"""Columns against polars and DuckDB on awkward data, in all cuts, on several workers; stress/ has the long form."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.examples import seeds

pytest.importorskip("polars")
pytest.importorskip("duckdb")

import shmjet
from shmjet import JetConfig, JetInstance
from shmjet.core import DAG
from shmjet.pipeline import Pipeline
from shmjet.processors.columns import sort_batches
from tests.columns.oracle import CASES, check
from tests.execution.harness import LocalRun
from tests.net.members import linked, running

ENGINES = ("1", "2", "4", "members")


def on_harness(job: Pipeline | DAG, engine: str) -> list[Any]:
    dag = job if isinstance(job, DAG) else job.to_dag()
    if engine != "members":
        return LocalRun(dag, int(engine)).run().grid.lists.get("out", [])
    with linked(2) as members, running(members, dag) as execution:
        execution.run()
        return [item for items in execution.collected() for item in items]


@pytest.fixture(scope="module")
def instance() -> Iterator[JetInstance]:
    with shmjet.new_instance(JetConfig(cores=2)) as jet:
        yield jet


@pytest.mark.parametrize("kind", sorted(set(CASES) - {"files"}))
@pytest.mark.parametrize("seed", range(1, 5))
def test_stages_of_columns_give_what_polars_and_duckdb_give(kind: str, seed: int) -> None:
    check(kind, seed, on_harness, ENGINES)


@pytest.mark.parametrize("seed", range(5, 9))
def test_sorts_that_go_to_files_give_what_polars_and_duckdb_give(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sort_batches, "RUN_ROWS", 7)
    monkeypatch.setattr(sort_batches, "memory_share", lambda *_: 300.0)  # bytes
    check("sorts", seed, on_harness, ENGINES[:3])


@pytest.mark.parametrize("seed", seeds(8))
def test_files_have_what_others_read_in_them(seed: int, tmp_path: Path, instance: JetInstance) -> None:
    def run(job: Pipeline | DAG, _: str) -> list[Any]:
        out = instance.get_list("out")
        out.clear()
        instance.new_job(job).run(60)
        return list(out)

    check("files", seed, run, ("2",), tmp_path)
