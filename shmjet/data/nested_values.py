"""Lists and structs as bytes: each value of a nested column has one encoding, which its type directs.

So a nested column is a column of bytes to everything that moves rows, and two values are equal exactly if their bytes
are, but for 0.0 and -0.0 (a NaN has one encoding): see `with_one_zero`. docs/formats/batch.md has the layout. Must not
know columns: the values come and go as Python's own.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from shmjet.data.column_types import ColumnType, Kind, ListType, StructType
from shmjet.data.errors import BatchError
from shmjet.data.text import Text

_COUNT: Final = struct.Struct("<I")
_MOST: Final = (1 << 32) - 1

Stored = Callable[[list[Any], Kind], Any]
"""Turns values without None into what a column of a kind stores: an array or a `Text`."""

Plain = Callable[[Any, Kind], list[Any]]
"""The way back."""


def encoded(values: Sequence[Any], kind: ListType | StructType, stored: Stored) -> Text:
    """Return nested values as a `Text` of bytes.

    Args:
        values: lists or dicts, None for nulls (of which nothing is stored).
        kind: their type.
        stored: how values that are not nested are stored.

    Raises:
        BatchError: a value is not of the type.
    """
    present = [value for value in values if value is not None]
    pieces = iter(_pieces(present, kind, stored))
    return Text.of([b"" if value is None else next(pieces) for value in values] or [b""])[: len(values)]


def _pieces(values: list[Any], kind: Kind, stored: Stored) -> list[bytes]:
    """Return the payload of each of some values, none of which is null."""
    if isinstance(kind, ListType):
        return _list_pieces(values, kind, stored)
    if isinstance(kind, StructType):
        return _struct_pieces(values, kind, stored)
    column = stored(values, kind)
    if isinstance(column, Text):
        raw = Text.trusted(column.offsets, column.data, is_bytes=True).tolist()
        return [_counted(len(value)) + value for value in raw]
    width = column.dtype.itemsize
    data = canonical(column).tobytes()
    return [data[at : at + width] for at in range(0, len(data), width)]


def canonical(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return numbers with one NaN, so that equal values have equal bytes."""
    if column.dtype.kind not in "fc" or not np.isnan(column).any():
        return column
    column = column.copy()
    parts = column.view(column.real.dtype) if column.dtype.kind == "c" else column
    parts[np.isnan(parts)] = np.nan
    return column


def _list_pieces(values: list[Any], kind: ListType, stored: Stored) -> list[bytes]:
    lists = [_items(value, kind) for value in values]
    present = [item for items in lists for item in items if item is not None]
    pieces = iter(_pieces(present, kind.item, stored))
    gap = b"\0" * width_of(kind.item)
    return [
        b"".join(
            [
                _counted(len(items)),
                bytes(item is not None for item in items),
                *[gap if item is None else next(pieces) for item in items],
            ]
        )
        for items in lists
    ]


def _items(value: Any, kind: ListType) -> list[Any]:
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise BatchError(f"expected a list for a value of {kind}, got {type(value).__name__} {value!r:.60}")
    return list(value)


def _struct_pieces(values: list[Any], kind: StructType, stored: Stored) -> list[bytes]:
    names = [name for name, _ in kind.fields]
    known = set(names)
    for value in values:
        if not isinstance(value, Mapping):
            raise BatchError(f"expected a dict for a value of {kind}, got {type(value).__name__} {value!r:.60}")
        if not known.issuperset(value):
            (more, *_) = [name for name in value if name not in known]
            raise BatchError(f"a value of {kind} has the further field {more!r}")
    columns = []
    for name, inner in kind.fields:
        fields = [value.get(name) for value in values]
        pieces = iter(_pieces([field for field in fields if field is not None], inner, stored))
        gap = b"\0" * width_of(inner)
        columns.append([gap if field is None else next(pieces) for field in fields])
    heads = [bytes(value.get(name) is not None for name in names) for value in values]
    return [b"".join(parts) for parts in zip(heads, *columns, strict=True)]


