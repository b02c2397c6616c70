"""Columns against polars and DuckDB on awkward data, in all cuts, on several workers; stress/ has the long form."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("polars")
pytest.importorskip("duckdb")

from shmjet.core import DAG
from shmjet.pipeline import Pipeline
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


@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize("seed", range(1, 5))
def test_stages_of_columns_give_what_polars_and_duckdb_give(kind: str, seed: int) -> None:
    check(kind, seed, on_harness, ENGINES)
