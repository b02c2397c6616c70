"""Random pipelines on a Spark cluster of two executors: Spark makes of them what an interpreter over lists does.

Each pipeline has one or two sources and up to eight stages of any kind, forks, joins and tables (`tests/pipeline`). It
runs on `local-cluster[2,1,1024]`, so that items cross between JVMs and between hosts that share nothing but files.
While every fourth runs, a Python worker is killed: Spark does its tasks again, and the result is the same. Before that,
services have to be made once in each process, and closed.

Needs PySpark and Java 17; without them it says so and ends well.

Usage: stress/spark_pipelines.py [--count N] [--seed S] [--ci]     (--ci: a few pipelines, under a minute)
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from _stress import ROOT, Options, Tally, parse_options

MASTER = "local-cluster[2,1,1024]"
KILLS = 0.25
"""How often a worker is killed while a pipeline runs."""


def session(folder: Path) -> Any:
    """Start Spark with two executors."""
    import pyspark
    from pyspark.sql import SparkSession

    os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return (
        SparkSession.builder.master(MASTER)
        .appName("shmjet-stress")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.local.dir", str(folder))
        .config("spark.worker.cleanup.enabled", "true")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "OFF")
        .getOrCreate()
    )


class Killer:
    """Kills one of Spark's Python workers, if there is any, a moment after it is started."""

    def __init__(self, rng: random.Random) -> None:
        self._delay = rng.random() * 0.5
        self._rng = rng
        self.killed = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        time.sleep(self._delay)
        workers = list(python_workers())
        if workers:
            self.killed = self._rng.choice(workers)
            try:
                os.kill(self.killed, signal.SIGKILL)
            except ProcessLookupError:
                self.killed = 0

    def join(self) -> None:
        """Wait for its end."""
        self._thread.join()


def python_workers() -> Any:
    """Yield the pids of PySpark's workers below this process: children of its daemons."""
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            command = Path(f"/proc/{entry}/cmdline").read_bytes()
            status = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
            parent = Path(f"/proc/{status[1]}/cmdline").read_bytes()
        except (OSError, IndexError):
            continue
        if b"pyspark.daemon" in command and b"pyspark.daemon" in parent and is_ours(int(entry)):
            yield int(entry)


def is_ours(pid: int) -> bool:
    """Whether a process descends from this one."""
    while pid > 1:
        if pid == os.getpid():
            return True
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            return False
    return False


class Service:
    """Leaves a file for its process while it is open, and another one once it is closed."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / f"{os.getpid()}-{id(self)}.open"
        self.file.touch(exist_ok=False)

    def close(self) -> None:
        """Say so."""
        self.file.rename(self.file.with_suffix(".closed"))


def services(options: Options, tally: Tally, spark: Any, folder: Path) -> None:
    """Run a pipeline with a service in both executors: one in each process, all of them closed at the end."""
    from shmjet import Pipeline, sinks, sources

    def used(service: Service, item: int) -> tuple[int, int]:
        time.sleep(0.001)
        return os.getpid(), item if service.file.exists() else -1

    folder.mkdir()
    for number in range(2):
        p = Pipeline()
        with sinks.collect() as found:
            numbered = p.read_from(sources.items(range(400))).rebalance()
            numbered.map_using_service(lambda: Service(folder), used).write_to(found)
            p.run_on_spark(spark)
            pids, items = {pid for pid, _ in found}, sorted(item for _, item in found)
        states = [path.name.replace("-", ".").split(".") for path in folder.iterdir()]
        if items != list(range(400)):
            tally.complain(f"services {number}: wrong items")
        if sorted(int(pid) for pid, _, _ in states) != sorted(pids):
            tally.complain(f"services {number}: made in {states}, used in {pids}")
        if any(state != "closed" for _, _, state in states):
            tally.complain(f"services {number}: not closed: {states}")
        options.say(f"services {number}: {len(pids)} processes")
        for path in folder.iterdir():
            path.unlink()


def run(options: Options, tally: Tally, folder: Path) -> None:
    """Run all pipelines."""
    from hypothesis import HealthCheck, Phase, given, seed, settings

    import shmjet
    from tests.pipeline.reference import interpret
    from tests.pipeline.running import pipelines
    from tests.pipeline.test_random_pipelines import assert_same

    spark = session(folder)
    rng = random.Random(options.seed)
    services(options, tally, spark, folder / "services")
    with shmjet.new_instance(shmjet.JetConfig(cores=1)) as jet:

        @seed(options.seed)
        @settings(
            max_examples=options.count,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(pipelines())
        def one(made: Any) -> None:
            pipeline, sources = made
            expected = interpret(pipeline, sources)
            for name in expected:
                jet.get_list(name).clear()
            killer = Killer(rng) if rng.random() < KILLS else None
            start = time.perf_counter()
            try:
                pipeline.run_on_spark(spark, jet=jet)
            finally:
                if killer is not None:
                    killer.join()
            assert_same(pipeline, expected, {name: list(jet.get_list(name)) for name in expected})
            tally.done += 1
            killed = f", worker {killer.killed} killed" if killer is not None and killer.killed else ""
            options.say(f"{len(pipeline.nodes)} stages in {time.perf_counter() - start:.1f} s{killed}")

        try:
            one()
        except Exception as error:
            tally.complain(f"{type(error).__name__}: {error}")
    spark.stop()


def main() -> int:
    options = parse_options(__doc__, count=200, ci=3)
    if find_spec("pyspark") is None or find_spec("hypothesis") is None:
        print("spark_pipelines: skipped, pyspark or hypothesis is not installed")
        return 0
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        print("spark_pipelines: skipped, there is no java")
        return 0
    tally = Tally("spark_pipelines", options)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.chdir(folder)  # Spark's workers make their folders here
        run(options, tally, Path(folder))
        os.chdir(ROOT)
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
