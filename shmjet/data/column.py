"""What a column of a batch is made of: whatever users have, turned into an array, `Text` or `TypedColumn`, with a mask.

Normalising happens here, once: native byte order, contiguous, one-dimensional. Nothing behind it has to ask again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from shmjet.data.errors import BatchError
from shmjet.data.masked import is_masked_array, masked_value
from shmjet.data.text import Mask, Text
from shmjet.data.typed_column import Physical, TypedColumn, nulls, plain_physical
from shmjet.data.typed_sequences import is_typed_value, typed_sequence

Values: TypeAlias = npt.NDArray[Any] | Text | TypedColumn
"""One column."""


def as_column(name: str, given: Any) -> tuple[Values, Mask | None]:
    """Return what `Batch` keeps of a column: a contiguous array in native order, `Text` or `TypedColumn`; and its mask.

    Raises:
        BatchError: it cannot be a column.
    """
    if isinstance(given, Text | TypedColumn):
        return given, None
    if is_masked_array(given):
        if given.dtype.hasobject and given.ndim == 1:
            return _sequence_column(name, given.tolist())
        column, _ = as_column(name, np.ma.getdata(given))
        if given.dtype.names is not None:
            if np.ma.getmaskarray(given).view(np.bool_).any():
                raise BatchError(f"column {name!r} is masked field by field; make a column of each field")
            return column, None
        return column, ~np.ma.getmaskarray(given) if np.ma.is_masked(given) else None
    if isinstance(given, np.ndarray):
        return _array_column(name, given), None
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise BatchError(f"column {name!r} must be a one-dimensional array or sequence, got {type(given).__name__}")
    return _sequence_column(name, list(given))


def plain_values(column: Values) -> list[Any]:
    """Return the values as Python's own; a date or span of time that Python has none for as the integer behind it.

    Raises:
        UnicodeDecodeError: text is not valid UTF-8.
    """
    return column.to_list() if isinstance(column, TypedColumn) else plain_physical(column)


def physical(name: str, column: Values) -> Physical:
    """Return a column of an array or `Text` as it is, for what computes on these alone.

    Raises:
        BatchError: it has another type, whose stored values mean nothing without it.
    """
    if isinstance(column, TypedColumn):
        raise BatchError(f"column {name!r} is of {column.dtype}, which is not possible here; cast it, or leave it out")
    return column


def checked_mask(name: str, given: Any, rows: int) -> Mask:
    """Return a mask that a user gave. Raises BatchError when it is not a bool array of so many rows."""
    mask = np.ascontiguousarray(given).view()
    if mask.dtype != np.bool_ or mask.shape != (rows,):
        raise BatchError(
            f"the validity of column {name!r} must be a bool array of {rows} rows, "
            f"got {mask.dtype} of shape {mask.shape}"
        )
    return mask


def _array_column(name: str, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if array.ndim != 1:
        raise BatchError(f"column {name!r} must be one-dimensional, got an array of shape {array.shape}")
    if array.dtype.hasobject:
        raise BatchError(
            f"column {name!r} has dtype {array.dtype}; for text use Text.of(values), for numbers a dtype of fixed "
            "width (array.astype(...)), for other objects send items instead of batches"
        )
    if array.dtype.itemsize == 0:
        raise BatchError(f"column {name!r} has dtype {array.dtype}, whose values have no bytes")
    native = array.dtype.newbyteorder("=")
    if array.dtype != native:
        array = array.astype(native)
    return np.ascontiguousarray(array).view()


def _sequence_column(name: str, values: list[Any]) -> tuple[Values, Mask | None]:
    mask = None
    masked = masked_value()
    if any(value is masked for value in values):
        values = [None if value is masked else value for value in values]
    if any(value is None for value in values):
        mask = np.array([value is not None for value in values], np.bool_)
    present = values if mask is None else [value for value in values if value is not None]
    if present and all(isinstance(value, str | bytes) for value in present):
        blank = b"" if isinstance(present[0], bytes) else ""
        try:
            return Text.of([blank if value is None else value for value in values]), mask
        except BatchError as error:
            raise BatchError(f"column {name!r}: {error}") from None
    if any(is_typed_value(value) for value in present):
        return typed_sequence(name, values, present, _inner_column), mask
    filled = values
    if mask is not None:
        empty = type(present[0])() if present and isinstance(present[0], bool | int | float | complex) else None
        if present and empty is None:
            empty = present[0]
        filled = [(empty if present else 0.0) if value is None else value for value in values]
    try:
        array = _array(name, filled, present)
    except (ValueError, OverflowError) as error:
        why = _ragged(values) or str(error)
        raise BatchError(f"column {name!r} cannot be made of its values: {why}") from None
    if array.dtype.kind in "US":  # numpy turns a mixture of text and numbers into text
        raise BatchError(f"column {name!r} mixes text with {', '.join(sorted({type(v).__name__ for v in present}))}")
    if array.dtype.kind in "mM":  # numpy turns 5 next to a span into a span, and a span next to a date into a date
        others = sorted({type(v).__name__ for v in present if _kind(v) != array.dtype.kind})
        if others:
            raise BatchError(f"column {name!r} mixes {array.dtype.type.__name__} with {', '.join(others)}")
    if array.dtype == object and array.ndim == 1:
        array = _of_dates(array, present)
        if array.dtype == object:
            raise BatchError(f"column {name!r} has values of type {_types(present)}{_ADVICE}")
    return _array_column(name, array), mask


_ADVICE: Final = (
    ", for which there is no column; make them values of one type, such as text, use None for what is missing, or send "
    "items instead of batches"
)


def _types(values: list[Any]) -> str:
    """Return the names of the types of values, for a message."""
    return " and ".join(sorted({type(value).__name__ for value in values})[:4])


def _inner_column(name: str, values: list[Any]) -> Values:
    """Return values inside lists or dicts, none of which is None."""
    column, _ = as_column(name, values)
    if isinstance(column, np.ndarray) and column.dtype.kind not in "biufcmM":
        raise BatchError(f"column {name!r}: values of {column.dtype} cannot be in a list or dict")
    return column


def _array(name: str, filled: list[Any], present: list[Any]) -> npt.NDArray[Any]:
    """Return values as an array. Integers are never rounded, as numpy does with 1 and 2**63, and 2**53 + 1 and 0.5."""
    array = np.array(filled) if filled else np.zeros(0)
    if array.dtype.kind not in "fcO" or not all(_is_number(value) for value in present):
        return array
    integers = [value for value in present if isinstance(value, int | np.integer)]
    if integers:
        least, most = min(integers), max(integers)
        if least < -(1 << 63) or most >= 1 << 64 or (len(integers) == len(present) and least < 0 and most >= 1 << 63):
            raise BatchError(
                f"column {name!r} has integers from {_shown(least)} to {_shown(most)}, which no type of 64 bits holds; "
                "send floats or text"
            )
        if len(integers) == len(present):
            return np.array(filled, np.uint64 if most >= 1 << 63 else np.int64)
    for value in integers:
        if abs(int(value)) > 1 << 53 and int(float(value)) != value:
            raise not_exact(name, value, np.dtype(np.float64))
    return array


def _is_number(value: Any) -> bool:
    """Whether a value is a number; a span of time is none, though numpy derives it from its integers."""
    return isinstance(value, int | float | complex | np.number) and not isinstance(value, np.timedelta64)


def _kind(value: Any) -> str:
    """Return numpy's letter for a value of numpy's; empty for others."""
    return getattr(getattr(value, "dtype", None), "kind", "")


def _shown(number: int | np.integer[Any]) -> str:
    bits = int(number).bit_length()
    return str(number) if bits <= 256 else f"one of {bits} bits"


def not_exact(name: str, value: Any, dtype: np.dtype[Any]) -> BatchError:
    """Return the error for a value that the other values of its column leave no room for."""
    others = {"f": "floats", "c": "complex numbers", "u": "integers of uint64"}.get(dtype.kind, f"{dtype} values")
    return BatchError(
        f"column {name!r} has {value} as well as {others}, and {dtype} does not hold both; "
        "convert them where they are made"
    )


def _ragged(values: list[Any]) -> str | None:
    """Say what numpy says at length of sequences of different length: that there should be none at all."""
    for row, value in enumerate(values):
        if isinstance(value, Sequence | np.ndarray) and not isinstance(value, str | bytes):
            return f"expected one value a row, found {type(value).__name__} {value!r:.40} in row {row}"
    return None


def _of_dates(array: npt.NDArray[Any], present: list[Any]) -> npt.NDArray[Any]:
    """Turn naive datetimes, dates and timedeltas into numpy's; anything else stays as it is."""
    import datetime

    kinds = {type(value) for value in present}
    if kinds == {datetime.datetime} and all(value.tzinfo is None for value in present):
        return array.astype("datetime64[us]")
    if kinds == {datetime.date}:
        return array.astype("datetime64[D]")
    if kinds == {datetime.timedelta}:
        return array.astype("timedelta64[us]")
    for method in ("to_datetime64", "to_timedelta64"):  # of pandas, which may have nanoseconds
        if all(hasattr(kind, method) and kind.__module__.partition(".")[0] == "pandas" for kind in kinds):
            found = [getattr(value, method)() for value in array.tolist()]
            own = {value.dtype for value in found if value == value}
            if len(own) == 1 and all(getattr(value, "tzinfo", None) is None for value in present):
                return np.array(found).astype(own.pop())
    return array


