"""The processor that reads files: it claims units and hands their segments to a reader of lines or of batches.

Must not know: which files there are (`file_source`), and how their bytes become items (`line_blocks`, and
`file_batches`, which is loaded when it is needed).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, repeat
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from shmjet.core.broadcast_key import BroadcastKey
from shmjet.core.inbox import Inbox
from shmjet.core.processor import ProcessorContext
from shmjet.data.columnar import Columnar
from shmjet.data.errors import ProcessorError
from shmjet.processors.files.file_blocks import Segment, Unit
from shmjet.processors.files.file_work import FilePositions, FileWork, Partial, check_unchanged, last_changes
from shmjet.processors.files.line_blocks import LineReader
from shmjet.processors.general.base import BulkProcessor
from shmjet.processors.general.claims import Claims

if TYPE_CHECKING:
    from shmjet.processors.files.file_batches import Format

STATS_PERIOD = 0.1
"""Seconds between two updates of a processor's entry in the map of `read_files(stats=...)`."""

RESUME_SECONDS = 0.01
"""So much longer a call takes after a restore, until it has something to emit again."""

_FILES = "files"
_FILES_PER_ENTRY = 1000

CALL_SECONDS = 0.0005
"""A call begins no new piece after this long."""


@dataclass(frozen=True)
class FileReadOptions:
    """How files are read; the arguments of `read_files`."""

    patterns: tuple[str, ...]
    encoding: str
    errors: str
    skip_binary: bool
    with_path: bool
    largest_unit: int
    stats: str | None
    batches: Format | None
    """None: lines as items."""
    unit: str = "bytes"
    """What segments count, "bytes" or (rows of arrays) "items"."""


class Reader(Protocol):
    """What reads segments one after the other: `LineItems`, `LineBatchReader`, `CsvReader`."""

    def open(self, segment: Segment) -> None:
        """Begin a segment."""

    def next_items(self) -> list[Any] | None:
        """Return what is to be emitted next, perhaps nothing yet, or None at the end of the segment."""

    def rest(self) -> list[Any]:
        """Return what is to be emitted last, once all segments are read."""

    def take_rows(self) -> list[Any]:
        """Return what has been read and is kept back for larger batches; called between two segments or items."""

    @property
    def waiting(self) -> int:
        """How many items `take_rows` would return, in rows."""

    def report(self) -> dict[str, int]:
        """Return counts, by name."""

    def warning(self) -> str | None:
        """What a person should know at the end."""

    def close(self) -> None:
        """Free everything."""


class LineItems:
    """Reads lines as items: str, or (path, str)."""

    def __init__(self, reading: FileReadOptions) -> None:
        self._with_path = reading.with_path
        self._path = ""
        self._reader = LineReader(reading.encoding, reading.errors, reading.skip_binary)
        self.report = self._reader.report
        self.close = self._reader.close

    def open(self, segment: Segment) -> None:
        """Begin a segment."""
        self._path = segment.path
        self._reader.open(segment)

    def next_items(self) -> list[Any] | None:
        """Return lines, or None at the end of the segment."""
        lines = self._reader.next_lines()
        return list(zip(repeat(self._path), lines)) if self._with_path and lines is not None else lines

    def rest(self) -> list[Any]:
        """Nothing is left."""
        return []

    take_rows = rest
    waiting = 0

    def warning(self) -> str | None:
        """Nothing is worth one."""
        return None


