"""A column of variable-length text or bytes: one array of bytes, and where each value begins and ends in it.

The layout is Arrow's large string. Values are not decoded until one is asked for. Nulls are the business of
`Nullable` and `Batch`, which keep a mask next to the column. Must not know of batches.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise, repeat
from typing import Any, Final, TypeAlias, final, overload

import numpy as np
import numpy.typing as npt

from shmjet.data.errors import BatchError
from shmjet.data.row_choice import checked_rows, is_mask, true_rows

Indices: TypeAlias = npt.NDArray[np.integer[Any]] | Sequence[int]
Mask: TypeAlias = npt.NDArray[np.bool_]

_NO_DATA: Final = np.zeros(0, np.uint8)
_NO_DATA.flags.writeable = False


@final
class Text:
    """An immutable column of str values (UTF-8) or of bytes values.

    Args:
        offsets: n + 1 ascending int64; value i is `data[offsets[i]:offsets[i + 1]]`. The first need not be 0.
        data: the values' bytes, one after the other: a uint8 array or anything with the buffer protocol.
        is_bytes: the values are bytes, not text. Text must be valid UTF-8; it is checked when a value is decoded.

    Raises:
        BatchError: offsets do not ascend or leave the data, or the arrays have another shape.

    Comparing (`== != < <= > >=`) with a str (or bytes), or with a Text of as many rows, gives a boolean array, one
    element a row, as for numpy columns. Text is ordered by code points.

    Example:
        >>> cities = Text.of(["Rome", "Oslo", "Rome"])
        >>> cities[1], len(cities), (cities == "Rome").tolist()
        ('Oslo', 3, [True, False, True])
    """

    __slots__ = ("__weakref__", "data", "is_bytes", "offsets")
    __hash__ = None  # type: ignore[assignment]
    __array_ufunc__ = None  # numpy leaves comparisons to this class

    offsets: npt.NDArray[np.int64]
    data: npt.NDArray[np.uint8]
    is_bytes: bool

    def __init__(self, offsets: npt.ArrayLike, data: Any, *, is_bytes: bool = False) -> None:
        ends = np.ascontiguousarray(offsets, np.int64)
        content = data if isinstance(data, np.ndarray) else np.frombuffer(data, np.uint8) if len(data) else _NO_DATA
        if ends.ndim != 1 or len(ends) == 0 or content.ndim != 1 or content.dtype != np.uint8:
            raise BatchError(
                "Text takes n + 1 offsets and a one-dimensional array of uint8, got offsets of shape "
                f"{ends.shape} and data of shape {content.shape} and dtype {content.dtype}"
            )
        if ends[0] < 0 or ends[-1] > len(content) or (np.diff(ends) < 0).any():
            raise BatchError(f"the offsets of a Text must ascend from 0 or more to at most its {len(content)} bytes")
        self._set(ends, np.ascontiguousarray(content), is_bytes)

    def _set(self, offsets: npt.NDArray[np.int64], data: npt.NDArray[np.uint8], is_bytes: bool) -> None:
        set_ = object.__setattr__
        set_(self, "offsets", _read_only(offsets))
        set_(self, "data", _read_only(data))
        set_(self, "is_bytes", is_bytes)

    @classmethod
    def trusted(cls, offsets: npt.NDArray[np.int64], data: npt.NDArray[np.uint8], is_bytes: bool = False) -> Text:
        """Make a Text of arrays known to be right: contiguous int64 and uint8, offsets ascending in the data.

        For the engine: nothing is checked. `is_bytes` says that the values are bytes and not text.
        """
        self = object.__new__(cls)
        self._set(offsets, data, is_bytes)
        return self

    @classmethod
    def of(cls, values: Iterable[str | bytes]) -> Text:
        """Make a Text of values: all str, or all bytes.

        Raises:
            BatchError: str and bytes are mixed, a value is neither (a Text has no nulls; `Nullable` has), or a str has
                lone surrogates.
        """
        listed = list(values)
        kinds: set[type] = {type(value) for value in listed}
        if type(None) in kinds:
            raise BatchError("a Text has no place for None; use Nullable(values), or the list itself as a column")
        is_bytes = bool(kinds) and all(issubclass(kind, bytes) for kind in kinds)
        if not is_bytes and not all(issubclass(kind, str) for kind in kinds):
            found = ", ".join(sorted(kind.__name__ for kind in kinds))
            raise BatchError(f"a Text holds either str or bytes values, found {found}")
        try:
            pieces: list[Any] = listed if is_bytes else [value.encode() for value in listed]  # type: ignore[union-attr]
        except UnicodeEncodeError as error:
            raise BatchError(f"text that is not valid Unicode cannot be a column: {error}") from None
        offsets = np.zeros(len(pieces) + 1, np.int64)
        np.cumsum(np.fromiter(map(len, pieces), np.int64, len(pieces)), out=offsets[1:])
        return cls.trusted(offsets, np.frombuffer(b"".join(pieces), np.uint8), is_bytes)

    @classmethod
    def concat(cls, texts: Sequence[Text]) -> Text:
        """Return the values of all texts, in order.

        Raises:
            BatchError: text and bytes are mixed, or there is nothing.
        """
        if not texts:
            raise BatchError("Text.concat() needs at least one Text")
        if len(texts) == 1:
            return texts[0]
        if len({text.is_bytes for text in texts}) > 1:
            raise BatchError("Text.concat() got both text and bytes columns")
        lengths = np.concatenate([text.lengths for text in texts])
        offsets = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        data = np.concatenate([text.data[text.offsets[0] : text.offsets[-1]] for text in texts])
        return cls.trusted(offsets, data, texts[0].is_bytes)

    @property
    def dtype(self) -> str:
        """`"text"` or `"bytes"`; where numpy columns have their dtype."""
        return "bytes" if self.is_bytes else "text"

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Bytes of each value."""
        return np.diff(self.offsets)

    @property
    def nbytes(self) -> int:
        """Bytes of the values and their offsets."""
        return int(self.offsets[-1] - self.offsets[0]) + self.offsets.nbytes

    def compact(self) -> Text:
        """Return the same values with offsets from 0 and no data around them; itself where that is so already."""
        first, last = int(self.offsets[0]), int(self.offsets[-1])
        if first == 0 and last == len(self.data):
            return self
        return Text.trusted(self.offsets - first, self.data[first:last], self.is_bytes)

    def take(self, indices: Indices) -> Text:
        """Return the values at `indices`, in that order; negative ones count from the end.

        Raises:
            BatchError: the indices are not integers.
            IndexError: an index is out of range.
        """
        # Here, because a process without batches must not load the kernels, and a process that has some rarely takes.
        from shmjet._native import _columns

        if type(indices) is np.ndarray and indices.dtype == np.int64 and indices.ndim == 1:
            chosen: npt.NDArray[np.int64] = np.ascontiguousarray(indices)  # the kernel checks the range
        else:
            chosen = np.ascontiguousarray(checked_rows(indices, len(self)), np.int64)
        offsets = np.empty(len(chosen) + 1, np.int64)
        data = np.empty(_columns.take_text_ends(self.offsets, self.data, chosen, offsets), np.uint8)
        _columns.take_text(self.offsets, self.data, chosen, offsets, data)
        return Text.trusted(offsets, data, self.is_bytes)

    def filter(self, mask: Any) -> Text:
        """Return the values where `mask` is true, and neither null nor masked.

        Raises:
            BatchError: it is not a bool array of that length.
        """
        return self.take(true_rows(mask, len(self)))

    def tolist(self) -> list[Any]:
        """Return the values as str (or bytes). Raises UnicodeDecodeError where text is not valid UTF-8."""
        first, last = int(self.offsets[0]), int(self.offsets[-1])
        data = self.data[first:last].tobytes()
        ends = (self.offsets - first).tolist()
        if self.is_bytes:
            return [data[a:b] for a, b in pairwise(ends)]
        if data.isascii():
            text = data.decode("ascii")
            return [text[a:b] for a, b in pairwise(ends)]
        return [data[a:b].decode() for a, b in pairwise(ends)]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice | Mask | Indices) -> Text: ...
    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step != 1:
                return self.take(range(start, stop, step))
            return Text.trusted(self.offsets[start : max(start, stop) + 1], self.data, self.is_bytes)
        if isinstance(index, int | np.integer) and not isinstance(index, bool):
            place = int(index) + (len(self) if index < 0 else 0)
            if not 0 <= place < len(self):
                raise IndexError(f"index {index} out of range in a Text of {len(self)} values")
            value = self.data[self.offsets[place] : self.offsets[place + 1]].tobytes()
            return value if self.is_bytes else value.decode()
        return self.filter(index) if is_mask(index) else self.take(index)

    def __eq__(self, other: object) -> Any:
        if isinstance(other, Text):
            return self._equal_rows(other)
        if isinstance(other, str | bytes):
            return self._equal_value(other)
        return NotImplemented

    def __ne__(self, other: object) -> Any:
        equal = self.__eq__(other)
        return equal if equal is NotImplemented else ~equal

    def __lt__(self, other: str | bytes | Text) -> Mask:
        return self._ordered(operator.lt, other)

    def __le__(self, other: str | bytes | Text) -> Mask:
        return self._ordered(operator.le, other)

    def __gt__(self, other: str | bytes | Text) -> Mask:
        return self._ordered(operator.gt, other)

    def __ge__(self, other: str | bytes | Text) -> Mask:
        return self._ordered(operator.ge, other)

    def __add__(self, other: str | bytes | Text) -> Text:
        return self._added(self, other, other)

    def __radd__(self, other: str | bytes) -> Text:
        return self._added(other, self, other)

    def _added(self, one: Any, two: Any, other: Any) -> Text:
        """Put text together, row by row."""
        if not isinstance(other, Text | str | bytes):
            return NotImplemented  # type: ignore[no-any-return]
        if self.is_bytes != (other.is_bytes if isinstance(other, Text) else isinstance(other, bytes)):
            raise BatchError("text and bytes cannot be put together; encode or decode one of them")
        if isinstance(other, Text) and len(self) != len(other):
            raise BatchError(f"columns of {len(self)} and {len(other)} rows cannot be put together")
        return added(one, two, len(self))

    def _ordered(self, compare: Callable[[bytes, bytes], bool], other: Any) -> Mask:
        """Compare by the bytes of UTF-8, whose order is that of code points."""
        if isinstance(other, Text):
            if len(self) != len(other):
                raise BatchError(f"columns of {len(self)} and {len(other)} rows cannot be compared")
            others: Iterable[bytes] = other._raw()
        elif isinstance(other, str | bytes):
            others = repeat(other if isinstance(other, bytes) else other.encode())
        else:
            return NotImplemented  # type: ignore[no-any-return]
        if self.is_bytes != (other.is_bytes if isinstance(other, Text) else isinstance(other, bytes)):
            raise BatchError("text and bytes cannot be compared; encode or decode one of them")
        return np.fromiter(map(compare, self._raw(), others), np.bool_, len(self))

    def _raw(self) -> list[bytes]:
        return Text.trusted(self.offsets, self.data, is_bytes=True).tolist()

    def _equal_value(self, value: str | bytes) -> Mask:
        wanted = value if isinstance(value, bytes) else value.encode()
        result: Mask = self.lengths == len(wanted)
        if isinstance(value, bytes) != self.is_bytes:
            return np.zeros(len(self), np.bool_)
        rows = np.flatnonzero(result)
        pattern = np.frombuffer(wanted, np.uint8)
        for start in range(0, len(rows), 1 << 16):  # bounds the memory for the comparison
            some = rows[start : start + (1 << 16)]
            places = self.offsets[some][:, None] + np.arange(len(wanted))
            result[some] = (self.data[places] == pattern).all(axis=1)
        return result

    def _equal_rows(self, other: Text) -> Mask:
        if len(self) != len(other):
            raise BatchError(f"columns of {len(self)} and {len(other)} rows cannot be compared")
        if self.is_bytes != other.is_bytes:
            return np.zeros(len(self), np.bool_)
        lengths = self.lengths
        result: Mask = lengths == other.lengths
        rows = np.flatnonzero(result)
        mine, theirs = self.take(rows), other.take(rows)
        unequal = np.repeat(np.arange(len(rows)), lengths[rows])[mine.data != theirs.data]
        result[rows[unequal]] = False
        return result

    def equals(self, other: object) -> bool:
        """Whether `other` is a Text of the same kind with the same values."""
        if not isinstance(other, Text) or len(self) != len(other) or self.is_bytes != other.is_bytes:
            return False
        a, b = self.compact(), other.compact()
        return np.array_equal(a.offsets, b.offsets) and np.array_equal(a.data, b.data)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if copy is False:
            raise ValueError("a Text cannot become a numpy array without a copy")
        return np.array(self.tolist(), object if dtype is None else dtype)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Text is immutable; {name!r} cannot be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a Text is immutable; {name!r} cannot be deleted")

    def __reduce__(self) -> tuple[Any, ...]:
        compact = self.compact()
        return Text.trusted, (compact.offsets, compact.data, self.is_bytes)

    def __repr__(self) -> str:
        shown = [*map(repr, self[:6]), *(["..."] if len(self) > 6 else [])]
        return f"Text([{', '.join(shown)}], {len(self)} {self.dtype} values)"

    def _repr_html_(self) -> str:
        from shmjet.data.batch_text import column_html

        return column_html(self)


def _read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if not array.flags.writeable:
        return array
    view = array.view()
    view.flags.writeable = False
    return view


def added(one: Any, two: Any, rows: int) -> Text:
    """Return each value of one operand with that of the other behind it.

    Args:
        one, two: both text, or both bytes: a `Text`, an array, or a single value.
        rows: how many.

    Example:
        >>> added(Text.of(["a", "b"]), "-", 2).tolist()
        ['a-', 'b-']
    """
    texts = [each if isinstance(each, Text) else Text.of(np.atleast_1d(each).tolist()) for each in (one, two)]
    order = np.empty(2 * rows, np.int64)
    order[::2] = _places(one, rows)
    order[1::2] = _places(two, rows) + len(texts[0])
    pieces = Text.concat(texts).take(order)
    return Text.trusted(np.ascontiguousarray(pieces.offsets[::2]), pieces.data, pieces.is_bytes)


def _places(operand: Any, rows: int) -> npt.NDArray[np.int64]:
    return np.arange(rows) if isinstance(operand, Text | np.ndarray) else np.zeros(rows, np.int64)
