"""From a fresh interpreter to the first result with P workers, compared with loky and PySpark.

Every run executes a new Python process that imports the library, starts P workers (`--workers`, 2 by default here), has
a function called on P numbers by them, and prints the results. The clock runs from executing the process until its
line of output is here; what it takes to end is not in it. The files are in the page cache, and so is byte code: an
interpreter that is told to write none would compile a checkout anew each time, but not what pip has installed.

Targets: at most 1.2 times loky's time (a ratio of 0.83) and a twentieth of PySpark's (a ratio of 20).
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

from _harness import Bench, Options, PeerSkipped, Report, parse_options

TARGET = "ratio >= 0.83 to loky, >= 20 to pyspark"

SHMJET = """
import sys
import shmjet
from shmjet import DAG, JetConfig, between, processors

workers = int(sys.argv[1])
with shmjet.new_instance(JetConfig(cores=workers)) as jet:
    dag = DAG()
    source = dag.new_vertex("source", processors.read_items(range(workers)))
    square = dag.new_vertex("square", processors.map(lambda n: n * n))
    sink = dag.new_vertex("sink", processors.write_list("squares"), local_parallelism=1)
    dag.edge(between(source, square)).edge(between(square, sink))
    jet.new_job(dag).run()
    print(sorted(jet.get_list("squares")), flush=True)
"""

LOKY = """
import sys
from loky import get_reusable_executor

workers = int(sys.argv[1])
executor = get_reusable_executor(max_workers=workers)
print(list(executor.map(lambda n: n * n, range(workers))), flush=True)
executor.shutdown()
"""

PYSPARK = """
import sys
from pyspark.sql import SparkSession

workers = int(sys.argv[1])
builder = SparkSession.builder.master(f"local[{workers}]").config("spark.ui.enabled", "false")
session = builder.config("spark.driver.host", "127.0.0.1").config("spark.log.level", "ERROR").getOrCreate()
print(session.sparkContext.parallelize(range(workers), workers).map(lambda n: n * n).collect(), flush=True)
session.stop()
"""


def first_result(program: str, workers: int) -> float:
    """Seconds from executing a fresh interpreter to its first line of output.

    Raises:
        PeerSkipped: it did not print what it should.
    """
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    start = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-c", program, str(workers)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        seconds = time.perf_counter() - start
        _, messages = process.communicate(timeout=60)
    if line.strip() != str([n * n for n in range(workers)]):
        raise PeerSkipped((messages.strip().splitlines() or ["no result"])[-1])
    return seconds


def startup(options: Options, report: Report) -> None:
    """All contenders."""
    workers = 2 if options.workers < 2 else options.workers
    with Bench("startup", "s") as bench:
        bench.facts = {"target": TARGET, "workers": workers}
        bench.ours(lambda: first_result(SHMJET, workers))
        if options.wants_peer("loky"):
            bench.peer("loky", lambda: first_result(LOKY, workers), needs="loky")
        if options.wants_peer("pyspark"):
            bench.peer("pyspark", lambda: first_result(PYSPARK, workers), needs="pyspark")
        report.add(bench.measure(rounds=options.rounds if options.quick else 2 * options.rounds + 1))


def main() -> int:
    options = parse_options(__doc__, ["startup"])
    report = Report(options)
    if options.wants("startup"):
        startup(options, report)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