class FileProcessor(BulkProcessor):
    """Reads the units that it claims.

    Under a guarantee it saves which units are through and how far it is in the unit that it reads; see `file_work`. The
    processor with index 0 saves the files, too.

    Args:
        reading: how to read.
        work: the files, and how they are cut.
        claims: where to claim numbers of units; None: take a fixed share by the processor's global index.
        seams: where the table of `csv_seams` is, if there is one.
    """

    _saves_at_end = True

    def __init__(self, reading: FileReadOptions, work: FileWork, claims: str | None, seams: str | None) -> None:
        self._reading = reading
        self._work = work
        self._address = claims
        self._seams = seams
        self._claims: Claims | None = None
        self._next_report = 0.0
        self._done = self._total = 0
        self._positions = FilePositions()
        self._order: Sequence[int] = ()
        self._changes: dict[str, int] = {}  # looked at after a restore
        self._resumes = False
        self._restored: dict[Any, Any] = {}
        self._unit: int | None = None
        self._segment = 0
        self._emitted = self._base = 0
        self._unsaved: list[tuple[Any, Any]] | None = None
        self.work_unit = reading.unit

    def start(self, context: ProcessorContext) -> None:
        """Open the counter of claims."""
        self._begin(self._work)
        if self._address is not None:
            self._claims = Claims(self._address, context.execution_id)
        mine: Sequence[Unit] = self._units if context.global_index == 0 else ()
        if self._claims is None:
            mine = self._units[context.global_index :: context.total_parallelism]
        self._total = sum(segment.end - segment.start for unit in mine for segment in unit)
        self._pieces = self._read()

    def complete(self) -> bool:
        """Emit lines or batches until the outbox refuses or a call's time is over; True when all units are read."""
        if not self.emission.flush():
            return False
        deadline = monotonic() + CALL_SECONDS
        for lines in self._pieces:
            if not self._put(lines):
                return False
            now = monotonic()
            if now >= self._next_report:
                self._next_report = now + STATS_PERIOD
                self._report()
            if now >= (deadline + RESUME_SECONDS if self._resumes else deadline):
                return False
        self._report()
        return True

    def save_to_snapshot(self) -> bool:
        """Emit what has been read, then save the positions."""
        if not self.emission.flush():
            return False
        if self._unsaved is None:
            if not self._put(self._reader.take_rows()):
                return False
            if self._unit is not None:
                self._positions.reach(self._unit, Partial(self._segment, self._emitted - self._base))
            self._unsaved = [*self._saved_entries()][::-1]
        while self._unsaved:
            if not self.outbox.offer_to_snapshot(*self._unsaved[-1]):
                return False
            self._unsaved.pop()
        self._unsaved = None
        return True

    def restore_from_snapshot(self, inbox: Inbox) -> None:
        """Take the files, and the positions of all processors."""
        for key, value in inbox.take():
            self._restored[key.key] = value

    def finish_snapshot_restore(self) -> bool:
        """Go on with the files of the snapshot.

        Raises:
            ProcessorError: the snapshot is of other files, or they cannot be read as they were.
        """
        restored, self._restored = self._restored, {}
        if not restored:
            return True
        if _FILES not in restored:
            raise ProcessorError(f"vertex {self.context.vertex_name!r}: the snapshot does not name the files")
        patterns, cut, size, parts = restored[_FILES]
        if tuple(patterns) != self._work.patterns:
            raise ProcessorError(
                f"vertex {self.context.vertex_name!r}: the snapshot is of files {list(patterns)}, this source reads "
                f"{list(self._work.patterns)}"
            )
        files = [file for part in range(parts) for file in restored[_FILES, part]]
        streams, plain = (
            tuple((path, length) for path, length, _, stream in files if stream is wanted) for wanted in (True, False)
        )
        changed = (*(file[2] for file in files if file[3]), *(file[2] for file in files if not file[3]))
        self._begin(FileWork(tuple(patterns), streams, plain, cut, size, changed))
        self._require_seams()
        self._changes = self._work.changes()
        self._positions = FilePositions.of([value for key, value in restored.items() if isinstance(key, int)])
        self._order = self._positions.order(self._units, with_seams=self._seams is not None)
        self._pieces = self._read()
        self._resumes = True
        return True

    def close(self) -> None:
        """Close the file that is open, and the counter."""
        self._pieces = iter(())  # a suspended generator would keep this object, and what it has open, in a cycle
        if self._claims is not None:
            self._claims.close()
        reader: Reader | None = getattr(self, "_reader", None)  # absent when init failed before
        if reader is not None:
            reader.close()

    def progress(self) -> tuple[int, int]:
        """Return the size of the segments that are read, and of all; the first processor has that of shared ones."""
        return self._done, max(self._total, 0)

    def _begin(self, work: FileWork) -> None:
        """Get ready to read all of the work."""
        before: Reader | None = getattr(self, "_reader", None)
        if before is not None:
            before.close()
        self._work = work
        self._units = work.units()
        self._order = range(len(self._units))
        self._reader = self._make_reader()

    def _require_seams(self) -> None:
        """Check that blocks of CSV can be read where quotes decide how they begin.

        Raises:
            ProcessorError: they were cut on one member, and now there are several, which have no table of seams.
        """
        batches = self._batch_format()
        if self._seams is not None or batches is None or all(not _is_cut(unit) for unit in self._units):
            return
        from shmjet.processors.files.file_batches import has_seams

        if has_seams(batches):
            raise ProcessorError(
                f"vertex {self.context.vertex_name!r}: the snapshot is of CSV files that one member was reading in "
                "blocks; go on with one member, or read them with quote=None"
            )

    def _batch_format(self) -> Format | None:
        """Return the format of plain files that become batches."""
        return self._reading.batches

    def _saved_entries(self) -> Iterator[tuple[Any, Any]]:
        """Return what belongs to a snapshot now."""
        index, work = self.context.global_index, self._work
        yield BroadcastKey(index), self._positions.saved()
        if index == 0:
            changed = iter(work.changed or last_changes(path for path, _ in (*work.streams, *work.plain)))
            files = [(*file, next(changed, 0), True) for file in work.streams]
            files += [(*file, next(changed, 0), False) for file in work.plain]
            parts = -(-len(files) // _FILES_PER_ENTRY)
            yield BroadcastKey(_FILES), (work.patterns, work.cut, work.size, parts)
            for part in range(parts):
                entry = files[part * _FILES_PER_ENTRY : (part + 1) * _FILES_PER_ENTRY]
                yield BroadcastKey((_FILES, part)), entry

    def _numbers(self) -> Iterator[int]:
        if self._claims is not None:
            while True:
                yield self._claims.next()
        yield from count(self.context.global_index, self.context.total_parallelism)

    def _make_reader(self) -> Reader:
        if self._reading.batches is None:
            return LineItems(self._reading)
        from shmjet.processors.files.file_batches import reader_of

        return reader_of(self._reading.batches, self._reading.skip_binary, self._seams, self._units)

    def _put(self, items: list[Any]) -> bool:
        rows = row_count(items)
        self._emitted += rows
        self._resumes = self._resumes and not rows
        return self.emission.put(items)

    def _read(self) -> Iterator[list[Any]]:
        """Yield lists of items; an empty one behind each segment, so that skipping files takes no long call."""
        reader, positions = self._reader, self._positions
        for claimed in self._numbers():
            if claimed >= len(self._order):
                break
            number = self._order[claimed]
            if positions.is_done(number):
                yield from self._passed(number)
                continue
            begun = positions.partial.get(number, Partial(0, 0))
            for place, segment in enumerate(self._units[number][begun.segment :], begun.segment):
                try:
                    yield from self._segment_of(number, place, begun.items if place == begun.segment else 0)
                except (OSError, UnicodeError) as error:
                    error.add_note(f"while reading {segment.path}, bytes {segment.start} to {segment.end}")
                    raise
                self._done += max(segment.end - segment.start, 0)
                yield []
            self._unit = None
            positions.finish(number)
        yield reader.rest()
        if (warning := reader.warning()) is not None:
            self.context.logger.warning("read_files: %s", warning)

    def _segment_of(self, number: int, place: int, emitted: int) -> Iterator[list[Any]]:
        """Yield the items of one segment, without the items that were emitted before the restore."""
        reader, segment = self._reader, self._units[number][place]
        check_unchanged(segment.path, self._changes.get(segment.path, 0))
        if emitted:
            yield reader.take_rows()
        self._unit, self._segment = number, place
        self._base = self._emitted + reader.waiting - emitted
        reader.open(segment)
        left = emitted
        while (items := reader.next_items()) is not None:
            if left:
                items, left = without_first(items, left)
            yield items
        if left:
            items, left = without_first(reader.take_rows(), left)
            yield items
        if left:
            raise ProcessorError(f"{segment.path}: {left} items fewer than when the snapshot was taken; it was changed")

    def _passed(self, number: int) -> Iterator[list[Any]]:
        """Look at a block that is through, for the sake of those behind it."""
        from shmjet.processors.csv.batch_reader import CsvReader

        reader = self._batch_reader()
        if isinstance(reader, CsvReader):
            for segment in self._units[number]:
                yield from reader.look_at(segment)
        yield []

    def _batch_reader(self) -> Any:
        """Return what reads plain files into batches."""
        return self._reader

    def _report(self) -> None:
        name = self._reading.stats
        if name is not None and self.context.grid is not None:
            self.context.grid.get_map(name)[self.context.global_index] = self._reader.report()


def _is_cut(unit: Unit) -> bool:
    return unit[0].end - unit[0].start < unit[0].size


def row_count(items: list[Any]) -> int:
    """Return the number of items, of batches that of their rows.

    Example:
        >>> row_count(["a", "b"])
        2
    """
    if items and isinstance(items[0], Columnar):
        return sum(map(len, items))
    return len(items)


def without_first(items: list[Any], left: int) -> tuple[list[Any], int]:
    """Return items, or batches, without the first `left` of them (rows of batches), and how many are still left.

    Example:
        >>> without_first(["a", "b", "c"], 2), without_first(["a"], 2)
        ((['c'], 0), ([], 1))
    """
    count = row_count(items)
    if left >= count:
        return [], left - count
    if not isinstance(items[0], Columnar):
        return items[left:], 0
    rest: list[Any] = []
    for batch in items:
        if left < len(batch):
            rest.append(batch[left:] if left else batch)
        left = max(0, left - len(batch))
    return rest, 0
