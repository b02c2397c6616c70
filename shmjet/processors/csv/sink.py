"""The writer of batches as CSV; `read_files(..., format="csv")` with the batches' schema gives back equal batches;
lists and structs come back as text, which is JSON.

Quoted is what would be read as something else otherwise: text with a delimiter, a quote or a line end, empty text, and
text that looks like a null. Numbers are written so that reading gives the same bits. Must not know: where batches come
from.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from shmjet._native._columns import csv_write, is_utf8
from shmjet.columns.promotion import promoted
from shmjet.data.batch import Batch, any_column, stored_column
from shmjet.data.column import Values
from shmjet.data.column_descriptors import descriptors
from shmjet.data.column_types import CategoryType, DecimalType, ZonedType
from shmjet.data.errors import BatchError
from shmjet.data.nullable import Nullable
from shmjet.data.schema_heads import known_columns
from shmjet.data.text import Text
from shmjet.data.typed_column import TypedColumn
from shmjet.processors.csv.csv_format import UNITS, check_csv_encoding, check_dialect
from shmjet.processors.files.file_sink import LocalFileSink
from shmjet.processors.files.output_file import PartOptions
from shmjet.processors.general.base import require_batches

_MARKS = ("\ufeff", "\udcef\udcbb\udcbf")
"""A byte order mark as text, and as the surrogates of bytes: a reader takes it away at the beginning of a file."""


class CsvStyle(NamedTuple):
    """How records are written; the arguments of `write_files` that are about CSV, checked."""

    delimiter: str
    quote: str | None
    header: bool
    null: str
    encoding: str


def csv_style(delimiter: str, quote: str | None, header: bool, null: str, encoding: str) -> CsvStyle:
    """Check the arguments of `write_files` that are about CSV. Raises ValueError when one is wrong.

    Example:
        >>> csv_style(";", None, True, "NA", "utf-8").null
        'NA'
    """
    check_dialect("write_files", delimiter, quote)
    codec, _ = check_csv_encoding("write_files", encoding, "strict")
    null.encode(codec)
    if any(char in null for char in (delimiter, quote or delimiter, "\r", "\n", "\ufeff")):
        raise ValueError(f"write_files: null must have no delimiter, quote or line end, got {null!r}")
    return CsvStyle(delimiter, quote, header, null, codec)


class CsvWriter:
    """Turns batches into the bytes of one file.

    Args:
        style: how.

    Example:
        >>> writer = CsvWriter(CsvStyle(",", '"', True, "", "utf-8"))
        >>> writer.encode(Batch({"n": [1, None], "s": ["a,b", ""]}))
        b'n,s\\n1,"a,b"\\n,""\\n'
    """

    def __init__(self, style: CsvStyle) -> None:
        self._style = style
        special = re.escape(style.delimiter + (style.quote or ""))
        self._special = re.compile(f"[{special}\r\n]")
        self._odd = re.compile(f"[{special}\r\n\ufeff\udcef]")
        self._schema: dict[str, Any] | None = None
        self._kinds: dict[str, Any] = {}  # of the columns that have had a value

    def encode(self, batch: Batch) -> bytes:
        """Return a batch's records, the first time behind the header.

        Raises:
            BatchError: it has other columns than the one before, or values that no column holds with those before, or
                CSV cannot hold a column.
        """
        if self._schema is None:
            if not batch.num_columns:
                raise BatchError("write_files: a batch without columns cannot be written as CSV")
            self._schema = batch.schema
            before = self._header(batch) if self._style.header else b""
        else:
            before = b""
        self._check(batch)
        if not batch.num_rows:
            return before
        batch = _as_text(batch)
        records = self.written_by_kernel(batch)
        return before + (self.spelled(batch) if records is None else records)

    def _check(self, batch: Batch) -> None:
        """Check that a batch goes into the file: integers and floats go together there, as they do in one column."""
        assert self._schema is not None
        fits = list(self._schema) == list(batch.names)
        for name in known_columns(batch) if fits else ():
            kind = batch.schema[name]
            have = self._kinds.setdefault(name, kind)
            if have != kind:
                both = promoted(have, kind)
                if both is None or (have == np.bool_) != (kind == np.bool_):  # true among integers would have to be 1
                    fits = False
                    break
                self._kinds[name] = both
        if not fits:
            raise BatchError(
                f"write_files: a file has the columns of its first batch, {self._schema}; then came {batch.schema}"
            )

    def written_by_kernel(self, batch: Batch) -> bytes | None:
        """Return a batch's records as the kernel writes them; None for what it leaves to `spelled`."""
        style = self._style
        if style.encoding != "utf-8" or style.delimiter == ":":  # the only delimiter that a time can have
            return None
        units = bytearray()
        for name in batch.names:
            column, unit = stored_column(batch, name)[0], 0
            if isinstance(column, Text):
                first, last = column.offsets[0], column.offsets[-1]
                if not column.is_bytes and not is_utf8(column.data[first:last]):
                    return None
            elif column.dtype.kind == "M":
                base, steps = np.datetime_data(column.dtype)
                unit = ord(UNITS.get(base, " ")) if steps == 1 else 0
            units.append(unit)
        quote = -1 if style.quote is None else ord(style.quote)
        columns = descriptors(batch, batch.names)
        return csv_write(columns, bytes(units), ord(style.delimiter), quote, style.null.encode())

    def spelled(self, batch: Batch) -> bytes:
        """Return a batch's records value by value, of any kind and in any encoding; it says what cannot be written."""
        columns = [self._strings(batch, name) for name in batch.names]
        records = columns[0] if len(columns) == 1 else map(self._style.delimiter.join, zip(*columns, strict=True))
        text = "\n".join(records) + "\n"
        return text.encode(self._style.encoding, "surrogateescape")

    def _header(self, batch: Batch) -> bytes:
        names = [self._text("the header", name, False) for name in batch.names]
        self._check_encoding("the header", names)
        return (self._style.delimiter.join(names) + "\n").encode(self._style.encoding)

    def _strings(self, batch: Batch, name: str) -> list[str]:
        (column, valid), null = stored_column(batch, name), self._style.null
        rows = range(batch.num_rows) if valid is None else np.flatnonzero(valid).tolist()
        if isinstance(column, Text) or column.dtype.kind in "SU":
            strings = self._texts(name, column, rows)
        else:
            strings = plain_strings(name, column)
            if self._style.delimiter == ":":  # no other delimiter occurs in a time
                strings = [self._text(name, value, True) for value in strings]
        if null and null in strings and any(strings[row] == null for row in rows):
            raise BatchError(f"column {name!r} has the value {null!r}, which stands for a null; choose another null")
        if valid is not None:
            for row in np.flatnonzero(~valid).tolist():
                strings[row] = null
        return strings

    def _texts(self, name: str, column: Values, rows: Sequence[int]) -> list[str]:
        """Return text values, those of `rows` quoted where they must be.

        Bytes come as surrogates that `spelled` turns back.
        """
        try:
            text = column if isinstance(column, Text) else Text.of(column.tolist())
            strings = [v.decode("ascii", "surrogateescape") for v in text] if text.is_bytes else text.tolist()
        except (BatchError, UnicodeDecodeError) as error:
            raise BatchError(f"column {name!r} has text that is not valid Unicode: {error}") from None
        if not text.is_bytes:
            self._check_encoding(name, strings)
        if self._odd.search("".join(strings)) or not text.lengths.all() or self._style.null:
            for row in rows:
                strings[row] = self._text(name, strings[row], False)
        return strings

    def _text(self, name: str, value: str, plain: bool) -> str:
        if self._special.search(value) or value.startswith(_MARKS):
            return self._quoted(name, value)
        return value if plain or (value and value != self._style.null) else self._quoted(name, value)

    def _quoted(self, name: str, value: str) -> str:
        quote = self._style.quote
        if quote is None:
            raise BatchError(f"column {name!r} has the value {value!r:.80}, which cannot be written without quotes")
        return quote + value.replace(quote, 2 * quote) + quote

    def _check_encoding(self, name: str, strings: list[str]) -> None:
        if self._style.encoding == "utf-8":
            return
        try:
            "".join(strings).encode(self._style.encoding)
        except UnicodeEncodeError as error:
            raise BatchError(f"column {name!r} has text that {self._style.encoding} cannot hold: {error}") from None


