"""Results back in Spark: maps and lists as DataFrames, and sinks that Spark writes when a job has succeeded."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shmjet.spark
from shmjet import Batch, BatchError, ConfigError, JetInstance, JobFailedError, Pipeline, Text, sinks, sources
from shmjet.spark.back import type_inference
from shmjet.spark.back.areas import new_area
from tests.spark.test_parquet import COLUMNS, ROWS

pytestmark = pytest.mark.slow

SCHEMA = ", ".join(f"{column.name} {column.sql}" for column in COLUMNS)


@dataclass
class Visit:
    user: str
    at: dt.date
    n: int


@pytest.fixture(autouse=True)
def _freed() -> Iterator[None]:
    yield
    shmjet.spark.free_dataframes()


def moments(rows: list[Any]) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in rows]


def test_every_type_comes_back_as_it_went(spark: Any, jet: JetInstance) -> None:
    items = jet.get_list("every type")
    items.extend(ROWS * 3)
    df = shmjet.spark.to_dataframe(spark, items, SCHEMA)
    assert [field.dataType.simpleString() for field in df.schema] == [column.sql for column in COLUMNS]
    moment = "cast(unix_micros(moment) as bigint)"
    found = df.selectExpr(*(name if name != "moment" else moment for name in df.columns)).collect()
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    for got, row in zip(found, ROWS * 3, strict=True):
        micros = row[8] and (row[8] - epoch) // dt.timedelta(microseconds=1)
        assert tuple(got) == (*row[:8], micros, *row[9:])


def test_maps_lists_and_batches_with_schemas_of_all_forms_and_none(spark: Any, jet: JetInstance) -> None:
    counts = jet.get_map("counts")
    counts.put_all({f"word-{n}": n for n in range(1000)})
    for schema in ("word string, n bigint", {"word": str, "n": "int64"}):
        df = shmjet.spark.to_dataframe(spark, counts, schema)
        assert df.columns == ["word", "n"]
        assert df.groupBy().sum("n").collect()[0][0] == sum(range(1000))
    assert shmjet.spark.to_dataframe(spark, counts).columns == ["key", "value"]
    visits = jet.get_map("visits")
    visits.put_all({1: Visit("ada", dt.date(2020, 2, 29), 3), 2: Visit("bob", dt.date(2021, 1, 1), 4)})
    df = shmjet.spark.to_dataframe(spark, visits)
    assert sorted(map(tuple, df.collect())) == [(1, "ada", dt.date(2020, 2, 29), 3), (2, "bob", dt.date(2021, 1, 1), 4)]
    assert df.columns == ["key", "user", "at", "n"]
    batch = Batch(
        {"x": np.array([1.5, 2.5], np.float32), "word": Text.of(["a", ""])}, {"word": np.array([True, False])}
    )
    df = shmjet.spark.to_dataframe(spark, [batch, batch])
    assert df.dtypes == [("x", "float"), ("word", "string")]
    assert moments(df.collect()) == [(1.5, "a"), (2.5, None)] * 2
    assert shmjet.spark.to_dataframe(spark, [], "a int").collect() == []


def test_a_dataframe_can_be_read_again_and_after_the_instance_has_ended(spark: Any, jet: JetInstance) -> None:
    items = jet.get_list("gone")
    items.extend([(1, "a"), (2, "b")])
    df = shmjet.spark.to_dataframe(spark, items)
    items.destroy()
    assert df.count() == 2
    assert df.join(df.withColumnRenamed("_2", "other"), "_1").count() == 2


def test_what_does_not_fit_is_an_error_with_column_value_and_partition(spark: Any, jet: JetInstance) -> None:
    with pytest.raises(BatchError, match=r"partition 0: column 'n' \(bigint\) does not take 'x' of type str"):
        shmjet.spark.to_dataframe(spark, [(1,), ("x",)], "n bigint")
    with pytest.raises(ConfigError, match=r"column 'a' has type void, which cannot be sent"):
        shmjet.spark.to_dataframe(spark, [(None,)], "a void")
    with pytest.raises(ConfigError, match=r"the schema: 'a nonsense' is not a schema"):
        shmjet.spark.to_dataframe(spark, [(1,)], "a nonsense")
    with pytest.raises(ConfigError, match="there are no rows to make a schema of"):
        shmjet.spark.to_dataframe(spark, [])
    with pytest.raises(ConfigError, match="column '_2' is None in the first 1 rows"):
        shmjet.spark.to_dataframe(spark, [(1, None)])
    with pytest.raises(TypeError, match="expected a map, a list or rows, got int"):
        shmjet.spark.to_dataframe(spark, 5)


def rows_pipeline(sink: Any, rows: Any) -> Pipeline:
    pipeline = Pipeline()
    pipeline.read_from(sources.items(rows)).rebalance().write_to(sink)
    return pipeline


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (np.array(["2020"], "M8[Y]"), "date"),
        (np.array(["2020-01", "NaT"], "M8[M]"), "date"),
        (np.array(["2020-01-02"], "M8[W]"), "date"),
        (np.array(["2020-01-02"], "M8[D]"), "date"),
        (np.array(["2020-01-02T05"], "M8[h]"), "timestamp"),
        (np.array([5], "m8[D]"), "interval day to second"),
    ],
)
def test_dates_and_spans_get_the_type_of_their_unit(values: Any, kind: str) -> None:
    assert [type_inference.word_for([value]) for value in values] == [kind] * len(values)


def test_spans_of_months_are_refused_as_they_have_no_fixed_length(spark: Any, jet: JetInstance) -> None:
    items = jet.get_list("months")
    items.append(Batch({"age": np.array([14, 3], "m8[M]")}))
    with pytest.raises(ConfigError, match="has no type in Spark's columns"):
        shmjet.spark.to_dataframe(spark, items)
    with pytest.raises(BatchError, match=r"column 'age' .* does not take a column of dtype timedelta64\[M\]"):
        shmjet.spark.to_dataframe(spark, items, "age interval day to second")


def test_a_name_that_is_no_text_is_refused(spark: Any) -> None:
    with pytest.raises(ConfigError, match="a column's name must be a str, got 1 of type int"):
        shmjet.spark.to_dataframe(spark, [{1: 1}])


@pytest.mark.parametrize("runs_on", ["engine", "spark"])
def test_a_sink_writes_with_sparks_writers_once_the_job_has_succeeded(
    spark: Any, jet: JetInstance, tmp_path: Path, runs_on: str
) -> None:
    def run(pipeline: Pipeline) -> None:
        if runs_on == "spark":
            pipeline.run_on_spark(spark)
        else:
            jet.new_job(pipeline).run(timeout=120)

    rows = [(f"word-{n % 10}", n, Decimal(n) / 4) for n in range(500)]
    schema = "word string, n bigint, d decimal(12,2)"
    for kind in ("parquet", "json"):
        path = tmp_path / kind
        run(rows_pipeline(shmjet.spark.sink(spark, schema, path=path, format=kind), rows))
        found = spark.read.schema(schema).format(kind).load(str(path))
        assert sorted(map(tuple, found.collect())) == sorted(rows)
    run(rows_pipeline(shmjet.spark.sink(spark, schema, path=tmp_path / "orc", format="orc", partition_by="word"), rows))
    assert len([name for name in os.listdir(tmp_path / "orc") if name.startswith("word=")]) == 10
    with pytest.raises(JobFailedError, match="already exists"):
        run(rows_pipeline(shmjet.spark.sink(spark, schema, path=tmp_path / "orc", format="orc"), rows))


@pytest.mark.parametrize("runs_on", ["engine", "spark"])
def test_a_failed_job_writes_nothing_and_leaves_no_file(
    spark: Any,
    jet: JetInstance,
    tmp_path: Path,
    runs_on: str,
    eventually: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = []

    def noting(*arguments: Any) -> Any:
        made.append(new_area(*arguments))
        return made[-1]

    monkeypatch.setattr("shmjet.spark.back.sinks.new_area", noting)
    path = tmp_path / "never"
    sink = shmjet.spark.sink(spark, "n tinyint", path=path)
    pipeline = rows_pipeline(sink, [(n,) for n in range(200)])
    with pytest.raises(JobFailedError, match=r"partition \d+: column 'n' \(tinyint\) does not take 1\d\d") as caught:
        if runs_on == "spark":
            pipeline.run_on_spark(spark)
        else:
            jet.new_job(pipeline).run(timeout=120)
    assert isinstance(caught.value.cause, BatchError)
    assert not path.exists()
    assert len(made) == 1
    eventually(lambda: not made[0].path.exists())


def test_wrong_arguments_of_a_sink(spark: Any) -> None:
    for arguments, why in (
        ({"format": "parquet"}, "needs a path"),
        ({"path": "x", "mode": "replace"}, "mode must be one of"),
        ({"path": "x", "table": "y"}, "a path or a table"),
        ({"format": "jdbc", "options": {"url": "jdbc:x"}}, "needs the options url and dbtable"),
        ({"path": "x", "partition_by": "other"}, "partition_by names 'other'"),
    ):
        with pytest.raises(ConfigError, match=why):
            shmjet.spark.sink(spark, "n bigint", **arguments)


def test_a_dataframe_is_a_source_of_a_pipeline_that_runs_on_spark(spark: Any, tmp_path: Path) -> None:
    df = spark.range(0, 5000, 1, 4).selectExpr("id", "cast(id % 7 as string) as k", "id * 0.5D as half")
    p = Pipeline()
    rows = p.read_from(shmjet.spark.source(df))
    with sinks.collect() as totals:
        counted = rows.map(lambda row: (row["k"], row["half"])).grouping_key(lambda pair: pair[0])
        counted.aggregate(shmjet.aggregate_ops.summing(lambda pair: pair[1])).write_to(totals)
        p.run_on_spark(spark)
        assert dict(totals) == {str(k): sum(n * 0.5 for n in range(k, 5000, 7)) for k in range(7)}
