"""Columns as arrays for other libraries: the same memory where the layouts agree.

Nulls become bits, bools too; dates become int32; decimals of 64 bits become 128 wide, which all libraries read. NaT is
a null for others: Arrow's dates have no such value. Must not know capsules and streams.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from shmjet._native import _arrow
from shmjet.data.arrow.decimals import widened
from shmjet.data.arrow.fields import DAY_UNITS, schema_of, written_dtype
from shmjet.data.arrow.nested import DecodedPart, decoded_parts
from shmjet.data.column import Values
from shmjet.data.column_types import CategoryType, DecimalType, Kind, ListType, StructType
from shmjet.data.errors import BatchError
from shmjet.data.text import Mask, Text
from shmjet.data.typed_column import TypedColumn

if TYPE_CHECKING:
    from shmjet._native._arrow import ArrayTree, SchemaTree

_MOST_SMALL: Final = (1 << 31) - 1
"""Offsets of 32 bits end here."""
_INT32: Final = np.iinfo(np.int32)


class ColumnWriter:
    """Writes the columns of one name and kind.

    Args:
        name: of the column.
        kind: of all its batches.
        wanted: what the consumer asks for; used where it is the same values in another layout.

    Raises:
        BatchError: Arrow has no type for the kind.
    """

    def __init__(self, name: str, kind: Kind, wanted: SchemaTree | None = None) -> None:
        self._name = name
        self._kind = kind
        self.schema = _granted(schema_of(name, kind), kind, wanted)
        """What the column is to others."""

    def array(self, values: Values, mask: Mask | None) -> ArrayTree:
        """Return a column of some rows.

        Raises:
            BatchError: a value has no place in Arrow's type, or text is not valid UTF-8.
        """
        return self._array(values, mask, self.schema)

    def _array(self, values: Values, mask: Mask | None, schema: SchemaTree) -> ArrayTree:
        code = schema[0]
        if isinstance(values, TypedColumn):
            kind = values.dtype
            if isinstance(kind, ListType | StructType):
                assert isinstance(values.stored, Text)
                return self._parts(decoded_parts(values.stored, mask, kind, self._name))
            if isinstance(kind, CategoryType) and schema[5] is not None:
                return self._categories(values, mask)
            if isinstance(kind, DecimalType):
                return _decimals(values.stored, mask, code)
            values = values.stored
        if isinstance(values, Text):
            return self._text(values, mask, code)
        if values.dtype.names is not None:
            return self._fields(values, mask, schema)
        if values.dtype.kind in "SU":
            return self._text(Text.of(values.tolist()), mask, code)
        if values.dtype.kind in "mM":
            return self._times(values, mask, code)
        if code == "b":
            return _leaf(len(values), mask, np.packbits(values, bitorder="little"))
        return _leaf(len(values), mask, _plain(values))

    def _text(self, text: Text, mask: Mask | None, code: str) -> ArrayTree:
        if not text.is_bytes:
            check_utf8(self._name, text)
        if code in ("u", "z"):
            text = text.compact()
            if int(text.offsets[-1]) > _MOST_SMALL:
                raise BatchError(
                    f"column {self._name!r} has {int(text.offsets[-1]):,} bytes of text in one batch, which offsets of "
                    "32 bits do not reach; ask for large_utf8, or for smaller batches"
                )
            return _leaf(len(text), mask, text.offsets.astype(np.int32), text.data)
        return _leaf(len(text), mask, _plain(text.offsets), text.data)

    def _categories(self, column: TypedColumn, mask: Mask | None) -> ArrayTree:
        text = column.stored
        assert isinstance(text, Text)
        codes = np.empty(len(text), np.int32)
        rows = _arrow.text_codes(text.offsets, text.data, mask, codes)
        words = text.take(np.frombuffer(rows, np.int64) if rows else np.zeros(0, np.int64))
        check_utf8(self._name, words)
        return (*_leaf(len(codes), mask, codes)[:4], _leaf(len(words), None, words.offsets, words.data))

    def _parts(self, part: DecodedPart) -> ArrayTree:
        if isinstance(part.kind, ListType | StructType):
            inner = tuple(map(self._parts, part.children))
            return _nested(part.slots, part.mask, inner, *([] if part.offsets is None else [part.offsets]))
        return ColumnWriter(self._name, part.kind).array(part.values(), part.mask)

    def _times(self, values: npt.NDArray[Any], mask: Mask | None, code: str) -> ArrayTree:
        missing = np.isnat(values)
        if missing.any():
            mask = ~missing if mask is None else mask & ~missing
        dtype = written_dtype(code)
        assert dtype is not None
        if values.dtype != dtype:
            values = _in_unit(self._name, values, dtype, mask)
        units = values.view(np.int64)
        if code not in ("tdD", "tiM"):
            return _leaf(len(units), mask, _plain(units))
        wrong = (units < _INT32.min) | (units > _INT32.max)
        if (wrong if mask is None else wrong & mask).any():
            raise BatchError(f"column {self._name!r} has dates or months that 32 bits do not hold, as Arrow's are")
        return _leaf(len(units), mask, units.astype(np.int32))

    def _fields(self, values: npt.NDArray[Any], mask: Mask | None, schema: SchemaTree) -> ArrayTree:
        assert values.dtype.names is not None
        inner = tuple(
            self._array(np.ascontiguousarray(values[name]), None, child)
            for name, child in zip(values.dtype.names, schema[4], strict=True)
        )
        return _nested(len(values), mask, inner)


def check_utf8(name: str, text: Text) -> None:
    """Check that text is what others trust it to be: valid UTF-8, and cut between characters.

    Raises:
        BatchError: it is not; the text names the column.
    """
    row = _arrow.wrong_utf8(text.offsets, text.data)
    if row >= 0:
        raise BatchError(
            f"column {name!r} has text that is not valid UTF-8 in row {row}; if it is not text, make it bytes: "
            "Text(offsets, data, is_bytes=True)"
        )


def _leaf(rows: int, mask: Mask | None, *buffers: Any) -> ArrayTree:
    """Return an array without children: of buffers, and a bitmap of its nulls before them if there are any."""
    return rows, _nulls(mask), (_bitmap(mask), *buffers), (), None


def _nested(rows: int, mask: Mask | None, children: tuple[ArrayTree, ...], *buffers: Any) -> ArrayTree:
    """Return an array with children."""
    return rows, _nulls(mask), (_bitmap(mask), *buffers), children, None


def _nulls(mask: Mask | None) -> int:
    return 0 if mask is None else len(mask) - int(np.count_nonzero(mask))


def _bitmap(mask: Mask | None) -> Any:
    return None if mask is None or mask.all() else np.packbits(mask, bitorder="little")


def _plain(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return values that others may read as numbers: aligned ones, of a dtype that numpy exports."""
    if values.dtype.kind == "V":
        return values.view(np.uint8)
    return values if values.flags.aligned else values.copy()


