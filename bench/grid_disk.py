"""Maps on disk: puts that wait for the disk, from many writers, and bringing a store back.

`group_commit`: threads put single entries into a map of an instance with `storage_sync=0`, and each put is on disk when
it returns; the peer is sqlite3 with `synchronous=FULL` and a journal of changes, in which each thread has a connection
and commits each row. Puts a second of all writers together. `behind` is the same without waiting (`storage_sync=0.01`).

`restart`: seconds to start an instance whose storage has a map of 1 GB (100 MB with `--quick`), less those of one with
an empty storage; the peer copies the files of the storage. 64 KiB values of random bytes, none in a file of its own.

With `SHMJET_BENCH_SYNC_MS=5` in the environment each sync of a file takes 5 ms longer, for both: how a slower disk
would do. That needs a C compiler.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from _harness import Bench, Options, Report, parse_options

import shmjet

BENCHES = ("group_commit", "behind", "restart")
WRITERS = 64


def rate(seconds: float, puts: list[Callable[[int], None]]) -> float:
    """Return how often a second functions could be called by a thread each, which call them all the time."""
    counts, over = [0] * len(puts), threading.Event()

    def work(index: int) -> None:
        while not over.is_set():
            puts[index](counts[index])
            counts[index] += 1

    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(puts))]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    over.set()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.perf_counter() - began)


class Sqlite:
    """A table of keys and values, a connection for each thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._own = threading.local()
        with sqlite3.connect(path) as made:
            made.execute("PRAGMA journal_mode=WAL")
            made.execute("CREATE TABLE entries (key INTEGER PRIMARY KEY, value INTEGER)")

    def put(self, key: int, value: int) -> None:
        """Store a row and commit it."""
        connection = getattr(self._own, "connection", None)
        if connection is None:
            connection = self._own.connection = sqlite3.connect(self._path, timeout=60, isolation_level=None)
            connection.execute("PRAGMA synchronous=FULL")
        connection.execute("INSERT OR REPLACE INTO entries VALUES (?, ?)", (key, value))


def group_commit(name: str, sync: float, folder: Path, options: Options, report: Report) -> None:
    """Measure single puts of many threads."""
    seconds = 1.0 if options.quick else 4.0
    config = shmjet.JetConfig(cores=options.workers, storage=str(folder / name), storage_sync=sync)
    with shmjet.new_instance(config) as jet, Bench(name, "puts/s") as bench:
        bench.facts["writers"], bench.facts["ms a sync"] = WRITERS, round(sync_ms(folder), 2)
        entries = jet.get_map("entries")
        bench.ours(lambda: rate(seconds, [partial(entries.__setitem__, key) for key in range(WRITERS)]))
        table = Sqlite(folder / f"{name}.sqlite")
        bench.peer("sqlite3 (FULL)", lambda: rate(seconds, [partial(table.put, key) for key in range(WRITERS)]))
        report.add(bench.measure(rounds=options.rounds))


def restart(folder: Path, options: Options, report: Report) -> None:
    """Measure bringing a store back, compared with copying its files."""
    size = (100 if options.quick else 1000) << 20
    full, empty = folder / "full", folder / "empty"

    def started(storage: Path) -> float:
        began = time.perf_counter()
        with shmjet.new_instance(shmjet.JetConfig(cores=options.workers, storage=str(storage))):
            return time.perf_counter() - began

    with shmjet.new_instance(shmjet.JetConfig(cores=options.workers, storage=str(full))) as jet:
        entries = jet.get_map("entries")
        for at in range(0, size >> 16, 256):
            entries.update({key: os.urandom((1 << 16) - 64) for key in range(at, min(at + 256, size >> 16))})
    started(full)

    def copy() -> float:
        began = time.perf_counter()
        shutil.copytree(full, folder / "copy")
        took = time.perf_counter() - began
        shutil.rmtree(folder / "copy")
        return took

    with Bench("restart", "s") as bench:
        bench.facts["MB"] = size >> 20
        bench.ours(lambda: started(full) - started(empty))
        bench.peer("cp", copy)
        report.add(bench.measure(rounds=options.rounds))


def slow_down() -> None:
    """Start the bench anew with a library that makes syncs slower, if that is asked for and not done yet."""
    if not os.environ.get("SHMJET_BENCH_SYNC_MS") or "_slow_sync" in os.environ.get("LD_PRELOAD", ""):
        return
    library = Path(__file__).parent / "data" / "_slow_sync.so"
    library.parent.mkdir(exist_ok=True)
    compiler = (sysconfig.get_config_var("CC") or "cc").split()
    source = Path(__file__).with_name("_slow_sync.c")
    subprocess.run([*compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    environment = {**os.environ, "LD_PRELOAD": str(library)}
    os.execve(sys.executable, [sys.executable, *sys.argv], environment)


def sync_ms(folder: Path) -> float:
    """Return how many milliseconds a sync of a few appended bytes takes here."""
    with (folder / "probe").open("wb", buffering=0) as file:
        began = time.perf_counter()
        for _ in range(20):
            file.write(b"x" * 100)
            os.fdatasync(file.fileno())
        return (time.perf_counter() - began) / 20 * 1e3


def main() -> int:
    """Run the benches asked for."""
    slow_down()
    options = parse_options(__doc__, benches=BENCHES)
    report = Report(options)
    data = Path(__file__).parent / "data"
    data.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=data) as name:
        folder = Path(name)
        if options.wants("group_commit"):
            group_commit("group_commit", 0.0, folder, options, report)
        if options.wants("behind"):
            group_commit("behind", 0.01, folder, options, report)
        if options.wants("restart"):
            restart(folder, options, report)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
