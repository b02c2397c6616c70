"""Feeds jobs from Spark and breaks Spark meanwhile: every row arrives once, or the job fails; nothing hangs.

Every other DataFrame is written by Spark's JVM itself, with the harm done to what computes its rows. `workers`: Python
workers are killed with SIGKILL at random moments. `shuffle`: shuffle files are deleted while they are
read, so that Spark computes the stage before again. `executor`: an executor of `local-cluster[2,1,1024]` is killed.
`cancel`: jobs are cancelled at random moments, from either side, and both must have ended within 3 s. `many`: 10,000
partitions (2,000 with `--ci`). `slow`: a consumer that pauses for 200 s (5 s with `--ci`). `limits`: sessions whose
settings leave the Python workers little address space, or kill waiting ones: refused, or enough (not with `--ci`).
Needs PySpark and Java; says so and exits with 0 where they are missing.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
from _stress import HANG_S, Options, parse_options, slowness

PARTS = ("workers", "shuffle", "many", "slow", "cancel", "executor", "limits")
OWN_SESSION = ("executor", "limits")
END_S = 3.0
"""Seconds in which the end of one side must have ended the other."""
LONGEST_S = 600.0

Faults = list[str]


@contextlib.contextmanager
def spark_session(master: str, folder: Path, settings: dict[str, str] | None = None) -> Iterator[Any]:
    """A quiet session of its own, with its JVM, and further settings."""
    os.environ.update(SPARK_LOCAL_IP="127.0.0.1", PYSPARK_PYTHON=sys.executable)
    root = str(Path(__file__).resolve().parents[1])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).appName("shmjet-stress")
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(folder),
        "spark.sql.shuffle.partitions": "8",
        "spark.sql.adaptive.enabled": "false",
        "spark.log.level": "OFF",
        "spark.ui.showConsoleProgress": "false",
        "spark.task.maxFailures": "20",
        "spark.stage.maxConsecutiveAttempts": "20",
        **(settings or {}),
    }.items():
        builder = builder.config(key, value)
    quiet, before = os.open(os.devnull, os.O_WRONLY), os.dup(2)
    os.dup2(quiet, 2)
    try:
        session = builder.getOrCreate()
    finally:
        os.dup2(before, 2)
        os.close(quiet)
        os.close(before)
    gateway: Any = session.sparkContext._gateway
    try:
        yield session
    finally:
        session.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(HANG_S)
        context = type(session.sparkContext)
        context._gateway = context._jvm = None


def jvm_children(spark: Any) -> list[psutil.Process]:
    """All processes below the JVM."""
    with contextlib.suppress(psutil.Error):
        return psutil.Process(spark.sparkContext._gateway.proc.pid).children(recursive=True)
    return []


def python_workers(spark: Any) -> list[psutil.Process]:
    """Spark's Python workers: the children of its daemons."""
    found = []
    for process in jvm_children(spark):
        with contextlib.suppress(psutil.Error):
            parent = process.parent()
            if parent is not None and "pyspark.daemon" in " ".join(parent.cmdline()) and "python" in process.name():
                found.append(process)
    return found


class Trial:
    """One job fed by Spark, in a thread, while the caller does harm."""

    def __init__(self, jet: Any, source: Any) -> None:
        from shmjet import Pipeline, sinks

        self.results = sinks.collect()
        pipeline = Pipeline()
        pipeline.read_from(source).map_batches(checksum).write_to(self.results)
        self.execution = jet.new_job(pipeline).execute()

    def sums(self, timeout: float) -> tuple[int, int]:
        """The rows that arrived, and the sum of their ids."""
        with self.results:
            self.execution.result(timeout)
            every = [row for batch in self.results for row in batch.tuples()]
        return sum(row[0] for row in every), sum(row[1] for row in every)


def checksum(batch: Any) -> dict[str, list[int]]:
    """How many rows, and the sum of the first column."""
    name = batch.names[0]
    return {"rows": [batch.num_rows], "sum": [int(batch[name].sum())]}


