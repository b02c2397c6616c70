"""Reads the record batches that Spark's JVM writes, without pyarrow: numpy views on the memory they lie in.

What lies there is Arrow's encapsulated message (https://arrow.apache.org/docs/format/Columnar.html): a continuation
mark, the length of the metadata, a flatbuffer with the sizes and places of all buffers, then the buffers. Only what
Spark writes is read: no compression, no dictionaries, offsets of 32 or 64 bits. The schema comes from `df.schema`.
Must not know where the memory comes from.
"""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shmjet.data.arrow.nested import encoded_parts, leaf_part
from shmjet.data.batch import Batch
from shmjet.data.column import Values
from shmjet.data.column_types import WIDE, ColumnType, DecimalType
from shmjet.data.errors import BatchError
from shmjet.data.text import Mask, Text
from shmjet.data.typed_column import Physical, TypedColumn
from shmjet.spark.schema import NESTED, Field

if TYPE_CHECKING:
    from shmjet._native._arrow import NestedPart

Memory: TypeAlias = Any
"""Anything with the buffer protocol."""

_RECORD_BATCH = 3
_CONTINUATION = 0xFFFFFFFF
_DTYPES = {
    "date": np.dtype(np.int32),
    "timestamp": np.dtype("datetime64[us]"),
    "timestamp_ntz": np.dtype("datetime64[us]"),
    "duration": np.dtype("timedelta64[us]"),
    "months": np.dtype(np.int32),
    "time": np.dtype("timedelta64[ns]"),
}
_DAYS = np.dtype("datetime64[D]")
_MONTHS = np.dtype("timedelta64[M]")
_INT64 = np.dtype(np.int64)


