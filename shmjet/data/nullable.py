"""`Nullable`: a column with nulls, which no operator and no function takes for values.

Values and a mask, as a batch stores them. Operators follow SQL's three-valued logic: a null is neither equal nor
unequal to anything, arithmetic with it gives null, and only `&` and `|` know a result without it (`False & null` is
False). Must not know of batches.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator
from typing import Any, Final, final, overload

import numpy as np
import numpy.typing as npt

from shmjet.data import operators, reductions, typed_casts, typed_operators
from shmjet.data.column import Values, as_column, checked_mask, plain_values
from shmjet.data.column_types import ColumnType, Kind, kind_of
from shmjet.data.errors import BatchError
from shmjet.data.fitting import column_of, fitted
from shmjet.data.masked import masked_value
from shmjet.data.row_choice import checked_rows, is_mask, true_rows
from shmjet.data.text import Indices, Mask, Text
from shmjet.data.typed_column import TypedColumn
from shmjet.data.value_text import typed_text, value_text

_SHOWN: Final = 6


def _comparing(symbol: str) -> Any:
    def method(self: Nullable, other: Any) -> Any:
        return self._compare(symbol, other)

    return method


def _calculating(symbol: str) -> tuple[Any, Any]:
    def method(self: Nullable, other: Any) -> Any:
        return self._calculate(symbol, other)

    def reflected(self: Nullable, other: Any) -> Any:
        return self._calculate(symbol, other, reflected=True)

    return method, reflected


def _combining(symbol: str) -> Any:
    def method(self: Nullable, other: Any) -> Any:
        return self._combine(symbol, other)

    return method


@final
class Nullable:
    """An immutable column of which some values are null: what `batch["x"]` is where a column has nulls.

    Operators (`== != < <= > >=`, `+ - * / // % **`, `& | ^ ~`) take another column of as many rows (array, masked
    array, `Text`, `Nullable`, list) or a scalar, of which None is a null, and give a `Nullable`. Integers never wrap:
    a result that leaves its type is a `BatchError`. `/` gives floats; `//` and `%` of an integer by 0 give null. Types
    promote as in numpy 2. NaN and NaT are values. `numpy` functions of single elements (`np.sqrt`, `np.isnan`) keep
    nulls; others raise `TypeError`. `+` puts text together.

    Args:
        values: array, masked array (its mask becomes nulls), `Text`, another `Nullable`, or a sequence of values of one
            kind, in which None is a null.
        validity: bool array, False at further nulls.

    Raises:
        BatchError: the values cannot be a column, or `validity` is not a bool array of that length.

    Example:
        >>> delay = Nullable([5, None, -3])
        >>> (delay <= 0).to_list(), (delay * 2).to_list(), delay.mean(), delay.fill_null(0).tolist()
        ([False, None, True], [10, None, -6], np.float64(1.0), [5, 0, -3])
        >>> ((delay > 0) | delay.is_null()).to_list()
        [True, True, False]
    """

    __slots__ = ("__weakref__", "_valid", "_values")
    __hash__ = None  # type: ignore[assignment]

    _values: Values
    _valid: Mask

    def __init__(self, values: Any, validity: Any = None) -> None:
        if isinstance(values, Nullable):
            column, mask = values.parts()
        else:
            column, found = as_column("values", values)
            mask = np.ones(len(column), np.bool_) if found is None else found
        if validity is not None:
            mask = mask & checked_mask("values", validity, len(column))
        self._set(column, mask)

    def _set(self, values: Values, valid: Mask) -> None:
        for array in (values, valid):
            if isinstance(array, np.ndarray) and array.flags.writeable:
                array.flags.writeable = False
        object.__setattr__(self, "_values", values)
        object.__setattr__(self, "_valid", valid)

    @classmethod
    def trusted(cls, values: Values, valid: Mask) -> Nullable:
        """Make a column of parts that are known to be right: contiguous values, and a mask that is False at nulls.

        For the engine: nothing is checked.
        """
        self = object.__new__(cls)
        self._set(values, valid)
        return self

    # -- what is in it -------------------------------------------------------------------------------------------------

    @property
    def dtype(self) -> Kind:
        """The numpy dtype of the values, `"text"` or `"bytes"`, or their `ColumnType`."""
        return self._values.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of the values and the mask."""
        return self._values.nbytes + self._valid.nbytes

    @property
    def validity(self) -> Mask:
        """A bool array, False at nulls."""
        return self._valid

    def parts(self) -> tuple[Values, Mask]:
        """Return the values and the mask. For the engine: what lies under a null has no meaning."""
        return self._values, self._valid

    def is_null(self) -> Mask:
        """Return a bool array, True at nulls."""
        return ~self._valid

    def count(self) -> int:
        """Return how many values are not null."""
        return int(np.count_nonzero(self._valid))

    def to_list(self) -> list[Any]:
        """Return the values as plain Python values, None for nulls.

        Raises:
            UnicodeDecodeError: text is not valid UTF-8.
        """
        listed = plain_values(self._values)
        for row in np.flatnonzero(~self._valid).tolist():
            listed[row] = None
        return listed

    tolist = to_list

    def to_masked(self) -> np.ma.MaskedArray[Any, Any]:
        """Return a numpy masked array, masked at nulls; of text, one of Python objects.

        Many functions of numpy ignore the mask of such an array: use those of `numpy.ma`.
        """
        values = np.asarray(self._values)
        masked: np.ma.MaskedArray[Any, Any] = np.ma.MaskedArray(values, ~self._valid)
        return masked

    def __len__(self) -> int:
        return len(self._valid)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.to_list())

    # -- other columns from it -----------------------------------------------------------------------------------------

    def fill_null(self, value: Any) -> Any:
        """Return the column with other values in place of nulls: an array or a `Text`.

        Args:
            value: a scalar, or a column of as many rows; types promote as in numpy (0.5 makes integers floats). When it
                has nulls itself where this column has, the result is a `Nullable`.

        Raises:
            BatchError: `value` is None, of another kind, or a column of another length.

        Example:
            >>> Nullable(["a", None]).fill_null("?"), Nullable([1, None]).fill_null(0.5)
            (Text(['a', '?'], 2 text values), array([1. , 0.5]))
        """
        operand = self._operand(value)
        if operand is None or operand[0] is None:
            raise BatchError(f"fill_null() takes a value or a column, got {type(value).__name__}")
        filling, there = operand
        values = self._values
        if not self._valid.any():  # what lies under nulls says nothing
            values = operators.under_nulls(values, filling)
        filled = operators.choose(self._valid, values, operators.blanked(filling, there))
        valid = self._valid | there
        return filled if valid.all() else Nullable.trusted(filled, valid)

    def drop_null(self) -> Values:
        """Return the values that are not null, in order: an array or a `Text`.

        Example:
            >>> Nullable([1, None, 3]).drop_null()
            array([1, 3])
        """
        return self._values if self._valid.all() else self._values.take(np.flatnonzero(self._valid))

    def take(self, indices: Indices) -> Nullable:
        """Return the rows at `indices`, in that order; negative ones count from the end.

        Raises:
            BatchError: the indices are not integers.
            IndexError: one is out of range.
        """
        rows = checked_rows(indices, len(self))
        return Nullable.trusted(self._values.take(rows), self._valid.take(rows))

    def filter(self, mask: Any) -> Nullable:
        """Return the rows where `mask` is true, and neither null nor masked. Raises BatchError when it does not fit."""
        return self.take(true_rows(mask, len(self)))

    def astype(self, dtype: Any) -> Nullable:
        """Return numbers, bools, dates or spans as another type; fractions are cut off, nulls stay.

        Raises:
            BatchError: a value does not fit into it, or there is no such cast.
        """
        try:
            wanted = kind_of("astype", dtype)
        except BatchError:
            raise BatchError(
                f"astype() takes a numpy dtype, int, float, bool or a type such as 'decimal(15, 2)', got {dtype!r}"
            ) from None
        if isinstance(wanted, ColumnType) or isinstance(self._values, TypedColumn):
            made = typed_casts.cast(self._values, wanted, self._valid, operators.cast)
            if made is None:
                raise BatchError(f"a column of {self.dtype} cannot be cast to {wanted}")
            return Nullable.trusted(made, self._valid)
        if isinstance(wanted, np.dtype) and not self._valid.any() and wanted.kind in "biufcmM":
            return _nothing(wanted, len(self))
        if not isinstance(self._values, np.ndarray) or isinstance(wanted, str):
            raise BatchError(f"a column of {self.dtype} cannot be cast to {wanted}")
        return Nullable.trusted(operators.cast(self._values, wanted, self._valid), self._valid)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice | Mask | Indices | Nullable) -> Nullable: ...
    def __getitem__(self, index: Any) -> Any:
        """A number gives the value, None for a null; a slice, a mask or numbers of rows a column."""
        if isinstance(index, int | np.integer) and not isinstance(index, bool):
            if not -len(self) <= index < len(self):
                raise IndexError(f"index {index} out of range in a column of {len(self)} rows")
            return self._values[int(index)] if self._valid[index] else None
        if isinstance(index, slice):
            values = self._values[index]
            if isinstance(values, np.ndarray):
                values = np.ascontiguousarray(values)
            return Nullable.trusted(values, np.ascontiguousarray(self._valid[index]))
        if is_mask(index):
            return self.filter(index)
        return self.take(index)

    # -- reductions ----------------------------------------------------------------------------------------------------

    def sum(self) -> Any:
        """Return the sum of the values without nulls, None when there are none.

        Raises:
            BatchError: it leaves 64 bits, or the values cannot be added.
        """
        return reductions.sum_of(self._values, self._valid)

    def mean(self) -> Any:
        """Return the mean of the values without nulls (float64), None when there are none.

        Raises:
            BatchError: the values have no mean.
        """
        return reductions.mean_of(self._values, self._valid)

    def min(self) -> Any:
        """Return the least value, None when all are null; NaN is greater than all numbers.

        Raises:
            BatchError: the values have no order.
        """
        return reductions.least_of(self._values, self._valid)

    def max(self) -> Any:
        """Return the greatest value, None when all are null; NaN is greater than all numbers.

        Raises:
            BatchError: the values have no order.
        """
        return reductions.greatest_of(self._values, self._valid)

    # -- operators -----------------------------------------------------------------------------------------------------

    def _operand(self, other: Any) -> tuple[Any, Mask] | None:
        """Return another operand and where it is not null; (None, ...) for None, and None if it is not an operand."""
        rows = len(self)
        if other is None or other is masked_value():
            return None, np.zeros(rows, np.bool_)
        scalar = _scalar(other)
        if scalar is not None:
            return scalar, np.ones(rows, np.bool_)
        if isinstance(other, Nullable):
            values, valid = other.parts()
        elif isinstance(other, Text | TypedColumn | np.ndarray | list | tuple):
            values, mask = as_column("other", other)
            valid = np.ones(len(values), np.bool_) if mask is None else mask
            if isinstance(other, list | tuple) and len(values) == rows and not valid.any():
                return None, valid  # of no type of its own
        else:
            return None
        if len(values) != rows:
            raise BatchError(f"columns of {rows} and {len(values)} rows do not go together")
        return values, valid

    def _compare(self, symbol: str, other: Any) -> Any:
        operand = self._operand(other)
        if operand is None:
            return NotImplemented
        values, there = operand
        if values is None or not self._valid.any() or not there.any():
            return _nothing(np.dtype(np.bool_), len(self))
        valid = self._valid & there
        return Nullable.trusted(operators.compare(symbol, self._values, values, valid), valid)

    def _calculate(self, symbol: str, other: Any, reflected: bool = False) -> Any:
        operand = self._operand(other)
        if operand is None:
            return NotImplemented
        values, there = operand
        if values is None:
            has_ones = isinstance(self._values, np.ndarray) and self._values.dtype.kind in "biufcm"
            values = np.ones(len(self), self._values.dtype) if has_ones else self._values
        one, two = (values, self._values) if reflected else (self._values, values)
        try:
            return Nullable.trusted(*operators.calculate(symbol, one, two, self._valid & there))
        except BatchError:
            if self._valid.any() and there.any():
                raise
            return _nothing(np.dtype(np.float64), len(self))  # nulls of any kind

    def _combine(self, symbol: str, other: Any) -> Any:
        operand = self._operand(other)
        if operand is None:
            return NotImplemented
        values, there = operand
        if values is None:
            values = np.zeros((), self.dtype if isinstance(self.dtype, np.dtype) else np.bool_)
        mine = self._values
        if operators.kind_of(mine) not in "biu" and not self._valid.any():
            mine = np.zeros(len(self), np.asarray(values).dtype if operators.kind_of(values) in "biu" else np.bool_)
        if operators.kind_of(values) not in "biu" and not there.any():
            values = np.zeros((), mine.dtype)
        return Nullable.trusted(*operators.combine(symbol, mine, self._valid, values, there))

    __eq__ = _comparing("==")
    __ne__ = _comparing("!=")
    __lt__ = _comparing("<")
    __le__ = _comparing("<=")
    __gt__ = _comparing(">")
    __ge__ = _comparing(">=")
    __add__, __radd__ = _calculating("+")
    __sub__, __rsub__ = _calculating("-")
    __mul__, __rmul__ = _calculating("*")
    __truediv__, __rtruediv__ = _calculating("/")
    __floordiv__, __rfloordiv__ = _calculating("//")
    __mod__, __rmod__ = _calculating("%")
    __pow__, __rpow__ = _calculating("**")
    __and__ = __rand__ = _combining("&")
    __or__ = __ror__ = _combining("|")
    __xor__ = __rxor__ = _combining("^")

    def __invert__(self) -> Nullable:
        if operators.kind_of(self._values) not in "biu" and not self._valid.any():
            return _nothing(np.dtype(np.bool_), len(self))
        return Nullable.trusted(operators.invert(self._values), self._valid)

    def __neg__(self) -> Nullable:
        return Nullable.trusted(operators.negate(self._values, self._valid), self._valid)

    def __abs__(self) -> Nullable:
        return Nullable.trusted(operators.absolute(self._values, self._valid), self._valid)

    def __bool__(self) -> bool:
        raise ValueError(
            "a column is neither true nor false; use & | ~ instead of and, or, not, and batch.filter() instead of if"
        )

    # -- for numpy -----------------------------------------------------------------------------------------------------

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        missing = len(self) - self.count()
        if missing:
            found = f"{missing} nulls" if missing > 1 else "1 null"
            raise TypeError(
                f"a column with {found} cannot become a numpy array; use fill_null(value), drop_null() or to_masked()"
            )
        return np.array(self._values, dtype) if copy else np.asarray(self._values, dtype)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        from shmjet.data import nullable_ufuncs

        if method != "__call__" or options:
            called = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
            raise nullable_ufuncs.refusal(f"numpy.{called}({', '.join(f'{name}=' for name in options)})")
        return nullable_ufuncs.apply(ufunc, inputs)

    def __array_function__(self, function: Any, types: Any, arguments: Any, options: Any) -> Any:
        from shmjet.data import nullable_ufuncs

        return nullable_ufuncs.call(function, arguments, options)

    # -- as a value ----------------------------------------------------------------------------------------------------

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Nullable is immutable; {name!r} cannot be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a Nullable is immutable; {name!r} cannot be deleted")

    def __reduce__(self) -> tuple[Any, ...]:
        return Nullable.trusted, (self._values, self._valid)

    def __repr__(self) -> str:
        first, there = self._values[:_SHOWN], self._valid[:_SHOWN].tolist()
        if isinstance(first, TypedColumn):
            texts: Iterable[str] = typed_text(first)
        else:
            texts = map(repr, first) if isinstance(first, Text) else map(value_text, first)
        shown = [text if known else "None" for text, known in zip(texts, there, strict=True)]
        shown += ["..."] if len(self) > _SHOWN else []
        return f"Nullable([{', '.join(shown)}], {len(self)} {self.dtype} values, {len(self) - self.count()} null)"

    def _repr_html_(self) -> str:
        from shmjet.data.batch_text import column_html

        return column_html(self)


def _nothing(dtype: np.dtype[Any], rows: int) -> Nullable:
    return Nullable.trusted(np.zeros(rows, dtype), np.zeros(rows, np.bool_))


def _scalar(value: Any) -> Any:
    """Return a single value as numpy has it; None for what is none."""
    if isinstance(value, np.ndarray) and not value.ndim:
        value = value[()]
    if isinstance(value, np.generic | bool | int | float | complex | str | bytes):
        return value
    if typed_operators.is_typed(value) and not isinstance(value, TypedColumn):
        return value
    if isinstance(value, datetime.datetime):
        return np.datetime64(value, "us")
    if isinstance(value, datetime.date):
        return np.datetime64(value, "D")
    return np.timedelta64(value, "us") if isinstance(value, datetime.timedelta) else None


def column_parts(name: str, given: Any, kind: Kind | None = None) -> tuple[Values, Mask | None]:
    """Return what a batch keeps of a column: as `as_column`, for a `Nullable` too, and of a kind if one is given."""
    if isinstance(given, Nullable):
        values, valid = given.parts()
        return values if kind is None else fitted(name, values, valid, kind), valid
    return as_column(name, given) if kind is None else column_of(name, given, kind)
