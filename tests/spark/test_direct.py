"""The feed that Spark's JVM writes itself: the same rows by the same rules as through Python workers, or not at all."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

import shmjet
from shmjet import Pipeline, sinks
from shmjet.spark import feed_client, row_readers
from shmjet.spark import source as spark_source
from shmjet.spark.direct import feed as direct_feed
from tests.spark.conftest import Fed
from tests.spark.test_faults import breaking

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("spark")]

MIXED = ["id", "id * 0.5D half", "if(id % 7 = 0, null, concat('s', id)) name", "if(id % 5 = 0, null, id % 2 = 0) even"]


@pytest.fixture
def direct(spark: Any) -> None:
    """Skip where this Spark, or its Java, cannot compile the writer."""
    if row_readers.direct(spark.range(1), 10) is None:
        pytest.skip("this Spark does not compile the writer")


def expected(rows: int) -> list[tuple[Any, ...]]:
    return [(n, n / 2, None if n % 7 == 0 else f"s{n}", None if n % 5 == 0 else n % 2 == 0) for n in range(rows)]


# -- which way -------------------------------------------------------------------------------------------------------


def test_plain_columns_go_directly(spark: Any, direct: None, rows: Fed) -> None:
    source = spark_source(spark.range(0, 1000, 1, 3).selectExpr(*MIXED), batch_rows=100)
    assert rows(source) == expected(1000)
    assert source.origin.rung == "direct"


def test_a_session_may_turn_it_off(spark: Any, direct: None, rows: Fed) -> None:
    spark.conf.set(direct_feed.SETTING, "false")
    try:
        source = spark_source(spark.range(3))
        assert rows(source) == [(0,), (1,), (2,)]
        assert source.origin.rung != "direct"
    finally:
        spark.conf.unset(direct_feed.SETTING)


@pytest.mark.parametrize("lacks", ["compiler", "factory", "paths"])
def test_where_it_cannot_be_the_next_rung_reads(
    spark: Any, direct: None, rows: Fed, monkeypatch: pytest.MonkeyPatch, lacks: str
) -> None:
    if lacks == "compiler":
        monkeypatch.setattr(direct_feed, "source_of", lambda fields, nullable: "this is not Java")
    elif lacks == "factory":
        compiled = direct_feed.load_compiled
        monkeypatch.setattr(direct_feed, "load_compiled", lambda jvm, source: (compiled(jvm, source), jvm.no.Such())[1])
    else:
        monkeypatch.setattr(feed_client, "is_writable", lambda path: False)
    source = spark_source(spark.range(3))
    assert rows(source) == [(0,), (1,), (2,)]
    assert source.origin.rung != "direct"


def test_pipelines_on_spark_do_not_use_it(spark: Any, direct: None) -> None:
    assert spark_source(spark.range(3)).prepare().rung != "direct"


# -- what arrives ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("deterministic", [False, True])
def test_small_memory_and_frames_in_pieces(spark: Any, direct: None, rows: Fed, deterministic: bool) -> None:
    """Slots of 64 KiB hold parts of frames; one value is larger than a slot."""
    wide = "if(id % 500 = 3, repeat(cast(id as string), 70000), cast(id as string)) s"
    df = spark.range(0, 2000, 1, 2).selectExpr("id", wide)
    source = spark_source(df, memory=1 << 20, deterministic=deterministic)
    found = rows(source)
    assert source.origin.rung == "direct"
    assert found == [(n, str(n) * (70_000 if n % 500 == 3 else 1)) for n in range(2000)]


def test_text_of_all_lengths(spark: Any, direct: None, rows: Fed) -> None:
    df = spark.range(0, 200, 1, 1).selectExpr("id", "repeat('ä', cast(id as int)) a", "repeat('b', cast(id as int)) b")
    assert rows(spark_source(df)) == [(n, "ä" * n, "b" * n) for n in range(200)]


def test_a_batch_has_a_mask_only_for_columns_with_nulls(spark: Any, direct: None, fed: Fed) -> None:
    df = spark.range(0, 40, 1, 1).selectExpr("if(id = 15, null, id) v")
    found = fed(spark_source(df, batch_rows=10))
    assert [batch.validity("v") is None for batch in found] == [True, False, True, True]
    assert [value for batch in found for value in batch.values("v")] == [None if n == 15 else n for n in range(40)]


def test_rows_that_are_not_in_sparks_own_format(spark: Any, direct: None, rows: Fed) -> None:
    spark.conf.set("spark.sql.codegen.wholeStage", "false")
    try:
        df = spark.createDataFrame([(n, f"s{n}", None) for n in range(10)], "n int, s string, x double")
        assert rows(spark_source(df)) == [(n, f"s{n}", None) for n in range(10)]
    finally:
        spark.conf.unset("spark.sql.codegen.wholeStage")


# -- exactly once ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("how", ["raise", "kill"])
def test_rows_of_broken_attempts_are_not_seen_twice(
    spark: Any, direct: None, rows: Fed, tmp_path: Path, how: str, deterministic: bool
) -> None:
    """What lies before the writer breaks, in the middle of partitions some of whose batches have been sent."""
    rdd = spark.sparkContext.parallelize(range(20_000), 4).mapPartitionsWithIndex(breaking(tmp_path, how))
    df = rdd.map(lambda n: (n,)).toDF("n long")
    source = spark_source(df, batch_rows=500, deterministic=deterministic, memory=1 << 16)
    assert rows(source) == [(n,) for n in range(20_000)]
    assert source.origin.rung == "direct"
    assert len(list(tmp_path.iterdir())) == 2


def test_of_attempts_that_run_side_by_side_one_counts(
    spark: Any, direct: None, jet: shmjet.JetInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two Spark jobs send the same round: both get the same receipts, and each row is seen once."""
    run = row_readers.DirectFeed.run
    receipts = []

    def twice(feed: Any, destination: Any) -> Any:
        with ThreadPoolExecutor(2) as threads:
            receipts.extend(threads.map(lambda _: run(feed, destination), range(2)))
        return receipts[0]

    monkeypatch.setattr(row_readers.DirectFeed, "run", twice)
    pipeline, results = Pipeline(), sinks.collect()
    df = spark.range(0, 300_000, 1, 3).selectExpr("id", "id + 1 next")
    pipeline.read_from(spark_source(df, batch_rows=1000, memory=1 << 20)).write_to(results)
    with results:
        jet.new_job(pipeline).run(timeout=120)
        found = sorted(n for batch in results for n in batch["id"].tolist())
    assert found == list(range(300_000))
    assert sorted(receipts[0]) == sorted(receipts[1])


def test_a_writer_leaves_nothing_open(spark: Any, direct: None, rows: Fed) -> None:
    def open_here() -> set[str]:
        folder = f"/proc/{spark.sparkContext._gateway.proc.pid}/fd"
        return {link for name in os.listdir(folder) if (link := _target(f"{folder}/{name}")).startswith("/dev/shm")}

    rows(spark_source(spark.range(0, 100, 1, 4)))
    assert open_here() == set()


def _target(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""
