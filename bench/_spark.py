"""A local Spark session for the benches in which PySpark is a peer."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil
from _harness import Options, PeerSkipped, installed


@contextmanager
def local_session(options: Options, *peers: str) -> Iterator[Any]:
    """A quiet `local[n]` session of PySpark, stopped at the end, JVM included.

    Raises:
        PeerSkipped: all `peers`, if there are any, were left out on the command line; PySpark or Java is not installed.
    """
    if peers and not any(map(options.wants_peer, peers)):
        raise PeerSkipped("left out")
    if not installed("pyspark"):
        raise PeerSkipped("pyspark is not installed")
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        raise PeerSkipped("no java")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    workers = options.workers
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = (
        SparkSession.builder.master(f"local[{workers}]")
        .appName("shmjet-bench")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "4g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.default.parallelism", 2 * workers)
        .config("spark.sql.shuffle.partitions", 2 * workers)
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
    )
    with _silent_stderr():
        session = builder.getOrCreate()
    gateway: Any = session.sparkContext._gateway
    try:
        yield session
    finally:
        session.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(20)
        # Another session of this process must start a JVM of its own.
        type(session.sparkContext)._gateway = None
        type(session.sparkContext)._jvm = None


def cpu_seconds() -> float:
    """CPU time that this process and all below it have used, ended processes included."""
    this = psutil.Process()
    total = 0.0
    for process in (this, *this.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


@contextmanager
def _silent_stderr() -> Iterator[None]:
    """The JVM started meanwhile keeps its chatter to itself."""
    sys.stderr.flush()
    before = os.dup(2)
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 2)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)
        os.close(silence)
