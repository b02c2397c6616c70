"""Single values as a person reads them: dates and spans of time, not what Python writes to make another."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np


def value_text(value: Any) -> str:
    """Return a value of a numpy array as a person reads it.

    Example:
        >>> value_text(np.datetime64("2013-01-01T05:15", "us")), value_text(np.timedelta64(90, "s"))
        ('2013-01-01 05:15:00', '0:01:30')
    """
    if isinstance(value, np.void) and value.dtype.names is not None:
        return f"({', '.join(value_text(value[name]) for name in value.dtype.names)})"
    if isinstance(value, np.timedelta64) and value.dtype != "m8" and not np.isnat(value):
        return _span(value)
    try:
        text = str(value)
    except OverflowError:  # numpy 2.5 and later say so where a date lies beyond what a calendar can count
        return _number(value)
    if not isinstance(value, np.datetime64) or np.isnat(value):
        return text
    day, _, time = text.partition("T")
    if "." in time:
        time = time.rstrip("0").rstrip(".")
    return f"{day} {time}" if time else day


def _span(value: np.timedelta64) -> str:
    """Return a span of time, `1 day, 2:00:05`; where a `timedelta` cannot express it, the number and its unit."""
    plain = value.item()
    if isinstance(plain, datetime.timedelta):
        return str(plain)
    return _number(value)


def _number(value: np.datetime64 | np.timedelta64) -> str:
    unit, count = np.datetime_data(value.dtype)
    return f"{int(value.view(np.int64)) * count} {unit}"


def typed_text(values: Iterable[Any]) -> list[str]:
    """Return values of a `TypedColumn` as a person reads them: decimals with all digits, instants with their offset.

    Example:
        >>> typed_text([decimal.Decimal("1.50"), {"a": [1, None]}, "x"])
        ['1.50', "{'a': [1, null]}", "'x'"]
    """
    return [_typed_text(value) for value in values]


def _typed_text(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, decimal.Decimal):
        return f"{value:f}"
    if isinstance(value, datetime.datetime):
        return str(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name!r}: {_typed_text(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(_typed_text, value))}]"
    return repr(value)