def _decimals(stored: Any, mask: Mask | None, code: str) -> ArrayTree:
    if stored.dtype.kind == "V":
        wide = stored.view(np.int64)
    elif code.endswith(",64"):
        return _leaf(len(stored), mask, _plain(stored))
    else:
        wide = widened(stored)
    return _leaf(len(stored), mask, _plain(wide))


def _in_unit(name: str, values: npt.NDArray[Any], dtype: np.dtype[Any], mask: Mask | None) -> npt.NDArray[Any]:
    """Return dates or spans of time in a unit of which theirs is a multiple."""
    result: npt.NDArray[Any] = values.astype(dtype)
    wrong = result.astype(values.dtype) != values
    if values.dtype.kind == "M" and np.datetime_data(values.dtype)[0] not in DAY_UNITS:
        wrong |= (result.view(np.int64) < 0) != (values.view(np.int64) < 0)
    if (wrong if mask is None else wrong & mask).any():
        raise BatchError(f"column {name!r} has {values.dtype} values that {dtype} does not hold")
    return result


def _granted(schema: SchemaTree, kind: Kind, wanted: SchemaTree | None) -> SchemaTree:
    """Return what a column becomes for a consumer that wants another type for it."""
    if wanted is None:
        return schema
    code = wanted[0] if wanted[5] is None else ""
    cheap = {"text": ("u", "U"), "bytes": ("z", "Z")}
    if isinstance(kind, str) and code in cheap[kind]:
        return (code, *schema[1:])
    if isinstance(kind, CategoryType) and code in cheap["text"]:
        return (code, *schema[1:5], None)
    if isinstance(kind, DecimalType) and code == f"{schema[0]},64" and kind.stored == np.dtype(np.int64):
        return (code, *schema[1:])
    return schema
