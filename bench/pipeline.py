"""Pipelines against the hand-written DAG, plain Python and other engines: what the high-level API costs and gives.

`wordcount_pipeline` counts the words of a text (`bench/wordcount.py` makes it) with a pipeline of lambdas; its peers
are `dag`, the same by hand with the processors' library, and PySpark's RDDs, a Dask bag and Ray Data, all warm and with
as many processes. Every result is compared. The unit is MB/s, 10^6 bytes of text per second.

`transform` runs 20 M ints through map, filter and flat_map, lambdas all, into a sink that forgets them. The peer
`comprehension` is one comprehension of the same functions in one process; its figure is multiplied by the number of
workers, so a ratio of 1 says that the engine costs nothing. The unit is items/s that come in. What limits it: the three
functions take as long in the fused loops as in the comprehension (135 ns an item), and each call of one of the three
processors costs the engine some 25 us of Python; an outbox takes 4096 items, so there are about two thousand in a call.

A bench is a function `(Bench, Options) -> None` in `BENCHES`; to add one, write it and name it there.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _harness import Bench, Options, PeerSkipped, elapsed, measure_each, rate
from _spark import local_session
from _words import text_file

import shmjet
from shmjet import aggregate_ops, processors, sinks, sources
from shmjet.core import DAG, between
from shmjet.pipeline import Pipeline, SourceDef

DISTINCT = 50_000

Counts = dict[str, int]


# -- word count --------------------------------------------------------------------------------------------------------


class WordCounter:
    """Counts the words of a file with shmjet; the DAG is made by a pipeline or by hand."""

    def __init__(self, jet: shmjet.JetInstance, name: str, make: Callable[[str, str], Any], path: Path) -> None:
        self._map = jet.get_map(name)
        self._jet = jet
        self._make = make
        self._path = path
        self._name = name

    def run(self) -> float:
        """Return MB/s."""
        self._map.clear()
        seconds = elapsed(self._jet.new_job(self._make(str(self._path), self._name)).run)
        return self._path.stat().st_size / 1e6 / seconds

    def counts(self) -> Counts:
        """Return the result of the last run."""
        return dict(self._map.items())


def word_pipeline(path: str, name: str) -> Pipeline:
    """Word count as a user writes it."""
    p = Pipeline()
    counts = (
        p.read_from(sources.files(path))
        .flat_map(lambda line: line.lower().split())
        .grouping_key(lambda word: word)
        .aggregate(aggregate_ops.counting())
    )
    counts.write_to(sinks.map(name))
    return p


def word_dag(path: str, name: str) -> DAG:
    """The same by hand."""
    dag = DAG()
    lines = dag.new_vertex("lines", processors.read_files(path))
    words = dag.new_vertex("words", processors.flat_map(lambda line: line.lower().split()))
    first = dag.new_vertex("accumulate", processors.accumulate_by_key(lambda word: word, processors.counting()))
    second = dag.new_vertex("combine", processors.combine_by_key(processors.counting()))
    sink = dag.new_vertex("sink", processors.write_map(name))
    dag.edge(between(lines, words)).edge(between(words, first))
    dag.edge(between(first, second).partitioned(lambda pair: pair[0])).edge(between(second, sink))
    return dag


def wordcount_pipeline(bench: Bench, options: Options) -> None:
    """Word count of one file."""
    path = text_file(DISTINCT, 20 if options.quick else 100)
    size = path.stat().st_size / 1e6
    jet = bench.resources.enter_context(shmjet.new_instance(shmjet.JetConfig(cores=options.workers)))
    ours = WordCounter(jet, "pipeline", word_pipeline, path)
    by_hand = WordCounter(jet, "dag", word_dag, path)
    bench.ours(ours.run)
    bench.peer("dag", by_hand.run)
    expected = Counter(path.read_text().lower().split())

    def checked(run: Callable[[], Counts]) -> float:
        start = time.perf_counter()
        found = run()
        seconds = time.perf_counter() - start
        if found != expected:
            raise AssertionError("a peer has counted other words")
        return size / seconds

    ours.run()
    by_hand.run()
    if ours.counts() != expected or by_hand.counts() != expected:
        raise AssertionError("the pipeline has counted other words")
    if options.wants_peer("pyspark_rdd"):
        _add_spark(bench, options, path, checked)
    if options.wants_peer("dask_bag"):
        bench.peer("dask_bag", lambda: checked(lambda: _dask_counts(path, options.workers)), needs="dask")
    if options.wants_peer("ray_data"):
        bench.peer("ray_data", lambda: checked(lambda: _ray_counts(path, options.workers)), needs="ray")


def _add_spark(bench: Bench, options: Options, path: Path, checked: Callable[[Callable[[], Counts]], float]) -> None:
    try:
        session = bench.resources.enter_context(local_session(options))
    except (ImportError, PeerSkipped) as reason:
        bench.skip("pyspark_rdd", str(reason))
        return
    context = session.sparkContext

    def count() -> Counts:
        words = context.textFile(str(path), 2 * options.workers).flatMap(lambda line: line.lower().split())
        return dict(words.map(lambda word: (word, 1)).reduceByKey(lambda a, b: a + b).collect())

    bench.peer("pyspark_rdd", lambda: checked(count))


def _dask_counts(path: Path, workers: int) -> Counts:
    bag: Any = importlib.import_module("dask.bag")  # untyped, where it is installed
    text = bag.read_text(str(path), blocksize=max(1 << 20, path.stat().st_size // (4 * workers)))
    words = text.map(str.lower).map(str.split).flatten().frequencies()
    return dict(words.compute(scheduler="processes", num_workers=workers))


def _ray_counts(path: Path, workers: int) -> Counts:
    import logging

    import ray

    if not ray.is_initialized():
        ray.init(num_cpus=workers, include_dashboard=False, logging_level=logging.ERROR)
        ray.data.DataContext.get_current().enable_progress_bars = False
    words = ray.data.read_text(str(path)).flat_map(lambda row: [{"word": w} for w in row["text"].lower().split()])
    return {row["word"]: row["count()"] for row in words.groupby("word").count().take_all()}


# -- transform ---------------------------------------------------------------------------------------------------------


def transform_pipeline(count: int) -> Pipeline:
    """Ints through map, filter and flat_map."""
    p = Pipeline()
    numbers: SourceDef[int] = SourceDef("numbers", processors.generate(lambda i, n: range(i, count, n)))
    made = p.read_from(numbers).map(lambda x: x + 1).filter(lambda x: x % 3).flat_map(lambda x: [x, x])
    made.write_to(sinks.noop())
    return p


def transform(bench: Bench, options: Options) -> None:
    """Stateless stages."""
    count = 4_000_000 if options.quick else 20_000_000
    jet = bench.resources.enter_context(shmjet.new_instance(shmjet.JetConfig(cores=options.workers)))
    job = jet.new_job(transform_pipeline(count))
    bench.ours(lambda: rate(count, job.run))
    add_one: Callable[[int], int] = lambda x: x + 1  # noqa: E731
    odd: Callable[[int], int] = lambda x: x % 3  # noqa: E731
    twice: Callable[[int], list[int]] = lambda x: [x, x]  # noqa: E731

    def comprehend() -> None:
        for start in range(0, count, 4096):  # in pieces, as programs do not keep 20 M results
            [z for x in range(start, min(start + 4096, count)) for y in (add_one(x),) if odd(y) for z in twice(y)]

    bench.peer("comprehension", lambda: rate(count, comprehend) * options.workers)
    bench.facts["comprehension"] = f"one process, times {options.workers}"


BENCHES: dict[str, tuple[str, Callable[[Bench, Options], None]]] = {
    "wordcount_pipeline": ("MB/s", wordcount_pipeline),
    "transform": ("items/s", transform),
}


if __name__ == "__main__":
    sys.exit(measure_each(__doc__, BENCHES))
