"""`shmjet wordcount` in native code: its job, and the result from the pieces that the job leaves behind.

The same counts as the job on items gives (`wordcount.wordcount_dag`), from words that never become Python objects: only
words that may be among the most frequent are made here. Without numpy, which takes longer to import than a
small text takes to count.
"""

from __future__ import annotations

import heapq
import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from shmjet import DAG, between, processors
from shmjet.columns.words import WordPiece
from shmjet.processors.columns.word_count import combine_words, count_words, share_partition


def columns_dag(paths: Sequence[str], counts: str, reading: str) -> DAG:
    """The job: read, split and count on each core, add the counts up by word, append pieces of them to a list.

    Args:
        paths: of the files.
        counts: name of the list.
        reading: name of the map in which the processors that read say how far they are.
    """
    dag = DAG()
    count = dag.new_vertex("count", count_words(paths, skip_binary=True, stats=reading))
    combine = dag.new_vertex("combine", combine_words())
    write = dag.new_vertex("write", processors.write_list(counts))
    dag.edge(between(count, combine).partitioned(operator.itemgetter(0), share_partition).distributed())
    dag.edge(between(combine, write))
    return dag


@dataclass
class PieceTotals:
    """What is known of pieces once they have been gone through: words in all, and distinct ones."""

    words: int = 0
    distinct: int = 0
    top: list[tuple[str, int]] = field(default_factory=list)
    """The most frequent words, ties in alphabetical order."""


def all_pairs(items: Iterable[Sequence[object]]) -> Iterator[tuple[str, int]]:
    """Yield every word with its count.

    Args:
        items: the fields of a `WordPiece` each.
    """
    for item in items:
        yield from WordPiece(*item).pairs()  # type: ignore[arg-type]


def total_of(items: Iterable[Sequence[object]], top: int) -> PieceTotals:
    """Go through pieces once; make objects only of the words that may be among the `top` most frequent ones.

    Args:
        items: the fields of a `WordPiece` each.
        top: how many words are wanted.
    """
    totals = PieceTotals()
    least = 0
    for item in items:
        piece = WordPiece(*item)  # type: ignore[arg-type]
        counts = memoryview(piece.counts).cast("q").tolist()
        totals.words += sum(counts)
        totals.distinct += len(counts)
        if top and max(counts) >= least:
            chosen = [place for place, count in enumerate(counts) if count >= least]
            totals.top = heapq.nsmallest(top, totals.top + piece.pairs(chosen), key=_rank)
            least = totals.top[-1][1] if len(totals.top) == top else 0
    return totals


def _rank(pair: tuple[str, int]) -> tuple[int, str]:
    return -pair[1], pair[0]
