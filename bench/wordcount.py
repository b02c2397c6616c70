"""Word count by a DAG of plain Python functions, compared with a warm multiprocessing.Pool with Counter and PySpark.

Two texts, written once into `bench/data` by a fixed seed: `wordcount_50k` with 50,000 distinct words and
`wordcount_500k` with 500,000, both with the frequencies of natural language (Zipf). Each program counts
`line.lower().split()` of the same file with the same number of processes, is warm (pool, JVM and instance were started
before), and ends with all counts in a dict of the parent process; only Spark may stop when they are in its cache,
since handing 500,000 rows to Python is not what it is for. All results are checked to be equal.

Peers: `pool_counter`, a warm pool that splits and counts a megabyte at once and merges in the parent;
`pool_counter_lines`, the same with the DAG's function called line by line; `pyspark_rdd` and `pyspark_dataframe`.
The unit is MB/s: 10^6 bytes of text per second.
"""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from _harness import Bench, Options, PeerSkipped, Report, parse_options
from _spark import local_session
from _words import Contestant, Counts, PoolCounter, SparkDataFrame, count_chunk, count_lines, text_file, timed

DISTINCT = {"wordcount_50k": 50_000, "wordcount_500k": 500_000}


class ShmjetDag:
    """The DAG of `shmjet wordcount`."""

    def __init__(self, path: Path, jet: Any) -> None:
        from shmjet.cli.wordcount import COUNTS, wordcount_dag

        self._jet = jet
        self._dag = wordcount_dag([str(path)])
        self._list = jet.get_list(COUNTS)
        self._counts: Counts = {}

    def clear(self) -> None:
        self._list.clear()

    def count(self) -> None:
        self._jet.new_job(self._dag).run()
        self._counts = dict(self._list)

    def fetch(self) -> Counts:
        return self._counts


class SparkRdd:
    """The textbook's RDD program."""

    def __init__(self, path: Path, session: Any) -> None:
        self._context, self._path = session.sparkContext, str(path)
        self._counts: Any = None

    def clear(self) -> None:
        if self._counts is not None:
            self._counts.unpersist(blocking=True)

    def count(self) -> None:
        words = self._context.textFile(self._path).flatMap(lambda line: line.lower().split())
        self._counts = words.map(lambda word: (word, 1)).reduceByKey(lambda a, b: a + b).cache()
        self._counts.count()

    def fetch(self) -> Counts:
        return dict(self._counts.collect())


def measure(name: str, options: Options, report: Report) -> None:
    """One text, all contenders."""
    import shmjet

    path = text_file(DISTINCT[name], 20 if options.quick else 100)
    workers = options.workers
    with Bench(name, "MB/s") as bench:
        expected = dict(count_chunk((str(path), 0, path.stat().st_size)))
        bench.facts = {
            "text": f"{path.stat().st_size / 1e6:.1f} MB, {sum(expected.values()):,} words, {len(expected):,} distinct",
            "workers": workers,
        }
        pool = ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("forkserver"))
        bench.resources.enter_context(pool)
        ours = ShmjetDag(path, bench.resources.enter_context(shmjet.new_instance(shmjet.JetConfig(cores=workers))))
        bench.ours(timed("shmjet", path, ours, expected))
        for peer, function in {"pool_counter": count_chunk, "pool_counter_lines": count_lines}.items():
            if options.wants_peer(peer):
                bench.peer(peer, timed(peer, path, PoolCounter(path, pool, workers, function), expected))
        sparks: dict[str, Callable[[Path, Any], Contestant]] = {
            "pyspark_rdd": SparkRdd,
            "pyspark_dataframe": SparkDataFrame,
        }
        try:
            session = bench.resources.enter_context(local_session(options, *sparks))
        except PeerSkipped as reason:
            for peer in sparks:
                bench.skip(peer, str(reason))
        else:
            for peer, program in sparks.items():
                if options.wants_peer(peer):
                    bench.peer(peer, timed(peer, path, program(path, session), expected))
        report.add(bench.measure(rounds=options.rounds, warm_up=1 if options.quick else 2))


def main() -> int:
    """Measure all texts that were asked for."""
    options = parse_options(__doc__, benches=list(DISTINCT))
    report = Report(options)
    for name in DISTINCT:
        if options.wants(name):
            measure(name, options, report)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
