"""`TypedColumn`: a column of a type that numpy has no dtype for, over the physical values that stand for it.

Decimals lie as integers of 64 or 128 bits, instants with a zone as `datetime64` of UTC, categories as text, lists and
structs as bytes. Whatever moves rows (slices, takes, lanes) works on `stored` and wraps the result again; what computes
asks for the type, so nothing takes stored integers for numbers. Nulls are the business of `Nullable` and `Batch`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, final, overload

import numpy as np
import numpy.typing as npt

from shmjet.data.column_types import (
    ColumnType,
    DecimalType,
    Kind,
    ListType,
    StructType,
    ZonedType,
)
from shmjet.data.decimals import plain_decimals
from shmjet.data.errors import BatchError
from shmjet.data.instants import plain_instants
from shmjet.data.nested_values import decoded, with_one_zero
from shmjet.data.row_choice import checked_rows, is_mask, true_rows
from shmjet.data.text import Indices, Mask, Text

if TYPE_CHECKING:
    from shmjet.data.nullable import Nullable

Physical: TypeAlias = npt.NDArray[Any] | Text
"""What kernels work on."""


def _operator(name: str) -> Any:
    def method(self: TypedColumn, other: Any) -> Any:
        return self._operated(name, other)

    return method


@final
class TypedColumn:
    """An immutable column of decimals, instants with a zone, categories, lists or structs.

    Args:
        kind: what the values are.
        stored: the physical values, of the kind `kind.stored`.

    Raises:
        BatchError: `stored` is not of that kind.

    Example:
        >>> prices = TypedColumn(DecimalType(15, 2), np.array([150, 99]))
        >>> prices.to_list(), len(prices), str(prices.dtype)
        ([Decimal('1.50'), Decimal('0.99')], 2, 'decimal(15, 2)')
    """

    __slots__ = ("__weakref__", "_codes", "_kind", "_stored")
    __hash__ = None  # type: ignore[assignment]
    __array_ufunc__ = None  # numpy leaves operators to this class

    _kind: ColumnType
    _stored: Physical
    _codes: tuple[npt.NDArray[np.int32], Text] | None

    def __init__(self, kind: ColumnType, stored: Physical) -> None:
        if not isinstance(kind, ColumnType):
            raise BatchError(f"a TypedColumn takes a type such as DecimalType(15, 2), got {kind!r}")
        if stored.dtype != kind.stored:
            raise BatchError(f"a column of {kind} is stored as {kind.stored}, got {stored.dtype}")
        if not isinstance(stored, Text):
            if stored.ndim != 1:
                raise BatchError(f"a column must be one-dimensional, got an array of shape {stored.shape}")
            stored = np.ascontiguousarray(stored).view()
        self._set(kind, stored)

    def _set(self, kind: ColumnType, stored: Physical) -> None:
        if not isinstance(stored, Text) and stored.flags.writeable:
            stored.flags.writeable = False
        set_ = object.__setattr__
        set_(self, "_kind", kind)
        set_(self, "_stored", stored)
        set_(self, "_codes", None)

    @classmethod
    def trusted(cls, kind: ColumnType, stored: Physical) -> TypedColumn:
        """Make a column of physical values that are known to be right: contiguous, of the kind `kind.stored`.

        For the engine: nothing is checked.
        """
        self = object.__new__(cls)
        self._set(kind, stored)
        return self

    # -- what is in it -------------------------------------------------------------------------------------------------

    @property
    def dtype(self) -> ColumnType:
        """The type."""
        return self._kind

    @property
    def stored(self) -> Physical:
        """The physical values. For the engine: a stored decimal counts units of its last digit."""
        return self._stored

    @property
    def nbytes(self) -> int:
        """Bytes of the physical values."""
        return self._stored.nbytes

    def to_list(self) -> list[Any]:
        """Return the values as Python's own: Decimal, aware datetime, str, list or dict.

        Raises:
            UnicodeDecodeError: text is not valid UTF-8.
        """
        return plain_stored(self._stored, self._kind)

    tolist = to_list

    def __len__(self) -> int:
        return len(self._stored)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.to_list())

    # -- other columns from it -----------------------------------------------------------------------------------------

    def wrap(self, stored: Physical) -> TypedColumn:
        """Return a column of the same type over other physical values. For the engine: nothing is checked."""
        return TypedColumn.trusted(self._kind, stored)

    def take(self, indices: Indices) -> TypedColumn:
        """Return the values at `indices`, in that order; negative ones count from the end.

        Raises:
            BatchError: the indices are not integers.
            IndexError: an index is out of range.
        """
        return self.wrap(self._stored.take(checked_rows(indices, len(self))))

    def filter(self, mask: Any) -> TypedColumn:
        """Return the values where `mask` is true, not null or masked. Raises BatchError where it does not fit."""
        return self.take(true_rows(mask, len(self)))

    def copy(self) -> TypedColumn:
        """Return the same values in memory of their own."""
        return self.wrap(copied(self._stored))

    @classmethod
    def concat(cls, columns: Sequence[TypedColumn]) -> TypedColumn:
        """Return the values of all columns, in order.

        Raises:
            BatchError: their types differ, or there is nothing.
        """
        if not columns:
            raise BatchError("TypedColumn.concat() needs at least one column")
        first = columns[0]
        other = next((column for column in columns if column.dtype != first.dtype), None)
        if other is not None:
            raise BatchError(f"columns of {first.dtype} and {other.dtype} cannot be joined")
        stored = [column.stored for column in columns]
        if isinstance(first.stored, Text):
            return first.wrap(Text.concat(stored))  # type: ignore[arg-type]
        return first.wrap(np.concatenate(stored))

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice | Mask | Indices) -> TypedColumn: ...
    def __getitem__(self, index: Any) -> Any:
        """A number gives the value; a slice, a mask or numbers of rows a column."""
        if isinstance(index, int | np.integer) and not isinstance(index, bool):
            if not -len(self) <= index < len(self):
                raise IndexError(f"index {index} out of range in a column of {len(self)} rows")
            place = int(index) % len(self)
            return plain_stored(self._stored[place : place + 1], self._kind)[0]
        if isinstance(index, slice):
            stored = self._stored[index]
            return self.wrap(stored if isinstance(stored, Text) else np.ascontiguousarray(stored))
        return self.filter(index) if is_mask(index) else self.take(index)

    # -- as a column without nulls -------------------------------------------------------------------------------------

    def is_null(self) -> Mask:
        """Return a bool array, False throughout."""
        return np.zeros(len(self), np.bool_)

    def count(self) -> int:
        """Return how many values there are."""
        return len(self)

    def fill_null(self, value: Any) -> TypedColumn:
        """Return the column: it has no nulls."""
        return self

    def drop_null(self) -> TypedColumn:
        """Return the column: it has no nulls."""
        return self

    def to_masked(self) -> np.ma.MaskedArray[Any, Any]:
        """Return a numpy masked array of Python objects of which none is masked."""
        return self._nullable().to_masked()

    def astype(self, dtype: Any) -> Any:
        """Return the values as another type, as `Nullable.astype` does. Raises BatchError where one does not fit."""
        return self._nullable().astype(dtype).parts()[0]

    def sum(self) -> Any:
        """Return the sum of decimals; None without rows. Raises BatchError for other types, and over 38 digits."""
        return self._nullable().sum()

    def mean(self) -> Any:
        """Return the mean of decimals (float64); None without rows. Raises BatchError for other types."""
        return self._nullable().mean()

    def min(self) -> Any:
        """Return the least value; None without rows. Raises BatchError for nested types."""
        return self._nullable().min()

    def max(self) -> Any:
        """Return the greatest value; None without rows. Raises BatchError for nested types."""
        return self._nullable().max()

    def _nullable(self) -> Nullable:
        from shmjet.data.nullable import Nullable

        return Nullable.trusted(self, np.ones(len(self), np.bool_))

    def _operated(self, name: str, other: Any) -> Any:
        """Apply an operator of `Nullable`; without nulls in it the result is a bare column, as of numpy's arrays."""
        from shmjet.data.nullable import Nullable

        result = getattr(self._nullable(), name)(other)
        if not isinstance(result, Nullable) or isinstance(other, Nullable) or result.count() < len(result):
            return result
        return result.parts()[0]

    __eq__ = _operator("__eq__")
    __ne__ = _operator("__ne__")
    __lt__ = _operator("__lt__")
    __le__ = _operator("__le__")
    __gt__ = _operator("__gt__")
    __ge__ = _operator("__ge__")
    __add__, __radd__ = _operator("__add__"), _operator("__radd__")
    __sub__, __rsub__ = _operator("__sub__"), _operator("__rsub__")
    __mul__, __rmul__ = _operator("__mul__"), _operator("__rmul__")
    __truediv__, __rtruediv__ = _operator("__truediv__"), _operator("__rtruediv__")
    __floordiv__, __rfloordiv__ = _operator("__floordiv__"), _operator("__rfloordiv__")
    __mod__, __rmod__ = _operator("__mod__"), _operator("__rmod__")
    __pow__, __rpow__ = _operator("__pow__"), _operator("__rpow__")

    def __neg__(self) -> Any:
        return (-self._nullable()).parts()[0]

    def __abs__(self) -> Any:
        return abs(self._nullable()).parts()[0]

    def __bool__(self) -> bool:
        raise ValueError(
            "a column is neither true nor false; use & | ~ instead of and, or, not, and batch.filter() instead of if"
        )

    # -- as a value ----------------------------------------------------------------------------------------------------

    def equals(self, other: object) -> bool:
        """Whether `other` is a column of the same type with the same values."""
        if not isinstance(other, TypedColumn) or self._kind != other._kind or len(self) != len(other):
            return False
        if isinstance(self._stored, Text):
            one, two = (with_one_zero(each, self._kind) for each in (self._stored, other._stored))  # type: ignore[arg-type]
            return one.equals(two)
        assert isinstance(other._stored, np.ndarray)
        return np.array_equal(self._stored.view(np.int64), other._stored.view(np.int64))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if copy is False:
            raise ValueError(f"a column of {self._kind} cannot become a numpy array without a copy")
        result = np.empty(len(self), object)
        result[:] = self.to_list()
        return result if dtype is None else result.astype(dtype)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a TypedColumn is immutable; {name!r} cannot be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a TypedColumn is immutable; {name!r} cannot be deleted")

    def __reduce__(self) -> tuple[Any, ...]:
        return TypedColumn.trusted, (self._kind, self._stored)

    def __repr__(self) -> str:
        from shmjet.data.value_text import typed_text

        shown = [*typed_text(self[:6]), *(["..."] if len(self) > 6 else [])]
        return f"TypedColumn([{', '.join(shown)}], {len(self)} {self._kind} values)"


