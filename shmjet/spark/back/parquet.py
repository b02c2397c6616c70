"""A minimal writer of Parquet files: PLAIN, uncompressed, lists, maps and structs by levels.

Spark reads such files with its public reader as fast as memory allows, and so do other programs. Layout and
choices are in `docs/formats/parquet.md`; the format itself is at https://parquet.apache.org/docs/file-format. Must not
know Spark, nor where files are.
"""

from __future__ import annotations

import struct as packing
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from shmjet._native import _columns
from shmjet.data.errors import BatchError
from shmjet.data.text import Text
from shmjet.spark.back.column_conversion import WIDE, Fitted
from shmjet.spark.back.levels import GROUPS, Entries, Leaf, Levels, is_optional, leaves_of, shredded
from shmjet.spark.back.schemas import Column
from shmjet.spark.back.thrift import I64, Byte, Struct, encoded, struct, varint

MAGIC = b"PAR1"
ROW_GROUP = 8 << 20
"""Bytes of pages after which a row group is closed; a reader takes row groups side by side, and has much of one in
memory. Rows that have twice as many are cut in halves first."""

PAGE_ROWS = 1 << 16
"""Rows of a page, at most: a reader decodes a page at once."""

_LARGEST_PAGE = (1 << 31) - 1
"""What a page's header can say."""

_BOOLEAN, _INT32, _INT64, _FLOAT, _DOUBLE, _BYTES, _FIXED = 0, 1, 2, 4, 5, 6, 7
_REQUIRED, _OPTIONAL, _REPEATED = 0, 1, 2
_PLAIN, _RLE, _UNCOMPRESSED, _DATA_PAGE = 0, 3, 0, 0
_UTF8, _MAP, _LIST, _DECIMAL, _DATE, _TIMESTAMP_MICROS, _INT_8, _INT_16 = 0, 1, 3, 5, 6, 10, 15, 16
_LENGTH = packing.Struct("<I")

METADATA = (("org.apache.spark.version", "3.5.0"),)
"""Tells Spark that days are counted in the calendar that Python and numpy have, so that it reads old dates as they are;
without it Spark refuses those before 1900 or asks for a setting (`datetimeRebaseModeInRead`)."""


class ParquetWriter:
    """Writes one file, page by page.

    Args:
        file: open for writing, at its beginning; it stays open.
        columns: of the file; in the file, all may hold nulls.

    Example:
        >>> import io
        >>> from shmjet.spark.back.schemas import Column
        >>> file = io.BytesIO()
        >>> writer = ParquetWriter(file, [Column("n", "int64")])
        >>> writer.write({"n": (np.arange(3), None)}, 3)
        >>> writer.finish()
        3
        >>> file.getvalue()[:4], file.getvalue()[-4:]
        (b'PAR1', b'PAR1')
    """

    def __init__(self, file: IO[bytes], columns: Sequence[Column]) -> None:
        self._file = file
        self._columns = tuple(columns)
        self._leaves = leaves_of(columns)
        self._pages: list[list[bytes]] = [[] for _ in self._leaves]
        self._entries = [0] * len(self._leaves)
        self._waiting = 0
        self._waiting_rows = 0
        self._groups: list[Struct] = []
        self._rows = 0
        self._at = len(MAGIC)
        file.write(MAGIC)

    def write(self, columns: Mapping[str, Fitted], rows: int) -> None:
        """Append rows.

        Args:
            columns: every column's values and mask, as `fitting` makes them.
            rows: how many.

        Raises:
            BatchError: one row has more bytes than fit a page (2 GiB); the text names the column.
        """
        for start in range(0, rows, PAGE_ROWS):
            self._write(columns, start, min(rows, start + PAGE_ROWS))

    def _write(self, columns: Mapping[str, Fitted], start: int, stop: int) -> None:
        """Make a page of each leaf, unless the rows have too many bytes for that: then of each half of them."""
        shreds = [each for column in self._columns for each in shredded(column, columns[column.name], start, stop)]
        if stop - start > 1 and sum(entries.values.nbytes for entries in shreds) > 2 * ROW_GROUP:
            middle = (start + stop) // 2
            self._write(columns, start, middle)
            self._write(columns, middle, stop)
            return
        for number, (leaf, entries) in enumerate(zip(self._leaves, shreds, strict=True)):
            page = _page(leaf, entries)
            self._pages[number] += page
            self._entries[number] += entries.count
            self._waiting += sum(map(len, page))
        self._waiting_rows += stop - start
        if self._waiting >= ROW_GROUP:
            self._close_group()

    def finish(self) -> int:
        """Write the footer; return the number of rows in the file."""
        if self._waiting_rows:
            self._close_group()
        footer = encoded(
            struct(
                (1, 1),
                (2, [struct((4, "schema"), (5, len(self._columns))), *_elements(self._columns)]),
                (3, I64(self._rows)),
                (4, list(self._groups)),
                (5, [struct((1, key), (2, value)) for key, value in METADATA]),
                (6, "shmjet"),
            )
        )
        self._file.write(footer + _LENGTH.pack(len(footer)) + MAGIC)
        return self._rows

    def _close_group(self) -> None:
        chunks: list[Any] = []
        size = 0
        for leaf, pages, entries in zip(self._leaves, self._pages, self._entries, strict=True):
            length = sum(map(len, pages))
            chunks.append(_chunk(leaf, entries, self._at, length))
            self._file.writelines(pages)
            self._at += length
            size += length
            pages.clear()
        self._entries = [0] * len(self._leaves)
        self._groups.append(struct((1, chunks), (2, I64(size)), (3, I64(self._waiting_rows))))
        self._rows += self._waiting_rows
        self._waiting = self._waiting_rows = 0


