"""Stages of columns on Spark: the same results as in the engine, by Spark's own operators where it has such."""

from __future__ import annotations

import random
from typing import Any

import pytest

import shmjet
import shmjet.spark
from shmjet import JetInstance, Pipeline, column, sinks, sources
from tests.spark.column_pipelines import SCHEMA, as_rows, batch_of, build, random_rows


def frames(spark: Any, tables: list[list[dict[str, Any]]]) -> list[Any]:
    return [spark.createDataFrame([tuple(row.values()) for row in rows], SCHEMA) for rows in tables]


@pytest.mark.parametrize("seed", range(3))
def test_random_pipelines_agree(spark: Any, jet: JetInstance, seed: int) -> None:
    chance = random.Random(seed)
    tables = [random_rows(chance, 30), random_rows(chance, 12)]
    of_spark = frames(spark, tables)

    def from_spark(p: Pipeline, table: int) -> Any:
        return p.read_from(shmjet.spark.source(of_spark[table]))

    def given(p: Pipeline, table: int) -> Any:
        return p.read_from(sources.items([batch_of(tables[table])])).to_batches()

    found = []
    for read in (given, from_spark, None):
        p, results = Pipeline(), sinks.collect()
        build(random.Random(seed + 1000), p, read or from_spark).write_to(results)
        if read is None:
            p.run_on_spark(spark, jet=jet)
        else:
            jet.new_job(p).run(120)
        found.append(as_rows(list(results)))
    assert found[1] == found[0], p.explain()
    assert found[2] == found[0], p.explain(target="spark")


@pytest.mark.parametrize("how", ["outer", "inner"])
def test_frames_without_rows_tell_their_columns(spark: Any, jet: JetInstance, how: Any) -> None:
    nothing, some = frames(spark, [[], [{"k": 1, "n": 2, "x": 0.5, "s": "a", "p": True}]])

    def joined(p: Pipeline) -> Any:
        other = p.read_from(shmjet.spark.source(some)).select("k", upper=column("s").str.upper())
        return p.read_from(shmjet.spark.source(nothing)).join(other, on="k", how=how)

    def kept(p: Pipeline) -> Any:
        return p.read_from(shmjet.spark.source(some)).filter(column("n") > 2)

    found = []
    for make in (joined, kept):
        for on_spark in (False, True):
            p, results = Pipeline(), sinks.collect()
            make(p).write_to(results)
            if on_spark:
                p.run_on_spark(spark, jet=jet)
            else:
                jet.new_job(p).run(120)
            found.append(
                [(batch.num_rows, {name: str(kind) for name, kind in batch.schema.items()}) for batch in results]
            )
    columns = {"k": "int64", "n": "int32", "x": "float64", "s": "text", "p": "bool"}
    rows = 1 if how == "outer" else 0
    assert found == [[(rows, {**columns, "upper": "text"})]] * 2 + [[(0, columns)]] * 2
