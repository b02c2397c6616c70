"""A local Spark session for the benches in which PySpark is a peer."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from _harness import Options, PeerSkipped, installed


@contextmanager
def local_session(options: Options, *peers: str) -> Iterator[Any]:
    """A quiet `local[n]` session of PySpark, stopped at the end, JVM included.

    Raises:
        PeerSkipped: `peers` were all left out on the command line, or PySpark or Java is not installed.
    """
    if not any(map(options.wants_peer, peers)):
        raise PeerSkipped("left out")
    if not installed("pyspark"):
        raise PeerSkipped("pyspark is not installed")
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        raise PeerSkipped("no java")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    workers = options.workers
    session = (
        SparkSession.builder.master(f"local[{workers}]")
        .appName("shmjet-bench")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "4g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.default.parallelism", 2 * workers)
        .config("spark.sql.shuffle.partitions", 2 * workers)
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
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
