"""`shmjet wordcount`: counts the words of text files on all cores.

A word is what `line.lower().split()` gives. The job is the textbook's: every core reads and counts for itself, then the
counts of a word meet on one core and go into a list. They equal those of `collections.Counter` over the same text.
`word_pieces` has the same job in native code.
"""

from __future__ import annotations

import heapq
import json
import operator
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import shmjet
from shmjet import DAG, JetConfig, JobConfig, between, processors
from shmjet.cli.outcome import CommandError, Outcome, complain, prompt_on_interrupt
from shmjet.cli.word_pieces import PieceTotals, all_pairs, columns_dag, total_of
from shmjet.processors.files.file_blocks import absolute_patterns, find_files

COUNTS = "wordcount.counts"
"""The list of (word, count); appending to a list is far cheaper than filling a map, and no query by key follows."""

READING = "wordcount.reading"
"""The map in which the processors that read say how far they are."""

REFRESH = 0.1
"""Seconds between two pictures of the progress bar."""


@dataclass(frozen=True)
class Reading:
    """How much has been read: files, their bytes, and files left out because they are binary."""

    files: int = 0
    bytes: int = 0
    skipped: int = 0
    words: int = 0
    """Words counted; 0 where the processors that read do not count."""

    @classmethod
    def total(cls, reports: Iterable[dict[str, int]]) -> Reading:
        """Add up the reports of all processors."""
        known = list(reports)
        return cls(*(sum(report.get(name, 0) for report in known) for name in ("files", "bytes", "skipped", "words")))


@dataclass(frozen=True)
class Tally:
    """The result of a word count."""

    reading: Reading
    words: int
    distinct: int
    seconds: float
    top: list[tuple[str, int]]

    @property
    def mb_per_s(self) -> float:
        """Megabytes (10^6 bytes) of text per second."""
        return self.reading.bytes / 1e6 / self.seconds if self.seconds else 0.0

    def summary(self) -> str:
        """One line: files, bytes, words, distinct words, seconds, MB/s, and skipped files if there are any."""
        reading = self.reading
        skipped = f"; {_number(reading.skipped, 'binary file')} skipped" if reading.skipped else ""
        return (
            f"{_number(reading.files, 'file')}, {_number(reading.bytes, 'byte')}, {_number(self.words, 'word')}, "
            f"{self.distinct:,} distinct, {self.seconds:.2f} s, {self.mb_per_s:.1f} MB/s{skipped}"
        )

    def to_json(self) -> str:
        """The same as one JSON object; `top` is a list of [word, count]."""
        reading = self.reading
        return json.dumps(
            {
                "files": reading.files,
                "bytes": reading.bytes,
                "skipped": reading.skipped,
                "words": self.words,
                "distinct": self.distinct,
                "seconds": round(self.seconds, 6),
                "mb_per_s": round(self.mb_per_s, 3),
                "top": self.top,
            },
            ensure_ascii=False,
        )


def split_line(line: str) -> list[str]:
    """The words of a line."""
    return line.lower().split()


def wordcount_dag(paths: Sequence[str]) -> DAG:
    """The job: read, split, count on each core, combine by word, append to the list `COUNTS`."""
    dag = DAG()
    read = dag.new_vertex("read", processors.read_files(paths, skip_binary=True, stats=READING))
    split = dag.new_vertex("split", processors.flat_map(split_line))
    count = dag.new_vertex("count", processors.accumulate_by_key(None, processors.counting()))
    combine = dag.new_vertex("combine", processors.combine_by_key(processors.counting()))
    write = dag.new_vertex("write", processors.write_list(COUNTS))
    dag.edge(between(read, split)).edge(between(split, count))
    dag.edge(between(count, combine).partitioned(operator.itemgetter(0)).distributed())
    dag.edge(between(combine, write))
    return dag


