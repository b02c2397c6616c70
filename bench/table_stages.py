"""Stages of columns in a pipeline next to the same work as a DAG: a join of two large tables, and what a stage costs.

    python -m bench.table_stages [--rows 5000000] [--cores 2] [--repeat 3]

Prints the seconds of each, the best of all repetitions, which alternate.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import shmjet
from shmjet import DAG, Batch, JetConfig, Pipeline, column, from_, processors, sinks
from shmjet.columns import count, sum_
from shmjet.pipeline import SourceDef

BATCH = 1 << 16


def table(rows: int, name: str, seed: int) -> Callable[[int, int], Iterator[Batch]]:
    """Return a generator of the batches of one of several sources: a key, each once in all, and a value."""

    def batches(index: int, total: int) -> Iterator[Batch]:
        random = np.random.default_rng(seed)
        step = int(random.integers(1, rows)) * 2 + 1
        for start in range(index * BATCH, rows, total * BATCH):
            number = np.arange(start, min(start + BATCH, rows))
            yield Batch({"key": number * step % rows, name: number / 2})

    return batches


def as_dag(rows: int) -> DAG:
    """The join as a DAG of processors of columns."""
    dag = DAG()
    left = dag.new_vertex("left", processors.generate(table(rows, "a", 1)))
    right = dag.new_vertex("right", processors.generate(table(rows, "b", 2)))
    joined = dag.new_vertex("joined", processors.hash_join_batches("key"))
    grouping = processors.group_by().agg(n=count(), total=sum_("b"))
    first = dag.new_vertex("first", grouping.accumulate)
    second = dag.new_vertex("second", grouping.combine, 1)
    sink = dag.new_vertex("sink", processors.write_list("dag"), 1)
    dag.edge(from_(left).to(joined, 0).partitioned(column("key")))
    dag.edge(from_(right).to(joined, 1).partitioned(column("key")).priority(-1))
    dag.edge(from_(joined).to(first)).edge(from_(first).to(second).all_to_one())
    return dag.edge(from_(second).to(sink))


def source(name: str, generator: Any) -> SourceDef[Any]:
    """Return a source of batches."""
    return SourceDef(name, processors.generate(generator), columnar=True)


def as_pipeline(rows: int) -> Pipeline:
    """The same as a pipeline."""
    pipeline = Pipeline()
    left = pipeline.read_from(source("left", table(rows, "a", 1)))
    right = pipeline.read_from(source("right", table(rows, "b", 2)))
    left.join(right, "key").group_by().agg(n=count(), total=sum_("b")).write_to(sinks.list("pipeline"))
    return pipeline


def projected(rows: int) -> Pipeline:
    """Three stages of expressions over all rows."""
    pipeline = Pipeline()
    stage = pipeline.read_from(source("left", table(rows, "a", 1))).filter(column("a") > 10)
    stage = stage.with_columns(b=column("a") * 2 + column("key")).select("key", c=column("b") - column("a"))
    stage.group_by().agg(n=count(), total=sum_("c")).write_to(sinks.list("projected"))
    return pipeline


def main() -> None:
    """Run everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    cases: dict[str, Callable[[int], Any]] = {
        "join, as a DAG": as_dag,
        "join, as a pipeline": as_pipeline,
        "filter, with_columns, select": projected,
    }
    best: dict[str, float] = {}
    with shmjet.new_instance(JetConfig(cores=arguments.cores)) as jet:
        for _ in range(arguments.repeat):
            for name, make in cases.items():
                job = make(arguments.rows)
                begun = time.perf_counter()
                jet.new_job(job).run(600)
                best[name] = min(best.get(name, float("inf")), time.perf_counter() - begun)
        assert {tuple(batch.tuples()) for batch in jet.get_list("dag")} == {
            tuple(batch.tuples()) for batch in jet.get_list("pipeline")
        }
    for name, seconds in best.items():
        print(f"{name:<32}{seconds:8.3f} s")


if __name__ == "__main__":
    main()
