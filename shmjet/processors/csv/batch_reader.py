"""The reader of CSV files into batches, a block of a file at a time.

A block owns the records that START between its first newline and the first newline behind its end, except that a
record which began before and goes on inside quotes is skipped: `csv_seams` knows whether there is one. Pieces of the
file go through the kernel into the memory of a batch (`column_memory`); a batch is full when it has `batch_rows` rows,
wherever these came from.

Must not know: processors and outboxes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from shmjet._native._columns import CSV_START, csv_follow, csv_parse, csv_skip, csv_split
from shmjet.data.batch import Batch
from shmjet.data.errors import BatchError, no_column
from shmjet.data.schema_heads import SchemaHeads
from shmjet.processors.columns.column_memory import ColumnsMemory, repeated
from shmjet.processors.csv.csv_format import CsvFormat
from shmjet.processors.csv.parse_errors import UNCLOSED, complaint, line_of
from shmjet.processors.csv.quote_seams import Seams
from shmjet.processors.files.file_blocks import Segment, Unit
from shmjet.processors.files.file_window import PIECE, FileWindow
from shmjet.processors.files.line_blocks import BINARY_PROBE

LARGEST_RECORD: Final = 64 << 20
"""A record longer than this is an error: rather a quote was forgotten. It bounds the memory that a file can take."""

BOM: Final = b"\xef\xbb\xbf"

UTF_16: Final = (b"\xff\xfe", b"\xfe\xff")
"""How files in UTF-16 begin, and none in UTF-8."""

_UNTYPED: Final = np.zeros(0)
_NOTHING: Final = np.zeros(0, np.bool_)
_NEWLINE = b"\n"
_MORE, _FULL, _ROOM, _BAD = 1, 2, 3, 4


class Layout:
    """What the beginning of a file says: the columns of its fields, and where its first record begins."""

    __slots__ = ("fields", "names", "start")

    def __init__(self, names: Sequence[str], start: int, wanted: Sequence[str]) -> None:
        self.names = tuple(names)
        self.start = start
        self.fields = tuple(name if name in wanted else None for name in names)


class CsvReader:
    """Reads segments, one after the other, into batches.

    Args:
        csv: what the files hold; its schema is known.
        skip_binary: leave files out that have a NUL among their first 8 KiB.
        seams, units: see `csv_seams`; None when no file is cut.
    """

    def __init__(self, csv: CsvFormat, skip_binary: bool, seams: str | None, units: Sequence[Unit]) -> None:
        self._csv = csv
        self._skip_binary = skip_binary
        self._types = csv.parsed()
        self._declared = tuple(csv.wanted())
        self._narrow = narrowing(csv)
        self._heads = SchemaHeads()
        self._memory = ColumnsMemory(self._types, csv.batch_rows, csv.encoding, csv.errors)
        self._seams = None if seams is None else Seams(seams, units)
        self._window = FileWindow(PIECE)
        self._path = ""
        self._layout: Layout | None = None
        self._flow: Iterator[list[Batch]] = iter(())
        self._first_bad = ""
        self._has_told = False
        self.files = 0
        """Files of which this reader read the beginning."""
        self.bytes = 0
        """Bytes of the records and headers read so far."""
        self.skipped = 0
        """Binary files of which this reader met the beginning."""
        self.bad_lines = 0
        """Records left out because they are not good."""

    def open(self, segment: Segment) -> None:
        """Begin a segment. Raises OSError when the file cannot be read."""
        self._window.open(segment.path, segment.size)
        self._flow = self._read(segment)

    def next_items(self) -> list[Batch] | None:
        """Return batches that are full, perhaps none yet, or None at the end of the segment.

        Raises:
            BatchError: a header or a record is not good; it names file, line, column, expected and found.
        """
        return next(self._flow, None)

    def rest(self) -> list[Batch]:
        """Return the last batch, once all segments are read; of files without records perhaps a head."""
        if self._memory.rows:
            return self._take()
        return [self._head()] if self._csv.tells_columns and self.files and not self._has_told else []

    def take_rows(self) -> list[Batch]:
        """Return the rows that wait for a full batch."""
        return self._take() if self._memory.rows else []

    @property
    def waiting(self) -> int:
        """How many rows wait for a full batch."""
        return int(self._memory.rows)

    def look_at(self, segment: Segment) -> Iterator[list[Batch]]:
        """Tell the readers of later blocks of its file how a block ends, without reading it; yields nothing."""
        if self._seams is None or segment.end - segment.start == segment.size:
            return
        self._window.open(segment.path, segment.size)
        layout = self._look(segment.path)
        begin, stop = self._bounds(segment)
        self._publish(segment, max(begin, layout.start), stop, begin <= layout.start < stop)
        yield []

    def report(self) -> dict[str, int]:
        """Return the counts, by name."""
        return {"files": self.files, "bytes": self.bytes, "skipped": self.skipped, "bad_lines": self.bad_lines}

    def warning(self) -> str | None:
        """What a person should know at the end."""
        if not self.bad_lines:
            return None
        return f"{self.bad_lines} bad lines were left out; the first: {self._first_bad}"

    def close(self) -> None:
        """Close the file and the table of seams."""
        self._flow = iter(())
        self._window.close()
        if self._seams is not None:
            self._seams.close()

    # -- a segment -----------------------------------------------------------------------------------------------------

    def _read(self, segment: Segment) -> Iterator[list[Batch]]:
        if self._skip_binary and self._window.is_binary(BINARY_PROBE):
            self.skipped += segment.start == 0
            return
        if segment.path != self._path:
            if self._memory.rows and self._csv.path_column is not None:
                yield self._take()
            self._path, self._layout = segment.path, None
        if self._layout is None:
            self._layout = self._look(segment.path)
        if segment.start == 0:
            self.files += 1
            self.bytes += self._layout.start
        begin, stop = self._bounds(segment)
        first = begin <= self._layout.start < stop  # the header ends in this block
        begin = max(begin, self._layout.start)
        if self._seams is not None and segment.end - segment.start < segment.size:
            self._publish(segment, begin, stop, first)
            while (inside := self._seams.begins_inside(segment)) is None:
                yield []
            if inside and not first and begin < stop:
                begin = self._skip_record(begin)
        yield from self._records(begin, stop)

    def _bounds(self, segment: Segment) -> tuple[int, int]:
        """Return where the lines of a segment begin and end; equal when none begins in it."""
        begin = segment.start and self._next_line(segment.start, segment.end)
        if begin >= segment.end or segment.end == segment.size:
            return begin, max(begin, segment.end)
        return begin, self._next_line(segment.end, segment.size)

    def _next_line(self, offset: int, limit: int) -> int:
        """Return where the first line begins at or behind an offset, or `limit` when that is not before it."""
        at = offset - 1
        while at < limit - 1:
            size, at_end = self._window.fill(at)
            found = self._window.buffer.find(_NEWLINE, 0, size)
            if found >= 0:
                return min(at + found + 1, limit)
            if at_end:
                break
            at += size
        return limit

    def _publish(self, segment: Segment, begin: int, stop: int, first: bool) -> None:
        """Look at a block in both ways, or only in that from outside quotes, and tell the others what comes of it."""
        assert self._seams is not None
        state, at = CSV_START, begin
        while at < stop:
            size, _ = self._window.fill(at)
            used = min(size, stop - at)
            state = csv_follow(self._window.buffer, 0, used, self._csv.delimiter, self._csv.quote, state)
            at += used
        self._seams.publish(segment, outside=bool(state & 1), inside=bool(state & (1 if first else 2)))

    def _skip_record(self, position: int) -> int:
        csv, window = self._csv, self._window
        while True:
            size, at_end = window.fill(position)
            used = csv_skip(window.buffer, 0, size, csv.delimiter, csv.quote, at_end)
            if used >= 0:
                window.shrink()
                return position + used
            self._grow(position)

    def _grow(self, position: int) -> None:
        if len(self._window.buffer) >= LARGEST_RECORD:
            raise BatchError(
                f"{self._path}, line {line_of(self._path, position)}: a record of more than {LARGEST_RECORD >> 20} MiB "
                "begins here; is a closing quote missing?"
            )
        self._window.grow()

    # -- records -------------------------------------------------------------------------------------------------------

    def _records(self, position: int, stop: int) -> Iterator[list[Batch]]:
        """Parse the records that begin from `position` to before `stop`, a piece a step."""
        csv, window, memory = self._csv, self._window, self._memory
        assert self._layout is not None
        fields = self._layout.fields
        while position < stop:
            size, at_end = window.fill(position)
            at = used = 0
            columns = memory.descriptors(fields)
            while True:
                status, at, memory.rows, odd, bad = csv_parse(
                    *(window.buffer, at, size, csv.delimiter, csv.quote, at_end, stop - position, columns),
                    *(csv.nulls, csv.allowed, csv.lenient, memory.rows, csv.batch_rows),
                )
                memory.odd += odd
                used = at
                if status == _FULL:
                    yield self._take()
                elif status == _ROOM:
                    self._make_room(bad[1], bad[4] - bad[3])
                elif status == _BAD:
                    self._bad_record(position, bad)
                    continue
                else:
                    break
                columns = memory.descriptors(fields)
            self.bytes += used
            position += used
            if status != _MORE and (at_end or not used):
                return
            if not used:
                self._grow(position)
            else:
                window.shrink()
            yield []

    def _make_room(self, field: int, least: int) -> None:
        assert self._layout is not None
        name = self._layout.fields[field]
        assert name is not None
        self._memory.grow(name, least)

    def _bad_record(self, position: int, bad: tuple[int, int, int, int, int, int]) -> None:
        record, field, fields, begin, end, reason = bad
        layout = self._layout
        assert layout is not None
        if self._csv.skip_bad and self.bad_lines:
            self.bad_lines += 1
            return
        column = layout.names[field] if field < len(layout.names) else None
        type_ = self._types.get(column) if column is not None else None
        value = bytes(self._window.buffer[begin:end])
        line = line_of(self._path, position + record)
        what = complaint(reason, column, "any text" if type_ is None else type_.name, value, fields, len(layout.names))
        text = f"{self._path}, line {line}{what}"
        if not self._csv.skip_bad:
            raise BatchError(text)
        self._first_bad = text
        self.bad_lines += 1

    def _take(self) -> list[Batch]:
        rows = self._memory.rows
        self._has_told = True
        try:
            batch = self._memory.take()
        except BatchError as error:  # of errors="surrogateescape" and the like
            raise BatchError(f"{self._path}, or a file before it: {error}") from None
        name = self._csv.path_column
        if name is not None:
            batch = batch.with_columns({name: repeated(self._path, rows)})
        if self._narrow is None:
            return [batch]
        batch = self._narrow(batch)
        head = self._heads.before(batch)
        return [batch] if batch.num_rows else [] if head is None else [head]

    def _head(self) -> Batch:
        """Return a batch without rows that tells the columns; see `schema_heads`."""
        self._memory.descriptors(())
        batch = self._memory.take()
        known = [name for name in batch.names if name not in self._csv.untyped]
        columns = {name: column if name in known else _UNTYPED for name, column in batch.parts()[0].items()}
        if self._csv.path_column is not None:
            columns[self._csv.path_column] = repeated(self._path, 0)
        head = Batch.trusted(columns, dict.fromkeys(known, _NOTHING), 0)
        return head if self._narrow is None else self._narrow(head)

    def _look(self, path: str) -> Layout:
        """Return the layout of the file that is open; what it has to have is what was declared, not what is needed."""
        layout = read_layout(self._window, path, self._csv, self._declared)
        of_conditions = (name for condition in self._csv.conditions for name in condition.names)
        for name in (*(self._csv.needed or ()), *of_conditions):
            if name not in self._declared and name != self._csv.path_column:
                raise no_column(name, self._declared)
        return Layout(layout.names, layout.start, tuple(self._types))


def narrowing(csv: CsvFormat) -> Callable[[Batch], Batch] | None:
    """Return what leaves out rows and columns of a batch that has been parsed; None where there is nothing to do."""
    if not csv.conditions:
        return None
    from shmjet.columns.expressions import Selection  # only where there are conditions

    selections = [Selection(condition) for condition in csv.conditions]

    def narrowed(batch: Batch) -> Batch:
        for selection in selections:
            batch = selection.apply(batch)
        if csv.needed is None:
            return batch
        kept = [name for name in batch.names if name in csv.needed or name == csv.path_column]
        return batch.select(*(kept or batch.names[:1]))

    return narrowed


def read_layout(window: FileWindow, path: str, csv: CsvFormat, wanted: Sequence[str]) -> Layout:
    """Read the header of a file that is open, or make up the layout that a file without one must have.

    Raises:
        BatchError: the header does not name the columns of the schema, each once, or the columns to read.
    """
    size, at_end = window.fill(0)
    start = len(BOM) if csv.encoding == "utf-8" and window.buffer.startswith(BOM) and size >= len(BOM) else 0
    if csv.encoding == "utf-8" and bytes(window.buffer[: min(size, 2)]) in UTF_16:
        raise BatchError(f"{path}: the file is in UTF-16, as its first bytes say; convert it to UTF-8")
    if not csv.header:
        return Layout(tuple(csv.schema or ()), start, wanted)
    while True:
        if start >= size and at_end:
            return Layout((), size, wanted)
        found = csv_split(window.buffer, start, size, csv.delimiter, csv.quote, at_end)
        if found is None:
            if len(window.buffer) >= LARGEST_RECORD:
                raise BatchError(f"{path}, line 1: the header has more than {LARGEST_RECORD >> 20} MiB")
            window.grow()
            size, at_end = window.fill(0)
            continue
        values, after, reason = found
        if values != [(b"", False)]:
            break
        start = after  # an empty line
    window.shrink()
    if reason:
        why = "a quote is never closed" if reason == UNCLOSED else "text follows a closing quote"
        raise BatchError(f"{path}, line 1: the header is not valid CSV: {why}")
    names = [value.decode(csv.encoding, csv.errors) for value, _ in values]
    _check_names(names, path, csv, wanted)
    return Layout(names, after, wanted)


def _check_names(names: list[str], path: str, csv: CsvFormat, wanted: Sequence[str]) -> None:
    expected: Any = list(wanted)
    missing = [name for name in expected if name not in names]
    twice = [name for name in names if names.count(name) > 1 and name in expected]
    unknown = [name for name in names if name not in expected] if csv.columns is None else []
    if missing:
        raise BatchError(f"{path}, line 1: expected the column {missing[0]!r}, found {names}; is there a header?")
    if twice:
        raise BatchError(f"{path}, line 1: the header has the column {twice[0]!r} more than once")
    if unknown:
        raise BatchError(
            f"{path}, line 1: found the column {unknown[0]!r}, which is not in the schema; "
            "add it, or name the columns to read with columns=[...]"
        )
