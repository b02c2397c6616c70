"""Arrays of other libraries as columns: views where the layouts agree, else one pass over the values.

What a producer gives is checked as far as the interface allows: it tells no sizes of buffers. Positions inside an array
do not count its own `offset`, which is added where a buffer is read. Must not know capsules and streams.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from shmjet._native import _arrow
from shmjet.data.arrow.buffers import bits, both, fixed, offsets_of, validity
from shmjet.data.arrow.decimals import read_decimals
from shmjet.data.arrow.fields import BOOL, NOTHING, NUMBERS, TEXTS, Field
from shmjet.data.arrow.nested import encoded_parts, leaf_part
from shmjet.data.column import Values
from shmjet.data.column_types import CategoryType, ColumnType, DecimalType, Kind
from shmjet.data.text import Mask, Text
from shmjet.data.typed_column import TypedColumn, nulls

if TYPE_CHECKING:
    from shmjet._native._arrow import Array, NestedPart

Column = tuple[Values, Mask | None]
"""Values, and a mask that is False at nulls if there are any."""

_INT64: Final = np.dtype(np.int64)
_DAY_MS: Final = 86_400_000
_VIEW_SLACK: Final = 12


def read_column(field: Field, array: Array, start: int, count: int) -> Column:
    """Return `count` values of an array, from `start` on.

    Raises:
        BatchError: the array does not fit its type, or no column holds its values.
    """
    if count < 0 or start < 0 or start + count > array.length:
        raise field.error(f"{start + count} values are needed, and the array has {array.length}")
    if field.dictionary is not None:
        return _dictionary(field, field.dictionary, array, start, count)
    if field.format == "n":
        return np.zeros(count, NOTHING), np.zeros(count, np.bool_)
    if field.format == "+r":
        return _run_ends(field, array, start, count)
    mask = validity(field, array, start, count)
    if field.format == "+s" or field.is_list:
        kind = field.kind()
        assert isinstance(kind, ColumnType)
        part = _nested_part(field, array, start, count, mask)
        return TypedColumn.trusted(kind, encoded_parts(part, count)), mask
    return _values(field, array, start, count, mask), mask


def _values(field: Field, array: Array, start: int, count: int, mask: Mask | None) -> Values:
    """Return the values of a type that is not nested."""
    if field.format in TEXTS:
        return _text(field, array, start, count, mask)
    kind = field.kind()
    if field.format == "b":
        return bits(field, array, 1, start, count)
    if field.format in NUMBERS:
        values = fixed(field, array, 1, start, count, NUMBERS[field.format])
        return (values != 0) if kind == BOOL else values
    if field.byte_width is not None:
        return _fixed_bytes(field, array, start, count, field.byte_width)
    if field.decimal is not None:
        assert isinstance(kind, DecimalType)
        return TypedColumn.trusted(kind, read_decimals(field, array, start, count, mask, kind))
    return _times(field, array, start, count, mask, kind)


# -- text --------------------------------------------------------------------------------------------------------------


def _text(field: Field, array: Array, start: int, count: int, mask: Mask | None) -> Text:
    is_bytes = TEXTS[field.format] == "bytes"
    if field.format in ("vu", "vz"):
        return _views(array, start, count, mask, is_bytes)
    offsets = offsets_of(field, array, start, count, field.format in "UZ")
    end = int(offsets[-1])
    return Text.trusted(offsets, _data(field, array, 2, end, int(offsets[0])), is_bytes)


def _data(field: Field, array: Array, index: int, end: int, first: int) -> npt.NDArray[np.uint8]:
    if not end:
        return np.zeros(0, np.uint8)
    memory = array.buffer(index, end)
    if memory is None:
        if end > first:
            raise field.error(f"buffer {index} is missing, and its values have {end - first} bytes")
        return np.zeros(end, np.uint8)
    return np.frombuffer(memory, np.uint8, end)


def _views(array: Array, start: int, count: int, mask: Mask | None, is_bytes: bool) -> Text:
    offsets = np.zeros(count + 1, np.int64)
    if not count:
        return Text.trusted(offsets, np.zeros(0, np.uint8), is_bytes)
    size = _arrow.view_ends(array, start, count, mask, offsets)
    data = np.empty(size + _VIEW_SLACK, np.uint8)
    _arrow.view_data(array, start, count, offsets, data)
    return Text.trusted(offsets, data[:size], is_bytes)


def _fixed_bytes(field: Field, array: Array, start: int, count: int, width: int) -> Text:
    offsets = np.arange(count + 1, dtype=np.int64) * width
    if not width or not count:
        return Text.trusted(offsets, np.zeros(0, np.uint8), True)
    data = fixed(field, array, 1, start, count, np.dtype(f"V{width}"))
    return Text.trusted(offsets, data.view(np.uint8), True)


# -- dates and times ---------------------------------------------------------------------------------------------------


def _times(field: Field, array: Array, start: int, count: int, mask: Mask | None, kind: Kind) -> Values:
    stored = kind.stored if isinstance(kind, ColumnType) else kind
    assert isinstance(stored, np.dtype)
    if field.format in ("tdD", "tiM", "tts", "ttm"):
        values = fixed(field, array, 1, start, count, np.dtype(np.int32)).astype(np.int64).view(stored)
    else:
        values = fixed(field, array, 1, start, count, _INT64)
        if field.format == "tdm":
            values = _whole_days(field, values, mask)
        values = values.view(stored)
    return TypedColumn.trusted(kind, values) if isinstance(kind, ColumnType) else values


def _whole_days(field: Field, values: npt.NDArray[Any], mask: Mask | None) -> npt.NDArray[Any]:
    days, rest = np.divmod(values, _DAY_MS)
    wrong = rest != 0 if mask is None else (rest != 0) & mask
    if wrong.any():
        raise field.error(f"the date {int(values[wrong][0])} ms after 1970 is not a whole day")
    return days


# -- values that are stored once ---------------------------------------------------------------------------------------


def _dictionary(field: Field, values: Field, array: Array, start: int, count: int) -> Column:
    dtype = NUMBERS.get(field.format)
    if dtype is None or dtype.kind not in "iu":
        raise field.error(f"the indices of a dictionary are integers, not {field.format!r}")
    words = array.dictionary
    if words is None:
        raise field.error("an array has no dictionary, and its type has one")
    mask = validity(field, array, start, count)
    codes = fixed(field, array, 1, start, count, dtype)
    if mask is not None:
        codes = np.where(mask, codes, np.zeros((), dtype))
    there, there_mask = read_column(values, words, 0, words.length)
    kind = field.kind()
    if count and mask is not None and not mask.any():
        return nulls(kind, count), mask
    if count and (codes.min() < 0 or codes.max() >= len(there)):
        wrong = codes[(codes < 0) | (codes >= len(there))][0]
        raise field.error(f"the index {int(wrong)} is not one of a dictionary of {len(there)} values")
    chosen = codes.astype(np.intp, copy=False)
    found: Values = there.take(chosen)
    if there_mask is not None:
        mask = both(mask, there_mask[chosen])
    return (TypedColumn.trusted(kind, found) if isinstance(kind, CategoryType) else found), mask  # type: ignore[arg-type]


def _run_ends(field: Field, array: Array, start: int, count: int) -> Column:
    field.check_children(2)
    children = array.children
    ends_field = field.children[0]
    dtype = NUMBERS.get(ends_field.format)
    if len(children) != 2 or dtype is None or dtype.kind != "i" or dtype.itemsize == 1:
        raise field.error("an array of runs needs their ends, as integers of 16, 32 or 64 bits, and their values")
    runs, values = children
    ends = fixed(ends_field, runs, 1, 0, runs.length, dtype).astype(np.int64)
    first = array.offset + start
    if count and (not len(ends) or ends[0] < 1 or (ends[1:] <= ends[:-1]).any() or ends[-1] < first + count):
        raise field.error(f"the ends of its runs do not ascend to its {first + count} values")
    found, mask = read_column(field.children[1], values, 0, values.length)
    if len(found) < len(ends):
        raise field.error(f"it has {len(ends)} runs and {len(found)} values of them")
    bounds = np.clip(ends, first, first + count)
    rows = np.repeat(np.arange(len(ends)), np.diff(bounds, prepend=first))
    return found.take(rows), None if mask is None else mask[rows]


# -- lists and structs -------------------------------------------------------------------------------------------------


def _part(field: Field, array: Array, start: int, count: int) -> NestedPart:
    if field.dictionary is None and (field.format == "+s" or field.is_list):
        if start + count > array.length:
            raise field.error(f"{start + count} values are needed, and the array has {array.length}")
        return _nested_part(field, array, start, count, validity(field, array, start, count))
    return leaf_part(*read_column(field, array, start, count))


def _nested_part(field: Field, array: Array, start: int, count: int, mask: Mask | None) -> NestedPart:
    inner = array.children
    first = array.offset + start
    if len(inner) != len(field.children):
        raise field.error(f"an array has {len(inner)} parts, its type {len(field.children)}")
    if field.format == "+s":
        children = [_part(child, part, first, count) for child, part in zip(field.children, inner, strict=True)]
        return "s", 0, tuple(children), None, None, mask
    size = field.list_size
    if size is None:
        offsets = offsets_of(field, array, start, count, field.format == "+L")
        begin, end = int(offsets[0]), int(offsets[-1])
        offsets = offsets - begin
    else:
        begin, end = first * size, (first + count) * size
        offsets = np.arange(count + 1, dtype=np.int64) * size
    return "l", 0, (_part(field.children[0], inner[0], begin, end - begin),), None, offsets, mask
