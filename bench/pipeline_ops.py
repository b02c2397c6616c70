"""Operations behind pipelines, as DAGs by hand: counting by key, and sorting in memory and beyond it.

`keyed_count`: ints uniform over a million keys are counted as items, in two stages, into a list of the instance. Peers:
a loop over a dict in one process (target: 0.9 times the number of workers), and PySpark's `reduceByKey` (target: 6).

`sort_ints`: ints are sorted by all workers and merged into one stream. Peer: PySpark's `sortBy`, which leaves them in
partitions; the result is not kept, and only the first run's order is looked at. Target: 5.

`sort_lines`: the lines of a file, three times as large as the memory that the sort may use, are sorted into another.
Peer: GNU sort with as many threads and as much memory. Target: 0.5.

Ints come from arrays in files of the page cache, which all turn into Python ints. Results are checked.
"""

from __future__ import annotations

import operator
import os
import shutil
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from _harness import Bench, Options, PeerSkipped, Report, Result, elapsed, parse_options
from _spark import local_session

import shmjet
from shmjet import DAG, AbstractProcessor, JetConfig, JetInstance, aggregate_ops, between, processors

BENCHES = ("keyed_count", "sort_ints", "sort_lines")
KEYS = 1_000_000
ITEMS = {"keyed_count": 20_000_000, "sort_ints": 10_000_000}
QUICK_ITEMS = {"keyed_count": 4_000_000, "sort_ints": 2_000_000}
LINES, QUICK_LINES = 6_000_000, 1_500_000
PIECE = 8192


