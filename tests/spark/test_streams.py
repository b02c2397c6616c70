"""Structured Streaming: micro-batches into a running job, once for each batch id."""

from __future__ import annotations

import json
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

import shmjet
from shmjet import ConfigError, Pipeline, sinks
from shmjet.spark import source as spark_source
from shmjet.spark.errors import FeedEndedError

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("spark")]


def stream_of(spark: Any, folder: Path, files: int) -> Any:
    """A stream of files, one each micro-batch; file n has the rows 10 n to 10 n + 9."""
    folder.mkdir()
    for number in range(files):
        lines = [json.dumps({"n": 10 * number + row}) for row in range(10)]
        (folder / f"{number}.json").write_text("\n".join(lines))
    return spark.readStream.schema("n long").option("maxFilesPerTrigger", 1).json(str(folder))


def test_each_micro_batch_arrives_once_also_when_it_comes_again(
    spark: Any, callbacks: None, jet: shmjet.JetInstance, tmp_path: Path
) -> None:
    feed = spark_source(stream_of(spark, tmp_path / "in", 3))
    pipeline, results = Pipeline(), sinks.collect()
    pipeline.read_from(feed).write_to(results)
    seen: list[int] = []

    def twice(df: Any, batch_id: int) -> None:
        seen.append(batch_id)
        if batch_id == 1:
            with pytest.raises(Exception, match="not this time"):
                feed.foreach_batch(df.selectExpr("if(n % 10 = 5, raise_error('not this time'), n) n"), batch_id)
        feed.foreach_batch(df, batch_id)
        feed.foreach_batch(df, batch_id)

    with results:
        execution = jet.new_job(pipeline).execute()
        writer = feed.origin.stream.writeStream.foreachBatch(twice).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / "check")).start()
        query.awaitTermination(60)
        assert query.exception() is None
        feed.finish()
        execution.result(60)
        assert sorted(n for batch in results for n in batch["n"].tolist()) == list(range(30))
    assert seen == [0, 1, 2]


def test_a_micro_batch_without_a_job_is_an_error(spark: Any, jet: shmjet.JetInstance, tmp_path: Path) -> None:
    feed = spark_source(stream_of(spark, tmp_path / "in", 1))
    with pytest.raises(FeedEndedError, match="no job is running"):
        feed.foreach_batch(spark.createDataFrame([(1,)], "n long"), 0)
    with pytest.raises(ConfigError, match="deterministic=True is for bounded data"):
        spark_source(feed.origin.stream, deterministic=True)


def test_cancelling_the_job_ends_its_feed(spark: Any, jet: shmjet.JetInstance, tmp_path: Path) -> None:
    feed = spark_source(stream_of(spark, tmp_path / "in", 1))
    pipeline = Pipeline()
    pipeline.read_from(feed).write_to(sinks.noop())
    job = jet.new_job(pipeline)
    execution = job.execute()
    with pytest.raises(shmjet.ShmjetError, match="still running"):
        job.execute()
    execution.cancel()
    with pytest.raises(CancelledError):
        execution.result(60)
    with pytest.raises(FeedEndedError, match="no job is running"):
        feed.foreach_batch(spark.createDataFrame([(1,)], "n long"), 0)