def _as_text(batch: Batch) -> Batch:
    """Return a batch with text for the columns that numpy has no type for.

    Instants are those of UTC, lists and structs are JSON.
    """
    written: dict[str, Any] = {}
    for name in batch.names:
        column, valid = any_column(batch, name)
        if not isinstance(column, TypedColumn):
            continue
        if isinstance(column.dtype, CategoryType):
            text = column.stored
        elif isinstance(column.dtype, DecimalType):
            text = Text.of(map(str, column.to_list()))
        elif isinstance(column.dtype, ZonedType):
            text = Text.of(f"{value}Z" for value in np.datetime_as_string(np.asarray(column.stored)).tolist())
        else:
            text = Text.of(value.decode() for value in map(msgspec.json.encode, column.to_list()))
        written[name] = text if valid is None else Nullable(text, valid)
    return batch.with_columns(written) if written else batch


def plain_strings(name: str, column: Values) -> list[str]:
    """Return the values of a numeric, bool or time column as they are written.

    Raises:
        BatchError: it is of another kind.
    """
    assert isinstance(column, np.ndarray)
    kind = column.dtype.kind
    if kind in "iu":
        return list(map(str, column.tolist()))
    if kind == "f" and column.dtype.itemsize <= 8:
        return list(map(repr, column.tolist()))
    if kind == "b":
        return ["true" if value else "false" for value in column.tolist()]
    if kind == "m":
        never = np.iinfo(np.int64).min
        return ["NaT" if value == never else str(value) for value in column.view(np.int64).tolist()]
    if kind == "M":
        strings: list[str] = np.datetime_as_string(column).tolist()
        return strings
    raise BatchError(f"column {name!r} has dtype {column.dtype}, which cannot be written as CSV")


class WriteCsvProcessor(LocalFileSink):
    """Writes batches into files."""

    suffix = ".csv"

    def __init__(self, folder: str, style: CsvStyle, options: PartOptions) -> None:
        super().__init__(folder, options)
        self._style = style

    def begin_file(self) -> None:
        """Begin with a header."""
        self._writer = CsvWriter(self._style)

    def encode(self, items: list[Any]) -> Iterable[bytes]:
        """Return the records of a list of batches."""
        require_batches('write_files(format="csv")', items)
        return map(self._writer.encode, items)
