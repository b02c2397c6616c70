"""Single Python values as what a file of columns has for them, each checked against its column.

What would be lost is an error that names column and value: nothing is rounded, cut or made null. An int in a column of
floats is a float; a naive time is in UTC. Must not know rows, nor arrays.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable
from typing import Any

import numpy as np

from shmjet.data.errors import BatchError
from shmjet.spark.back.schemas import Column

FLOATS = ("float32", "float64")
NUMBERS = ("int8", "int16", "int32", "int64", *FLOATS)
MOMENTS = ("timestamp", "timestamp_ntz")
LARGEST_EXACT = {"float32": 1 << 24, "float64": 1 << 53}
"""Up to there each int is a float."""

_EPOCH = datetime.datetime(1970, 1, 1)
_EPOCH_UTC = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)
_FIRST_DAY = datetime.date(1970, 1, 1).toordinal()


def misfit(column: Column, value: Any, why: str = "") -> BatchError:
    """Return the error for a value that a column does not take."""
    because = f": {why}" if why else ""
    return BatchError(
        f"{column.label} ({column.sql}) does not take {value!r:.80} of type {type(value).__name__}{because}"
    )


def plain(value: Any) -> Any:
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
        if abs(value) > LARGEST_EXACT[column.kind] and int(float(value)) != value:
            raise misfit(column, value, "no float is exactly that")
        return float(value)
    if isinstance(value, decimal.Decimal):
        found = float(value)
        if decimal.Decimal(repr(found)) != value:  # a float stands for the decimal of its shortest text
            raise misfit(column, value, "no float is exactly that")
        return found
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


def _duration(column: Column, value: Any) -> int:
    if not isinstance(value, datetime.timedelta):
        raise misfit(column, value)
    return value // _MICROSECOND


CONVERTERS: dict[str, Callable[[Column, Any], Any]] = {
    **dict.fromkeys(("int8", "int16", "int32", "int64"), _integer),
    **dict.fromkeys(("float32", "float64"), _floating),
    **dict.fromkeys(MOMENTS, _moment),
    "bool": _boolean,
    "duration": _duration,
    "date": _date,
    "decimal": _decimal,
    "text": _string,
    "bytes": _binary,
}
"""Conversions of a value that is not None to the value in a file, by the kind of its column."""
