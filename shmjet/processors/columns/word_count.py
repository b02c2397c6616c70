"""Word count in native code: a source that counts words of files, and processors for those of a column and for sums.

The same two stages as with items: every processor counts for itself, then the counts of a word meet in one processor.
Words travel with their counts in pieces, each of one share of the hashes, so that an edge partitioned by the share
brings equal words together and no word becomes an object. A piece is a plain tuple of bytes, the fields of a
`columns.words.WordPiece`; or a `Batch` with the columns `word` and `count`, for edges partitioned by `column("word")`
and for processors of batches. Only batches need numpy, which takes longer to import than a small text takes to count.

Must not know: what the counts are for, and how files are cut (`file_blocks`) or read (`word_blocks`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from time import monotonic
from typing import Any, Final

from shmjet.columns.words import WordCounter
from shmjet.core.broadcast_key import BroadcastKey
from shmjet.core.inbox import Inbox
from shmjet.core.processor import (
    MetaSupplierContext,
    Processor,
    ProcessorContext,
    ProcessorMetaSupplier,
    ProcessorSupplier,
)
from shmjet.data.errors import ProcessorError
from shmjet.processors.columns.saving import EntrySteps
from shmjet.processors.columns.word_blocks import WordReader
from shmjet.processors.columns.word_totals import CombineWordsProcessor, CountColumnProcessor, emitter, pieces_of
from shmjet.processors.files.file_blocks import LARGEST_UNIT, Unit, absolute_patterns, find_files, unit_size
from shmjet.processors.files.file_reader import CALL_SECONDS, STATS_PERIOD
from shmjet.processors.files.file_source import PathLike
from shmjet.processors.files.file_work import FilePositions, FileWork, Partial, check_unchanged, last_changes
from shmjet.processors.general.base import BulkProcessor, Supply
from shmjet.processors.general.claims import ClaimCounter, Claims

_PLAN: Final = "plan"
"""Under a `BroadcastKey` of this: the plan of the job that the snapshot is of."""

SHARES_PER_PROCESSOR = 4
"""Shares of the words for each processor that adds up, if there are as many such processors as counting ones."""

MOST_SHARES = 256
"""Shares at most: fewer than there are partitions (271 by default)."""

_OPEN_COST = 16 << 10
"""The fixed cost of a file, in bytes."""


@dataclass(frozen=True)
class WordCountOptions:
    """How words are counted; the arguments of `count_words`."""

    patterns: tuple[str, ...]
    lower: bool
    skip_binary: bool
    batches: bool
    largest_unit: int
    stats: str | None


@dataclass(frozen=True)
class _Plan:
    """What the processors of all members have in common: the files, and how words are hashed and dealt."""

    work: FileWork
    seed: int
    shares: int


def _bytes_of(unit: Unit) -> int:
    return sum(segment.end - segment.start for segment in unit)


def share_partition(share: int, partition_count: int) -> int:
    """The partitioner of edges on which pieces travel: shares are dealt to partitions, and so evenly to processors."""
    return share % partition_count


class CountWordsProcessor(BulkProcessor):
    """Counts the words of the units that it claims, and emits the counts at the end, and before each barrier.

    It saves which units are through and how far it is in the unit that it reads. The processor with index 0 saves the
    plan, too: a restored job cuts the files as before, and deals words to the same shares.

    Args:
        counting: how to count.
        plan: what there is to do.
        claims: where to claim numbers of units; None: take a fixed share by the processor's global index.
    """

    work_unit = "bytes"
    _saves_at_end = True

    def __init__(self, counting: WordCountOptions, plan: _Plan, claims: str | None) -> None:
        self._counting = counting
        self._plan = plan
        self._address = claims
        self._claims: Claims | None = None
        self._reader: WordReader | None = None
        self._next_report = 0.0
        self._done = self._is_flushing = False
        self._positions = FilePositions()
        self._unit: int | None = None
        self._segment = 0
        self._saving: EntrySteps | None = None
        self._restored: dict[Any, Any] = {}
        self._read_bytes = self._all_bytes = 0

    def start(self, context: ProcessorContext) -> None:
        """Open the counter of claims."""
        if self._address is not None:
            self._claims = Claims(self._address)
        self._emit = emitter(self._counting.batches)
        self._begin(self._plan)

    def _begin(self, plan: _Plan) -> None:
        """Get ready to count what the positions leave of a plan."""
        context, self._plan, positions = self.context, plan, self._positions
        if self._reader is not None:
            self._reader.close()
        self._units = plan.work.units()
        self._order = positions.order(self._units, with_seams=False)
        self._changes = plan.work.changes()
        self._counter = WordCounter(self._counting.lower, plan.seed)
        self._reader = WordReader(self._counter, self._counting.skip_binary)
        mine: Sequence[Unit] = self._units if context.global_index == 0 else ()
        if self._claims is None:
            mine = self._units[context.global_index :: context.total_parallelism]
        self._all_bytes = sum(map(_bytes_of, mine))
        done = (unit for number, unit in enumerate(self._units) if positions.is_done(number))
        self._read_bytes = sum(map(_bytes_of, done)) if context.global_index == 0 else 0
        self._steps = self._count(self._reader)

    def complete(self) -> bool:
        """Count until a call's time is over, then emit the counts; True when all are emitted."""
        if not self._done:
            deadline = monotonic() + CALL_SECONDS
            for _ in self._steps:
                now = monotonic()
                if now >= self._next_report:
                    self._next_report = now + STATS_PERIOD
                    self._report()
                if now >= deadline:
                    return False
            self._report()
            self._done = True
            self.emission.start(self._results())
        return self.emission.flush()

    def save_to_snapshot(self) -> bool:
        """Emit all counts and begin with an empty table, then save the positions."""
        if self._saving is None:
            if not self._flush_counts():
                return False
            if self._unit is not None and self._reader is not None:
                self._positions.reach(self._unit, Partial(self._segment, self._reader.mark))
            self._saving = EntrySteps(self.outbox, self._entries())
        if not self._saving.flush():
            return False
        self._saving = None
        return True

    def _flush_counts(self) -> bool:
        if not self._is_flushing and not self._done:
            overdue = self.outbox.overdue
            while not self._counter.fold():
                if overdue is not None and overdue():
                    return False
            self._is_flushing = True
            self.emission.start(self._results())
        if not self.emission.flush():
            return False
        if self._is_flushing and self._reader is not None:
            self._is_flushing = False
            self._counter = WordCounter(self._counting.lower, self._plan.seed)
            self._reader.count_into(self._counter)
        return True

    def _results(self) -> Iterator[Any]:
        return pieces_of(self._counter, self._emit, 1 if self._counting.batches else self._plan.shares)

    def _entries(self) -> Iterator[tuple[Any, Any]]:
        index, plan = self.context.global_index, self._plan
        yield BroadcastKey(index), self._positions.saved()
        if index == 0:
            work = plan.work
            files = work.plain, work.size, work.changed or last_changes(path for path, _ in work.plain)
            yield BroadcastKey(_PLAN), (work.patterns, files, plan.seed, plan.shares)

    def restore_from_snapshot(self, inbox: Inbox) -> None:
        """Take the plan, and the positions of all processors."""
        for key, value in inbox.take():
            self._restored[key.key] = value

    def finish_snapshot_restore(self) -> bool:
        """Go on with the files of the snapshot.

        Raises:
            ProcessorError: the snapshot is of other files.
        """
        restored, self._restored = self._restored, {}
        if not restored:
            return True
        patterns, (files, size, changed), seed, shares = restored.pop(_PLAN)
        if tuple(patterns) != self._counting.patterns:
            raise ProcessorError(
                f"vertex {self.context.vertex_name!r}: the snapshot is of files {list(patterns)}, this source reads "
                f"{list(self._counting.patterns)}"
            )
        self._positions = FilePositions.of([*restored.values()])
        self._begin(_Plan(FileWork(tuple(patterns), (), files, "bytes", size, changed), seed, shares))
        return True

    def close(self) -> None:
        """Close the file that is open, and the counter of claims."""
        if self._claims is not None:
            self._claims.close()
        if self._reader is not None:
            self._reader.close()

    def progress(self) -> tuple[int, int]:
        """Return the bytes that are read, and all; the first processor has those of shared units."""
        return self._read_bytes, self._all_bytes

    def _numbers(self) -> Iterator[int]:
        if self._claims is not None:
            while True:
                yield self._claims.next()
        yield from count(self.context.global_index, self.context.total_parallelism)

    def _count(self, reader: WordReader) -> Iterator[None]:
        """Count everything, a piece at a time."""
        positions = self._positions
        for claimed in self._numbers():
            if claimed >= len(self._order):
                break
            number = self._order[claimed]
            begun = positions.partial.get(number, Partial(0, 0))
            for place, segment in enumerate(self._units[number][begun.segment :], begun.segment):
                self._unit, self._segment = number, place
                check_unchanged(segment.path, self._changes.get(segment.path, 0))
                try:
                    reader.open(segment, begun.items if place == begun.segment else 0)
                    while reader.next_piece():
                        yield
                except OSError as error:
                    error.add_note(f"while reading {segment.path}, bytes {segment.start} to {segment.end}")
                    raise
                self._read_bytes += segment.end - segment.start
                self._segment = place + 1
                yield
            self._unit = None
            positions.finish(number)
        while not self._counter.fold():
            yield

    def _report(self) -> None:
        name = self._counting.stats
        if name is not None and self.context.grid is not None and self._reader is not None:
            self.context.grid.get_map(name)[self.context.global_index] = self._reader.report()


