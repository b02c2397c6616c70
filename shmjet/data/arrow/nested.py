"""Lists and structs: Arrow has an array for each part of them, a batch has one run of bytes for each value.

Both ways go through C (`nested.h`), part by part of the type; values become no Python objects. Must not know how arrays
are read and written.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from shmjet._native import _arrow
from shmjet.data.column_types import ColumnType, Kind, ListType, StructType
from shmjet.data.errors import BatchError
from shmjet.data.nested_values import canonical
from shmjet.data.text import Mask, Text
from shmjet.data.typed_column import TypedColumn

if TYPE_CHECKING:
    from shmjet._native._arrow import NestedPart


def leaf_part(values: Any, mask: Mask | None) -> NestedPart:
    """Return a column as a part of a nested one."""
    if isinstance(values, TypedColumn):
        values = values.stored
    if isinstance(values, Text):
        return "t", 0, (), values.data, values.offsets, mask
    return "f", values.dtype.itemsize, (), canonical(values).view(np.uint8), None, mask


def encoded_parts(part: NestedPart, count: int) -> Text:
    """Return the encodings of `count` nested values; nothing for nulls."""
    offsets = np.empty(count + 1, np.int64)
    data = np.empty(_arrow.nested_ends(part, count, offsets), np.uint8)
    _arrow.nested_data(part, count, data)
    return Text.trusted(offsets, data, True)


def decoded_parts(values: Text, mask: Mask | None, kind: ListType | StructType, name: str) -> DecodedPart:
    """Return nested values as the parts of their type.

    Args:
        values: the encodings.
        mask: False at nulls.
        kind: their type.
        name: of the column, for messages.

    Raises:
        BatchError: an encoding is not one of the type.
    """
    try:
        counts = iter(_arrow.nested_parts(values.offsets, values.data, mask, DecodedPart(kind, None).memory))
        part = DecodedPart(kind, counts)
        _arrow.nested_parts(values.offsets, values.data, mask, part.memory)
    except ValueError as error:
        raise BatchError(f"column {name!r}: {error}") from None
    return part


class DecodedPart:
    """A part of a type, and the memory that its values are decoded into.

    Args:
        kind: of the part.
        counts: (slots, bytes) of this part and those in it; None for no memory at all.
    """

    def __init__(self, kind: Kind, counts: Iterator[tuple[int, int]] | None) -> None:
        self.kind = kind
        stored = kind.stored if isinstance(kind, ColumnType) else kind
        slots, size = (0, 0) if counts is None else next(counts)
        self._valid = np.empty(slots, np.bool_)
        self.offsets: npt.NDArray[np.int64] | None = None
        """Of lists and text."""
        self._data: npt.NDArray[Any] | None = None
        inner: list[Kind] = []
        width = 0
        letter = "t"
        if isinstance(kind, ListType):
            letter, inner = "l", [kind.item]
        elif isinstance(kind, StructType):
            letter, inner = "s", [child for _, child in kind.fields]
        elif isinstance(stored, np.dtype):
            letter, width = "f", stored.itemsize
            self._data = np.empty(slots, stored)
        else:
            self._data = np.empty(size, np.uint8)
        if letter in "tl":
            self.offsets = np.zeros(slots + 1, np.int64)
        self.children = [DecodedPart(child, counts) for child in inner]
        data = None if self._data is None else self._data.view(np.uint8)
        memory = (None, None, None) if counts is None else (data, self.offsets, self._valid)
        self.memory: NestedPart = (letter, width, tuple(child.memory for child in self.children), *memory)

    @property
    def mask(self) -> Mask | None:
        """False at nulls; None when there are none."""
        return None if self._valid.all() else self._valid

    @property
    def slots(self) -> int:
        """How many values the part has, also where a list or struct that it is in is null."""
        return len(self._valid)

    def values(self) -> npt.NDArray[Any] | Text | TypedColumn:
        """Return the values of a part that is not nested itself."""
        assert self._data is not None
        stored: npt.NDArray[Any] | Text = self._data
        if self.offsets is not None:
            stored = Text.trusted(self.offsets, self._data, self.kind == "bytes")
        return TypedColumn.trusted(self.kind, stored) if isinstance(self.kind, ColumnType) else stored
