"""A Spark cluster on hosts of their own feeds a job here: its tasks come in over TCP, and every row arrives once.

A master of Spark runs next to the driver, a worker of it on each of two hosts, which are network namespaces with a
memory file system and an identity of their own. `rows`: partitions arrive whole, at once or when they have won.
`kill`: an executor is killed -9 meanwhile. `cancel`: the job is cancelled, and Spark's must end within 3 s. Needs
root, PySpark and Java; says so and exits with 0 where one is missing. Takes a minute, and is left out with `--ci`.
"""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
from _stress import HANG_S, ROOT, Options, Tally, parse_options
from spark_faults import END_S, LONGEST_S, Faults, Trial, harmed, spark_session

PARTS = ("rows", "kill", "cancel")
PORT = 17077
ROWS = 4_000_000

WORKER = """
mount --bind {identity} /proc/sys/kernel/random/boot_id && mount -t tmpfs none /dev/shm && exec {spark_class} \
org.apache.spark.deploy.worker.Worker spark://{master}:{port} -h {ip} -c 1 -m 1g --webui-port 0 -d {folder}
"""


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """Start a master and two workers; yield the master's address."""
    import pyspark

    from tests.cluster.hosts import Hosts

    os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
    spark_class = f"{os.environ['SPARK_HOME']}/bin/spark-class"
    started: list[subprocess.Popen[bytes]] = []
    with Hosts(2) as hosts:
        here = f"{hosts.hosts[0].ip.rpartition('.')[0]}.254"

        def start(command: list[str], ip: str) -> None:
            with open(folder / f"{ip}.log", "wb") as log:
                environment = {**os.environ, "SPARK_LOCAL_IP": ip, "PYTHONPATH": str(ROOT)}
                started.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))

        try:
            start(
                [
                    spark_class,
                    "org.apache.spark.deploy.master.Master",
                    "-h",
                    here,
                    "-p",
                    str(PORT),
                    "--webui-port",
                    "0",
                ],
                here,
            )
            for host in hosts.hosts:
                identity = folder / f"{host.name}.id"
                identity.write_text(f"{host.name}\n")
                script = WORKER.format(
                    identity=identity, spark_class=spark_class, master=here, port=PORT, ip=host.ip, folder=folder
                )
                start(["ip", "netns", "exec", host.name, "unshare", "-m", "sh", "-c", script], host.ip)
            yield here
        finally:
            for process in started:
                process.terminate()
            for process in started:
                process.wait(HANG_S)


def executors(started_by: int) -> list[psutil.Process]:
    """The executors' JVMs: grandchildren of this process."""
    found = []
    for process in psutil.Process(started_by).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if "CoarseGrainedExecutorBackend" in " ".join(process.cmdline()):
                found.append(process)
    return found


def run(options: Options, spark: Any, jet: Any, faults: Faults) -> None:
    """Do all parts."""
    from shmjet.spark import source
    from shmjet.spark.links import host_id

    chance = random.Random(options.seed)
    where = spark.sparkContext.range(0, 40, 1, 8).mapPartitions(lambda _: [host_id()]).collect()
    options.say(f"executors on {sorted(set(where))}, the job on {host_id()}")
    if host_id() in where:
        faults.append("an executor is on this host")
    for number in range(options.count):
        deterministic = number % 2 == 1
        if options.wants("rows"):
            begun = time.monotonic()
            trial = Trial(jet, source(spark.range(0, ROWS, 1, 8), deterministic=deterministic))
            harmed(trial, bool, chance, ROWS, 0, faults, f"rows {number}")
            options.say(f"rows {number}: {ROWS / 1e6 / (time.monotonic() - begun):.1f} million rows a second")
        if options.wants("kill"):
            slow = spark.sparkContext.range(0, ROWS // 4, 1, 6).map(lambda n: n)
            trial = Trial(jet, source(slow, columns=["n"], batch_rows=5000, deterministic=deterministic))

            def kill() -> bool:
                found = executors(os.getpid())
                if found:
                    chance.choice(found).kill()
                return bool(found)

            done = harmed(trial, kill, chance, ROWS // 4, 1, faults, f"kill {number}")
            options.say(f"kill {number}: {done} killed")
        if options.wants("cancel"):
            cancel(options, spark, jet, faults, number)


def cancel(options: Options, spark: Any, jet: Any, faults: Faults, number: int) -> None:
    """Cancel the job; Spark's must follow."""
    from shmjet.spark import source

    tracker = spark.sparkContext.statusTracker()
    trial = Trial(jet, source(spark.range(0, 10**12, 1, 4), deterministic=number % 2 == 1, memory=8 << 20))
    deadline = time.monotonic() + HANG_S
    while not tracker.getActiveJobsIds() and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(1)
    begun = time.monotonic()
    trial.execution.cancel()
    with contextlib.suppress(CancelledError):
        trial.execution.result(LONGEST_S)
    while tracker.getActiveJobsIds() and time.monotonic() < begun + HANG_S:
        time.sleep(0.01)
    took = time.monotonic() - begun
    options.say(f"cancel {number}: {took:.2f} s")
    if took > END_S * options.slack:
        faults.append(f"cancel {number}: took {took:.1f} s")
    trial.results.close()


def main() -> int:
    options = parse_options(__doc__, count=2, ci=0, parts=PARTS)
    from tests.cluster.hosts import why_not

    reason = "it is left out with --ci" if options.ci else why_not()
    if find_spec("pyspark") is None:
        reason = "pyspark is not installed"
    if reason:
        print(f"spark_hosts: skipped: {reason}")
        return 0
    import shmjet

    tally = Tally("spark_hosts", options)
    faults = Faults()
    with tempfile.TemporaryDirectory(prefix="shmjet-stress-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        with cluster(folder) as here:
            settings = {
                "spark.driver.host": here,
                "spark.driver.bindAddress": here,
                "spark.executor.memory": "512m",
                "spark.sql.warehouse.dir": str(folder / "warehouse"),
            }
            with (
                spark_session(f"spark://{here}:{PORT}", folder, settings) as spark,
                shmjet.new_instance(shmjet.JetConfig(cores=2)) as jet,
            ):
                run(options, spark, jet, faults)
    tally.done = options.count
    for fault in faults:
        tally.complain(fault)
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
