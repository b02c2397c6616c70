"""The sort of all items, in bounded steps, in memory or beyond it.

Must not know: how sorted streams of several processors are merged (an `.ordered()` edge does that). Batches are
sorted as they arrive, and runs of similar length are merged at once, so the work is spread over the calls: a
log-structured merge tree (O'Neil et al., 1996). Items with numbers or ASCII text as keys are gathered instead until
they make a long run, since sorting them by digits takes the same time for each, however many they are. Numbers that are
sorted by themselves are not even kept as objects: their 64 bits are, and they are made anew when they leave.

When runs have outgrown their share of memory, all together become one in a file, written bit by bit while further items
come; many files are merged into one of the next level in the same way. At the end everything is merged once more, on
its way out. Nothing is sorted whole in one call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, repeat
from typing import Any

from shmjet._native import Codec, NumberSorter
from shmjet.core.key_functions import KeyFn, plain
from shmjet.core.processor import Processor, ProcessorContext
from shmjet.host.memory_limits import process_memory
from shmjet.processors.general.base import BulkProcessor, Supply
from shmjet.processors.general.memory_size import memory_size
from shmjet.processors.general.sorted_runs import FileRun, MemoryRun, NumberRun, Order, SortedRun, drained, merge
from shmjet.processors.general.spill_files import SPILL_SHARE, memory_share, spill_folder
from shmjet.processors.general.state_keys import own_key

SLICE = 8192
"""Items that are merged in a step."""

LONGEST_RUN = 1 << 16
"""Items; longer runs are not merged before they have to be: a merge of two takes a few milliseconds."""

FAN_IN = 64
"""Files that are merged into one, so that their blocks, one of each, take no more memory than there is."""

EAGERNESS = 4
"""Items that are written for each that comes, while something is to be written."""

_NUMBER = 8
"""Bytes of a number that is kept without its object."""

LOOK_BYTES = 16 << 20
"""Bytes that come between two looks at how much memory is left."""

_LEAST_LEFT = 0.25
"""Part of a processor's limit: when less is left, because others take it too, runs are written early."""


class _RunWriter:
    """Runs that are being merged into one in a file. What is not written yet can be taken from the runs."""

    def __init__(self, runs: list[SortedRun], order: Order, slice_items: int, target: FileRun) -> None:
        self._runs = runs
        self._pieces = merge(runs, order, slice_items)
        self.target = target

    def advance(self, items: int) -> bool:
        """Write about as many items; True when all are written."""
        while items > 0:
            piece = next(self._pieces, None)
            if piece is None:
                self._close_sources()
                return True
            self.target.append(piece)
            items -= len(piece)
        return False

    def runs(self) -> list[SortedRun]:
        """Return the runs that together have everything: what is written, and what is left."""
        return [self.target, *self._runs]

    def close(self) -> None:
        self.target.close()
        self._close_sources()

    def _close_sources(self) -> None:
        for run in self._runs:
            if isinstance(run, FileRun):
                run.close()


