"""Makes frames of rows and other Python objects in a Spark worker, for input that does not come as Arrow's.

The elements of a DataFrame's rows follow its schema. Those of an RDD say by themselves what they are: rows, dicts,
tuples and plain values become batches, anything else stays what it is.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from itertools import islice
from typing import Any, Protocol

import numpy as np

from shmjet.data.batch import Batch
from shmjet.data.column import Values
from shmjet.data.column_types import DecimalType, ZonedType
from shmjet.data.errors import BatchError
from shmjet.data.fitting import column_of
from shmjet.data.text import Text
from shmjet.data.typed_column import TypedColumn
from shmjet.ring import pickling
from shmjet.ring.batch_frames import BatchCodec, padded
from shmjet.spark.protocol import Content
from shmjet.spark.schema import NESTED, Field, is_columnar

Frame = tuple[Content, list[Any], int, int]
"""What it is, its parts, their bytes in all, rows."""

_PLAIN = (bool, int, float, complex, str, bytes, Decimal, datetime.date, datetime.timedelta, np.generic)
_EPOCH = datetime.datetime(1970, 1, 1)
_DAY = datetime.date(1970, 1, 1)
_DECIMAL = DecimalType(38, 18)


class Chunk(Protocol):
    """Makes frames of elements."""

    def frames(self, partition: int, elements: Iterable[Any]) -> Iterator[Frame]:
        """Yield the frames of a partition."""


class RowChunks:
    """Frames of a DataFrame's rows.

    Args:
        fields: of its columns.
        batch_rows: rows of a frame.
        internal: whether values are as they lie inside Spark (days, microseconds), and not dates and times.
    """

    def __init__(self, fields: tuple[Field, ...], batch_rows: int, internal: bool) -> None:
        self.fields = fields
        self.batch_rows = batch_rows
        self.internal = internal

    def frames(self, partition: int, elements: Iterable[Any]) -> Iterator[Frame]:
        """Yield the frames of a partition. Raises BatchError when a value does not fit; the text names all."""
        codec = BatchCodec()
        columnar = is_columnar(self.fields)
        for rows in _cut(elements, self.batch_rows):
            if columnar:
                try:
                    yield _batch_frame(codec, self._batch(rows))
                except BatchError as error:
                    raise BatchError(f"partition {partition}: {error}") from None
            else:
                yield _items_frame([self._dict(row) for row in rows])

    def _batch(self, rows: list[Any]) -> Batch:
        columns, validity = {}, {}
        for field, values in zip(self.fields, zip(*rows, strict=True), strict=True):
            missing = [value is None for value in values]
            if any(missing):
                validity[field.name] = ~np.array(missing, np.bool_)
            columns[field.name] = self._column(field, values)
        return Batch(columns, validity)

    def _column(self, field: Field, values: tuple[Any, ...]) -> Values:
        kind = field.kind
        if kind == "decimal" or kind in NESTED:
            found, _ = column_of(field.name, [self._plain(field, value) for value in values], field.column_kind)
            return found
        if kind == "text":
            return Text.of(["" if value is None else value for value in values])
        if kind == "bytes":
            return Text.of([b"" if value is None else bytes(value) for value in values])
        if kind == "null":
            return np.zeros(len(values))
        if kind in _TO_INTERNAL:
            numbers = values if self.internal else [None if v is None else _TO_INTERNAL[kind](v) for v in values]
            return _of_internal(field, [0 if value is None else value for value in numbers])
        return np.array([0 if value is None else value for value in values], np.dtype(kind))

    def _dict(self, row: Any) -> dict[str, Any]:
        return {field.name: self._plain(field, value) for field, value in zip(self.fields, row, strict=True)}

    def _plain(self, field: Field, value: Any) -> Any:
        """Return what `shmjet.spark.arrow` makes of the same value."""
        if value is None:
            return None
        if field.kind == "list":
            return [self._plain(field.children[0], element) for element in value]
        if field.kind == "map":
            key, item = field.children
            return {self._plain(key, k): self._plain(item, v) for k, v in value.items()}
        if field.kind == "struct":
            return {child.name: self._plain(child, part) for child, part in zip(field.children, value, strict=True)}
        if field.kind in _TO_INTERNAL:
            number = value if self.internal else _TO_INTERNAL[field.kind](value)
            return _of_internal(field, [number]).tolist()[0]
        return bytes(value) if field.kind == "bytes" else value


class ElementChunks:
    """Frames of an RDD's elements.

    Args:
        columns: names for the values of tuples and lists, or which keys of dicts and fields of rows to take; None to
            leave the elements what they are.
        batch_rows: elements of a frame.
    """

    def __init__(self, columns: tuple[str, ...] | None, batch_rows: int) -> None:
        self.columns = columns
        self.batch_rows = batch_rows

    def frames(self, partition: int, elements: Iterable[Any]) -> Iterator[Frame]:
        """Yield the frames of a partition. Raises BatchError when an element does not fit; the text names it."""
        codec = BatchCodec()
        names = self.columns
        for rows in _cut(elements, self.batch_rows):
            if names is None:
                yield _items_frame(rows)
                continue
            try:
                listed = [_cells(row, names) for row in rows]
                yield _batch_frame(codec, Batch.from_rows(listed, names, schema=_decimals(listed, names)))
            except BatchError as error:
                raise BatchError(f"partition {partition}: {error}; map the RDD to elements of one kind") from None


def names_of(first: Any) -> tuple[str, ...] | None:
    """Return the column names of an element, as Spark itself names them; None for an element without names."""
    if isinstance(first, Mapping):
        plain = bool(first) and all(isinstance(key, str) and key for key in first)
        return tuple(first) if plain and all(map(_is_plain, first.values())) else None
    if isinstance(first, tuple):
        if not first or not all(map(_is_plain, first)):
            return None
        fields = getattr(first, "__fields__", None) or getattr(first, "_fields", None)
        return tuple(fields) if fields else tuple(f"_{place}" for place in range(1, len(first) + 1))
    return ("value",) if _is_plain(first) and first is not None else None


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, _PLAIN)


def _cells(row: Any, names: tuple[str, ...]) -> tuple[Any, ...]:
    """Return the values of one element in the order of the columns."""
    if isinstance(row, Mapping):
        missing = [name for name in names if name not in row]
        if missing:
            raise BatchError(f"an element has no value for column {missing[0]!r}: {row!r:.80}")
        return tuple(_cell(row[name]) for name in names)
    if isinstance(row, tuple | list):
        fields = list(getattr(row, "__fields__", None) or getattr(row, "_fields", None) or ())
        if fields and set(names) <= set(fields):
            return tuple(_cell(row[fields.index(name)]) for name in names)
        if len(row) != len(names):
            raise BatchError(f"an element has {len(row)} values for the columns {list(names)}: {row!r:.80}")
        return tuple(map(_cell, row))
    if len(names) != 1:
        raise BatchError(f"an element is one value, the columns are {list(names)}: {row!r:.80}")
    return (_cell(row),)


def _decimals(rows: list[tuple[Any, ...]], names: tuple[str, ...]) -> dict[str, DecimalType]:
    """Return the types of columns of decimals: that of `toDF()`, the same for all batches."""
    return {name: _DECIMAL for place, name in enumerate(names) if any(isinstance(row[place], Decimal) for row in rows)}


def _cell(value: Any) -> Any:
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value.astimezone(datetime.UTC)
    return bytes(value) if isinstance(value, bytearray) else value


def _cut(elements: Iterable[Any], size: int) -> Iterator[list[Any]]:
    every = iter(elements)
    while chunk := list(islice(every, size)):
        yield chunk


def _batch_frame(codec: BatchCodec, batch: Batch) -> Frame:
    parts, size = codec.encode(batch)
    return Content.BATCH, padded(parts), size, batch.num_rows


def _items_frame(items: list[Any]) -> Frame:
    parts = list(pickling.dumps(items))
    return Content.ITEMS, parts, sum(memoryview(part).nbytes for part in parts), len(items)


def _micros(value: datetime.datetime) -> int:
    """Return microseconds since 1970 in UTC of what PySpark gives for a TIMESTAMP: local time without a zone."""
    aware = value.astimezone(datetime.UTC).replace(tzinfo=None)
    return _micros_ntz(aware)


def _micros_ntz(value: datetime.datetime) -> int:
    return (value - _EPOCH) // datetime.timedelta(microseconds=1)


def _nanos(value: datetime.time) -> int:
    return ((value.hour * 60 + value.minute) * 60 + value.second) * 10**9 + value.microsecond * 1000


def _days(value: datetime.date) -> int:
    return (value - _DAY).days


def _length(value: datetime.timedelta) -> int:
    return value // datetime.timedelta(microseconds=1)


_TO_INTERNAL: dict[str, Callable[[Any], int]] = {
    "date": _days,
    "timestamp": _micros,
    "timestamp_ntz": _micros_ntz,
    "duration": _length,
    "months": int,
    "time": _nanos,
}


def _of_internal(field: Field, numbers: list[int]) -> Values:
    """Return days, microseconds ... as a column of dates or times."""
    values = np.array(numbers, np.int64)
    kind = field.column_kind
    if isinstance(kind, ZonedType):
        return TypedColumn.trusted(kind, values.view("datetime64[us]"))
    assert isinstance(kind, np.dtype)
    return values.view(kind)
