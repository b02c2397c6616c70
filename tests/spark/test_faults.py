"""Feeds of which one of the two sides fails, stops, or is slow."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

import shmjet
from shmjet import ConfigError, JobFailedError, Pipeline, sinks
from shmjet.spark import source as spark_source
from shmjet.spark.settings import check_settings
from tests.spark.conftest import Fed
from tests.waiting import until_there

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("spark")]

Eventually = Callable[..., None]


def once(folder: Path, name: str) -> bool:
    """Whether this is the first call with that name, by any process."""
    try:
        os.close(os.open(folder / name, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def breaking(folder: Path, how: str, at: int = 3000) -> Callable[[int, Iterator[int]], Iterator[int]]:
    """Return a function for `mapPartitionsWithIndex` that breaks each second partition once, in the middle."""
    place = str(folder)

    def run(index: int, elements: Iterator[int]) -> Iterator[int]:
        for n, element in enumerate(elements):
            if n == at and index % 2 == 0 and once(Path(place), f"p{index}"):
                if how == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                raise ValueError("broken once")
            yield element

    return run


def values(found: list[Any]) -> list[int]:
    return sorted(value for batch in found for value in batch["value"].tolist())


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("how", ["raise", "kill"])
def test_rows_of_broken_attempts_are_not_seen_twice(
    spark: Any, fed: Fed, tmp_path: Path, how: str, deterministic: bool
) -> None:
    rdd = spark.sparkContext.parallelize(range(20_000), 4).mapPartitionsWithIndex(breaking(tmp_path, how))
    source = spark_source(rdd, columns=["value"], batch_rows=500, deterministic=deterministic)
    assert values(fed(source)) == list(range(20_000))
    assert len(list(tmp_path.iterdir())) == 2


def test_rows_that_come_out_otherwise_the_second_time_fail_a_deterministic_feed(
    spark: Any, fed: Fed, tmp_path: Path
) -> None:
    place = str(tmp_path)

    def shifting(index: int, elements: Iterator[int]) -> Iterator[int]:
        first = once(Path(place), "first")
        for n, element in enumerate(elements):
            if first and n == 30_000:  # the memory holds fewer: rows have been handed over
                raise ValueError("broken once")
            yield element if first else -element

    rdd = spark.sparkContext.parallelize(range(40_000), 1).mapPartitionsWithIndex(shifting)
    with pytest.raises(JobFailedError, match=r"other rows .*persist\(\) the DataFrame"):
        fed(spark_source(rdd, columns=["value"], batch_rows=100, deterministic=True, memory=1 << 16))


def test_sparks_failure_arrives_with_its_message(spark: Any, fed: Fed) -> None:
    df = spark.range(0, 1000, 1, 2).selectExpr("if(id = 900, raise_error('no such row: 900'), id) id")
    with pytest.raises(JobFailedError, match=r"vertex 'spark'[\s\S]*Spark: [\s\S]*no such row: 900"):
        fed(spark_source(df))


def test_an_error_in_the_middle_of_a_slot_reaches_the_user(spark: Any, fed: Fed) -> None:
    def fussy(n: int) -> int:
        if n == 700:
            raise ValueError("not 700")
        return n

    rdd = spark.sparkContext.range(0, 1000, 1, 1).map(fussy)
    with pytest.raises(JobFailedError, match=r"Spark: in a Python worker: ValueError: not 700[\s\S]*in fussy"):
        fed(spark_source(rdd, columns=["value"], batch_rows=100))


def test_a_plan_that_spark_refuses_fails_the_job(spark: Any, fed: Fed, tmp_path: Path) -> None:
    spark.range(3).write.parquet(str(tmp_path / "gone"))
    df = spark.read.parquet(str(tmp_path / "gone"))
    for file in (tmp_path / "gone").glob("*.parquet"):
        file.unlink()
    with pytest.raises(JobFailedError, match="Spark: "):
        fed(spark_source(df))


def endless(spark: Any) -> Any:
    return spark.range(0, 10**12, 1, 2)


def running(spark: Any) -> bool:
    return bool(spark.sparkContext.statusTracker().getActiveJobsIds())


def test_a_failing_job_stops_sparks_tasks(spark: Any, jet: shmjet.JetInstance, eventually: Eventually) -> None:
    def refuse(batch: Any) -> Any:
        raise ValueError("I do not like it")

    pipeline = Pipeline()
    pipeline.read_from(spark_source(endless(spark), deterministic=True)).map_batches(refuse).write_to(sinks.noop())
    with pytest.raises(JobFailedError, match="I do not like it"):
        jet.new_job(pipeline).run(timeout=60)
    eventually(lambda: not running(spark))


@pytest.mark.parametrize("deterministic", [False, True])
def test_cancelling_the_job_ends_sparks(
    spark: Any, jet: shmjet.JetInstance, eventually: Eventually, deterministic: bool
) -> None:
    pipeline = Pipeline()
    source = spark_source(endless(spark), deterministic=deterministic, memory=1 << 20)
    pipeline.read_from(source).write_to(sinks.noop())
    execution = jet.new_job(pipeline).execute()
    eventually(lambda: running(spark))
    execution.cancel()
    with pytest.raises(CancelledError):
        execution.result(60)
    eventually(lambda: not running(spark))


def test_cancelling_sparks_job_fails_the_job(spark: Any, jet: shmjet.JetInstance, eventually: Eventually) -> None:
    pipeline = Pipeline()
    pipeline.read_from(spark_source(endless(spark), deterministic=True)).write_to(sinks.noop())
    execution = jet.new_job(pipeline).execute()
    eventually(lambda: running(spark))
    spark.sparkContext.cancelAllJobs()
    with pytest.raises(JobFailedError, match=r"Spark: .*cancel"):
        execution.result(60)


def standing_still(spark: Any) -> Callable[[], bool]:
    """Return a predicate: whether no task of Spark's has used the processor since the call before."""
    threads = Path(f"/proc/{spark.sparkContext._gateway.proc.pid}/task")
    before: dict[str, str] = {}

    def is_true() -> bool:
        nonlocal before
        last, before = before, {}
        for thread in threads.iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
                if (thread / "comm").read_text().startswith("Executor task"):
                    before[thread.name] = (thread / "schedstat").read_text()
        return bool(last) and last == before

    return is_true


