"""The format of CSV files, known before they are read: the schema, and how fields and records are written.

Loaded only by jobs that read or write columns. Must not know: how files are cut and read (`csv_batches`).
"""

from __future__ import annotations

import codecs
import decimal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from shmjet.data.column_types import (
    WIDE,
    CategoryType,
    ColumnType,
    DecimalType,
    Kind,
    ZonedType,
    is_typed_word,
    kind_of,
)
from shmjet.data.errors import BatchError
from shmjet.data.suggestions import meant_type
from shmjet.processors.files.line_blocks import check_encoding

UNITS: Final = {
    "Y": "Y", "M": "M", "W": "W", "D": "D", "h": "h", "m": "m", "s": "s", "ms": "i", "us": "u", "ns": "n",
}  # fmt: skip
"""numpy's units of time, with the characters that the kernel knows them by."""

TYPES: Final = (
    "bool, int8 to int64, uint8 to uint64, float16 to float64, datetime64[Y] to datetime64[ns], timedelta64[...], "
    '"text", "bytes", "decimal(15, 2)", "timestamp[us, UTC]" or "category"'
)


class CsvType(NamedTuple):
    """What a field of a CSV file becomes."""

    name: str
    """As in a batch's schema: numpy's name, or "text" or "bytes"."""
    dtype: np.dtype[Any] | None
    """None for text and bytes."""
    parsed: np.dtype[Any] | None
    """What the kernel writes, which numpy then converts; float64 for float16."""
    kind: int
    unit: int
    typed: ColumnType | None = None
    """The type of the column where numpy has none for it."""


def column_type(column: str, given: Any) -> CsvType:
    """Return the type that a schema names for a column.

    Args:
        column: for errors.
        given: "text", "bytes", str, bytes, whatever `numpy.dtype` takes, a `ColumnType` or its text.

    Raises:
        BatchError: CSV values cannot become that.

    Example:
        >>> column_type("day", "datetime64[D]").name
        'datetime64[D]'
    """
    if given is str or given is bytes or (isinstance(given, str) and given in ("text", "bytes")):
        is_bytes = given is bytes or given == "bytes"
        return CsvType("bytes" if is_bytes else "text", None, None, ord("y" if is_bytes else "t"), 0)
    if given is decimal.Decimal or isinstance(given, ColumnType) or (isinstance(given, str) and is_typed_word(given)):
        return _typed(column, kind_of(column, given))
    try:
        dtype = np.dtype(given).newbyteorder("=")
    except (TypeError, ValueError, SyntaxError):
        raise BatchError(
            f"the schema's column {column!r} has type {given!r}{meant_type(given)}; known are {TYPES}"
        ) from None
    kind, unit, parsed = dtype.kind, 0, dtype
    if kind in "mM":
        base, steps = np.datetime_data(dtype)
        if base not in UNITS or steps != 1:
            raise BatchError(f"the schema's column {column!r} has type {dtype}; a unit is one of {', '.join(UNITS)}")
        unit = ord(UNITS[base])
    elif kind == "f" and dtype.itemsize == 2:
        parsed = np.dtype(np.float64)
    elif kind not in "biuf" or dtype.itemsize > 8:
        raise BatchError(f"the schema's column {column!r} has type {dtype}{meant_type(given)}; known are {TYPES}")
    return CsvType(str(dtype), dtype, parsed, ord(kind), unit)


def _typed(column: str, kind: Kind) -> CsvType:
    """Return the type of a column that numpy has no dtype for."""
    if isinstance(kind, CategoryType):
        return CsvType(str(kind), None, None, ord("t"), 0, kind)
    if isinstance(kind, DecimalType):
        if kind.stored == WIDE:  # read as text
            return CsvType(str(kind), None, None, ord("t"), 0, kind)
        dtype = np.dtype(np.int64)
        return CsvType(str(kind), dtype, dtype, ord("d"), kind.precision << 5 | kind.scale, kind)
    if isinstance(kind, ZonedType):
        dtype = np.dtype(f"M8[{kind.unit}]")
        return CsvType(str(kind), dtype, dtype, ord("M" if kind.zone == "UTC" else "Z"), ord(UNITS[kind.unit]), kind)
    raise BatchError(f"the schema's column {column!r} has type {kind}; known are {TYPES}")


@dataclass(frozen=True)
class CsvFormat:
    """How CSV files are read; the arguments of `read_files(..., format="csv")`, checked."""

    schema: Mapping[str, str] | None
    """Names and types (those of `CsvType.name`) of the file's columns; None until they are inferred."""
    columns: tuple[str, ...] | None
    """The columns to read; None: all of the schema."""
    delimiter: int
    quote: int
    """A byte, or -1: nothing is quoted."""
    header: bool
    nulls: tuple[bytes, ...]
    skip_bad: bool
    encoding: str
    errors: str
    allowed: bytes | None
    """256 bytes, 0 for bytes that text cannot have; None: text is UTF-8."""
    batch_rows: int
    path_column: str | None
    needed: tuple[str, ...] | None = None
    """The columns which any stage reads; None: all of them. The others are not parsed."""
    conditions: tuple[Any, ...] = ()
    """Expressions of columns; the rows for which one is not true are left out."""
    tells_columns: bool = False
    """Of files without records there is a batch without rows, for its columns."""
    untyped: frozenset[str] = frozenset()
    """The columns of an inferred schema whose type nothing has shown."""

    @property
    def lenient(self) -> bool:
        """Whether bytes that are not in the encoding are replaced (or the like) instead of making a line bad."""
        return self.errors != "strict"

    def wanted(self) -> dict[str, CsvType]:
        """Return the columns of the batches, in order; none as long as the schema is not known."""
        schema = self.schema or {}
        return {name: column_type(name, schema[name]) for name in self.declared() if name in schema}

    def declared(self) -> tuple[str, ...]:
        """Return the names of the columns that a file must have, in the order of the batches; see `wanted`."""
        return tuple(self.schema or ()) if self.columns is None else self.columns

    def parsed(self) -> dict[str, CsvType]:
        """Return those of the wanted columns that are needed, for batches or for conditions; one at least."""
        wanted = self.wanted()
        if self.needed is None or not wanted:
            return wanted
        used = {*self.needed, *(name for condition in self.conditions for name in condition.names)}
        if not used & wanted.keys():
            used = {min(wanted, key=lambda name: wanted[name].dtype is None)}  # it says how many rows there are
        return {name: type_ for name, type_ in wanted.items() if name in used}


