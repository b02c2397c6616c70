"""Sorted runs, in memory and in files, and their merge in bounded steps.

Must not know: when a run is made or written. The merge works in slices: a pivot is chosen, every run gives up what is
not above it (found by bisection), and the slice is sorted by Python's own sort, which merges sorted stretches at the
speed of C. `heapq.merge` is the alternative; it costs about a microsecond per item in Python.

A file has no name, so nothing is left of it when its process ends, however that happens.
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator, Iterator
from typing import Any, Protocol

from shmjet._native import Codec, NumberSorter, sort_numbers, sort_texts
from shmjet.core.key_functions import GREATEST, LEAST, one_by_one, ranks_of
from shmjet.processors.general.spill_files import SpillErrors, spill_file
from shmjet.ring.pickling import Pickling, loads

LEAST_STEP = 64
"""Items of a run that a step looks at, at least: with many runs a slice is longer, or bisecting would cost most."""


_LEFT_AT_ONCE = 256
"""Items that are saved together, at most."""


class Order:
    """How items are compared.

    NaNs come last, in both directions.

    Args:
        key: what they are compared by (None: themselves).
        reverse: descending order; equal items keep theirs.
    """

    __slots__ = ("_kernels", "_nan", "key", "reverse")

    def __init__(self, key: Callable[[Any], Any] | None, reverse: bool) -> None:
        self.key = key
        self.reverse = reverse
        self._nan = LEAST if reverse else GREATEST
        self._kernels: tuple[Callable[[list[Any], list[Any], bool], bool], ...] = (sort_numbers, sort_texts)

    @property
    def by_digits(self) -> bool:
        """Whether all lists until now could be sorted by digits, which takes the same time however long they are."""
        return bool(self._kernels)

    def rank(self, item: Any) -> Any:
        """Return what ascends along a run."""
        (key,) = ranks_of(self.key, [item], self._nan)
        return Descending(key) if self.reverse else key

    def sort(self, items: list[Any]) -> list[Any]:
        """Sort a list in place and return it. Stable."""
        keys = ranks_of(self.key, items, self._nan)
        if self._kernels:
            for kernel in self._kernels:
                if kernel(items, keys, self.reverse):
                    self._kernels = (kernel,)
                    return items
            self._kernels = ()
        if keys is items:
            items.sort(reverse=self.reverse)
        else:  # no key is asked for twice
            items.sort(key=one_by_one(keys), reverse=self.reverse)
        return items


class Descending:
    """A key in descending order; only for bisecting, which compares a few items."""

    __slots__ = ("key",)

    def __init__(self, key: Any) -> None:
        self.key = key

    def __lt__(self, other: Descending) -> bool:
        return bool(other.key < self.key)


class SortedRun(Protocol):
    """Items in order, to be taken from the front."""

    @property
    def is_empty(self) -> bool:
        """Whether everything has been taken."""

    def ahead(self, step: int) -> tuple[Any, bool]:
        """Return the last of the next `step` items that are in memory, and whether others follow it."""

    def take(self, limit: int, pivot: Any, rank: Callable[[Any], Any], inclusive: bool) -> list[Any]:
        """Take those of the next `limit` items whose rank is less than a pivot, or, if `inclusive`, equal to it."""

    def left(self) -> Iterator[list[Any]]:
        """Yield lists of what has not been taken, which stays."""


class MemoryRun:
    """A sorted list."""

    __slots__ = ("_at", "_items")

    def __init__(self, items: list[Any]) -> None:
        self._items = items
        self._at = 0

    @property
    def is_empty(self) -> bool:
        """As `SortedRun.is_empty`."""
        return self._at >= len(self._items)

    def ahead(self, step: int) -> tuple[Any, bool]:
        """As `SortedRun.ahead`."""
        end = min(self._at + step, len(self._items))
        return self._items[end - 1], end < len(self._items)

    def take(self, limit: int, pivot: Any, rank: Callable[[Any], Any], inclusive: bool) -> list[Any]:
        """As `SortedRun.take`."""
        bisect = bisect_right if inclusive else bisect_left
        start = self._at
        self._at = bisect(self._items, pivot, start, min(start + limit, len(self._items)), key=rank)
        return self._items[start : self._at]

    def left(self) -> Iterator[list[Any]]:
        """As `SortedRun.left`."""
        items = self._items
        for start in range(self._at, len(items), _LEFT_AT_ONCE):
            yield items[start : start + _LEFT_AT_ONCE]


class NumberRun:
    """All that a `NumberSorter` has, made into numbers block by block.

    Args:
        sorter: nothing is added to it any more.
        block: items in a block.
        reverse: they descend.
    """

    __slots__ = ("_block", "_items", "_reverse", "_sorter")

    def __init__(self, sorter: NumberSorter, block: int, reverse: bool) -> None:
        self._sorter = sorter
        self._reverse = reverse
        self._items = block
        self._block = MemoryRun([])

    @property
    def is_empty(self) -> bool:
        """As `SortedRun.is_empty`."""
        if self._block.is_empty:
            self._block = MemoryRun(self._sorter.take(self._items))
        return self._block.is_empty

    def ahead(self, step: int) -> tuple[Any, bool]:
        """As `SortedRun.ahead`."""
        item, more = self._block.ahead(step)
        return item, more or len(self._sorter) > 0

    def take(self, limit: int, pivot: Any, rank: Callable[[Any], Any], inclusive: bool) -> list[Any]:
        """As `SortedRun.take`."""
        return self._block.take(limit, pivot, rank, inclusive)

    def left(self) -> Iterator[list[Any]]:
        """As `SortedRun.left`. When it has been drawn to its end, all is as before."""
        yield from self._block.left()
        self._sorter = yield from drained(self._sorter, self._reverse)


def drained(sorter: NumberSorter, reverse: bool) -> Generator[list[Any], None, NumberSorter]:
    """Yield all numbers of a sorter in lists, and return another sorter with the same numbers."""
    refilled = NumberSorter(reverse)
    while items := sorter.take(_LEFT_AT_ONCE):
        refilled.add(items)
        yield items
    return refilled


class FileRun:
    """A sorted run in a file of blocks, one of which is in memory.

    Args:
        folder: where the file lies; it must be on a disk to save memory.
        codec: of this process.
        block: items in a block, at most.
        level: how many merges its items have been through.

    Raises:
        OSError: the file cannot be made or written; the text names the folder.
    """

    def __init__(self, folder: str, codec: Codec, block: int, level: int = 0) -> None:
        self._folder = folder
        self._codec = codec
        self._pickling = Pickling()
        self._blocks: list[tuple[int, int, bool]] = []  # bytes, items, whether they are columns
        self._next = 0
        self._end = 0
        self._block = MemoryRun([])
        self._block_items = block
        self.level = level
        self._file = spill_file(folder, "sort", limited=True)

    def append(self, items: list[Any]) -> None:
        """Write items that come after all items that are there."""
        for start in range(0, len(items), self._block_items):
            stop = min(start + self._block_items, len(items))
            columns = self._codec.encode(items, start, stop)
            parts = self._pickling.dumps(items[start:stop]) if columns is None else [columns]
            size = 0
            with SpillErrors(self._folder, "sort", "write", limited=True):
                for part in parts:
                    with memoryview(part) as view:
                        self._write(view.cast("B"))
                        size += view.nbytes
            self._blocks.append((size, stop - start, columns is not None))

    def _write(self, data: memoryview) -> None:
        while data:
            written = os.write(self._file.fileno(), data)
            data = data[written:]

    @property
    def is_empty(self) -> bool:
        """As `SortedRun.is_empty`; reads the next block when one is due."""
        while self._block.is_empty:
            if self._next == len(self._blocks):
                return True
            self._block = MemoryRun(self._read())
        return False

    def _read(self) -> list[Any]:
        items = self._read_at(self._next, self._end)
        self._end += self._blocks[self._next][0]
        self._next += 1
        return items

    def left(self) -> Iterator[list[Any]]:
        """As `SortedRun.left`."""
        yield from self._block.left()
        end = self._end
        for number in range(self._next, len(self._blocks)):
            yield from MemoryRun(self._read_at(number, end)).left()
            end += self._blocks[number][0]

    def _read_at(self, number: int, start: int) -> list[Any]:
        """Return the items of a block that starts at a place in the file."""
        size, count, columns = self._blocks[number]
        data = bytearray(size)
        view, at = memoryview(data), 0
        with SpillErrors(self._folder, "sort", "read"):
            while at < size:
                got = os.preadv(self._file.fileno(), [view[at:]], start + at)
                if not got:
                    raise OSError(f"its file ends {size - at} bytes too early")
                at += got
        items: list[Any] = self._codec.decode(data, count) if columns else loads(data)
        return items

    def ahead(self, step: int) -> tuple[Any, bool]:
        """As `SortedRun.ahead`."""
        item, more = self._block.ahead(step)
        return item, more or self._next < len(self._blocks)

    def take(self, limit: int, pivot: Any, rank: Callable[[Any], Any], inclusive: bool) -> list[Any]:
        """As `SortedRun.take`."""
        return self._block.take(limit, pivot, rank, inclusive)

    def close(self) -> None:
        """Let the file go; idempotent."""
        self._file.close()


def merge(runs: list[SortedRun], order: Order, slice_items: int) -> Iterator[list[Any]]:
    """Merge runs, lazily, into sorted lists; equal items in the order of their runs.

    What has been taken from the runs has been yielded, so that another merge can go on where this one was left.

    Args:
        runs: among equal items, those of an earlier run come first. The list is not changed, the runs are.
        slice_items: how many items there are in a list, at most, as long as the runs are not very many.
    """
    rank = order.rank
    live = [run for run in runs if not run.is_empty]
    while live:
        step = max(slice_items // len(live), min(LEAST_STEP, slice_items))
        ends = [run.ahead(step) for run in live]
        ranks = [rank(item) for item, _ in ends]
        pivot = min(ranks)
        # More of what equals the pivot may follow in a run: then the runs behind it have to wait with theirs.
        split = len(live)
        for i, (_, more) in enumerate(ends):
            if more and not pivot < ranks[i]:
                split = i
                break
        piece: list[Any] = []
        for i, run in enumerate(live):
            piece += run.take(slice_items if i == split else step, pivot, rank, i <= split)
        yield order.sort(piece) if len(live) > 1 else piece
        live = [run for run in live if not run.is_empty]
