"""The formats of `read_files(..., as_=Batch)`: arguments become a format, and a format becomes a reader.

It is loaded only by jobs that read files into batches: what it imports needs numpy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shmjet.data.batch import Batch
from shmjet.data.errors import BatchError
from shmjet.processors.csv.batch_reader import CsvReader
from shmjet.processors.csv.csv_format import CsvFormat, column_type, csv_format
from shmjet.processors.csv.schema_inference import infer_schema
from shmjet.processors.files.file_blocks import Unit
from shmjet.processors.files.line_batches import LineBatchReader, LineFormat
from shmjet.processors.files.line_blocks import check_encoding
from shmjet.processors.files.npy_reader import NpyFormat, NpyReader, NpzFormat, NpzReader
from shmjet.processors.general.base import check_batch_rows

Format = LineFormat | CsvFormat | NpyFormat | NpzFormat
Reader = LineBatchReader | CsvReader | NpyReader | NpzReader

PATH_COLUMN = "path"
"""What `with_path` calls its column."""


def batch_format(
    as_: Any, name: str, *, encoding: str, errors: str, with_path: bool, batch_rows: int, **csv: Any
) -> Format:
    """Return the format that the arguments of `read_files` mean.

    Raises:
        TypeError: `as_` is not `Batch`.
        ValueError, BatchError: an argument is wrong; the text names it.
    """
    if as_ is not Batch:
        raise TypeError(f"read_files: as_ must be Batch or None, got {as_!r}")
    check_batch_rows("read_files", batch_rows)
    path_column = PATH_COLUMN if with_path else None
    if name == "csv":
        common: dict[str, Any] = {
            "encoding": encoding,
            "errors": errors,
            "batch_rows": batch_rows,
            "path_column": path_column,
        }
        return csv_format(**common, **csv)
    if name != "lines":
        raise ValueError(f'read_files: format must be "lines" or "csv", got {name!r}')
    if csv["columns"] is not None:
        raise ValueError('read_files: columns is for format="csv"; schema={name: "text"} names the column of lines')
    column, is_bytes = _line_column(csv["schema"])
    if column == path_column:
        raise BatchError(f"with_path adds a column {column!r}, but the lines' column has that name")
    return LineFormat(column, is_bytes, batch_rows, check_encoding(encoding), errors, path_column)


def _line_column(schema: Mapping[str, Any] | None) -> tuple[str, bool]:
    if schema is None:
        return "line", False
    if len(schema) != 1:
        raise BatchError(f'lines become one column, so schema must be like {{"line": "text"}}, got {dict(schema)!r}')
    ((name, given),) = schema.items()
    type_ = column_type(name, given)
    if type_.dtype is not None or not isinstance(name, str) or not name:
        raise BatchError(f'the column of lines must be "text" or "bytes" and have a name, got {{{name!r}: {given!r}}}')
    return name, type_.name == "bytes"


def prepared(format_: Format, files: Sequence[tuple[str, int]]) -> Format:
    """Return the format once the files are known: with a schema, if it was to be inferred."""
    if isinstance(format_, CsvFormat) and format_.schema is None and any(size for _, size in files):
        return infer_schema(files, format_)
    return format_


def has_seams(format_: Format) -> bool:
    """Whether a file can be cut only where something is known of what is before the cut."""
    return isinstance(format_, CsvFormat) and format_.quote >= 0


def reader_of(format_: Format, skip_binary: bool, seams: str | None, units: Sequence[Unit]) -> Reader:
    """Return what reads the units in this format."""
    if isinstance(format_, CsvFormat):
        return CsvReader(format_, skip_binary, seams, units)
    if isinstance(format_, NpyFormat):
        return NpyReader(format_)
    if isinstance(format_, NpzFormat):
        return NpzReader(format_)
    return LineBatchReader(format_, skip_binary)