def _chunk(leaf: Leaf, entries: int, start: int, length: int) -> Struct:
    """Return what the footer says of the pages of a leaf in a row group."""
    metadata = struct(
        (1, _physical(leaf.column)),
        (2, [_PLAIN, _RLE]),
        (3, list(leaf.path)),
        (4, _UNCOMPRESSED),
        (5, I64(entries)),
        (6, I64(length)),
        (7, I64(length)),
        (9, I64(start)),
    )
    return struct((2, I64(start)), (3, metadata))


def _page(leaf: Leaf, entries: Entries) -> list[bytes]:
    """Return a page: its header, its levels, its values."""
    count = entries.count
    repetition = _levels(entries.repetition, leaf.repetition, count) if leaf.repetition else b""
    definition = _levels(entries.definition, leaf.definition, count)
    body = _plain(entries.values, leaf.column)
    size = len(repetition) + len(definition) + len(body)
    if size > _LARGEST_PAGE:
        raise BatchError(f"{leaf.column.label} ({leaf.column.sql}) does not take {size:,} bytes in one row")
    header = struct((1, _DATA_PAGE), (2, size), (3, size), (5, struct((1, count), (2, _PLAIN), (3, _RLE), (4, _RLE))))
    return [encoded(header), repetition, definition, body]


def _levels(levels: Levels | None, highest: int, count: int) -> bytes:
    """Return levels: one run where all are equal, else as many bits as the highest needs, in groups of eight."""
    width = highest.bit_length()
    if levels is None or not count or (levels == levels[0]).all():
        level = highest if levels is None or not count else int(levels[0])
        coded = varint(count << 1) + level.to_bytes((width + 7) // 8, "little")
    else:
        bits = np.zeros((-(-count // 8) * 8, width), np.uint8)
        for place in range(width):
            bits[:count, place] = levels >> place & 1
        coded = varint(len(bits) // 8 << 1 | 1) + np.packbits(bits, bitorder="little").tobytes()
    return _LENGTH.pack(len(coded)) + coded


def _plain(values: npt.NDArray[Any] | Text, column: Column) -> bytes:
    """Return values in PLAIN encoding."""
    if isinstance(values, Text):
        out = np.empty(int(values.offsets[-1] - values.offsets[0]) + 4 * len(values), np.uint8)
        return out[: _columns.text_prefix(values.offsets, values.data, out)].tobytes()
    if column.kind == "bool":
        return np.packbits(values, bitorder="little").tobytes()
    if column.kind in ("int8", "int16"):
        values = values.astype(np.int32)
    return (
        values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes()
        if values.dtype != WIDE
        else values.tobytes()
    )


def _physical(column: Column) -> int:
    match column.kind:
        case "bool":
            return _BOOLEAN
        case "int8" | "int16" | "int32" | "date":
            return _INT32
        case "int64" | "timestamp" | "timestamp_ntz" | "duration":
            return _INT64
        case "float32":
            return _FLOAT
        case "float64":
            return _DOUBLE
        case "decimal":
            return _INT32 if column.precision <= 9 else _INT64 if column.precision <= 18 else _FIXED
    return _BYTES


def _elements(columns: Sequence[Column]) -> Iterator[Struct]:
    """Yield what the schema says of columns and their parts, depth first."""
    for column in columns:
        yield from _element(column, _OPTIONAL)


def _element(column: Column, repetition: int) -> Iterator[Struct]:
    """Yield what the schema says of a column, in the old words and in the new ones, and of its parts."""
    if not column.parts:
        yield _leaf_element(column, repetition)
        return
    converted, logical = {
        "list": (_LIST, struct((3, struct()))),
        "map": (_MAP, struct((2, struct()))),
        "struct": (None, None),
    }[column.kind]
    group = GROUPS.get(column.kind)
    children = len(column.parts) if group is None else 1
    yield struct((3, repetition), (4, column.name), (5, children), (6, converted), (10, logical))
    if group is not None:
        yield struct((3, _REPEATED), (4, group), (5, len(column.parts)))
    for part in column.parts:
        yield from _element(part, _OPTIONAL if is_optional(column, part) else _REQUIRED)


def _leaf_element(column: Column, repetition: int) -> Struct:
    """Return the schema element of a column that is not a group."""
    converted: int | None = None
    logical: Struct | None = None
    match column.kind:
        case "text":
            converted, logical = _UTF8, struct((1, struct()))
        case "date":
            converted, logical = _DATE, struct((6, struct()))
        case "timestamp" | "timestamp_ntz":
            in_utc = column.kind == "timestamp"
            converted = _TIMESTAMP_MICROS if in_utc else None
            logical = struct((8, struct((1, in_utc), (2, struct((2, struct()))))))
        case "decimal":
            converted, logical = _DECIMAL, struct((5, struct((1, column.scale), (2, column.precision))))
        case "int8" | "int16":
            bits = 8 if column.kind == "int8" else 16
            converted, logical = _INT_8 if bits == 8 else _INT_16, struct((10, struct((1, Byte(bits)), (2, True))))
    is_decimal = column.kind == "decimal"
    physical = _physical(column)
    return struct(
        (1, physical),
        (2, 16 if physical == _FIXED else None),
        (3, repetition),
        (4, column.name),
        (6, converted),
        (7, column.scale if is_decimal else None),
        (8, column.precision if is_decimal else None),
        (10, logical),
    )