def csv_format(
    *,
    schema: Mapping[str, Any] | None,
    columns: Sequence[str] | None,
    delimiter: str,
    quote: str | None,
    header: bool,
    nulls: Sequence[str],
    on_bad_line: str,
    encoding: str,
    errors: str,
    batch_rows: int,
    path_column: str | None,
) -> CsvFormat:
    """Check the arguments of `read_files` that are about CSV.

    Raises:
        ValueError: a delimiter or quote that is none, an encoding in which bytes cannot be told apart, and the like.
        BatchError: the schema or the columns do not fit.
    """
    if on_bad_line not in ("error", "skip"):
        raise ValueError(f'read_files: on_bad_line must be "error" or "skip", got {on_bad_line!r}')
    delimiter_byte, quote_byte = check_dialect("read_files", delimiter, quote)
    if isinstance(nulls, str):
        raise ValueError(f"read_files: nulls must be a sequence of strings, got the string {nulls!r}")
    codec, allowed = check_csv_encoding("read_files", encoding, errors)
    types = None if schema is None else _check_schema(schema)
    chosen = None if columns is None else _check_columns(columns, types)
    if path_column is not None and path_column in (chosen if chosen is not None else types or ()):
        raise BatchError(f"with_path adds a column {path_column!r}, but the files have one of that name")
    return CsvFormat(
        schema=types,
        columns=chosen,
        delimiter=delimiter_byte,
        quote=quote_byte,
        header=header,
        nulls=tuple(null.encode(codec) for null in nulls),
        skip_bad=on_bad_line == "skip",
        encoding=codec,
        errors=errors,
        allowed=allowed,
        batch_rows=batch_rows,
        path_column=path_column,
    )


def check_dialect(who: str, delimiter: str, quote: str | None) -> tuple[int, int]:
    """Return delimiter and quote as bytes, -1 for no quote. Raises ValueError when they cannot be that.

    Example:
        >>> check_dialect("read_files", ",", '"')
        (44, 34)
    """
    for name, value in (("delimiter", delimiter), ("quote", quote)):
        if value is None and name == "quote":
            continue
        if not isinstance(value, str) or len(value) != 1 or not value.isascii() or value in "\r\n":
            raise ValueError(f"{who}: {name} must be one ASCII character other than a line end, got {value!r}")
        if value.isalnum() or value in "+-.":
            raise ValueError(f"{who}: {name} must not be a letter, a digit, '+', '-' or '.', got {value!r}")
    if delimiter == quote:
        raise ValueError(f"{who}: delimiter and quote must differ, both are {quote!r}")
    return ord(delimiter), -1 if quote is None else ord(quote)


def check_csv_encoding(who: str, encoding: str, errors: str) -> tuple[str, bytes | None]:
    """Return the codec's name, and which bytes may occur unless it is UTF-8.

    Raises:
        LookupError, ValueError: for an encoding that is unknown, or in which delimiters are not bytes of their own.
    """
    name = codecs.lookup(encoding).name
    if name in ("utf-8", "utf-8-sig"):
        return "utf-8", None
    check_encoding(encoding)
    codecs.lookup_error(errors)
    known = [_decoded(bytes([byte]), name) for byte in range(256)]
    pairs = (bytes([first, ord("A")]).decode(name, "replace") for first in range(128, 256))
    if known[:128] != [chr(byte) for byte in range(128)] or any(len(pair) != 2 for pair in pairs):
        raise ValueError(f"{who}: CSV is in UTF-8 or an encoding of one byte a character, not in {encoding!r}")
    return name, bytes(errors != "strict" or char is not None for char in known)


def _decoded(byte: bytes, encoding: str) -> str | None:
    try:
        return byte.decode(encoding)
    except UnicodeDecodeError:
        return None


def _check_schema(schema: Mapping[str, Any]) -> dict[str, str]:
    if not isinstance(schema, Mapping) or not schema:
        raise BatchError(f"schema must be a dict of types by column, got {schema!r}")
    for name in schema:
        if not isinstance(name, str) or not name:
            raise BatchError(f"a column's name must be a non-empty str, the schema has {name!r}")
    return {name: column_type(name, given).name for name, given in schema.items()}


def _check_columns(columns: Sequence[str], types: Mapping[str, str] | None) -> tuple[str, ...]:
    if isinstance(columns, str):
        raise BatchError(f"columns must be a sequence of names, got the string {columns!r}")
    chosen = tuple(columns)
    if not chosen or len(set(chosen)) < len(chosen):
        raise BatchError(f"columns must name one or more columns, each once, got {list(chosen)}")
    for name in chosen:
        if types is not None and name not in types:
            raise BatchError(f"columns names {name!r}, which the schema does not have; it has {list(types)}")
    return chosen