def wordcount(
    paths: Sequence[str],
    *,
    top: int,
    cores: int | None,
    as_json: bool,
    output: Path | None,
    columns: bool,
    progress: bool = True,
) -> int:
    """Count the words of files, folders and globs, print the result and return the exit status.

    Args:
        paths: at least one; a path that does not exist is wrong usage.
        top: how many of the most frequent words to print; ties in alphabetical order.
        cores: workers to use; None for all that the process may use.
        as_json: print one JSON object instead of the list and the summary.
        output: a file for all words, `word<TAB>count`, most frequent first.
        columns: count in native code; otherwise by Python functions on lines. The counts are the same.
        progress: show how far it is, if standard error is a terminal.
    """
    total = _bytes_of(paths)
    with ExitStack() as stack:
        stack.enter_context(prompt_on_interrupt())
        file = stack.enter_context(_replacing(output)) if output is not None else None
        jet = stack.enter_context(shmjet.new_instance(JetConfig(cores=cores)))
        start = time.perf_counter()
        dag = columns_dag(paths, COUNTS, READING) if columns else wordcount_dag(paths)
        execution = jet.new_job(dag, JobConfig(name="wordcount")).execute()
        _watch(jet, execution, total, progress)
        execution.result()
        tally = _tally(jet, start, top, file, columns)
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    if as_json:
        print(tally.to_json())
    else:
        for line in top_lines(tally.top):
            print(line)
        print(tally.summary())
    if not tally.reading.files:
        complain("no text files there" + (" (binary files only)" if tally.reading.skipped else ""))
    return Outcome.OK


def most_frequent(counts: Iterable[tuple[str, int]], top: int | None) -> list[tuple[str, int]]:
    """The `top` words (None: all) by count, ties in alphabetical order.

    Example:
        >>> most_frequent([("b", 1), ("a", 1), ("c", 5)], 2)
        [('c', 5), ('a', 1)]
    """

    def rank(pair: tuple[str, int]) -> tuple[int, str]:
        return -pair[1], pair[0]

    return sorted(counts, key=rank) if top is None else heapq.nsmallest(top, counts, key=rank)


def top_lines(top: Sequence[tuple[str, int]]) -> Iterator[str]:
    """The lines of the list of words; characters that a terminal would act on are escaped."""
    width = max((len(f"{count:,}") for _, count in top), default=0)
    for word, count in top:
        yield f"{count:>{width},}  {''.join(c if c.isprintable() else ascii(c)[1:-1] for c in word)}"


def _bytes_of(paths: Sequence[str]) -> int:
    try:
        return sum(size for _, size in find_files(absolute_patterns(paths)))
    except OSError as error:
        raise CommandError(f"{error.filename}: {error.strerror}") from None


def _watch(jet: Any, execution: Any, total: int, progress: bool) -> None:
    """Wait for the end of the job, with a progress bar when one is wanted and standard error is a terminal."""
    if not progress or not sys.stderr.isatty():
        wait([execution])
        return
    from shmjet.cli.progress import ProgressBar

    with ProgressBar(total) as bar:
        while not wait([execution], timeout=REFRESH).done:
            bar.show(Reading.total(jet.get_map(READING).values()), execution.metrics())


def _tally(jet: Any, start: float, top: int, file: IO[str] | None, columns: bool) -> Tally:
    found = jet.get_list(COUNTS)
    if file is not None:
        everything = most_frequent(all_pairs(found) if columns else found, None)
        file.writelines(f"{word}\t{count}\n" for word, count in everything)
        totals = PieceTotals(sum(count for _, count in everything), len(everything), everything[:top])
    else:
        totals = total_of(found, top) if columns else _total_of_pairs(found, top)
    reading = Reading.total(jet.get_map(READING).values())
    return Tally(reading, totals.words, totals.distinct, time.perf_counter() - start, totals.top)


def _total_of_pairs(pairs: Iterable[tuple[str, int]], top: int) -> PieceTotals:
    totals = PieceTotals()

    def counted() -> Iterator[tuple[str, int]]:
        for pair in pairs:
            totals.words += pair[1]
            totals.distinct += 1
            yield pair

    totals.top = most_frequent(counted(), max(top, 1))[:top]  # of 0, `nsmallest` would not look at the words at all
    return totals


@contextmanager
def _replacing(path: Path) -> Iterator[IO[str]]:
    """Open `path` for writing so that it holds the old text or all of the new one; a device is written to directly."""
    special = path.exists() and not path.is_file()
    target = path if special else path.with_name(f".{path.name}.{os.getpid()}")
    try:
        file = target.open("w", encoding="utf-8", errors="surrogatepass", newline="\n")
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror}") from None
    try:
        with file:
            yield file
        if not special:
            target.replace(path)
    except BaseException:
        if not special:
            target.unlink(missing_ok=True)
        raise


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")