def harmed(
    trial: Trial, harm: Callable[[], bool], chance: random.Random, rows: int, most: int, faults: Faults, what: str
) -> int:
    """Do harm at random moments until the job ends; returns how often. Notes what is wrong in `faults`."""
    done = 0
    while not trial.execution.done() and done < most:
        time.sleep(chance.uniform(0.05, 0.6))
        if not trial.execution.done():
            done += harm()
    try:
        found = trial.sums(LONGEST_S)
    except TimeoutError:
        trial.execution.cancel()
        faults.append(f"{what}: hung")
    except Exception as error:
        faults.append(f"{what}: failed: {error}")
    else:
        if found != (rows, rows * (rows - 1) // 2):
            faults.append(f"{what}: {found[0]} rows with sum {found[1]} instead of {rows}")
    return done


def slow_rows(spark: Any, rows: int, partitions: int, direct: bool) -> Any:
    """Rows that Python makes one by one, so that a partition takes its time; the same ones again each time.

    An RDD, which Python workers feed, or a DataFrame, which Spark's JVM does.
    """
    numbers = spark.sparkContext.range(0, rows, 1, partitions)
    return numbers.map(lambda n: (n,)).toDF("n long") if direct else numbers.map(lambda n: n)


def workers(options: Options, spark: Any, jet: Any, chance: random.Random, faults: Faults) -> None:
    """Kill Python workers."""
    from shmjet.spark import source

    rows = 1_000_000 if options.ci else 4_000_000
    for number in range(options.count):
        deterministic = number % 2 == 1
        frame = slow_rows(spark, rows, 6, direct=number % 4 in (0, 3))
        feed = source(frame, columns=["n"], batch_rows=5000, deterministic=deterministic)

        def kill() -> bool:
            found = python_workers(spark)
            if found:
                with contextlib.suppress(psutil.Error):
                    chance.choice(found).kill()
            return bool(found)

        done = harmed(Trial(jet, feed), kill, chance, rows, 4, faults, f"workers {number}")
        options.say(f"workers {number}: {done} killed, deterministic={deterministic}")


def shuffle(options: Options, spark: Any, jet: Any, chance: random.Random, faults: Faults, folder: Path) -> None:
    """Delete shuffle files while they are read."""
    from shmjet.spark import source

    rows = 200_000 if options.ci else 1_000_000
    for number in range(options.count):
        shuffled = spark.range(0, rows, 1, 6).withColumnRenamed("id", "n").repartition(8, "n")
        rdd = shuffled.rdd.map(lambda row: row[0])
        feed = source(shuffled if number % 2 == 0 else rdd, columns=["n"], batch_rows=1000)

        def lose() -> bool:
            files = list(folder.glob("**/shuffle_*.data"))
            for file in chance.sample(files, min(3, len(files))):
                with contextlib.suppress(OSError):
                    file.unlink()
            return bool(files)

        done = harmed(Trial(jet, feed), lose, chance, rows, 2, faults, f"shuffle {number}")
        options.say(f"shuffle {number}: files lost {done} times")


def many(options: Options, spark: Any, jet: Any, faults: Faults) -> None:
    """Very many partitions."""
    from shmjet.spark import source

    rows, partitions = 100_000, 2_000 if options.ci else 10_000
    harmed(Trial(jet, source(spark.range(0, rows, 1, partitions))), bool, random.Random(0), rows, 0, faults, "many")


def slow(options: Options, spark: Any, jet: Any, faults: Faults) -> None:
    """A consumer that pauses."""
    from shmjet import Pipeline, sinks
    from shmjet.spark import source

    pause, rows = 5.0 if options.ci else 200.0, 4_000_000
    begun = time.monotonic()

    def wait(batch: Any) -> dict[str, list[int]]:
        time.sleep(max(0.0, begun + pause - time.monotonic()))
        return checksum(batch)

    pipeline, results = Pipeline(), sinks.collect()
    pipeline.read_from(source(spark.range(0, rows, 1, 64), memory=4 << 20)).map_batches(wait).write_to(results)
    with results:
        jet.new_job(pipeline).run(pause + LONGEST_S)
        found = sum(row[0] for batch in results for row in batch.tuples())
    if found != rows:
        faults.append(f"slow: {found} rows instead of {rows}")


def cancel(options: Options, spark: Any, jet: Any, chance: random.Random, faults: Faults) -> None:
    """End one side at a random moment; the other must follow."""
    from shmjet import JobFailedError
    from shmjet.spark import source

    tracker, bound = spark.sparkContext.statusTracker(), END_S * options.slack
    for number in range(2 * options.count):
        trial = Trial(jet, source(spark.range(0, 10**12, 1, 4), deterministic=number % 2 == 0, memory=8 << 20))
        time.sleep(chance.uniform(0, 1.0))
        ours = number % 4 < 2
        if not ours:
            deadline = time.monotonic() + HANG_S
            while not tracker.getActiveJobsIds() and time.monotonic() < deadline:
                time.sleep(0.01)
        begun = time.monotonic()
        trial.execution.cancel() if ours else spark.sparkContext.cancelAllJobs()
        try:
            with contextlib.suppress(CancelledError, JobFailedError):
                trial.execution.result(HANG_S)
            while tracker.getActiveJobsIds() and time.monotonic() < begun + HANG_S:
                time.sleep(0.01)
        except TimeoutError:
            faults.append(f"cancel {number}: the job hung")
        took = time.monotonic() - begun
        options.say(f"cancel {number}: {'job' if ours else 'Spark'} first, {took:.2f} s")
        if took > bound * (slowness() if options.slack > 1 else 1.0):
            faults.append(f"cancel {number}: took {took:.1f} s, the target is {bound:.0f} s")
        trial.results.close()


def executor(options: Options, folder: Path, jet: Any, chance: random.Random, faults: Faults) -> None:
    """Kill an executor of a cluster on this host."""
    from shmjet.spark import source

    with spark_session("local-cluster[2,1,1024]", folder) as spark:
        rows = 400_000 if options.ci else 2_000_000
        for number in range(max(1, options.count // 2)):
            frame = slow_rows(spark, rows, 6, direct=number % 4 in (0, 3))
            feed = source(frame, columns=["n"], batch_rows=5000, deterministic=number % 2 == 1)

            def kill() -> bool:
                found = [p for p in jvm_children(spark) if "CoarseGrainedExecutorBackend" in " ".join(_command(p))]
                if found:
                    os.kill(chance.choice(found).pid, signal.SIGKILL)
                return bool(found)

            done = harmed(Trial(jet, feed), kill, chance, rows, 1, faults, f"executor {number}")
            options.say(f"executor {number}: {done} killed")


def limits(options: Options, folder: Path, jet: Any, faults: Faults) -> None:
    """Settings that would kill a worker that waits, or that maps the job's memory."""
    from shmjet import ConfigError
    from shmjet.spark import source

    memory, rows = "spark.executor.pyspark.memory", 400_000
    for master, settings, works in (
        ("local[2]", {memory: "640m"}, True),
        ("local[2]", {memory: "600m"}, False),
        ("local-cluster[1,2,1024]", {memory: "1280m", "spark.executor.cores": "2"}, True),
        ("local-cluster[1,2,1024]", {memory: "1100m", "spark.executor.cores": "2"}, False),
        (
            "local[2]",
            {"spark.python.worker.killOnIdleTimeout": "true", "spark.python.worker.idleTimeoutSeconds": "3s"},
            False,
        ),
    ):
        what = f"limits {master} {settings}"
        with spark_session(master, folder, settings) as spark:
            feed = source(spark.sparkContext.range(0, rows, 1, 4), columns=["n"], memory=256 << 20)
            try:
                found = Trial(jet, feed).sums(LONGEST_S)
            except ConfigError as error:
                options.say(f"{what}: {error}")
                if works:
                    faults.append(f"{what}: refused: {error}")
            else:
                options.say(f"{what}: {found[0]} rows")
                if not works or found != (rows, rows * (rows - 1) // 2):
                    faults.append(f"{what}: {found[0]} rows")


def _command(process: psutil.Process) -> list[str]:
    with contextlib.suppress(psutil.Error):
        return process.cmdline()
    return []


def main() -> int:
    options = parse_options(__doc__, count=12, ci=2, parts=PARTS)
    if find_spec("pyspark") is None or (shutil.which("java") is None and not os.environ.get("JAVA_HOME")):
        print("spark_faults: skipped: PySpark or Java is missing")
        return 0
    import shmjet

    chance, faults = random.Random(options.seed), Faults()
    begun = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="shmjet-stress-"))
    try:
        with shmjet.new_instance(shmjet.JetConfig(cores=2)) as jet:
            if any(options.wants(part) for part in PARTS if part not in OWN_SESSION):
                with spark_session("local[2,20]", folder) as spark:
                    if options.wants("workers"):
                        workers(options, spark, jet, chance, faults)
                    if options.wants("shuffle"):
                        shuffle(options, spark, jet, chance, faults, folder)
                    if options.wants("many"):
                        many(options, spark, jet, faults)
                    if options.wants("slow"):
                        slow(options, spark, jet, faults)
                    if options.wants("cancel"):
                        cancel(options, spark, jet, chance, faults)
            if options.wants("executor"):
                executor(options, folder, jet, chance, faults)
            if options.wants("limits") and not options.ci:
                limits(options, folder, jet, faults)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    left = [thread.name for thread in threading.enumerate() if thread.name.startswith("shmjet")]
    faults += [f"thread {name} is left" for name in left]
    print(f"spark_faults: seed {options.seed}, {time.monotonic() - begun:.0f} s, {len(faults)} faults")
    for fault in faults:
        print(f"  {fault}")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