def pieces(path: str, index: int, total: int) -> Iterator[list[int]]:
    """Give a share of a file's ints, as lists."""
    numbers = np.load(path, mmap_mode="r").view(np.ndarray)
    count = len(numbers)
    stop = count * (index + 1) // total
    for at in range(count * index // total, stop, PIECE):
        yield numbers[at : min(at + PIECE, stop)].tolist()


def source(path: str) -> Any:
    """A source of a file's ints."""
    return processors.generate(lambda index, total: chain.from_iterable(pieces(path, index, total)))


def random_ints(folder: Path, name: str, most: int, count: int) -> str:
    """Write ints, uniform below `most`, and return the file's path."""
    path = str(folder / f"{name}.npy")
    np.save(path, np.random.default_rng(20_26).integers(0, most, count))
    return path


# -- counting ----------------------------------------------------------------------------------------------------------


def keyed_count(options: Options, jet: JetInstance, session: Any, folder: Path) -> Result:
    """Count a million keys."""
    items = (QUICK_ITEMS if options.quick else ITEMS)["keyed_count"]
    path = random_ints(folder, "keys", KEYS, items)
    expected = len(np.unique(np.load(path)))
    counting = aggregate_ops.counting()
    dag = DAG()
    ints = dag.new_vertex("ints", source(path))
    partial = dag.new_vertex("accumulate", processors.accumulate_by_key(None, counting))
    total = dag.new_vertex("combine", processors.combine_by_key(counting))
    sink = dag.new_vertex("sink", processors.write_list("counts"))
    dag.edge(between(ints, partial).isolated()).edge(between(total, sink))
    dag.edge(between(partial, total).partitioned(operator.itemgetter(0)))
    counts = jet.get_list("counts")

    def check(found: list[tuple[int, int]]) -> None:
        if (len(found), sum(count for _, count in found)) != (expected, items):
            raise AssertionError(f"counted {len(found)} keys, expected {expected}")

    def ours() -> float:
        counts.clear()
        seconds = elapsed(lambda: jet.new_job(dag).run(600))
        check(list(counts))
        return items / seconds

    def in_one_process() -> float:
        table: dict[int, int] = {}

        def run() -> None:
            get = table.get
            for key in chain.from_iterable(pieces(path, 0, 1)):
                table[key] = get(key, 0) + 1

        seconds = elapsed(run)
        check(list(table.items()))
        return items / seconds

    def spark() -> float:
        slices = 2 * options.workers
        rdd = session.sparkContext.parallelize(range(slices), slices)
        ones = rdd.flatMap(lambda i: ((key, 1) for key in chain.from_iterable(pieces(path, i, slices))))
        found: list[int] = []
        seconds = elapsed(lambda: found.append(ones.reduceByKey(operator.add).count()))
        if found != [expected]:
            raise AssertionError(f"Spark counted {found} keys, expected {expected}")
        return items / seconds

    with Bench("keyed_count", "items/s") as bench:
        bench.facts = {"items": items, "keys": expected, "workers": options.workers}
        bench.ours(ours)
        if options.wants_peer("dict"):
            bench.peer("dict", in_one_process)
        add_spark(bench, session, spark)
        result = bench.measure(rounds=options.rounds)
    if "dict" in result.ratio:
        bench.facts["ratio to dict / workers (target 0.9)"] = round(result.ratio["dict"] / options.workers, 3)
    return result


def add_spark(bench: Bench, session: Any, run: Any) -> None:
    """Let PySpark take part, or say why not."""
    if isinstance(session, PeerSkipped):
        bench.skip("pyspark_rdd", str(session))
    else:
        bench.peer("pyspark_rdd", run)


# -- sorting -----------------------------------------------------------------------------------------------------------


class CheckOrder(AbstractProcessor):
    """Takes sorted ints; fails when they are not as many as there should be or, if it looks, not in order."""

    def __init__(self, expected: int, looks: bool) -> None:
        self._left = expected
        self._looks = looks
        self._last: list[int] = []

    def process(self, ordinal: int, inbox: Any) -> None:
        items = inbox.take()
        self._left -= len(items)
        if self._looks:
            items = self._last + items
            if any(map(operator.gt, items, items[1:])):
                raise AssertionError("out of order")
            self._last = items[-1:]

    def complete(self) -> bool:
        if self._left:
            raise AssertionError(f"{self._left} items are missing")
        return True


def sort_ints(options: Options, jet: JetInstance, session: Any, folder: Path) -> Result:
    """Sort ints into one stream."""
    items = (QUICK_ITEMS if options.quick else ITEMS)["sort_ints"]
    path = random_ints(folder, "ints", 1 << 40, items)

    def sorting(looks: bool) -> DAG:
        dag = DAG()
        ints, sort = dag.new_vertex("ints", source(path)), dag.new_vertex("sort", processors.sort())
        check = dag.new_vertex("check", lambda: CheckOrder(items, looks), 1)
        return dag.edge(between(ints, sort).isolated()).edge(between(sort, check).ordered())

    def spark() -> float:
        slices = 2 * options.workers
        rdd = session.sparkContext.parallelize(range(slices), slices)
        ints = rdd.flatMap(lambda i: chain.from_iterable(pieces(path, i, slices)))
        done = ints.sortBy(lambda item: item).foreachPartition
        return items / elapsed(lambda: done(lambda found: deque(found, 0)))

    with Bench("sort_ints", "items/s") as bench:
        bench.facts = {"items": items, "workers": options.workers}
        jet.new_job(sorting(looks=True)).run(600)
        bench.ours(lambda: items / elapsed(lambda: jet.new_job(sorting(looks=False)).run(600)))
        add_spark(bench, session, spark)
        return bench.measure(rounds=options.rounds)


def text_file(folder: Path, lines: int) -> Path:
    """Write lines of a random number and a few words."""
    path = folder / "lines.txt"
    numbers = np.random.default_rng(20_26).integers(0, 1 << 40, lines).tolist()
    with path.open("w") as file:
        file.writelines(f"{number:x} the quick brown fox jumps over the lazy dog\n" for number in numbers)
    return path


def sort_lines(options: Options, jet: JetInstance, folder: Path) -> Result:
    """Sort a file that is larger than memory may be."""
    lines = QUICK_LINES if options.quick else LINES
    path = text_file(folder, lines)
    memory = path.stat().st_size // 3
    results = folder / "results"
    dag = DAG()
    read = dag.new_vertex("read", processors.read_files(str(path)))
    sort = dag.new_vertex("sort", processors.sort(memory_limit=memory // options.workers, folder=str(folder)))
    write = dag.new_vertex("write", processors.write_files(str(results)), 1)
    dag.edge(between(read, sort).isolated()).edge(between(sort, write).ordered())

    def ours() -> float:
        shutil.rmtree(results, ignore_errors=True)
        return lines / elapsed(lambda: jet.new_job(dag).run(600))

    def gnu() -> float:
        command = ["sort", f"--parallel={options.workers}", f"-S{memory // 1024}k", "-T", str(folder), "-o"]
        command += [str(folder / "gnu.txt"), str(path)]
        return lines / elapsed(lambda: subprocess.run(command, check=True, env={**os.environ, "LC_ALL": "C"}))

    with Bench("sort_lines", "lines/s") as bench:
        bench.facts = {
            "text": f"{path.stat().st_size / 1e6:.0f} MB, memory {memory / 1e6:.0f} MB",
            "workers": options.workers,
        }
        bench.ours(ours)
        if shutil.which("sort") is None:
            bench.skip("gnu_sort", "there is no sort")
        elif options.wants_peer("gnu_sort"):
            bench.peer("gnu_sort", gnu)
        result = bench.measure(rounds=options.rounds)
    if "gnu_sort" in result.peers:
        (found,) = results.iterdir()
        if subprocess.run(["cmp", str(found), str(folder / "gnu.txt")], check=False).returncode:
            raise AssertionError("the files differ")
    return result


def main() -> int:
    options = parse_options(__doc__, BENCHES)
    report = Report(options)
    with (
        tempfile.TemporaryDirectory() as folder,
        shmjet.new_instance(JetConfig(cores=options.workers)) as jet,
    ):
        if options.wants("sort_lines"):
            report.add(sort_lines(options, jet, Path(folder)))
        wanted = {"keyed_count": keyed_count, "sort_ints": sort_ints}
        wanted = {name: measure for name, measure in wanted.items() if options.wants(name)}
        if wanted:
            try:
                with local_session(options, "pyspark_rdd") as session:
                    for measure in wanted.values():
                        report.add(measure(options, jet, session, Path(folder)))
            except PeerSkipped as reason:
                for measure in wanted.values():
                    report.add(measure(options, jet, reason, Path(folder)))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