def _counted(count: int) -> bytes:
    if count > _MOST:
        raise BatchError(
            f"a list or text in a nested value has {count:,} items or bytes; at most {_MOST:,} are possible"
        )
    return _COUNT.pack(count)


def width_of(kind: Kind) -> int:
    """Return the bytes of a null in a list or struct: those of a value of fixed width, else none."""
    if isinstance(kind, ColumnType):
        kind = kind.stored
    return 0 if isinstance(kind, str) else kind.itemsize


# -- the way back ------------------------------------------------------------------------------------------------------


def decoded(column: Text, kind: ListType | StructType, plain: Plain) -> list[Any]:
    """Return the lists or dicts of a column; None for an empty encoding, which is what lies under a null.

    Args:
        column: made by `encoded`.
        kind: the type.
        plain: how stored values that are not nested become Python's.
    """
    raw = column.tolist()
    if isinstance(kind, StructType) and not kind.fields:
        return [{} for _ in raw]
    present = [value for value in raw if value]
    if not present:
        return [None] * len(raw)
    values = iter(_Decoder(present, plain).values(kind))
    return [next(values) if value else None for value in raw]


class _Decoder:
    """Reads many encodings side by side: each has its own place, and values of one kind are converted together."""

    def __init__(self, raw: list[bytes], plain: Plain) -> None:
        self._raw = raw
        self._at = [0] * len(raw)
        self._plain = plain

    def values(self, kind: Kind) -> list[Any]:
        """Return one value from each encoding."""
        return self._read(kind, range(len(self._raw)))

    def _read(self, kind: Kind, which: Sequence[int]) -> list[Any]:
        """Return a value for each entry of `which`, read one after the other from the encoding it names."""
        if isinstance(kind, ListType):
            return self._lists(kind, which)
        if isinstance(kind, StructType):
            return self._structs(kind, which)
        pieces: list[bytes] = []
        raw, at = self._raw, self._at
        width = width_of(kind)
        for one in which:
            start = at[one]
            if not width:
                (size,) = _COUNT.unpack_from(raw[one], start)
                start += 4
            else:
                size = width
            at[one] = start + size
            pieces.append(raw[one][start : start + size])
        if not width:
            is_bytes = kind == "bytes"
            texts = Text.of(pieces or [b""])[: len(pieces)]
            return self._plain(Text.trusted(texts.offsets, texts.data, is_bytes), kind)
        dtype = kind.stored if isinstance(kind, ColumnType) else kind
        return self._plain(np.frombuffer(b"".join(pieces), dtype), kind)

    def _lists(self, kind: ListType, which: Sequence[int]) -> list[Any]:
        if isinstance(kind.item, ListType | StructType) or not width_of(kind.item):
            return [self._list(kind, one) for one in which]
        heads: list[bytes] = []
        data: list[bytes] = []
        width = width_of(kind.item)
        for one in which:
            raw, start = self._raw[one], self._at[one]
            (count,) = _COUNT.unpack_from(raw, start)
            first = start + 4 + count
            heads.append(raw[start + 4 : first])
            self._at[one] = first + count * width
            data.append(raw[first : self._at[one]])
        dtype = kind.item.stored if isinstance(kind.item, ColumnType) else kind.item
        items = self._plain(np.frombuffer(b"".join(data), dtype), kind.item)
        result: list[Any] = []
        at = 0
        for head in heads:
            some = items[at : at + len(head)]
            at += len(head)
            if 0 in head:
                some = [item if there else None for item, there in zip(some, head, strict=True)]
            result.append(some)
        return result

    def _list(self, kind: ListType, one: int) -> list[Any]:
        start = self._at[one]
        (count,) = _COUNT.unpack_from(self._raw[one], start)
        head = self._raw[one][start + 4 : start + 4 + count]
        self._at[one] = start + 4 + count
        items = iter(self._read(kind.item, [one] * (count - head.count(0))))
        return [next(items) if there else None for there in head]

    def _structs(self, kind: StructType, which: Sequence[int]) -> list[Any]:
        names = [name for name, _ in kind.fields]
        if len(set(which)) < len(which):  # several from one encoding lie one after the other, not field by field
            return [self._structs(kind, [one])[0] for one in which]
        heads: list[bytes] = []
        for one in which:
            start = self._at[one]
            self._at[one] = start + len(names)
            heads.append(self._raw[one][start : start + len(names)])
        made: list[dict[str, Any]] = [{} for _ in which]
        for place, (name, inner) in enumerate(kind.fields):
            width = width_of(inner)
            present = [one for one, head in zip(which, heads, strict=True) if head[place]]
            values = iter(self._read(inner, present))
            for row, (one, head) in enumerate(zip(which, heads, strict=True)):
                if head[place]:
                    made[row][name] = next(values)
                else:
                    made[row][name] = None
                    self._at[one] += width
        return made