class SortProcessor(BulkProcessor):
    """Keeps sorted runs and merges them at the end. Stable for the items of one processor.

    Args:
        key_fn: what items are compared by; None: themselves.
        reverse: descending.
        memory_limit: bytes of items that are kept in memory, about; None: a share of what the job may take, or of what
            is available at the start.
        folder: where files lie; None: as the job says.
    """

    state_kind = "sort"

    entries_at_once = 4

    def __init__(
        self, key_fn: KeyFn, reverse: bool, memory_limit: int | None = None, folder: str | None = None
    ) -> None:
        self._order = Order(key_fn, reverse)
        self._limit: float = 0 if memory_limit is None else memory_limit
        self._folder = folder
        self._adapts = False
        self._next_look = LOOK_BYTES
        self._numbers: NumberSorter | None = None  # what came first, while there is nothing but numbers
        self._gathers = key_fn is None
        self._reverse = reverse
        self._runs: list[list[Any]] = []
        self._fresh: list[Any] = []  # behind them, not sorted yet
        self._bytes = 0  # in all of these
        self._size = 0.0  # of an item, on average, lately
        self._older: list[FileRun | _RunWriter] = []  # in the order in which their items came
        self._spill: _RunWriter | None = None  # the last of these, while it is being written
        self._compaction: _RunWriter | None = None
        self._merging: list[SortedRun] = []  # at the end
        self._piece: list[Any] = []  # merged last, and emitted in part
        self._piece_at = 0  # how many items were merged before
        self._codec: Codec | None = None

    def start(self, context: ProcessorContext) -> None:
        """Find out how much memory there is, unless it was said, and where files go."""
        self._folder = self._folder or context.job_config.spill_folder
        if self._limit:
            return
        self._adapts = context.job_config.memory_limit is None
        self._limit = memory_share(context.job_config, context.local_parallelism)

    def absorb(self, ordinal: int, items: list[Any]) -> None:
        """Make a run of a list, merge it with runs that are not much longer, and go on with what is to be written."""
        count = len(items)
        size = memory_size(items)
        self._size += (size / count - self._size) / 8
        if self._gathers and self._gather(items):
            self._bytes += _NUMBER * count
        else:
            self._gathers = False
            self._bytes += size
            self._enter(items)
        if self._spill is not None or self._compaction is not None:
            self._write(EAGERNESS * count)
        if self._bytes > SPILL_SHARE * self._limit or self._is_tight():
            self._begin_spill()

    def _is_tight(self) -> bool:
        """Say whether too little memory is left; that is looked at now and then, unless a limit was given."""
        if not self._adapts or self._bytes < self._next_look:
            return False
        self._next_look = self._bytes + LOOK_BYTES
        return process_memory() < _LEAST_LEFT * self._limit

    def _gather(self, items: list[Any]) -> bool:
        """Take items without their objects; False when they are not numbers."""
        if self._numbers is None:
            self._numbers = NumberSorter(self._reverse)
        return self._numbers.add(items)

    def _enter(self, items: list[Any]) -> None:
        """Put items into a run: a long list becomes a run that is sorted by digits later, a short one is sorted now."""
        runs = self._runs
        if self._order.by_digits and self._fresh:
            self._fresh += items
            if len(self._fresh) >= self._items_in(self._limit / 16, LONGEST_RUN):  # sorting them takes memory too
                self._finish_run()
        elif self._order.by_digits and not runs:
            self._fresh = self._order.sort(items)  # which shows whether that works
        elif self._order.by_digits:
            self._fresh = items
        else:
            self._finish_run()
            while runs and len(runs[-1]) <= 2 * len(items) and len(items) < LONGEST_RUN:
                items = runs.pop() + items
            runs.append(self._order.sort(items))

    def _finish_run(self) -> None:
        """Make a run of the items that came last."""
        if self._fresh:
            self._runs.append(self._order.sort(self._fresh))
            self._fresh = []

    def _begin_spill(self) -> None:
        self._finish_run()
        if self._spill is not None:  # items have become larger meanwhile
            self._write(1 << 62)
        self._spill = self._run_writer(self._take_runs(), 0)
        self._older.append(self._spill)
        self._bytes = 0
        self._next_look = LOOK_BYTES

    def _take_runs(self) -> list[SortedRun]:
        """Return what is in memory, and forget it."""
        numbers, self._numbers = self._numbers, None
        runs: list[SortedRun] = [NumberRun(numbers, self._items_in(self._limit / 16), self._reverse)] if numbers else []
        runs += [MemoryRun(run) for run in self._runs]
        self._runs = []
        return runs

    def _run_writer(self, runs: list[SortedRun], level: int) -> _RunWriter:
        self._codec = self._codec or Codec()
        # A block of each file that is merged is in memory, decoded: all together a quarter of it.
        target = FileRun(spill_folder(self._folder), self._codec, self._items_in(self._limit / (4 * FAN_IN)), level)
        return _RunWriter(runs, self._order, self._items_in(self._limit / 16), target)

    def _items_in(self, size: float, most: int | None = None) -> int:
        """Return how many items of the usual size there are in so many bytes, from 1 to `most` (a slice)."""
        return max(1, min(SLICE if most is None else most, int(size / max(self._size, 1))))

    def _write(self, items: int) -> None:
        """Go on writing: first what frees memory."""
        if self._spill is not None:
            if not self._spill.advance(items):
                return
            self._older[-1] = self._spill.target
            self._spill = None
            self._begin_compaction()
        elif self._compaction is not None and self._compaction.advance(items):
            self._older[self._older.index(self._compaction)] = self._compaction.target
            self._compaction = None
            self._begin_compaction()

    def _begin_compaction(self) -> None:
        """Start to merge the first `FAN_IN` neighbouring files of one level, if there are so many."""
        if self._compaction is not None:
            return
        first = 0
        for at, run in enumerate(self._older):
            if not isinstance(run, FileRun):
                first = at + 1
                continue
            begin = self._older[first]
            assert isinstance(begin, FileRun)
            if run.level != begin.level:
                first = at
            if at - first + 1 == FAN_IN:
                files = [each for each in self._older[first : at + 1] if isinstance(each, FileRun)]
                self._compaction = self._run_writer(list(files), run.level + 1)
                self._older[first : at + 1] = [self._compaction]
                return

    def results(self) -> Iterable[Any]:
        """Return everything in order, lazily."""
        runs = self._older_runs()
        self._finish_run()
        runs += self._take_runs()
        self._merging = runs
        return chain.from_iterable(self._pieces())

    def _older_runs(self) -> list[SortedRun]:
        runs: list[SortedRun] = []
        for each in self._older:
            runs += each.runs() if isinstance(each, _RunWriter) else [each]
        return runs

    def _pieces(self) -> Iterator[list[Any]]:
        """Yield what is merged, and keep each list until the next one is asked for."""
        merged = 0
        for piece in merge(self._merging, self._order, self._items_in(self._limit / 16)):
            self._piece, self._piece_at = piece, merged
            merged += len(piece)
            yield piece
        self._piece, self._piece_at = [], merged

    def saved_entries(self) -> Iterator[tuple[Any, Any]]:
        """Return all items that have not been emitted, in short lists, in an order that keeps equal items in theirs."""
        key = own_key(self.context)
        if self._finishing:
            runs: list[SortedRun] = [MemoryRun(self._piece[self.emission.drawn - self._piece_at :]), *self._merging]
        else:
            runs = self._older_runs()
        for run in runs:
            yield from zip(repeat(key), run.left())
        if self._numbers is not None:
            yield from zip(repeat(key), self._drained_numbers(self._numbers))
        for items in (*self._runs, self._fresh):
            yield from zip(repeat(key), MemoryRun(items).left())

    def _drained_numbers(self, numbers: NumberSorter) -> Iterator[list[Any]]:
        self._numbers = yield from drained(numbers, self._reverse)

    def restore_entries(self, entries: list[tuple[Any, Any]]) -> None:
        """Take the items as if they had come."""
        for _, items in entries:
            self.absorb(0, items)

    def close(self) -> None:
        """Let the files go."""
        for each in self._older:
            each.close()
        self._older = []


