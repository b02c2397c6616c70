"""One SparkSession for all tests, where importing pyarrow or pandas raises; one instance for each module."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import shmjet
from shmjet import Batch, Pipeline, sinks
from tests import conftest as checks

UNWANTED = ("pandas", "pyarrow")
SHORT_LIFE = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
"""For a JVM that lives for minutes, next to other tests: compile quickly, with few threads, and trust Spark's classes.
"""

WITHOUT_ZIPS = """
import sys
sys.path[:] = [place for place in sys.path if not place.endswith((".zip", ".jar"))]
for place in [place for place in sys.path_importer_cache if place.endswith((".zip", ".jar"))]:
    del sys.path_importer_cache[place]
"""
"""Has Python in Spark import installed modules, as this process does, instead of the sources in Spark's archives: each
process would compile those anew, and read the archives' directories again for each task."""


class _Refuser:
    """An import hook under which the libraries that must not be needed cannot be imported."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name.partition(".")[0] in UNWANTED:
            raise ImportError(f"{name} must not be imported")


def why_not() -> str:
    """Return why Spark cannot be tested here, "" if it can."""
    if find_spec("pyspark") is None:
        return "pyspark is not installed (pip install pyspark)"
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        return "no java, which Spark needs (17 or later)"
    return ""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session on `local[2,4]`: two tasks at once, four tries each."""
    if reason := why_not():
        pytest.skip(reason)
    with ExitStack() as stack:
        with refused_imports():
            session = stack.enter_context(spark_session("local[2,4]", tmp_path_factory.mktemp("spark")))
        yield session


@pytest.fixture(autouse=True)
def without_pandas(request: pytest.FixtureRequest) -> Iterator[None]:
    """Refuse the unwanted libraries to tests with Spark, but not to what the same process tests next."""
    with refused_imports() if "spark" in request.fixturenames else nullcontext():
        yield


@contextmanager
def refused_imports() -> Iterator[None]:
    """Let importing pyarrow or pandas raise."""
    refuser = _Refuser()
    sys.meta_path.insert(0, refuser)
    try:
        yield
    finally:
        sys.meta_path.remove(refuser)


@contextmanager
def spark_session(master: str, folder: Path, **conf: str) -> Iterator[Any]:
    """Start a JVM with a quiet session, and end both."""
    refusing = folder / "refusing"
    refusing.mkdir()
    for name in UNWANTED:
        (refusing / f"{name}.py").write_text(f"raise ImportError('{name} must not be imported')\n")
    (refusing / "sitecustomize.py").write_text(WITHOUT_ZIPS)
    roots = [str(Path(shmjet.__file__).parents[1]), str(Path(__file__).parents[2])]  # the latter has `python_daemon`
    environment = {
        "PYTHONPATH": os.pathsep.join([str(refusing), *roots, os.environ.get("PYTHONPATH", "")]),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "TMPDIR": str(folder),
    }
    before = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    from pyspark.sql import SparkSession

    builder = (
        SparkSession.builder.master(master)
        .appName("shmjet-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", f"-Djava.io.tmpdir={folder} -Dderby.system.home={folder} {SHORT_LIFE}")
        .config("spark.local.dir", str(folder))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.session.timeZone", "Europe/Rome")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "OFF")
        .config("spark.sql.codegen.wholeStage", "false")  # to compile a query takes longer than these run
        .config("spark.python.daemon.module", "tests.spark.python_daemon")
    )
    for key, value in conf.items():
        builder = builder.config(key.replace("__", "."), value)
    with _silent_stderr():
        session = builder.getOrCreate()
    gateway: Any = session.sparkContext._gateway
    checks.EXEMPT.add(gateway.proc.pid)
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    try:
        yield session
    finally:
        session.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(60)
        checks.EXEMPT.discard(gateway.proc.pid)
        context = type(session.sparkContext)
        context._gateway = context._jvm = None


@contextmanager
def _silent_stderr() -> Iterator[None]:
    """The JVM that is started meanwhile keeps its chatter, and that of its workers, to itself."""
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


@pytest.fixture
def callbacks(spark: Any) -> Iterator[None]:
    """For tests with `foreachBatch`: ends the server, with its threads, by which the JVM calls Python."""
    from pyspark.java_gateway import ensure_callback_server_started

    gateway = spark.sparkContext._gateway
    ensure_callback_server_started(gateway)
    yield
    for connection in list(gateway._callback_server.connections):
        if connection.socket is not None:  # else the server waits for threads that wait for the JVM
            connection.socket.shutdown(socket.SHUT_RDWR)
    gateway.shutdown_callback_server()
    gateway._callback_server = None


@pytest.fixture(scope="module")
def jet() -> Iterator[shmjet.JetInstance]:
    with shmjet.new_instance(shmjet.JetConfig(cores=2)) as instance:
        yield instance


Fed = Callable[[Any], list[Any]]


@pytest.fixture
def fed(jet: shmjet.JetInstance) -> Iterator[Fed]:
    """`fed(source)` runs a job of that source alone and returns what it emitted."""
    collected = []

    def run(source: Any) -> list[Any]:
        pipeline = Pipeline()
        results = sinks.collect()
        collected.append(results)
        pipeline.read_from(source).write_to(results)
        jet.new_job(pipeline).run(timeout=120)
        return list(results)

    yield run
    for results in collected:
        results.close()


@pytest.fixture
def rows(fed: Fed) -> Fed:
    """`rows(source)` is `fed(source)` with the rows of batches as tuples, sorted."""

    def run(source: Any) -> list[Any]:
        found = fed(source)
        assert all(isinstance(item, Batch) for item in found)
        return sorted(row for batch in found for row in batch.tuples())

    return run
