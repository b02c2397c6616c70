"""The memory of a batch while kernels fill its columns, piece after piece.

A column's memory has room for a fixed number of rows; that of text grows. When enough rows are in it, the columns
become a `Batch` and are let go of, because the receiver of that batch may keep it. Must not know: files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from shmjet.data.batch import Batch
from shmjet.data.column import Values
from shmjet.data.column_types import DecimalType
from shmjet.data.decimals import stored_units, unscaled
from shmjet.data.errors import BatchError
from shmjet.data.text import Mask, Text
from shmjet.data.typed_column import Physical, TypedColumn
from shmjet.processors.csv.csv_format import CsvType

if TYPE_CHECKING:
    from shmjet._native._columns import CsvColumn

TEXT_ROOM: Final = 16
"""Bytes of text a row that there is room for at first."""

_SPARSE: Final = 4
"""Columns that are filled to less than a quarter are copied, so that a small batch keeps no large memory."""


class ColumnMemory:
    """One column.

    Args:
        type_: what it holds.
        rows: how many values there is room for.
    """

    __slots__ = ("_offsets", "_type", "_valid", "_values")

    def __init__(self, type_: CsvType, rows: int) -> None:
        self._type = type_
        self._valid: Mask = np.empty(rows, np.bool_)
        self._offsets: npt.NDArray[np.int64] | None = None
        if type_.parsed is None:
            self._values: npt.NDArray[Any] = np.empty(TEXT_ROOM * rows, np.uint8)
            self._offsets = np.empty(rows + 1, np.int64)
            self._offsets[0] = 0
        else:
            self._values = np.empty(rows, type_.parsed)

    def descriptor(self) -> CsvColumn:
        """Return what `csv_parse` takes for it."""
        type_, values = self._type, self._values
        if type_.parsed is None:
            return type_.kind, 0, 0, values, self._offsets, self._valid
        data = values.view(np.int64) if values.dtype.kind in "mM" else values  # numpy exports no buffer of these
        return type_.kind, type_.unit, values.dtype.itemsize, data, None, self._valid

    def grow(self, rows: int, least: int) -> None:
        """Make room for at least so many more bytes of text, of which `rows` values are there."""
        assert self._offsets is not None
        used = int(self._offsets[rows])
        room = np.empty(max(2 * len(self._values), used + least), np.uint8)
        room[:used] = self._values[:used]
        self._values = room

    def take(self, rows: int, encoding: str, errors: str, odd: bool) -> tuple[Values, Mask | None]:
        """Return the column and its mask; text that is `odd` is brought from its encoding into UTF-8.

        Raises:
            BatchError: a decimal of more than 18 digits is none, or its type does not hold it.
        """
        values, mask = self._physical(rows, encoding, errors, odd)
        typed = self._type.typed
        if typed is None:
            return values, mask
        if isinstance(values, Text) and typed.stored != "text":
            assert isinstance(typed, DecimalType)
            there = [True] * rows if mask is None else mask.tolist()
            units = [
                unscaled(text.strip(), typed) if is_there else 0 for text, is_there in zip(values, there, strict=True)
            ]
            values = stored_units(units, typed)
        return TypedColumn.trusted(typed, values), mask

    def _physical(self, rows: int, encoding: str, errors: str, odd: bool) -> tuple[Physical, Mask | None]:
        sparse = rows * _SPARSE < len(self._valid)
        valid = self._valid[:rows]
        mask = None if valid.all() else (valid.copy() if sparse else valid)
        if mask is not None:
            mask.flags.writeable = False
        values = self._values
        if self._offsets is None:
            with np.errstate(over="ignore"):  # a number beyond float16 is infinite, as one beyond float64 is
                values = values[:rows].astype(self._type.dtype, copy=sparse)
            values.flags.writeable = False
            return values, mask
        offsets = self._offsets[: rows + 1]
        data = values[: offsets[-1]]
        if sparse or len(data) * _SPARSE < len(values):
            offsets, data = offsets.copy(), data.copy()
        text = Text.trusted(offsets, data, self._type.name == "bytes")
        return _in_utf8(text, encoding, errors) if odd and not text.is_bytes else text, mask


class ColumnsMemory:
    """All columns of a batch.

    Args:
        types: names and types, in order.
        rows: how many rows there is room for.
        encoding, errors: of text, as for `bytes.decode`.
    """

    def __init__(self, types: Mapping[str, CsvType], rows: int, encoding: str, errors: str) -> None:
        self._types = types
        self._limit = rows
        self._encoding = encoding
        self._errors = errors
        self.rows = 0
        """Rows that are filled."""
        self.odd = 0
        """Text values that are not UTF-8 as it should be."""
        self._columns: dict[str, ColumnMemory] = {}

    def descriptors(self, names: tuple[str | None, ...]) -> tuple[CsvColumn | None, ...]:
        """Return what `csv_parse` takes for a file whose fields are these columns; None for fields not wanted."""
        if not self._columns:
            self._columns = {name: ColumnMemory(type_, self._limit) for name, type_ in self._types.items()}
        return tuple(None if name is None else self._columns[name].descriptor() for name in names)

    def grow(self, name: str, least: int) -> None:
        """Make room for at least so many more bytes in a text column. Earlier descriptors are void."""
        self._columns[name].grow(self.rows, least)

    def take(self) -> Batch:
        """Return the rows, and begin anew. Earlier descriptors are void."""
        columns: dict[str, Values] = {}
        validity: dict[str, Mask] = {}
        for name, memory in self._columns.items():
            try:
                columns[name], mask = memory.take(self.rows, self._encoding, self._errors, self.odd > 0)
            except BatchError as error:
                raise BatchError(f"column {name!r}: {error}") from None
            if mask is not None:
                validity[name] = mask
        batch = Batch.trusted(columns, validity, self.rows)
        self._columns = {}
        self.rows = self.odd = 0
        return batch


def _in_utf8(text: Text, encoding: str, errors: str) -> Text:
    raw = Text.trusted(text.offsets, text.data, True)
    return Text.of(value.decode(encoding, errors) for value in raw)


def repeated(value: str, rows: int) -> Text:
    """Return a text column of one value in all rows."""
    data = value.encode("utf-8", "backslashreplace")  # so that no two paths become one
    return Text.trusted(np.arange(rows + 1) * len(data), np.frombuffer(data * rows, np.uint8))
