"""Word count by a DAG of plain Python functions, beside a warm multiprocessing.Pool with Counter and PySpark.

Two texts, written once into `bench/data` by a fixed seed: `wordcount_50k` with 50,000 distinct words and
`wordcount_500k` with 500,000, both with the frequencies of natural language (Zipf). Everybody counts
`line.lower().split()` of the same file with the same number of processes, is warm (pool, JVM and instance were started
before), and ends with a dict of all words in the parent process. All results are checked to be equal.

Peers: `pool_counter`, a warm pool that splits and counts a megabyte at once and merges in the parent;
`pool_counter_lines`, the same with the DAG's function called line by line; `pyspark_rdd` and `pyspark_dataframe`.
The unit is MB/s: 10^6 bytes of text per second.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from _harness import Bench, Contender, Options, PeerSkipped, Report, parse_options
from _spark import local_session

DATA = Path(__file__).resolve().parent / "data"

DISTINCT = {"wordcount_50k": 50_000, "wordcount_500k": 500_000}

Counts = dict[str, int]


def text_file(distinct: int, megabytes: int) -> Path:
    """Return a text of about that many megabytes in which `distinct` words occur, each at least once.

    Lines have 1 to 20 words; words have 2 to 12 letters, frequent ones short, as in a natural language. The same
    arguments give the same bytes.
    """
    path = DATA / f"words-{distinct}-{megabytes}MB.txt"
    if path.exists():
        return path
    DATA.mkdir(exist_ok=True)
    random = np.random.default_rng(20_26)
    words = _vocabulary(distinct)
    weights = 1.0 / np.arange(1, distinct + 1) ** 1.05
    order = random.choice(distinct, size=megabytes * 1_000_000 // 4, p=weights / weights.sum())
    order[: 2 * distinct : 2] = random.permutation(distinct)  # every word once, spread over the beginning
    ends = np.cumsum(random.integers(1, 21, size=len(order) // 8))
    temporary = path.with_suffix(f".{os.getpid()}")
    with temporary.open("w", encoding="utf-8") as file:
        start, written = 0, 0
        for end in ends.tolist():
            line = " ".join([words[i] for i in order[start:end]])
            written += file.write(line.capitalize() + "\n")
            start = end
            if written >= megabytes * 1_000_000 or end >= len(order):
                break
    temporary.replace(path)
    return path


def _vocabulary(distinct: int) -> list[str]:
    syllables = [c + v for c in "bcdfghjklmnprstvwz" for v in "aeiou"]
    words = []
    for rank in range(distinct):
        word, rest = "", rank + len(syllables) * (rank >= len(syllables))
        while True:
            rest, syllable = divmod(rest, len(syllables))
            word += syllables[syllable]
            if not rest:
                break
        words.append(word)
    # Distinct numbers may give equal words when high syllables are the zeroth: number those that repeat.
    seen: set[str] = set()
    for index, word in enumerate(words):
        while word in seen:
            word += "x"
        seen.add(word)
        words[index] = word
    return words


def pieces(path: str, start: int, end: int) -> Iterator[bytes]:
    """The lines that start in bytes `start` to `end` of a file, about a megabyte of whole lines at a time."""
    with open(path, "rb") as file:
        if start:
            file.seek(start - 1)
            file.readline()
        while (left := end - file.tell()) > 0:
            piece = file.read(min(1 << 20, left))
            yield piece + file.readline() if not piece.endswith(b"\n") else piece


def count_chunk(task: tuple[str, int, int]) -> Counter[str]:
    """Count the words of a part of a file the fastest way: a megabyte at once, whatever its lines."""
    counts: Counter[str] = Counter()
    for piece in pieces(*task):
        counts.update(piece.decode("utf-8", "replace").lower().split())
    return counts


def count_lines(task: tuple[str, int, int]) -> Counter[str]:
    """The same, with the function of the DAG applied line by line."""
    counts: Counter[str] = Counter()
    for piece in pieces(*task):
        for line in piece.decode("utf-8", "replace").splitlines():
            counts.update(line.lower().split())
    return counts


def pool_counter(
    path: Path, pool: ProcessPoolExecutor, workers: int, count: Callable[[tuple[str, int, int]], Counter[str]]
) -> Counts:
    """Count blocks of the file in a pool and merge the counters in the parent."""
    size = path.stat().st_size
    blocks = 4 * workers
    bounds = [size * i // blocks for i in range(blocks + 1)]
    total: Counter[str] = Counter()
    for counts in pool.map(count, [(str(path), a, b) for a, b in pairwise(bounds)]):
        total.update(counts)
    return total


def spark_rdd(path: Path, context: Any) -> Counts:
    """The textbook's RDD program."""
    words = context.textFile(str(path)).flatMap(lambda line: line.lower().split())
    return dict(words.map(lambda word: (word, 1)).reduceByKey(lambda a, b: a + b).collect())


def spark_dataframe(path: Path, session: Any) -> Counts:
    """The same in the JVM, without Python functions."""
    from pyspark.sql import functions as f

    words = session.read.text(str(path)).select(f.explode(f.split(f.lower(f.trim("value")), r"\s+")).alias("word"))
    return {row.word: row["count"] for row in words.where("word != ''").groupBy("word").count().collect()}


def shmjet_counts(path: Path, jet: Any) -> Counts:
    """The DAG of `shmjet wordcount`, and its map read into a dict."""
    from shmjet.cli.wordcount import COUNTS, wordcount_dag

    counts = jet.get_map(COUNTS)
    counts.clear()
    jet.new_job(wordcount_dag([str(path)])).run()
    return dict(counts.items())


def timed(bench: Bench, name: str, path: Path, count: Callable[[], Counts], expected: Counts) -> Contender:
    """A contender that checks its first result against `expected` and returns MB/s."""
    checked = False

    def run() -> float:
        nonlocal checked
        start = time.perf_counter()
        counts = count()
        seconds = time.perf_counter() - start
        if not checked and counts != expected:
            raise AssertionError(f"{bench.name}: {name} counts {len(counts)} words differently")
        checked = True
        return path.stat().st_size / 1e6 / seconds

    return run


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
        # The pool forks its processes at the first task, so it comes before anything that starts threads.
        pool = ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("forkserver"))
        bench.resources.enter_context(pool)
        jet = bench.resources.enter_context(shmjet.new_instance(shmjet.JetConfig(cores=workers)))
        bench.ours(timed(bench, "shmjet", path, lambda: shmjet_counts(path, jet), expected))
        for peer, function in {"pool_counter": count_chunk, "pool_counter_lines": count_lines}.items():
            bench.peer(peer, timed(bench, peer, path, partial(pool_counter, path, pool, workers, function), expected))
        try:
            session = bench.resources.enter_context(local_session(options, "pyspark_rdd", "pyspark_dataframe"))
        except PeerSkipped as reason:
            bench.skip("pyspark_rdd", str(reason))
            bench.skip("pyspark_dataframe", str(reason))
        else:
            context = session.sparkContext
            for peer, count in {
                "pyspark_rdd": partial(spark_rdd, path, context),
                "pyspark_dataframe": partial(spark_dataframe, path, session),
            }.items():
                if options.wants_peer(peer):
                    bench.peer(peer, timed(bench, peer, path, count, expected))
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