class WordCountSupplier(ProcessorSupplier):
    """Makes the processors of one member."""

    is_cooperative = True

    def __init__(self, counting: WordCountOptions, plan: _Plan, claims: str | None) -> None:
        self._counting = counting
        self._plan = plan
        self._claims = claims

    def get(self, count: int) -> Sequence[Processor]:
        """Return processors that share the units."""
        return [CountWordsProcessor(self._counting, self._plan, self._claims) for _ in range(count)]


class WordCountMetaSupplier(ProcessorMetaSupplier):
    """Finds the files and cuts them into units when an execution starts; it owns the counter of claims."""

    state_kind = "count_words"
    is_cooperative = True

    def __init__(self, counting: WordCountOptions) -> None:
        self._counting = counting
        self._plan = _Plan(FileWork((), (), (), "bytes", 1), 0, 1)
        self._claims: ClaimCounter | None = None

    def init(self, context: MetaSupplierContext) -> None:
        """List files and sizes.

        Raises:
            FileNotFoundError: when a path does not exist; it names it.
        """
        files = find_files(self._counting.patterns)
        total = sum(size for _, size in files) + _OPEN_COST * len(files)
        size = unit_size(total, context.total_parallelism, self._counting.largest_unit)
        changed = last_changes(path for path, _ in files) if context.snapshotting_enabled else ()
        work = FileWork(self._counting.patterns, (), tuple(files), "bytes", size, changed)
        shares = min(SHARES_PER_PROCESSOR * max(1, context.total_parallelism), MOST_SHARES)
        self._plan = _Plan(work, random.getrandbits(63), shares)

    def get(self, addresses: Sequence[str]) -> Mapping[str, ProcessorSupplier]:
        """Return the suppliers: with claims on the only member, with fixed shares on several."""
        address = None
        if len(addresses) == 1:
            self._claims = ClaimCounter()
            address = self._claims.address
        return dict.fromkeys(addresses, WordCountSupplier(self._counting, self._plan, address))

    def close(self, error: BaseException | None) -> None:
        """Free the counter."""
        if self._claims is not None:
            self._claims.close()


