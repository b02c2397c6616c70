"""Batches that a user's own source emits go into every stage: as they are where it takes batches, else row by row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from shmjet import Batch, column, sinks, sources
from shmjet.aggregate_ops import counting, summing
from shmjet.columns import sum_
from shmjet.pipeline import BatchStage, Pipeline, SourceDef
from tests.pipeline.running import list_sink, run

BATCHES = [
    Batch({"k": [1, 2, 1], "v": np.array([1, 2, 3], np.int8)}),
    Batch({"k": [3, 2], "v": np.array([4, 5], np.int8)}),
]
ROWS = [{"k": 1, "v": 7}]


def built(items: list[Any]) -> SourceDef[Any]:
    def fill(left: Iterator[Any], buffer: Any) -> None:
        item = next(left, None)
        buffer.close() if item is None else buffer.add(item)

    return sources.builder("own", lambda context: iter(items)).fill_buffer_fn(fill).distributed(1).build()


SOURCES: dict[str, Callable[[list[Any]], SourceDef[Any]]] = {"items": sources.items, "builder": built}

STAGES: dict[str, Callable[[BatchStage[Any]], BatchStage[Any]]] = {
    "map_batches": lambda stage: stage.map_batches(lambda batch: {"w": batch["v"] * 2}),
    "group_by": lambda stage: stage.group_by("k").agg(s=sum_("v")),
    "map": lambda stage: stage.map(lambda row: row["v"]),
    "filter": lambda stage: stage.filter(lambda row: row["v"] > 2),
    "flat_map": lambda stage: stage.flat_map(lambda row: range(row["v"])),
    "chain": lambda stage: stage.filter(lambda row: row["v"] > 2).flat_map(lambda row: [row, row]).map(dict.copy),
    "sort": lambda stage: stage.sort(lambda row: row["v"]),
    "distinct": lambda stage: stage.distinct(lambda row: row["k"]).map(lambda row: row["k"]),
    "grouping_key": lambda stage: stage.grouping_key(column("k")).aggregate(summing(lambda row: row["v"])),
    "rebalance": lambda stage: stage.rebalance().map_batches(lambda batch: batch),
    "partition_by": lambda stage: stage.partition_by(column("k")).map(lambda row: row["k"]),
    "aggregate": lambda stage: stage.aggregate(counting()),
    "hash_join": lambda stage: stage.hash_join(
        stage, column("k"), column("k"), lambda one, other: one["v"] * 10 + other["v"]
    ),
    "join": lambda stage: stage.join(stage, column("k"), column("k"), lambda one, other: one["v"] * 10 + other["v"]),
    "none": lambda stage: stage,
}


def found(stage: BatchStage[Any], workers: int) -> Counter[str]:
    stage.write_to(list_sink("out"))
    items = run(stage.pipeline, workers).get("out", [])
    rows = [row for item in items for row in (item.rows() if isinstance(item, Batch) else [item])]
    return Counter(map(repr, rows))


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", STAGES)
def test_every_stage_takes_batches_of_any_source(name: str, source: str) -> None:
    for items in (BATCHES, [BATCHES[0], *ROWS, BATCHES[1]]):
        rows = [row for item in items for row in (item.rows() if isinstance(item, Batch) else [item])]
        expected = found(STAGES[name](Pipeline().read_from(sources.items(rows))), 1)
        for workers in (1, 2, 4):
            assert found(STAGES[name](Pipeline().read_from(SOURCES[source](items))), workers) == expected


@pytest.mark.parametrize("name", STAGES)
def test_every_stage_takes_batches_merged_with_rows(name: str) -> None:
    def merged(pipeline: Pipeline, items: list[Any]) -> BatchStage[Any]:
        return pipeline.read_from(built(items)).merge(pipeline.read_from(sources.items(ROWS)))

    expected = found(STAGES[name](merged(Pipeline(), [row for batch in BATCHES for row in batch.rows()])), 1)
    for workers in (1, 2):
        assert found(STAGES[name](merged(Pipeline(), list(BATCHES))), workers) == expected


def test_batches_that_a_function_makes_go_into_stages_of_batches() -> None:
    stage = Pipeline().read_from(sources.items(range(1, 5))).map(lambda n: Batch({"n": [n] * n}))
    assert found(stage.map_batches(lambda batch: {"m": batch["n"] + 1}), 2) == Counter(
        {repr({"m": n + 1}): n for n in range(1, 5)}
    )


def test_a_stage_of_batches_gets_them_as_they_are() -> None:
    kinds = []
    stage = Pipeline().read_from(built(list(BATCHES)))
    stage = stage.map_batches(lambda batch: {"kind": [str(batch.schema["v"])]})
    stage.write_to(list_sink("out"))
    kinds = run(stage.pipeline, 2)["out"]
    assert [batch.to_dict() for batch in kinds] == [{"kind": ["int8"]}] * 2


def test_sinks_of_rows_get_rows() -> None:
    rows = [row for batch in BATCHES for row in batch.rows()]
    pipeline = Pipeline()
    pipeline.read_from(built(list(BATCHES))).write_to(sinks.assert_any_order(rows))
    run(pipeline, 2)
