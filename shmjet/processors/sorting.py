"""Sorting all items, in bounded steps.

Must not know: how sorted streams of several processors are merged (an `.ordered()` edge does that). Batches are
sorted as they arrive, and runs of similar length are merged at once, so the work is spread over the calls. At the end
the runs are merged in slices: a pivot is chosen, every run gives up what is not above it (found by bisection), and
the slice is sorted by Python's own sort, which merges sorted stretches at the speed of C. Nothing is sorted whole in
one call, and nothing is compared in Python. The idea is the log-structured merge tree's, for the runs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

from shmjet.core.processor import Processor
from shmjet.processors.bulk import BulkProcessor, Supply
from shmjet.processors.keying import KeyFn, plain

LONGEST_RUN = 1 << 16
"""Items; longer runs are not merged before the end: a merge of two takes a few milliseconds."""

SLICE = 8192
"""Items merged and emitted in a step at the end, roughly."""


class _Rank:
    """An item's place in the order asked for; only for bisecting, which compares a few items."""

    __slots__ = ("key", "reverse")

    def __init__(self, key: Any, reverse: bool) -> None:
        self.key = key
        self.reverse = reverse

    def __lt__(self, other: _Rank) -> bool:
        return bool(other.key < self.key) if self.reverse else bool(self.key < other.key)


class SortProcessor(BulkProcessor):
    """Keeps sorted runs and merges them at the end. Stable for the items of one processor."""

    def __init__(self, key_fn: KeyFn, reverse: bool) -> None:
        self._key_fn = key_fn
        self._reverse = reverse
        self._runs: list[list[Any]] = []

    def absorb(self, ordinal: int, items: list[Any]) -> None:
        """Make a run of a list, and merge it with runs that are not much longer."""
        runs = self._runs
        while runs and len(runs[-1]) <= 2 * len(items) and len(items) < LONGEST_RUN:
            items = runs.pop() + items
        items.sort(key=self._key_fn, reverse=self._reverse)
        runs.append(items)

    def results(self) -> Iterable[Any]:
        """Return the merged runs, lazily."""
        return chain.from_iterable(self._slices())

    def _rank(self, item: Any) -> _Rank:
        return _Rank(item if self._key_fn is None else self._key_fn(item), self._reverse)

    def _slices(self) -> Iterator[list[Any]]:
        runs = self._runs
        self._runs = []
        rank = self._rank
        positions = [0] * len(runs)
        while runs:
            step = max(1, SLICE // len(runs))
            pivot = rank(
                min((run[min(at + step, len(run)) - 1] for run, at in zip(runs, positions, strict=True)), key=rank)
            )
            piece: list[Any] = []
            for i, run in enumerate(runs):
                start = positions[i]
                positions[i] = bisect_right(run, pivot, start, key=rank)
                piece += run[start : positions[i]]
            piece.sort(key=self._key_fn, reverse=self._reverse)
            yield piece
            left = [i for i, run in enumerate(runs) if positions[i] < len(run)]
            if len(left) < len(runs):
                runs, positions = [runs[i] for i in left], [positions[i] for i in left]


def sort(key_fn: Callable[[Any], Any] | None = None, *, reverse: bool = False) -> Callable[[], Processor]:
    """Collect all items and emit them in order at the end.

    For one order over all processors, join this vertex to one with `local_parallelism=1` by an edge that is
    `.ordered(key_fn)`. Equal items keep the order in which the processor received them, also with `reverse`.

    Args:
        key_fn: what items are compared by (None: themselves).
        reverse: descending order.

    Raises:
        TypeError: when `key_fn` is neither None nor callable. Items that cannot be compared make the job fail.

    Example:
        >>> from shmjet.testing import verify_processor
        >>> verify_processor(sort()).inputs([3, 1, 2]).expect([1, 2, 3])
    """
    return Supply(SortProcessor, plain(key_fn), reverse)
