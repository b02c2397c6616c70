"""Python values and columns of batches as the arrays that a file of columns takes, each checked against its column.

What would be lost is an error that names column and value: nothing is rounded, cut or made null. An int in a column of
floats is a float; a naive time is in UTC. Must not know files.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shmjet.columns.gathering import plain_column
from shmjet.ring.errors import BatchError
from shmjet.ring.text import Mask, Text
from shmjet.spark.back.schemas import Column

Values: TypeAlias = npt.NDArray[Any] | Text
Fitted: TypeAlias = tuple[Values, Mask | None]
"""Values, and where they are no nulls; what lies under a null has no meaning."""

WIDE = np.dtype((np.void, 16))
"""A decimal of more than 18 digits: its unscaled value, big-endian."""

_NUMBERS = {"int8", "int16", "int32", "int64", "float32", "float64"}
_MOMENTS = {"timestamp", "timestamp_ntz"}
_EPOCH = datetime.datetime(1970, 1, 1)
_EPOCH_UTC = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)
_FIRST_DAY = datetime.date(1970, 1, 1).toordinal()
_PLAIN_KINDS = {"f": {"float32", "float64"}, "b": {"bool"}, "t": {"text"}, "y": {"bytes"}, "i": _NUMBERS}
_LARGEST_EXACT = {"float32": 1 << 24, "float64": 1 << 53}


def dtype_of(column: Column) -> np.dtype[Any]:
    """Return the dtype of a column's fitted values; that of text is bytes."""
    if column.kind in _NUMBERS or column.kind == "bool":
        return np.dtype(column.kind)
    if column.kind == "date":
        return np.dtype(np.int32)
    if column.kind == "decimal":
        return np.dtype(np.int32) if column.precision <= 9 else np.dtype(np.int64) if column.precision <= 18 else WIDE
    return np.dtype(np.uint8) if column.kind in ("text", "bytes") else np.dtype(np.int64)


def misfit(column: Column, value: Any, why: str = "") -> BatchError:
    """Return the error for a value that a column does not take."""
    because = f": {why}" if why else ""
    return BatchError(
        f"column {column.name!r} ({column.sql}) does not take {value!r:.80} of type {type(value).__name__}{because}"
    )


# -- rows --------------------------------------------------------------------------------------------------------------


def fitted_rows(column: Column, rows: list[Any], place: int, width: int) -> Fitted:
    """Return a column of rows that are all dicts or all tuples.

    Args:
        rows: dicts, or tuples of `width` values.
        place: of the column in tuples.

    Raises:
        BatchError: a value does not fit; the text names column and value.
    """
    quick = plain_column(rows, column.name, place, width)
    if quick is not None:
        values, mask = quick
        kind = "y" if isinstance(values, Text) and values.is_bytes else "t" if isinstance(values, Text) else ""
        if column.kind in _PLAIN_KINDS[kind or values.dtype.kind]:  # type: ignore[union-attr]
            return _checked_nulls(column, _narrowed(column, values, mask), mask)
    return fitted_values(column, [row[column.name] if isinstance(row, dict) else row[place] for row in rows])


def fitted_values(column: Column, values: Sequence[Any]) -> Fitted:
    """Return a column of values, one by one.

    Raises:
        BatchError: one does not fit; the text names column and value.
    """
    mask = np.fromiter((value is not None for value in values), np.bool_, len(values))
    nulls = None if mask.all() else mask
    convert = _CONVERTERS[column.kind]
    found = [None if value is None else convert(column, _plain(value)) for value in values]
    if column.kind in ("text", "bytes"):
        return _checked_nulls(column, _text(column, found), nulls)
    dtype = dtype_of(column)
    filled: list[Any] = [(b"\0" * 16 if dtype == WIDE else 0) if value is None else value for value in found]
    if dtype == WIDE:
        return _checked_nulls(column, np.frombuffer(b"".join(filled), WIDE), nulls)
    return _checked_nulls(column, np.array(filled, dtype), nulls)


def _checked_nulls(column: Column, values: Values, mask: Mask | None) -> Fitted:
    if mask is not None and not column.nullable:
        raise BatchError(f"column {column.name!r} ({column.sql} not null) does not take None")
    return values, mask


def _plain(value: Any) -> Any:
    """Return the Python value of a numpy scalar."""
    return value.item() if isinstance(value, np.generic) else value


def _integer(column: Column, value: Any) -> int:
    bits = 8 * np.dtype(column.kind).itemsize
    if type(value) is not int:
        raise misfit(column, value)
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise misfit(column, value, "out of range")
    return value


def _floating(column: Column, value: Any) -> float:
    if type(value) is int:
        if abs(value) > _LARGEST_EXACT[column.kind] and int(float(value)) != value:
            raise misfit(column, value, "no float is exactly that")
        return float(value)
    if not isinstance(value, float):
        raise misfit(column, value)
    return value


def _boolean(column: Column, value: Any) -> bool:
    if not isinstance(value, bool):
        raise misfit(column, value)
    return value


def _date(column: Column, value: Any) -> int:
    if not isinstance(value, datetime.date) or isinstance(value, datetime.datetime):
        raise misfit(column, value)
    return value.toordinal() - _FIRST_DAY


def _moment(column: Column, value: Any) -> int:
    if not isinstance(value, datetime.datetime):
        raise misfit(column, value)
    if value.tzinfo is None:
        return (value - _EPOCH) // _MICROSECOND
    if column.kind == "timestamp_ntz":
        raise misfit(column, value, "it has a time zone, and the column has none")
    return (value - _EPOCH_UTC) // _MICROSECOND