def plain_stored(stored: Physical, kind: Kind) -> list[Any]:
    """Return physical values of a kind as Python's own; what lies under nulls is of no meaning.

    Raises:
        UnicodeDecodeError: text is not valid UTF-8.
    """
    if isinstance(kind, DecimalType):
        assert isinstance(stored, np.ndarray)
        return plain_decimals(stored, kind.scale)
    if isinstance(kind, ZonedType):
        assert isinstance(stored, np.ndarray)
        return plain_instants(stored, kind)
    if isinstance(kind, ListType | StructType):
        assert isinstance(stored, Text)
        return decoded(stored, kind, plain_stored)
    return plain_physical(stored)


def plain_physical(column: Physical) -> list[Any]:
    """Return the values as Python's own; a date or span of time that Python has none for as the integer behind it.

    Raises:
        UnicodeDecodeError: text is not valid UTF-8.
    """
    try:
        return column.tolist()
    except OverflowError:  # numpy 2.5 and later, where a date lies beyond what its calendar can count
        return [_plain_value(value) for value in column]


def _plain_value(value: Any) -> Any:
    if isinstance(value, np.void) and value.dtype.names is not None:
        return tuple(_plain_value(value[name]) for name in value.dtype.names)
    try:
        return value.item()
    except OverflowError:
        return int(value.view(np.int64))


def copied(stored: Physical) -> Physical:
    """Return physical values in memory of their own, without data around them."""
    if isinstance(stored, Text):
        compact = stored.compact()
        return Text.trusted(compact.offsets.copy(), compact.data.copy(), stored.is_bytes)
    return stored.copy()


def nulls(kind: Kind, count: int) -> Physical | TypedColumn:
    """Return what lies under `count` nulls of a column.

    Example:
        >>> nulls("text", 2), nulls(np.dtype("int16"), 2)
        (Text(['', ''], 2 text values), array([0, 0], dtype=int16))
    """
    if isinstance(kind, ColumnType):
        return TypedColumn.trusted(kind, nulls(kind.stored, count))  # type: ignore[arg-type]
    if isinstance(kind, str):
        return Text.trusted(np.zeros(count + 1, np.int64), np.zeros(0, np.uint8), kind == "bytes")
    return np.zeros(count, kind)