def count_words(
    paths: PathLike | Iterable[PathLike],
    *,
    lower: bool = True,
    skip_binary: bool = False,
    batches: bool = False,
    block_size: int = LARGEST_UNIT,
    stats: str | None = None,
) -> ProcessorMetaSupplier:
    """Count the words of UTF-8 files: the first stage of two. What it emits is for `combine_words`.

    Words are what `text.lower().split()` gives, with U+FFFD for invalid UTF-8.

    Args:
        paths: a file, folder (read recursively) or glob (`**` included), or several.
        lower: fold case.
        skip_binary: leave out files with a NUL byte among their first 8 KiB.
        batches: emit batches with the columns `word` and `count`; the edge to `combine_words` is then partitioned by
            `column("word")`. Otherwise tuples are emitted, and the edge is
            `.partitioned(operator.itemgetter(0), share_partition)`.
        block_size: bytes that a processor reads between two claims, at most.
        stats: name of a map that gets an entry {"files", "bytes", "skipped", "words"} per processor while they read.

    Raises:
        ValueError: no paths, or a block size below 1.
        TypeError: when a path is none.

    A path that does not exist makes the job fail with a `FileNotFoundError` that names it.

    Example:
        >>> dag = DAG()                                                                   # doctest: +SKIP
        >>> read = dag.new_vertex("read", count_words("/usr/share/doc"))                  # doctest: +SKIP
        >>> combine = dag.new_vertex("combine", combine_words())                          # doctest: +SKIP
        >>> dag.edge(between(read, combine).partitioned(itemgetter(0), share_partition))  # doctest: +SKIP
    """
    if block_size < 1:
        raise ValueError(f"count_words: block_size must be at least 1 byte, got {block_size}")
    return WordCountMetaSupplier(
        WordCountOptions(absolute_patterns(paths), lower, skip_binary, batches, block_size, stats)
    )


def count_words_of(column: str, *, lower: bool = True) -> Callable[[], Processor]:
    """Count the words of a text column of batches; emit batches with the columns `word` and `count` at the end.

    Each processor counts for itself, so that counts of equal words have still to be added up: by `combine_words`, or in
    a pipeline by `group_by("word").agg(n=sum_("count"))`. That is much less work than adding up the counts of every
    batch. Words are what `value.lower().split()` gives; nulls have none.

    Args:
        column: name of the column.
        lower: fold case.

    Raises:
        BatchError: (in the job) an item is not a batch, or the column is missing or holds something else.

    Example:
        >>> words = lines.custom_transform("words", count_words_of("line"))       # doctest: +SKIP
        >>> words.group_by("word").agg(n=sum_("count")).write_to(results)         # doctest: +SKIP
    """
    supply = Supply(CountColumnProcessor, column, lower)
    supply.state_kind += f" of {column!r}, {'lower case' if lower else 'as they are'}"
    return supply


def combine_words(*, batches: bool = False) -> Callable[[], Processor]:
    """Add up the counts of `count_words`: the second stage of two.

    Args:
        batches: emit batches with the columns `word` and `count`. Otherwise tuples that make a
            `shmjet.columns.words.WordPiece` are emitted. Either is accepted.

    Example:
        >>> supplier = combine_words(batches=True)
    """
    return Supply(CombineWordsProcessor, batches)
