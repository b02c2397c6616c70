"""Columns against polars and DuckDB on awkward data, in all cuts, on several workers; stress/ has the long form."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("polars")
pytest.importorskip("duckdb")

from shmjet.pipeline import Pipeline
from tests.columns.oracle import check
from tests.pipeline.running import run


def on_harness(pipeline: Pipeline, workers: int) -> list[Any]:
    return run(pipeline, workers).get("out", [])


@pytest.mark.parametrize("seed", range(60))
def test_groups_are_those_of_polars_and_duckdb_however_rows_are_cut(seed: int) -> None:
    check(seed, on_harness)