@pytest.mark.parametrize("deterministic", [False, True])
def test_a_slow_job_holds_spark_back(
    spark: Any, jet: shmjet.JetInstance, tmp_path: Path, deterministic: bool, eventually: Eventually
) -> None:
    """The job stops for as long as a file is missing; meanwhile Spark's tasks get no further than the memory goes."""
    gate, entered = tmp_path / "gate", tmp_path / "entered"

    def slow(batch: Any) -> dict[str, Any]:
        entered.touch()
        until_there(gate)
        return {"sum": [int(batch["id"].sum())]}

    df = spark.range(0, 4_000_000, 1, 64)
    pipeline, results = Pipeline(), sinks.collect()
    source = spark_source(df, batch_rows=4096, memory=1 << 20, deterministic=deterministic)
    pipeline.read_from(source).map_batches(slow).write_to(results)
    with results:
        execution = jet.new_job(pipeline).execute()
        tracker = spark.sparkContext.statusTracker()
        eventually(entered.exists)
        eventually(standing_still(spark))
        (stage,) = tracker.getActiveStageIds()
        assert tracker.getStageInfo(stage).numCompletedTasks < 60
        gate.touch()
        execution.result(60)
        assert sum(int(batch["sum"].sum()) for batch in results) == 3_999_999 * 2_000_000


def test_settings_that_would_kill_a_waiting_worker_are_refused(spark: Any) -> None:
    plain = {"spark.master": "local[2]"}
    check_settings(plain, 1 << 28)
    idle = {"spark.python.worker.killOnIdleTimeout": "true", "spark.python.worker.idleTimeoutSeconds": "3s"}
    with pytest.raises(
        ConfigError, match="killOnIdleTimeout=true with idleTimeoutSeconds=3 kills Spark tasks that wait"
    ):
        check_settings({**plain, **idle}, 1 << 28)
    with pytest.raises(ConfigError, match=r"pyspark\.memory=600m leaves 600 MiB .* set it to 640m or more"):
        check_settings({**plain, "spark.executor.pyspark.memory": "600m"}, 256 << 20)
    check_settings({**plain, "spark.executor.pyspark.memory": "640m"}, 256 << 20)
    two = {**plain, "spark.executor.cores": "2"}
    with pytest.raises(ConfigError, match=r"pyspark\.memory=1g leaves 512 MiB .* set it to 1280m or more"):
        check_settings({**two, "spark.executor.pyspark.memory": "1g"}, 256 << 20)
    check_settings({**two, "spark.executor.pyspark.memory": "1280m"}, 256 << 20)


@pytest.fixture
def limited(spark: Any) -> Iterator[Callable[[int], None]]:
    """`limited(n)` lets the Python workers of later Spark jobs have n MiB, as spark.executor.pyspark.memory does."""
    yield lambda size: spark.sparkContext.setLocalProperty("resource.pyspark.memory", str(size))
    spark.sparkContext.setLocalProperty("resource.pyspark.memory", None)


def test_workers_whose_address_space_is_limited_feed_a_job_if_it_is_enough(
    spark: Any, fed: Fed, limited: Callable[[int], None]
) -> None:
    def limit(elements: Iterator[int]) -> Iterator[int]:
        yield resource.getrlimit(resource.RLIMIT_AS)[0]

    limited(640)  # what check_settings lets pass
    assert spark.sparkContext.range(1).mapPartitions(limit).distinct().collect() == [640 << 20]
    rdd = spark.sparkContext.range(0, 20_000, 1, 2)
    assert values(fed(spark_source(rdd, columns=["value"], memory=256 << 20))) == list(range(20_000))
    limited(220)
    with pytest.raises(
        JobFailedError, match=r"cannot be mapped in this Spark worker: [\s\S]*raise spark\.executor\.pys"
    ):
        fed(spark_source(rdd, columns=["value"], memory=256 << 20))


def test_a_job_cancelled_at_once_leaves_nothing(spark: Any, jet: shmjet.JetInstance, eventually: Eventually) -> None:
    pipeline = Pipeline()
    pipeline.read_from(spark_source(endless(spark))).write_to(sinks.noop())
    for _ in range(3):
        execution = jet.new_job(pipeline).execute()
        execution.cancel()
        with pytest.raises(CancelledError):
            execution.result(60)
    eventually(lambda: not running(spark))
