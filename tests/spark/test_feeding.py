"""Shapes of input: how many partitions, how large, of what; and the ways to use a source."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

pytest.importorskip("pyspark")

import shmjet
from shmjet import DAG, Batch, ConfigError, Pipeline, between, processors, sinks, sources
from shmjet.spark import row_readers
from shmjet.spark import source as spark_source
from tests.spark.conftest import Fed

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("spark")]


def test_each_row_arrives_once_as_a_column(spark: Any, fed: Fed) -> None:
    df = spark.range(0, 100_000, 1, 3).selectExpr("id", "id * 0.5D half", "concat('s', id % 10) name")
    found = fed(spark_source(df, batch_rows=10_000))
    assert max(batch.num_rows for batch in found) == 10_000
    assert sum(batch.num_rows for batch in found) == 100_000
    assert sum(int(batch["id"].sum()) for batch in found) == 99_999 * 50_000
    assert all((batch["half"] * 2 == batch["id"]).all() for batch in found)
    assert all(batch["name"][7] == f"s{batch['id'][7] % 10}" for batch in found)


def test_rows_of_a_partition_stay_in_order(spark: Any, fed: Fed) -> None:
    found = fed(spark_source(spark.range(0, 50_000, 1, 1), batch_rows=1000))
    assert [int(batch["id"][0]) for batch in found] == list(range(0, 50_000, 1000))


def test_a_source_is_a_vertex(spark: Any, jet: shmjet.JetInstance) -> None:
    dag = DAG()
    numbers = dag.new_vertex("numbers", spark_source(spark.range(1000)))
    counts = dag.new_vertex("rows", processors.map(lambda batch: batch.num_rows))
    sink = dag.new_vertex("sink", processors.write_list("rows-of-spark"), 1)
    dag.edge(between(numbers, counts)).edge(between(counts, sink))
    jet.new_job(dag).run(timeout=60)
    assert sum(jet.get_list("rows-of-spark")) == 1000


def test_item_stages_get_rows(spark: Any, jet: shmjet.JetInstance) -> None:
    pipeline, results = Pipeline(), sinks.collect()
    stage = pipeline.read_from(sources.spark(spark.range(10), columns=["id"]))
    stage.map(lambda row: row["id"] * 2).write_to(results)
    with results:
        jet.new_job(pipeline).run(timeout=60)
        assert sorted(results) == list(range(0, 20, 2))


def test_a_job_may_be_executed_again_and_two_sources_meet_in_one(spark: Any, jet: shmjet.JetInstance) -> None:
    pipeline, results = Pipeline(), sinks.collect()
    one = pipeline.read_from(spark_source(spark.range(5)))
    two = pipeline.read_from(spark_source(spark.range(5, 10)))
    one.merge(two).write_to(results)
    job = jet.new_job(pipeline)
    with results:
        for _ in range(2):
            job.run(timeout=60)
            assert sorted(n for batch in results for n in batch["id"].tolist()) == list(range(10))


def test_columns_are_chosen_by_name_whatever_it_looks_like(spark: Any, rows: Fed) -> None:
    df = spark.range(2).selectExpr("id", "id + 1 as `a.b`", "id + 2 as `c``d`")
    assert rows(spark_source(df, columns=["c`d", "a.b"])) == [(2, 1), (3, 2)]
    with pytest.raises(ConfigError, match="no column 'nope'"):
        spark_source(df, columns=["nope"])
    with pytest.raises(ConfigError, match="several columns named 'id'"):
        spark_source(df.selectExpr("id", "id"))


@pytest.mark.parametrize("partitions", [1, 7])
def test_empty_partitions_and_none_at_all(spark: Any, rows: Fed, partitions: int) -> None:
    assert rows(spark_source(spark.range(0, 3, 1, partitions))) == [(0,), (1,), (2,)]
    assert rows(spark_source(spark.range(0, 3, 1, partitions).where("id > 5"))) == []
    assert rows(spark_source(spark.createDataFrame([], "a int"))) == []
    assert rows(spark_source(spark.sparkContext.emptyRDD())) == []


def test_many_partitions_are_joined_to_fewer_tasks(spark: Any, fed: Fed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_readers, "MANY", 16)
    for found in (spark.range(0, 100, 1, 40), spark.range(0, 100, 1, 40).rdd.map(lambda row: row[0])):
        source = spark_source(found)
        batches = fed(source)
        assert source.origin.prepare().partitions == 16
        assert sorted(n for batch in batches for _, c in batch.items() for n in c.tolist()) == list(range(100))


def test_cached_and_adaptive_plans(spark: Any, rows: Fed) -> None:
    counted = spark.range(0, 1000, 1, 4).groupBy((_col("id") % 10).alias("k")).count()
    assert rows(spark_source(counted)) == [(k, 100) for k in range(10)]
    cached = counted.cache()
    try:
        assert rows(spark_source(cached, deterministic=True)) == [(k, 100) for k in range(10)]
    finally:
        cached.unpersist()


def _col(name: str) -> Any:
    from pyspark.sql.functions import col

    return col(name)


def test_500_columns(spark: Any, fed: Fed) -> None:
    df = spark.range(0, 3000, 1, 2).selectExpr(*[f"id + {n} as c{n}" for n in range(500)])
    found = fed(spark_source(df, batch_rows=2000, memory=4 << 20))
    assert [batch.num_columns for batch in found] == [500] * len(found)
    assert sum(int(batch["c499"].sum()) for batch in found) == 2999 * 1500 + 499 * 3000


def test_strings_of_ten_megabytes(spark: Any, fed: Fed) -> None:
    df = spark.range(0, 4, 1, 2).selectExpr("id", "repeat(cast(id as string), 10000000) s")
    found = fed(spark_source(df, batch_rows=1))
    texts = {int(batch["id"][0]): batch["s"][0] for batch in found}
    assert texts == {n: str(n) * 10_000_000 for n in range(4)}


def test_one_huge_partition_waits_in_a_file(spark: Any, fed: Fed) -> None:
    df = spark.range(0, 500_000, 1, 1).selectExpr("id", "id * 2 as b", "id * 3 as c")
    found = fed(spark_source(df, memory=1 << 20))
    assert sum(int(batch["c"].sum()) for batch in found) == 3 * 499_999 * 250_000


def test_indeterminate_data_becomes_visible_at_the_end(spark: Any, rows: Fed) -> None:
    spark.conf.set("spark.sql.execution.sortBeforeRepartition", "false")
    try:
        source = spark_source(spark.range(0, 1000, 1, 4).selectExpr("id % 100 k").groupBy("k").count().repartition(3))
        assert rows(source) == [(n, 10) for n in range(100)]
        prepared = source.origin.prepare()
        assert prepared.is_indeterminate
        assert source.origin.choose(prepared).value == "round"
    finally:
        spark.conf.unset("spark.sql.execution.sortBeforeRepartition")


def test_elements_of_an_rdd(spark: Any, fed: Fed, rows: Fed) -> None:
    context = spark.sparkContext
    assert rows(spark_source(context.parallelize([(2, "b"), (1, "a")], 2))) == [(1, "a"), (2, "b")]
    assert fed(spark_source(context.parallelize([3, 4], 1))) == [Batch({"value": [3, 4]})]
    named = fed(spark_source(context.parallelize([{"k": 1, "v": None}, {"k": 2, "v": 0.5}], 1)))
    assert named == [Batch({"k": [1, 2], "v": [None, 0.5]})]
    assert fed(spark_source(spark.range(2).coalesce(1).rdd)) == [Batch({"id": [0, 1]})]
    assert fed(spark_source(context.parallelize([(1, 2)], 1), columns=["x", "y"])) == [Batch({"x": [1], "y": [2]})]
    assert fed(spark_source(context.parallelize([{1, 2}, {3}], 1))) == [{1, 2}, {3}]


def test_an_element_unlike_the_others_is_named(spark: Any, fed: Fed) -> None:
    with pytest.raises(shmjet.JobFailedError, match=r"partition 0: .*an element has 1 values for the columns"):
        fed(spark_source(spark.sparkContext.parallelize([(1, 2), (3,)], 1)))


def test_a_source_travels_but_is_executed_where_spark_is(spark: Any, jet: shmjet.JetInstance) -> None:
    copy = pickle.loads(pickle.dumps(spark_source(spark.range(3))))
    pipeline = Pipeline()
    pipeline.read_from(copy).write_to(sinks.noop())
    with pytest.raises(ConfigError, match="executed by the process that made the source"):
        jet.new_job(pipeline).run()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("not a frame",), "expected a DataFrame or an RDD"),
        ((None, None, 0), "batch_rows"),
        ((None, "id"), "columns is a sequence of names"),
    ],
)
def test_wrong_arguments_are_named(spark: Any, arguments: tuple[Any, ...], says: str) -> None:
    first, *others = arguments
    with pytest.raises(shmjet.ShmjetError, match=says):
        spark_source(spark.range(1) if first is None else first, *others)