def equal_columns(one: Values, valid: Mask | None, two: Values, others: Mask | None) -> bool:
    """Whether two columns of one dtype and length have the same nulls and values; NaN equals NaN.

    Args:
        one, two: the columns; what lies under their nulls does not count.
        valid, others: their masks.
    """
    if valid is not None or others is not None:
        every = np.ones(len(one), np.bool_)
        valid = every if valid is None else valid
        if not np.array_equal(valid, every if others is None else others):
            return False
        rows = np.flatnonzero(valid)
        one, two = one.take(rows), two.take(rows)
    if isinstance(one, Text | TypedColumn):
        return one.equals(two)
    assert isinstance(two, np.ndarray)
    return _equal_arrays(one, two)


def _equal_arrays(one: npt.NDArray[Any], two: npt.NDArray[Any]) -> bool:
    """Whether all values are equal, NaN and NaT to themselves, in fields of structured ones too."""
    if one.dtype.names is not None:
        return all(_equal_arrays(one[name], two[name]) for name in one.dtype.names)
    with np.errstate(invalid="ignore"):  # numpy 2.5 and later warn of a signaling NaN
        return np.array_equal(one, two, equal_nan=one.dtype.kind in "fcmM")


def of_one_kind(pieces: Sequence[Values], masks: Sequence[Mask | None]) -> list[Values]:
    """Return the pieces of a column, of which those without a value take the kind of the others.

    Args:
        pieces: one or more.
        masks: of each piece, False where it is null.
    """
    has_value = [
        bool(len(piece)) if mask is None else bool(mask.any()) for piece, mask in zip(pieces, masks, strict=True)
    ]
    if not any(has_value):
        has_value[0] = True
    kind = pieces[has_value.index(True)].dtype
    return [
        piece if has or piece.dtype == kind else nulls(kind, len(piece))
        for piece, has in zip(pieces, has_value, strict=True)
    ]


def joined(columns: Sequence[Values]) -> Values:
    """Return the values of columns of one kind, in order."""
    first = columns[0]
    if isinstance(first, Text):
        return Text.concat(columns)  # type: ignore[arg-type]
    if isinstance(first, TypedColumn):
        return TypedColumn.concat(columns)  # type: ignore[arg-type]
    return np.concatenate(columns)
