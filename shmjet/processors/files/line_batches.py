"""The reader of lines of text files into batches of one text column.

The lines are those of `line_blocks`, cut at the same borders; they are copied into the column without ever becoming
Python objects, unless the bytes are not UTF-8. Must not know: processors and outboxes.
"""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shmjet._native._columns import is_utf8, split_lines
from shmjet.data.batch import Batch
from shmjet.data.errors import BatchError
from shmjet.data.text import Text
from shmjet.processors.columns.column_memory import repeated
from shmjet.processors.files.file_blocks import Segment
from shmjet.processors.files.line_blocks import LineReader


@dataclass(frozen=True)
class LineFormat:
    """How lines become batches; the arguments of `read_files(..., as_=Batch)`, checked."""

    column: str
    is_bytes: bool
    batch_rows: int
    encoding: str
    errors: str
    path_column: str | None


class LineBatchReader:
    """Reads segments, one after the other, into batches.

    Args:
        lines: what the batches look like.
        skip_binary: leave files out that have a NUL among their first 8 KiB.
    """

    def __init__(self, lines: LineFormat, skip_binary: bool) -> None:
        self._lines = lines
        self._reader = LineReader(skip_binary=skip_binary)
        self._utf8 = codecs.lookup(lines.encoding).name == "utf-8"
        self._path = ""
        self._rows = 0
        self._offsets: npt.NDArray[np.int64] = np.zeros(1, np.int64)
        self._data: npt.NDArray[np.uint8] = np.empty(0, np.uint8)
        self._due: list[Batch] = []

    def open(self, segment: Segment) -> None:
        """Begin a segment. Raises OSError when the file cannot be read."""
        if segment.path != self._path and self._lines.path_column is not None:
            self._due = self.rest()
        self._path = segment.path
        self._reader.open(segment)

    def next_items(self) -> list[Batch] | None:
        """Return batches that are full, perhaps none yet, or None at the end of the segment.

        Raises:
            BatchError: bytes are not in the encoding, with errors="strict" or a handler that makes invalid Unicode.
        """
        full, self._due = self._due, []
        piece = self._reader.next_piece()
        if piece is None:
            return full or None
        with piece:
            content = self._content(piece)
            at, size = 0, len(content)
            while at < size:
                self._make_room(size - at)
                limit = self._lines.batch_rows
                at, self._rows = split_lines(content, at, size, self._data, self._offsets, self._rows, limit)
                if self._rows == limit:
                    full.append(self._take())
        return full

    def rest(self) -> list[Batch]:
        """Return the last batch, once all segments are read."""
        return [self._take()] if self._rows else []

    def take_rows(self) -> list[Batch]:
        """Return the rows that wait for a full batch."""
        due, self._due = self._due, []
        return due + self.rest()

    @property
    def waiting(self) -> int:
        """How many rows wait for a full batch."""
        return self._rows + sum(map(len, self._due))

    def report(self) -> dict[str, int]:
        """Return the counts, by name."""
        return self._reader.report()

    def warning(self) -> str | None:
        """What a person should know at the end."""
        return None

    def close(self) -> None:
        """Close the file."""
        self._reader.close()

    def _content(self, piece: memoryview) -> memoryview | bytes:
        """Return the bytes in UTF-8."""
        if self._lines.is_bytes or (self._utf8 and is_utf8(piece)):
            return piece
        try:
            return str(piece, self._lines.encoding, self._lines.errors).encode()
        except UnicodeDecodeError as error:
            why = f"{error.object[error.start : error.end]!r} ({error.reason})"
        except UnicodeEncodeError:
            why = f"bytes that errors={self._lines.errors!r} turns into no valid text"
        raise BatchError(
            f"{self._path}: column {self._lines.column!r}: expected {self._lines.encoding}, found {why}; "
            'read them as bytes, or with errors="replace"'
        )

    def _make_room(self, least: int) -> None:
        if len(self._offsets) == 1:
            self._offsets = np.empty(self._lines.batch_rows + 1, np.int64)
            self._offsets[0] = 0
        used = int(self._offsets[self._rows])
        if len(self._data) - used < least:
            room = np.empty(max(2 * len(self._data), used + least), np.uint8)
            room[:used] = self._data[:used]
            self._data = room

    def _take(self) -> Batch:
        rows, offsets = self._rows, self._offsets[: self._rows + 1]
        data = self._data[: offsets[-1]]
        if 4 * len(data) < len(self._data) or 4 * rows < len(self._offsets):  # a small batch keeps no large memory
            offsets, data = offsets.copy(), data.copy()
        columns: dict[str, Any] = {self._lines.column: Text.trusted(offsets, data, self._lines.is_bytes)}
        if self._lines.path_column is not None:
            columns[self._lines.path_column] = repeated(self._path, rows)
        self._rows = 0
        self._offsets = np.zeros(1, np.int64)
        self._data = np.empty(0, np.uint8)
        return Batch.trusted(columns, {}, rows)
