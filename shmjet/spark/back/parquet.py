"""A minimal writer of Parquet files: flat columns, PLAIN, uncompressed, nulls by definition levels.

Spark reads such files with its own public reader as fast as memory allows, and so does everybody else. Layout and
choices are in `docs/formats/parquet.md`; the format itself is at https://parquet.apache.org/docs/file-format. Must not
know Spark, nor where files are.
"""

from __future__ import annotations

import struct as packing
from collections.abc import Mapping, Sequence
from typing import IO, Any

import numpy as np

from shmjet._native import _columns
from shmjet.ring.text import Mask, Text
from shmjet.spark.back.fitting import WIDE, Fitted, Values
from shmjet.spark.back.schemas import Column
from shmjet.spark.back.thrift import I64, Byte, Struct, encoded, struct, varint

MAGIC = b"PAR1"
ROW_GROUP = 8 << 20
"""Bytes of pages after which a row group is closed; a reader takes row groups side by side."""

PAGE_ROWS = 1 << 16
"""Rows of a page, at most: a reader decodes a page at once."""

_BOOLEAN, _INT32, _INT64, _FLOAT, _DOUBLE, _BYTES, _FIXED = 0, 1, 2, 4, 5, 6, 7
_OPTIONAL, _PLAIN, _RLE, _UNCOMPRESSED, _DATA_PAGE = 1, 0, 3, 0, 0
_UTF8, _DECIMAL, _DATE, _TIMESTAMP_MICROS, _INT_8, _INT_16 = 0, 5, 6, 10, 15, 16
_LENGTH = packing.Struct("<I")

_METADATA = (("org.apache.spark.version", "3.5.0"),)
"""Tells Spark that days are counted in the calendar that Python and numpy have, so that it reads old dates as they are;
without it Spark refuses those before 1900 or asks for a setting (`datetimeRebaseModeInRead`)."""


class ParquetWriter:
    """Writes one file, page by page.

    Args:
        file: open for writing, at its beginning; it stays open.
        columns: of the file; all may hold nulls.

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
        self._pages: list[list[bytes]] = [[] for _ in columns]
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
        """
        for start in range(0, rows, PAGE_ROWS):
            stop = min(rows, start + PAGE_ROWS)
            for number, column in enumerate(self._columns):
                values, mask = columns[column.name]
                page = _page(values[start:stop], None if mask is None else mask[start:stop], column, stop - start)
                self._pages[number] += page
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
                (2, [struct((4, "schema"), (5, len(self._columns))), *map(_element, self._columns)]),
                (3, I64(self._rows)),
                (4, list(self._groups)),
                (5, [struct((1, key), (2, value)) for key, value in _METADATA]),
                (6, "shmjet"),
            )
        )
        self._file.write(footer + _LENGTH.pack(len(footer)) + MAGIC)
        return self._rows

    def _close_group(self) -> None:
        chunks: list[Any] = []
        size = 0
        for column, pages in zip(self._columns, self._pages, strict=True):
            length = sum(map(len, pages))
            chunks.append(_chunk(column, self._waiting_rows, self._at, length))
            self._file.writelines(pages)
            self._at += length
            size += length
            pages.clear()
        self._groups.append(struct((1, chunks), (2, I64(size)), (3, I64(self._waiting_rows))))
        self._rows += self._waiting_rows
        self._waiting = self._waiting_rows = 0


def _chunk(column: Column, rows: int, start: int, length: int) -> Struct:
    """Return what the footer says of the pages of a column in a row group."""
    metadata = struct(
        (1, _physical(column)),
        (2, [_PLAIN, _RLE]),
        (3, [column.name]),
        (4, _UNCOMPRESSED),
        (5, I64(rows)),
        (6, I64(length)),
        (7, I64(length)),
        (9, I64(start)),
    )
    return struct((2, I64(start)), (3, metadata))


def _page(values: Values, mask: Mask | None, column: Column, rows: int) -> list[bytes]:
    """Return a page: its header, its definition levels, its values."""
    if mask is not None and mask.all():
        mask = None
    levels = _levels(mask, rows)
    body = _plain(values if mask is None else values[mask], column)
    size = len(levels) + len(body)
    header = struct((1, _DATA_PAGE), (2, size), (3, size), (5, struct((1, rows), (2, _PLAIN), (3, _RLE), (4, _RLE))))
    return [encoded(header), levels, body]


def _levels(mask: Mask | None, rows: int) -> bytes:
    """Return the definition levels, 1 for a value and 0 for a null: one run, or bits in groups of eight."""
    if mask is None:
        levels = varint(rows << 1) + b"\1"
    else:
        bits = np.packbits(mask, bitorder="little").tobytes()
        levels = varint(len(bits) << 1 | 1) + bits
    return _LENGTH.pack(len(levels)) + levels


def _plain(values: Values, column: Column) -> bytes:
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
        case "int64" | "timestamp" | "timestamp_ntz":
            return _INT64
        case "float32":
            return _FLOAT
        case "float64":
            return _DOUBLE
        case "decimal":
            return _INT32 if column.precision <= 9 else _INT64 if column.precision <= 18 else _FIXED
    return _BYTES


def _element(column: Column) -> Struct:
    """Return what the schema says of a column, in the old words and in the new ones."""
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
        (3, _OPTIONAL),
        (4, column.name),
        (6, converted),
        (7, column.scale if is_decimal else None),
        (8, column.precision if is_decimal else None),
        (10, logical),
    )
