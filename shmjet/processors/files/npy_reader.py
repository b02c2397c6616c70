"""The readers of .npy and .npz files into batches, for the segments that a processor claims.

A .npy file that is not small is mapped into memory, and a batch of a plain array is a view of it. The members of a .npz
file are read together, a batch at a time, so that memory is bounded whether they are compressed or not. Segments count
rows. Must not know: processors and outboxes.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any, Final
from zipfile import BadZipFile, ZipFile

import numpy as np
import numpy.typing as npt

from shmjet.data.batch import Batch
from shmjet.data.errors import BatchError
from shmjet.processors.files.file_blocks import Segment
from shmjet.processors.files.npy_format import Header, read_header

SMALLEST_MAPPING: Final = 1 << 20
"""Bytes of a file below which it is read: a mapping costs a descriptor as long as some batch is a view of it."""


@dataclass(frozen=True)
class NpyFormat:
    """How .npy files are read; the arguments of `read_npy`."""

    column: str
    columns: tuple[str, ...] | None
    batch_rows: int


@dataclass(frozen=True)
class NpzFormat:
    """How .npz files are read; the arguments of `read_npz`."""

    columns: tuple[str, ...] | None
    batch_rows: int


def npy_header(path: str) -> Header:
    """Read the header of a file, and see that the file is as long as it says.

    Raises:
        BatchError: it is not a .npy file of a one-dimensional array, or it is cut off.
    """
    with open(path, "rb") as file:
        header = read_header(file, path)
        found = os.fstat(file.fileno()).st_size - header.size
    expected = header.rows * header.dtype.itemsize
    if found < expected:
        raise BatchError(f"{path}: expected {header.rows} rows of {header.dtype.itemsize} bytes, found {found} bytes")
    return header


def _rows_of(path: str, header: Header) -> npt.NDArray[Any]:
    if header.rows * header.dtype.itemsize < SMALLEST_MAPPING:
        return np.fromfile(path, header.dtype, header.rows, offset=header.size)
    return np.memmap(path, header.dtype, "r", header.size, (header.rows,))


class _Reader:
    """What both readers count."""

    def __init__(self) -> None:
        self._files = 0
        self._bytes = 0

    def rest(self) -> list[Batch]:
        """Nothing is left."""
        return []

    take_rows = rest
    waiting = 0

    def report(self) -> dict[str, int]:
        """Return the counts, by name."""
        return {"files": self._files, "bytes": self._bytes}

    def warning(self) -> str | None:
        """Nothing is worth one."""
        return None

    def _counted(self, columns: dict[str, Any], where: str) -> list[Batch]:
        try:
            batch = Batch(columns)
        except BatchError as error:
            raise BatchError(f"{where}: {error}") from None
        self._bytes += batch.nbytes
        return [batch]


class NpyReader(_Reader):
    """Reads ranges of rows of .npy files."""

    def __init__(self, npy: NpyFormat) -> None:
        super().__init__()
        self._npy = npy
        self._path = ""
        self._array: npt.NDArray[Any] = np.zeros(0)
        self._at = self._end = 0

    def open(self, segment: Segment) -> None:
        """Begin a range of rows. Raises BatchError when the file is not what it was when the job began."""
        if segment.path != self._path:
            header = npy_header(segment.path)
            self._path = segment.path
            self._array = _rows_of(segment.path, header)
        if len(self._array) < segment.end:
            raise BatchError(f"{segment.path}: expected {segment.size} rows, found {len(self._array)}: it was changed")
        self._files += segment.start == 0
        self._at, self._end = segment.start, segment.end

    def next_items(self) -> list[Batch] | None:
        """Return the next batch, or None at the end of the range."""
        if self._at >= self._end:
            return None
        rows = self._array[self._at : min(self._at + self._npy.batch_rows, self._end)]
        self._at += len(rows)
        return self._counted(self._columns(rows), self._path)

    def _columns(self, rows: npt.NDArray[Any]) -> dict[str, Any]:
        fields = rows.dtype.names
        wanted = self._npy.columns
        if fields is None:
            if wanted is not None and wanted != (self._npy.column,):
                raise BatchError(f"{self._path}: expected fields {list(wanted)}, found a plain array of {rows.dtype}")
            return {self._npy.column: rows}
        for name in wanted or ():
            if name not in fields:
                raise BatchError(f"{self._path}: expected the field {name!r}, found {list(fields)}")
        return {name: rows[name] for name in wanted or fields}

    def close(self) -> None:
        """Let go of the mapping; batches keep what they are views of."""
        self._path = ""
        self._array = np.zeros(0)


class NpzReader(_Reader):
    """Reads whole .npz files, all members together."""

    def __init__(self, npz: NpzFormat) -> None:
        super().__init__()
        self._npz = npz
        self._path = ""
        self._archive: ZipFile | None = None
        self._members: dict[str, IO[bytes]] = {}
        self._headers: dict[str, Header] = {}
        self._left = 0

    def open(self, segment: Segment) -> None:
        """Begin a file. Raises BatchError when it is not a .npz file of columns of one length."""
        self.close()
        self._path = segment.path
        self._files += 1
        try:
            self._archive = ZipFile(segment.path)
            for column, member in self._wanted(self._archive):
                self._members[column] = self._archive.open(member)
                self._headers[column] = read_header(self._members[column], self._where(column))
        except (BadZipFile, NotImplementedError, RuntimeError, EOFError, zlib.error) as error:
            raise BatchError(f"{segment.path}: expected a .npz file: {error}") from None
        lengths = {column: header.rows for column, header in self._headers.items()}
        self._left = next(iter(lengths.values()), 0)
        for column, rows in lengths.items():
            if rows != self._left:
                first = next(iter(lengths))
                raise BatchError(f"{self._where(column)}: expected {self._left} rows as in {first!r}, found {rows}")

    def next_items(self) -> list[Batch] | None:
        """Return the next batch, or None at the end of the file."""
        if not self._left:
            self.close()
            return None
        rows = min(self._npz.batch_rows, self._left)
        self._left -= rows
        return self._counted({column: self._values(column, rows) for column in self._members}, self._path)

    def _values(self, column: str, rows: int) -> npt.NDArray[Any]:
        dtype = self._headers[column].dtype
        try:
            content = self._members[column].read(rows * dtype.itemsize)
        except (BadZipFile, EOFError, zlib.error) as error:
            raise BatchError(f"{self._where(column)}: the file is damaged: {error}") from None
        if len(content) < rows * dtype.itemsize:
            raise BatchError(f"{self._where(column)}: expected {self._headers[column].rows} rows, the file ends before")
        return np.frombuffer(content, dtype) if dtype.itemsize else np.zeros(rows, dtype)

    def _wanted(self, archive: ZipFile) -> Sequence[tuple[str, str]]:
        members = {name.removesuffix(".npy"): name for name in archive.namelist()}
        for name in self._npz.columns or ():
            if name not in members:
                raise BatchError(f"{self._path}: expected the member {name!r}, found {list(members)}")
        return [(name, members[name]) for name in self._npz.columns or members]

    def _where(self, column: str) -> str:
        return f"{self._path}, member {column!r}"

    def close(self) -> None:
        """Close the file."""
        for member in self._members.values():
            member.close()
        self._members, self._headers, self._left = {}, {}, 0
        if self._archive is not None:
            self._archive.close()
            self._archive = None
