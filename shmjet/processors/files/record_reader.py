"""Readers that turn the segments of files, plain or packed, local or remote, into items of any format.

A plain file of this host is read by blocks, as `read_files` does. A packed or remote file is a stream: lines, JSON and
raw bytes are made of it as it comes; CSV and batches, whose readers need a file, get a temporary file without a name,
which is written piece by piece first. Every step is about a millisecond of work.

Must not know: processors and outboxes.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Any

from shmjet.data.decoders import converter
from shmjet.processors.csv.parse_errors import line_of
from shmjet.processors.files.compression import UnpackedStream, compression_of
from shmjet.processors.files.file_blocks import Segment
from shmjet.processors.files.line_blocks import LineReader
from shmjet.processors.files.paths import is_url, open_file
from shmjet.processors.files.record_text import BadLineError, JsonLines, split_lines
from shmjet.processors.general.spill_files import SpillErrors, spill_file

if TYPE_CHECKING:
    from shmjet.processors.files.file_batches import Format
    from shmjet.processors.files.file_reader import Reader

PIECE = 128 << 10
"""Bytes taken from a stream at once."""

PATH_COLUMN = "\0path"
"""Column of batches that are only made to become rows; no file has one of that name."""


@dataclass(frozen=True)
class RecordReadOptions:
    """How files become items; the arguments of `sources.files`, checked."""

    format: str
    encoding: str
    errors: str
    with_path: bool
    as_: Any
    """Type of the items, None for plain ones."""
    batches: Format | None
    """How the files become batches; None for lines, JSON and raw bytes as items."""
    rows: bool
    """Emit the rows of the batches as dicts (or as objects of `as_`)."""
    options: Mapping[str, Any]
    """For fsspec."""


def is_stream(path: str) -> bool:
    """Whether a file can only be read from its beginning to its end."""
    return is_url(path) or compression_of(path) is not None


class RecordReader:
    """Reads segments, one after the other, into items.

    Args:
        reading: how.
        make_batches: gives the reader of batches, for plain files (True) or for one temporary file (False).
    """

    def __init__(self, reading: RecordReadOptions, make_batches: Callable[[bool], Reader]) -> None:
        self._reading = reading
        self._make_batches = make_batches
        self._batches: Reader | None = None
        self._json = JsonLines(reading.as_, reading.encoding, reading.errors) if reading.format == "json" else None
        self._lines = LineReader(reading.encoding, reading.errors, skip_binary=False)
        self._stream: UnpackedStream | None = None
        self._spooled: Reader | None = None
        self._spooled_path = ""
        self._spool = -1
        self._flow: Iterator[list[Any]] = iter(())
        self._warnings: list[str] = []
        self._counts = {"files": 0, "bytes": 0}

    def open(self, segment: Segment) -> None:
        """Begin a segment. Raises OSError when the file cannot be read."""
        self._flow = self._read(segment)

    def next_items(self) -> list[Any] | None:
        """Return items, perhaps none yet, or None at the end of the segment.

        Raises:
            ValueError, BatchError: something in the file is not good; it names file and line.
        """
        return next(self._flow, None)

    def rest(self) -> list[Any]:
        """Return what is to be emitted last, once all segments are read."""
        if self._batches is None:
            return []
        warning = self._batches.warning()
        if warning is not None:
            self._warnings.append(warning)
        return self._items_of(self._batches.rest(), None)

    def take_rows(self) -> list[Any]:
        """Return the rows that wait for larger batches."""
        items: list[Any] = []
        if self._spooled is not None:
            items += self._items_of(self._spooled.take_rows(), self._spooled_path)
        if self._batches is not None:
            items += self._items_of(self._batches.take_rows(), None)
        return items

    @property
    def waiting(self) -> int:
        """How many rows wait for larger batches."""
        return 0 if self._batches is None else self._batches.waiting

    def batch_reader(self) -> Reader | None:
        """Return what reads plain files into batches; None when these become items otherwise."""
        if self._batches is None and self._reading.batches is not None:
            self._batches = self._make_batches(True)
        return self._batches

    def report(self) -> dict[str, int]:
        """Return the counts, by name."""
        return self._counts

    def warning(self) -> str | None:
        """What a person should know at the end."""
        return "; ".join(self._warnings) or None

    def close(self) -> None:
        """Free everything."""
        self._flow = iter(())  # a suspended generator would keep this object in a cycle
        self._lines.close()
        for opened in (self._stream, self._batches, self._spooled):
            if opened is not None:
                opened.close()
        self._close_spool()

    def _read(self, segment: Segment) -> Iterator[list[Any]]:
        self._counts["files"] += segment.start == 0
        if self._reading.batches is not None:
            yield from self._spooled_batches(segment) if is_stream(segment.path) else self._plain_batches(segment)
        elif self._reading.format == "raw":
            yield from self._raw(segment)
        elif is_stream(segment.path):
            yield from self._streamed(segment)
        else:
            yield from self._plain(segment)

    # -- items ---------------------------------------------------------------------------------------------------------

    def _plain(self, segment: Segment) -> Iterator[list[Any]]:
        reader = self._lines
        reader.open(segment)
        while True:
            if self._json is None:
                lines = reader.next_lines()
                if lines is None:
                    return
                yield self._marked(lines, segment.path)
                continue
            piece = reader.next_piece()
            if piece is None:
                return
            with piece:
                size, data = len(piece), bytes(piece)
            behind = reader.position
            try:
                values = self._json.decode(_without_mark(data) if behind == size else data)
            except BadLineError as error:
                raise _at(segment.path, line_of(segment.path, behind - size) + error.index, error) from None
            yield self._marked(values, segment.path)

    def _streamed(self, segment: Segment) -> Iterator[list[Any]]:
        """Cut a stream into pieces, each after the last newline read so far."""
        stream, line, is_first = self._open_stream(segment.path), 1, True
        waiting: list[bytes] = []
        while True:
            data = stream.read(PIECE)
            self._counts["bytes"] += len(data)
            cut = data.rfind(b"\n") + 1
            if data and not cut:
                waiting.append(data)
                yield []
                continue
            whole = b"".join([*waiting, data[:cut]]) if data else b"".join(waiting)
            waiting = [data[cut:]] if data[cut:] else []
            if whole:
                if self._json is None:
                    values: list[Any] = split_lines(whole, self._reading.encoding, self._reading.errors)
                else:
                    try:
                        values = self._json.decode(_without_mark(whole) if is_first else whole)
                    except BadLineError as error:
                        raise _at(segment.path, line + error.index, error) from None
                    line += whole.count(b"\n") + whole.count(b"\r") - whole.count(b"\r\n")
                is_first = False
                yield self._marked(values, segment.path)
            if not data:
                break
        self._close_stream()

    def _raw(self, segment: Segment) -> Iterator[list[Any]]:
        stream, parts = self._open_stream(segment.path), []
        while data := stream.read(8 * PIECE):
            self._counts["bytes"] += len(data)
            parts.append(data)
            yield []
        self._close_stream()
        yield self._marked([b"".join(parts)], segment.path)

    def _marked(self, items: list[Any], path: str) -> list[Any]:
        return list(zip(repeat(path), items)) if self._reading.with_path else items

    # -- batches -------------------------------------------------------------------------------------------------------

    def _plain_batches(self, segment: Segment) -> Iterator[list[Any]]:
        reader = self.batch_reader()
        assert reader is not None
        reader.open(segment)
        while (batches := reader.next_items()) is not None:
            yield self._items_of(batches, None)

    def _spooled_batches(self, segment: Segment) -> Iterator[list[Any]]:
        """Unpack into a temporary file, then read that."""
        from shmjet.data.errors import BatchError

        stream = self._open_stream(segment.path)
        self._spool, size = temporary_file(), 0
        while data := stream.read(PIECE):
            size += len(data)
            view = memoryview(data)
            with SpillErrors(tempfile.gettempdir(), segment.path, "be unpacked"):
                while view:
                    view = view[os.write(self._spool, view) :]
            yield []
        self._close_stream()
        self._counts["bytes"] += size
        place = f"/proc/self/fd/{self._spool}"
        reader = self._spooled = self._make_batches(False)
        self._spooled_path = segment.path
        try:
            reader.open(Segment(place, 0, size, size))
            while (batches := reader.next_items()) is not None:
                yield self._items_of(batches, segment.path)
            yield self._items_of(reader.rest(), segment.path)
        except BatchError as error:
            error.args = (str(error).replace(place, segment.path),)
            raise
        warning = reader.warning()
        if warning is not None:
            self._warnings.append(warning.replace(place, segment.path))
        reader.close()
        self._spooled = None
        self._close_spool()

    def _items_of(self, batches: list[Any], path: str | None) -> list[Any]:
        """Return batches as they are to be emitted; `path` is set where theirs is that of a temporary file."""
        if not batches:
            return []
        if not self._reading.rows:
            return batches if path is None or not self._reading.with_path else [_at_path(b, path) for b in batches]
        items: list[Any] = []
        for batch in batches:
            rows = _rows(batch, self._reading.as_)
            if self._reading.with_path:
                paths = batch.values(PATH_COLUMN) if path is None else repeat(path)
                items += zip(paths, rows, strict=False)
            else:
                items += rows
        return items

    # -- streams -------------------------------------------------------------------------------------------------------

    def _open_stream(self, path: str) -> UnpackedStream:
        self._close_stream()
        stream = self._stream = UnpackedStream(open_file(path, self._reading.options), compression_of(path), path)
        return stream

    def _close_stream(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _close_spool(self) -> None:
        if self._spool >= 0:
            os.close(self._spool)
            self._spool = -1


def temporary_file() -> int:
    """Return the descriptor of a new temporary file without a name."""
    with spill_file(tempfile.gettempdir(), "reading a compressed file") as file:
        return os.dup(file.fileno())


def _rows(batch: Any, as_: Any) -> list[Any]:
    names = [name for name in batch.names if name != PATH_COLUMN]
    values = zip(*(batch.values(name) for name in names), strict=True) if names else ()
    rows = [dict(zip(names, row, strict=True)) for row in values]
    if as_ is None:
        return rows
    import msgspec

    try:
        converted: list[Any] = converter(list[as_], strict=False)(rows)
    except msgspec.ValidationError as error:
        raise ValueError(f"a row of CSV is not a valid {getattr(as_, '__name__', as_)}: {error}") from None
    return converted


def _at_path(batch: Any, path: str) -> Any:
    from shmjet.processors.columns.column_memory import repeated
    from shmjet.processors.files.file_batches import PATH_COLUMN as column

    return batch.with_columns({column: repeated(path, batch.num_rows)})


def _without_mark(data: bytes) -> bytes:
    return data.removeprefix(b"\xef\xbb\xbf")


def _at(path: str, line: int, error: BadLineError) -> ValueError:
    return ValueError(f"{path}, line {line}: {error}")