def _decimal(column: Column, value: Any) -> int | bytes:
    if type(value) is int:
        value = decimal.Decimal(value)
    elif type(value) is float:  # stands for the decimal of its shortest text, as where decimals come from Spark
        value = decimal.Decimal(repr(value))
    if not isinstance(value, decimal.Decimal) or not value.is_finite():
        raise misfit(column, value)
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    unscaled, shift = int("".join(map(str, digits))), exponent + column.scale
    if shift < 0:
        unscaled, rest = divmod(unscaled, 10**-shift)
        if rest:
            raise misfit(column, value, f"it has more than {column.scale} digits behind the point")
    elif unscaled:
        unscaled *= 10**shift if shift <= column.precision else 10 ** (column.precision + 1)
    if unscaled >= 10**column.precision:
        raise misfit(column, value, f"it has more than {column.precision} digits")
    unscaled = -unscaled if sign else unscaled
    return unscaled.to_bytes(16, "big", signed=True) if column.precision > 18 else unscaled


def _string(column: Column, value: Any) -> str:
    if not isinstance(value, str):
        raise misfit(column, value)
    return value


def _binary(column: Column, value: Any) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise misfit(column, value)
    return bytes(value)


_CONVERTERS: dict[str, Callable[[Column, Any], Any]] = {
    **dict.fromkeys(("int8", "int16", "int32", "int64"), _integer),
    **dict.fromkeys(("float32", "float64"), _floating),
    **dict.fromkeys(_MOMENTS, _moment),
    "bool": _boolean,
    "date": _date,
    "decimal": _decimal,
    "text": _string,
    "bytes": _binary,
}


def _text(column: Column, values: list[Any]) -> Text:
    empty: Any = b"" if column.kind == "bytes" else ""
    try:
        return Text.of([empty if value is None else value for value in values])
    except BatchError as error:
        raise BatchError(f"column {column.name!r} ({column.sql}): {error}") from None


# -- columns of batches ------------------------------------------------------------------------------------------------


def fitted_column(column: Column, values: Values, mask: Mask | None) -> Fitted:
    """Return a column of a batch.

    Raises:
        BatchError: its dtype or a value does not fit; the text names the column and the first such value.
    """
    if isinstance(values, Text):
        if column.kind != ("bytes" if values.is_bytes else "text"):
            raise BatchError(f"column {column.name!r} ({column.sql}) does not take a column of {values.dtype}")
        return _checked_nulls(column, values, mask)
    kind = values.dtype.kind
    if column.kind in _NUMBERS and kind in "iuf":
        return _checked_nulls(column, _narrowed(column, values, mask), mask)
    if column.kind == "bool" and kind == "b":
        return _checked_nulls(column, values, mask)
    if kind == "M" and column.kind in ("date", *_MOMENTS):
        return _dates(column, values, mask)
    if column.kind in ("text", "bytes") and kind == ("U" if column.kind == "text" else "S"):
        return _checked_nulls(column, Text.of(values.tolist()), mask)
    if column.kind == "decimal" and kind in "iuf":
        listed = values.tolist()
        present = [value if mask is None or mask[row] else None for row, value in enumerate(listed)]
        return fitted_values(column, present)
    raise BatchError(f"column {column.name!r} ({column.sql}) does not take a column of dtype {values.dtype}")


def _dates(column: Column, values: npt.NDArray[Any], mask: Mask | None) -> Fitted:
    there = ~np.isnat(values)
    if not there.all():
        mask = there if mask is None else mask & there
    unit, dtype = ("D", np.dtype(np.int32)) if column.kind == "date" else ("us", np.dtype(np.int64))
    found = values.astype(f"M8[{unit}]")
    exact = found.astype(values.dtype) == values
    wrong = ~exact & there if mask is None else ~exact & mask
    if wrong.any():
        raise misfit(column, values[wrong][0], "it is finer than the column")
    numbers = found.view(np.int64)
    if mask is not None:
        numbers = np.where(mask, numbers, 0)
    if dtype == np.int32 and len(numbers) and not -(1 << 31) <= numbers.min() <= numbers.max() < 1 << 31:
        raise misfit(column, values[0], "out of range")
    return _checked_nulls(column, numbers.astype(dtype), mask)


def _narrowed(column: Column, values: Values, mask: Mask | None) -> Values:
    """Return numbers with the column's dtype."""
    if isinstance(values, Text) or values.dtype.kind == "b":
        return values
    dtype = np.dtype(column.kind)
    if values.dtype == dtype:
        return values
    if dtype.kind == "i" and values.dtype.kind == "f":
        raise misfit(column, values[0] if len(values) else 0.0)
    there = values if mask is None else np.where(mask, values, np.zeros((), values.dtype))
    with np.errstate(over="ignore", invalid="ignore"):
        found = there.astype(dtype)
    if dtype.kind == "f" and values.dtype.kind == "f":
        wrong = np.isinf(found) & ~np.isinf(there)
    elif dtype.kind == "f":
        wrong = (there > _LARGEST_EXACT[column.kind]) | (there < -_LARGEST_EXACT[column.kind])
        for row in np.flatnonzero(wrong).tolist():
            wrong[row] = int(found[row]) != int(there[row])
    else:
        wrong = (found.astype(values.dtype) != there) | ((found < 0) != (there < 0))
    if wrong.any():
        raise misfit(
            column, there[wrong][0].item(), "out of range" if dtype.kind == "i" else "no float is exactly that"
        )
    return found
