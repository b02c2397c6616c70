"""All queries by number, and how one is run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from shmjet import Batch, JetInstance, Pipeline, sinks
from tpch import queries_01_to_11, queries_12_to_22
from tpch.queries_01_to_11 import Stage
from tpch.tables import MONEY, Tables

__all__ = ["LIMITS", "QUERIES", "Tables", "answer", "pipeline"]

QUERIES: dict[int, Callable[[Tables, float], Stage]] = {
    number: getattr(queries_01_to_11 if number <= 11 else queries_12_to_22, f"q{number}") for number in range(1, 23)
}
LIMITS = {2: 100, 3: 10, 10: 20, 18: 100, 21: 100}
"""Queries that want the first rows alone."""


def pipeline(number: int, folder: Path, scale: float, money: str = MONEY) -> tuple[Pipeline, sinks.Results[Batch]]:
    """Return a query over the files in a folder, and its results."""
    described, results = Pipeline(), sinks.collect()
    QUERIES[number](Tables(described, folder, money), scale).write_to(results)
    return described, results


def answer(jet: JetInstance, number: int, folder: Path, scale: float, money: str = MONEY) -> Batch:
    """Run a query and return its rows."""
    described, results = pipeline(number, folder, scale, money)
    with results:
        jet.new_job(described).run(600)
        rows = Batch.concat(list(results))
    return rows[: LIMITS.get(number, rows.num_rows)]