# -- comparing ---------------------------------------------------------------------------------------------------------


def with_one_zero(column: Text, kind: Kind) -> Text:
    """Return nested values with 0.0 in place of -0.0, so that values are equal exactly if their bytes are.

    Args:
        column: made by `encoded`; what has no -0.0 is returned as it is.
        kind: the type; if it is not nested, the column is returned.
    """
    if not isinstance(kind, ListType | StructType):
        return column
    data: Any = column.data
    if not any(re.search(rb"\0{%d}\x80" % (width - 1), data) for width in _float_widths(kind)):
        return column
    return encoded(decoded(column, kind, _physical), kind, _without_sign)


def _float_widths(kind: Kind) -> set[int]:
    """Return the bytes of the kinds of floats in a type."""
    if isinstance(kind, ListType):
        return _float_widths(kind.item)
    if isinstance(kind, StructType):
        return set().union(*(_float_widths(inner) for _, inner in kind.fields))
    if isinstance(kind, str | ColumnType) or kind.kind not in "fc":
        return set()
    return {kind.itemsize // (2 if kind.kind == "c" else 1)}


def _physical(stored: Any, _: Kind) -> list[Any]:
    """Return stored values one by one, exactly as they are."""
    if isinstance(stored, Text):
        return Text.trusted(stored.offsets, stored.data, is_bytes=True).tolist()
    return list(stored)


def _without_sign(values: list[Any], kind: Kind) -> Any:
    """Return what `_physical` gave as a column again, with one zero."""
    dtype = kind.stored if isinstance(kind, ColumnType) else kind
    if isinstance(dtype, str):
        return Text.of(values or [b""])[: len(values)]
    column = np.array(values, dtype)
    return column + column.dtype.type(0) if column.dtype.kind in "fc" else column


# -- types of values ---------------------------------------------------------------------------------------------------

KindOf = Callable[[list[Any]], Kind]
"""Gives the kind of values without None that are not nested."""


def nested_type(values: list[Any], kind_of_values: KindOf) -> ListType | StructType:
    """Return the type of lists or dicts. A field that some dicts lack is null there.

    Args:
        values: at least one, none of them None.
        kind_of_values: gives the kind of the values inside, which may be none at all.

    Raises:
        BatchError: lists and dicts are mixed, or the values inside are of no common kind.
    """
    if all(isinstance(value, Mapping) for value in values):
        names = list(dict.fromkeys(name for value in values for name in value))
        wrong = next((name for name in names if not isinstance(name, str)), None)
        if wrong is not None:
            raise BatchError(f"the names in a struct are str, got {wrong!r}")
        return StructType(
            tuple(
                (name, kind_of_values([value[name] for value in values if value.get(name) is not None]))
                for name in names
            )
        )
    if any(isinstance(value, Mapping) for value in values):
        raise BatchError("lists and dicts do not go together in one column")
    return ListType(kind_of_values([item for value in values for item in value if item is not None]))
