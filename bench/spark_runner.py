"""A pipeline on Spark itself, compared with what a PySpark program does by hand.

`spark_runner_wordcount` counts the words of a text (100 MB, `--quick` 20 MB; Zipf, 50,000 distinct). shmjet is the
pipeline of `files`, `flat_map`, `grouping_key` and `counting` with `run_on_spark`, result in the driver. Peers: `rdd`,
flatMap, map and reduceByKey by hand; `rdd_counter`, the better way of mapPartitions with a Counter and reduceByKey.
Same session, same `local[n]`, warm, in turn; all counts are checked. The unit is words a second.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from _harness import Bench, Options, elapsed, measure_each
from _spark import local_session
from _words import text_file

DISTINCT = 50_000

Counts = dict[str, int]


def on_spark(session: Any, path: Path) -> Counts:
    """The pipeline."""
    from shmjet import Pipeline, aggregate_ops, sinks, sources

    p = Pipeline()
    with sinks.collect() as counts:
        words = p.read_from(sources.files(path)).flat_map(lambda line: line.lower().split())
        words.grouping_key(lambda word: word).aggregate(aggregate_ops.counting()).write_to(counts)
        p.run_on_spark(session)
        return dict(counts)


def by_hand(session: Any, path: Path, workers: int) -> Counts:
    """flatMap, map, reduceByKey."""
    words = session.sparkContext.textFile(str(path), 2 * workers).flatMap(lambda line: line.lower().split())
    return dict(words.map(lambda word: (word, 1)).reduceByKey(lambda a, b: a + b).collect())


def with_counter(session: Any, path: Path, workers: int) -> Counts:
    """mapPartitions with a Counter, reduceByKey."""

    def count(lines: Iterable[str]) -> Any:
        counts: Counter[str] = Counter()
        for line in lines:
            counts.update(line.lower().split())
        return counts.items()

    lines = session.sparkContext.textFile(str(path), 2 * workers)
    return dict(lines.mapPartitions(count).reduceByKey(lambda a, b: a + b).collect())


def cpu_seconds() -> dict[int, float]:
    """CPU seconds of this process and all below it, by pid."""
    found = {}
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        found[process.pid] = times.user + times.system
    return found


class Counting:
    """One way to count, timed and checked; notes CPU seconds per million words."""

    def __init__(self, bench: Bench, name: str, count: Callable[[], Counts], expected: Counts) -> None:
        self._bench = bench
        self._name = name
        self._count = count
        self._expected = expected
        self._words = sum(expected.values())

    def __call__(self) -> float:
        found: list[Counts] = []
        before = cpu_seconds()
        seconds = elapsed(lambda: found.append(self._count()))
        cpu = sum(now - before.get(pid, 0.0) for pid, now in cpu_seconds().items())
        if found[0] != self._expected:
            raise AssertionError(f"{self._name} has counted other words")
        self._bench.facts[f"{self._name}, CPU s per million words"] = round(cpu / self._words * 1e6, 3)
        return self._words / seconds


def wordcount(bench: Bench, options: Options) -> None:
    """Count the words of one file in all ways."""
    path = text_file(DISTINCT, 20 if options.quick else 100)
    expected = dict(Counter(path.read_text().lower().split()))
    session = bench.resources.enter_context(local_session(options, "rdd", "rdd_counter"))
    bench.ours(Counting(bench, "shmjet", lambda: on_spark(session, path), expected))
    ways = {"rdd": by_hand, "rdd_counter": with_counter}
    for name, way in ways.items():
        if options.wants_peer(name):
            bench.peer(name, Counting(bench, name, partial(way, session, path, options.workers), expected))


if __name__ == "__main__":
    sys.exit(measure_each(__doc__, {"spark_runner_wordcount": ("words/s", wordcount)}))
