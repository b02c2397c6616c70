"""What the benches of word counting share: texts, the ways to count that several of them use, and how they are timed.

Texts are written once into `bench/data` by a fixed seed, with the frequencies of natural language (Zipf). A
program that counts gives all counts as a dict at the end, so that every result can be checked.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from _harness import Contender, elapsed

DATA = Path(__file__).resolve().parent / "data"

Counts = dict[str, int]
BlockCounter = Callable[[tuple[str, int, int]], Counter[str]]


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
    # Distinct numbers may give equal words when high syllables are the zeroth: number the repeated words.
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


class Contestant(Protocol):
    """Someone who counts words."""

    def clear(self) -> None:
        """Forget the counts of the run before; this is not timed."""

    def count(self) -> None:
        """Count; this is timed."""

    def fetch(self) -> Counts:
        """Give the counts as a dict; this is not timed."""


class PoolCounter:
    """Blocks of the file are counted in a warm pool and the counters are merged in the parent."""

    def __init__(self, path: Path, pool: ProcessPoolExecutor, workers: int, function: BlockCounter) -> None:
        size, blocks = path.stat().st_size, 4 * workers
        bounds = [size * i // blocks for i in range(blocks + 1)]
        self._tasks = [(str(path), start, end) for start, end in pairwise(bounds)]
        self._pool = pool
        self._function = function
        self._total: Counter[str] = Counter()

    def clear(self) -> None:
        self._total = Counter()

    def count(self) -> None:
        for counts in self._pool.map(self._function, self._tasks):
            self._total.update(counts)

    def fetch(self) -> Counts:
        return self._total


class SparkDataFrame:
    """The same in the JVM, without Python functions."""

    def __init__(self, path: Path, session: Any) -> None:
        self._session, self._path = session, str(path)
        self._counts: Any = None

    def clear(self) -> None:
        if self._counts is not None:
            self._counts.unpersist(blocking=True)

    def count(self) -> None:
        from pyspark.sql import functions as f

        lines = self._session.read.text(self._path)
        words = lines.select(f.explode(f.split(f.lower(f.trim("value")), r"\s+")).alias("word")).where("word != ''")
        self._counts = words.groupBy("word").count().cache()
        self._counts.count()

    def fetch(self) -> Counts:
        return {row.word: row["count"] for row in self._counts.collect()}


def timed(name: str, path: Path, contestant: Contestant, expected: Counts) -> Contender:
    """A contender that returns MB/s and checks its first result against `expected`."""
    checked = False

    def run() -> float:
        nonlocal checked
        contestant.clear()
        seconds = elapsed(contestant.count)
        if not checked and contestant.fetch() != expected:
            raise AssertionError(f"{name} counts differently")
        checked = True
        return path.stat().st_size / 1e6 / seconds

    return run