def sort(
    key_fn: Callable[[Any], Any] | None = None,
    *,
    reverse: bool = False,
    memory_limit: int | None = None,
    folder: str | None = None,
) -> Callable[[], Processor]:
    """Collect all items and emit them in order at the end.

    For one order over all processors, join this vertex to one with `local_parallelism=1` by an edge that is
    `.ordered(key_fn)`. Equal items keep the order in which the processor received them, also with `reverse`.

    Items that do not fit into `memory_limit` are written to files without a name, which vanish with the processor, and
    need to be picklable then.

    Args:
        key_fn: what items are compared by (None: themselves).
        reverse: descending order. NaNs come last in both directions.
        memory_limit: bytes that one processor's items may take in memory, estimated from samples; default: that of the
            `JobConfig`, or else half of the memory that host, control groups and `ulimit -v` leave when the job starts,
            divided by the processors of the vertex on the member.
        folder: an existing folder for the files (default: `spill_folder` of the `JobConfig`, or else that of
            `tempfile`, which heeds TMPDIR). It should lie on a disk: what is written to a file system in memory saves
            none.

    Raises:
        TypeError: when an argument has the wrong type. ValueError: when `memory_limit` is less than 1. Items that
            cannot be compared make the job fail.

    Example:
        >>> from shmjet.testing import verify_processor
        >>> verify_processor(sort()).inputs([3, 1, 2]).expect([1, 2, 3])
    """
    if memory_limit is not None:
        if type(memory_limit) is not int:
            raise TypeError(f"sort: memory_limit must be an int (bytes) or None, got {memory_limit!r}")
        if memory_limit < 1:
            raise ValueError(f"sort: memory_limit must be at least 1 byte, got {memory_limit}")
    if folder is not None and not isinstance(folder, str):
        raise TypeError(f"sort: folder must be a str or None, got {folder!r}")
    return Supply(SortProcessor, plain(key_fn), bool(reverse), memory_limit, folder)