class RecordBatch:
    """One record batch in memory: how many rows it has, and a cursor over its buffers.

    Args:
        memory: where it lies; views keep it alive.
        start: where the message begins in it.
        length: its bytes.
        large: whether offsets of text, bytes and lists have 64 bits. Lists always have 32 in what Spark writes.

    Raises:
        BatchError: the bytes are not a record batch, or its buffers are compressed.
    """

    def __init__(self, memory: Memory, start: int, length: int, large: bool = False) -> None:
        self._memory = memory
        self._large = large
        try:
            self._read_head(start, length)
        except (struct.error, IndexError, ValueError) as error:
            raise BatchError(f"invalid record batch from Spark: {error}") from error

    def _read_head(self, start: int, length: int) -> None:
        memory = self._memory
        mark, size = struct.unpack_from("<Ii", memory, start)
        at = start + 8
        if mark != _CONTINUATION:  # written by Arrow before 0.15
            size, at = mark, start + 4
        if size < 0 or at + size > start + length:
            raise ValueError(f"its metadata has {size} bytes, the message {length}")
        message = _Table(memory, at + _u32(memory, at))
        kind = message.byte(1)
        if kind != _RECORD_BATCH:
            raise ValueError(f"its kind is {kind}")
        head = message.table(2)
        self._body = at + size
        self.rows = head.int64(0)
        if head.has(3):
            raise ValueError("its buffers are compressed")
        self._nodes = iter(head.pairs(1))
        self._buffers = iter(head.pairs(2))
        last = max((offset + count for offset, count in head.pairs(2)), default=0)
        if self._body + last > start + length:
            raise ValueError("its buffers go beyond its end")

    # -- columns -------------------------------------------------------------------------------------------------

    def batch(self, fields: tuple[Field, ...]) -> Batch:
        """Return all columns; called once, instead of `dicts`. Raises BatchError where buffers do not fit."""
        columns: dict[str, Values] = {}
        masks: dict[str, Mask] = {}
        for field in fields:
            columns[field.name], mask = self._column(field)
            if mask is not None:
                masks[field.name] = mask
        for array in (*columns.values(), *masks.values()):
            if isinstance(array, np.ndarray):
                array.flags.writeable = False
        return Batch.trusted(columns, masks, self.rows)

    def _column(self, field: Field) -> tuple[Values, Mask | None]:
        kind = field.column_kind
        if field.kind in NESTED:
            assert isinstance(kind, ColumnType)
            count, mask, part = self._part(field)
            return TypedColumn.trusted(kind, encoded_parts(part, count)), mask
        values, mask = self._physical(field)
        return (TypedColumn.trusted(kind, values) if isinstance(kind, ColumnType) else values), mask

    def _physical(self, field: Field) -> tuple[Physical, Mask | None]:
        rows, nulls = next(self._nodes)
        kind = field.kind
        if kind == "null":
            return np.zeros(rows), np.zeros(rows, np.bool_)
        mask = self._validity(rows, nulls)
        if kind in ("text", "bytes"):
            return self._text(rows, kind == "bytes"), mask
        if kind == "bool":
            return self._bits(rows), mask
        if kind == "decimal":
            return self._decimals(rows, DecimalType(field.digits, field.scale)), mask
        values = self._fixed(rows, _DTYPES.get(kind) or np.dtype(kind))
        if kind == "date":
            return values.astype(_INT64).view(_DAYS), mask
        if kind == "months":
            return values.astype(_INT64).view(_MONTHS), mask
        return values, mask

    def _part(self, field: Field) -> tuple[int, Mask | None, NestedPart]:
        """Return how many values a part of a nested column has, their mask, and the part as C takes it."""
        if field.kind not in NESTED:
            values, mask = self._physical(field)
            return len(values), mask, leaf_part(values, mask)
        rows, nulls = next(self._nodes)
        mask = self._validity(rows, nulls)
        if field.kind == "struct":
            parts = [self._part(child) for child in field.children]
            if any(count < rows for count, _, _ in parts):
                raise BatchError(f"invalid record batch from Spark: {rows} structs with fewer values in a field")
            return rows, mask, ("s", 0, tuple(part for _, _, part in parts), None, None, mask)
        offsets = self._offsets(rows, False)
        count, _, part = self._part(field.children[0])
        if offsets[0] or offsets[-1] > count or (offsets[1:] < offsets[:-1]).any():
            raise BatchError(f"invalid record batch from Spark: offsets of lists do not ascend from 0 to {count}")
        return rows, mask, ("l", 0, (part,), None, offsets, mask)

    # -- rows ----------------------------------------------------------------------------------------------------

    def dicts(self, fields: tuple[Field, ...]) -> list[dict[str, Any]]:
        """Return all rows as dicts: arrays are lists, maps dicts, structs dicts, decimals `Decimal`; called once."""
        names = [field.name for field in fields]
        columns = [self._values(field) for field in fields]
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

    def _values(self, field: Field) -> list[Any]:
        """Return the values of a field as Python objects, None for nulls."""
        if field.kind not in NESTED:
            column, mask = self._column(field)
            return _with_nulls(column.tolist(), mask)
        rows, nulls = next(self._nodes)
        mask = self._validity(rows, nulls)
        if field.kind == "struct":
            names = [child.name for child in field.children]
            parts = [self._values(child) for child in field.children]
            if not parts:
                return _with_nulls([{} for _ in range(rows)], mask)
            made = [dict(zip(names, values, strict=True)) for values in zip(*parts, strict=True)]
            return _with_nulls(made, mask)
        ends = self._offsets(rows, False).tolist()
        pieces = list(pairwise(ends))
        if field.kind == "list":
            elements = self._values(field.children[0])
            return _with_nulls([elements[a:b] for a, b in pieces], mask)
        count, missing = next(self._nodes)  # a map is a list of structs of key and value
        self._validity(count, missing)
        keys, values = (self._values(child) for child in field.children)
        return _with_nulls([dict(zip(keys[a:b], values[a:b], strict=True)) for a, b in pieces], mask)

    # -- buffers -------------------------------------------------------------------------------------------------

    def _fixed(self, rows: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        offset, size = next(self._buffers)
        if rows * dtype.itemsize > size:
            raise BatchError(f"invalid record batch from Spark: {rows} values of {dtype} in {size} bytes")
        if not rows:
            return np.zeros(0, dtype)
        return np.frombuffer(self._memory, dtype, rows, self._body + offset)

    def _bits(self, rows: int) -> Mask:
        offset, size = next(self._buffers)
        needed = (rows + 7) // 8
        if needed > size:
            raise BatchError(f"invalid record batch from Spark: {rows} bits in {size} bytes")
        if not rows:
            return np.zeros(0, np.bool_)
        packed = np.frombuffer(self._memory, np.uint8, needed, self._body + offset)
        return np.unpackbits(packed, count=rows, bitorder="little").view(np.bool_)

    def _validity(self, rows: int, nulls: int) -> Mask | None:
        if not nulls:
            next(self._buffers)
            return None
        return self._bits(rows)

    def _offsets(self, rows: int, large: bool) -> npt.NDArray[np.int64]:
        offset, size = next(self._buffers)
        if not rows or not size:  # Arrow leaves the offsets out when there is nothing
            return np.zeros(rows + 1, np.int64)
        dtype: np.dtype[Any] = _INT64 if large else np.dtype(np.int32)
        if (rows + 1) * dtype.itemsize > size:
            raise BatchError(f"invalid record batch from Spark: {rows + 1} offsets in {size} bytes")
        found = np.frombuffer(self._memory, dtype, rows + 1, self._body + offset)
        return found.astype(np.int64, copy=False)

    def _text(self, rows: int, is_bytes: bool) -> Text:
        offsets = self._offsets(rows, self._large)
        offset, size = next(self._buffers)
        end = int(offsets[-1])
        if end > size:
            raise BatchError(f"invalid record batch from Spark: text of {end} bytes in {size}")
        data = np.frombuffer(self._memory, np.uint8, end, self._body + offset) if end else np.zeros(0, np.uint8)
        offsets.flags.writeable = data.flags.writeable = False
        return Text.trusted(offsets, data, is_bytes)

    def _decimals(self, rows: int, kind: DecimalType) -> npt.NDArray[Any]:
        if kind.stored == WIDE:
            return self._fixed(rows, WIDE)
        return self._fixed(2 * rows, _INT64)[::2].copy()


def count_rows(memory: Memory, start: int, length: int) -> int:
    """Return the rows of a record batch without looking at its columns. Raises BatchError when it is none."""
    return RecordBatch(memory, start, length).rows


def _with_nulls(values: list[Any], mask: Mask | None) -> list[Any]:
    if mask is not None:
        for place in np.flatnonzero(~mask).tolist():
            values[place] = None
    return values


class _Table:
    """A table of a flatbuffer: fields by number, found through its vtable."""

    def __init__(self, memory: Memory, at: int) -> None:
        self._memory = memory
        self._at = at
        self._vtable = at - struct.unpack_from("<i", memory, at)[0]
        self._size: int = struct.unpack_from("<H", memory, self._vtable)[0]

    def _place(self, number: int) -> int:
        at = 4 + 2 * number
        offset: int = struct.unpack_from("<H", self._memory, self._vtable + at)[0] if at < self._size else 0
        return self._at + offset if offset else 0

    def has(self, number: int) -> bool:
        return self._place(number) != 0

    def byte(self, number: int) -> int:
        place = self._place(number)
        value: int = struct.unpack_from("<B", self._memory, place)[0] if place else 0
        return value

    def int64(self, number: int) -> int:
        place = self._place(number)
        value: int = struct.unpack_from("<q", self._memory, place)[0] if place else 0
        return value

    def table(self, number: int) -> _Table:
        place = self._place(number)
        if not place:
            raise ValueError(f"its metadata lacks field {number}")
        return _Table(self._memory, place + _u32(self._memory, place))

    def pairs(self, number: int) -> list[tuple[int, int]]:
        """Return a vector of structs of two int64 each."""
        place = self._place(number)
        if not place:
            return []
        at = place + _u32(self._memory, place)
        count = _u32(self._memory, at)
        if not count:
            return []
        flat = np.frombuffer(self._memory, np.int64, 2 * count, at + 4).tolist()
        return list(zip(flat[::2], flat[1::2], strict=True))


def _u32(memory: Memory, at: int) -> int:
    value: int = struct.unpack_from("<I", memory, at)[0]
    return value
