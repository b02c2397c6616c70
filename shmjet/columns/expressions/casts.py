"""`cast`: a column as another type. What does not fit raises, and fractions are cut off."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from shmjet._native import _columns
from shmjet.columns.expressions.operations import counted
from shmjet.columns.expressions.vector import Vector
from shmjet.columns.schemas import Kind, kind_of, nulls
from shmjet.data import operators, typed_casts
from shmjet.data.column import Values
from shmjet.data.column_descriptors import descriptor
from shmjet.data.column_types import ColumnType
from shmjet.data.errors import BatchError
from shmjet.data.text import Mask, Text
from shmjet.data.typed_column import TypedColumn

_NEWLINE: Final = 10
_UNITS: Final = {
    ("Y", 1): "Y", ("M", 1): "M", ("W", 1): "W", ("D", 1): "D", ("h", 1): "h", ("m", 1): "m", ("s", 1): "s",
    ("ms", 1): "i", ("us", 1): "u", ("ns", 1): "n",
}  # fmt: skip
"""Units of numpy, as the kernels know them."""

_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_FLOAT: Final = re.compile(
    r"[+-]?(?:[0-9]+\.?[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|inf|infinity|nan)", re.I
)
_DATE: Final = re.compile(r"[+-]?[0-9]{4,}-[0-9]{2}-[0-9]{2}")
_TIME: Final = re.compile(r"[+-]?[0-9]{4,}-[0-9]{2}-[0-9]{2}(?:[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,18})?)?)?")


def prepared_cast(given: Any) -> Callable[[Sequence[Vector], int, Mask | None], Vector]:
    """Return the function that casts to a type.

    Raises:
        BatchError: `given` is not a type.
    """
    try:
        kind = kind_of("cast", given)
    except BatchError:
        raise BatchError(f"cast() takes a type of columns, such as int, 'float32' or str, got {given!r:.80}") from None

    def apply(operands: Sequence[Vector], rows: int, active: Mask | None) -> Vector:
        (one,) = operands
        if one.is_untyped:
            return Vector(nulls(kind, rows), np.zeros(rows, np.bool_))
        values = one.column(rows)
        return Vector(_cast(values, kind, counted(one.valid, rows, active)), one.valid)

    return apply


def _cast(values: Values, kind: Kind, valid: Mask) -> Values:
    if values.dtype == kind:
        return values
    if isinstance(values, TypedColumn) or isinstance(kind, ColumnType):
        made = typed_casts.cast(values, kind, valid, operators.cast)
        if made is None:
            raise BatchError(f"a column of {values.dtype} cannot be cast to {kind}")
        return made
    if isinstance(kind, str):
        return _text_as_text(values, kind, valid) if isinstance(values, Text) else _to_text(values, kind, valid)
    if isinstance(values, Text):
        return _from_text(values, kind, valid)
    if values.dtype.kind in "US" or kind.kind in "US":
        raise BatchError(f"a column of {values.dtype} cannot be cast to {kind}")
    return operators.cast(values, kind, valid)


def _text_as_text(values: Text, kind: str, valid: Mask) -> Text:
    if kind == "bytes":
        return Text.trusted(values.offsets, values.data, True)
    if kind != "text":
        raise BatchError(f"a column of {values.dtype} cannot be cast to {kind}")
    for row, value in enumerate(values.tolist()):
        try:
            value.decode()
        except UnicodeDecodeError as error:
            if valid[row]:
                raise BatchError(f"{value!r:.80} in row {row} is not UTF-8: {error}") from None
            return _text_as_text(_blanked(values, valid), kind, valid)
    return Text.trusted(values.offsets, values.data, False)


def _blanked(values: Text, valid: Mask) -> Text:
    blank = Text.trusted(np.zeros(2, np.int64), values.data[:0], values.is_bytes)
    return Text.concat([values, blank]).take(np.where(valid, np.arange(len(values)), len(values)))


def _to_text(values: Any, kind: str, valid: Mask) -> Text:
    """Return numbers as Python prints them, bools as true and false, dates as ISO 8601 has them."""
    if kind == "bytes":
        raise BatchError(f"a column of {values.dtype} cannot be cast to bytes; cast it to text first")
    family, unit = values.dtype.kind, " "
    if family not in "biufM":
        raise BatchError(f"a column of {values.dtype} cannot be cast to text")
    if family == "f" and values.dtype.itemsize != 8:
        values = values.astype("U").astype(np.float64)  # with as few digits as the narrow type has
    known = None
    if family == "M":
        unit, known = _UNITS.get(np.datetime_data(values.dtype), " "), ~np.isnat(values)
    written = _columns.csv_write((descriptor(values, known),), unit.encode(), _NEWLINE, -1, b"")
    if written is None:  # years of other than four digits, or units that are multiples
        return Text.of(["" if text == "NaT" else text for text in np.datetime_as_string(values).tolist()])
    return _lines(written, len(values))


def _lines(written: bytes, count: int) -> Text:
    """Return lines as a column, each without its end."""
    data = np.frombuffer(written, np.uint8)
    is_text = data != _NEWLINE
    offsets = np.zeros(count + 1, np.int64)
    offsets[1:] = np.flatnonzero(~is_text) - np.arange(count)
    return Text.trusted(offsets, data[is_text])


def _from_text(values: Text, kind: np.dtype[Any], valid: Mask) -> Values:
    if values.is_bytes:
        raise BatchError(f"a column of bytes cannot be cast to {kind}; cast it to text first")
    parse = _PARSERS.get(kind.kind)
    if parse is None:
        raise BatchError(f"a column of text cannot be cast to {kind}")
    result = np.zeros(len(values), kind)
    left = valid
    unit = _UNITS.get(np.datetime_data(kind), "") if kind.kind == "M" else " "
    if unit and kind.itemsize != 2 * (kind.kind == "f"):
        other = np.empty(len(values), np.bool_)
        words = result.view(np.int64) if kind.kind == "M" else result
        _columns.text_parse(descriptor(values, valid), kind.kind, kind.itemsize, unit, words, other)
        left = other
    for row in np.flatnonzero(left).tolist():
        text = values[row]
        try:
            result[row] = parse(text, kind)
        except (ValueError, OverflowError):
            raise BatchError(f"{text!r:.80} in row {row} is not a value of {kind}") from None
    return result


def _integer(text: str, kind: np.dtype[Any]) -> int:
    if not _INTEGER.fullmatch(text):
        raise ValueError
    value, limits = int(text), np.iinfo(kind)
    if not limits.min <= value <= limits.max:
        raise OverflowError
    return value


def _float(text: str, kind: np.dtype[Any]) -> Any:
    if not _FLOAT.fullmatch(text):
        raise ValueError
    with np.errstate(over="ignore"):
        value = kind.type(text)
    if np.isinf(value) and "inf" not in text.lower():
        raise OverflowError
    return value


def _bool(text: str, kind: np.dtype[Any]) -> bool:
    return {"true": True, "false": False}[text.lower()] if text.lower() in ("true", "false") else _raise()


def _raise() -> bool:
    raise ValueError


def _date(text: str, kind: np.dtype[Any]) -> Any:
    unit = np.datetime_data(kind)[0]
    if not (_DATE if unit in operators.DATE_UNITS else _TIME).fullmatch(text):
        raise ValueError
    value = np.datetime64(text)
    cast = value.astype(kind)
    if np.can_cast(value.dtype, kind) and cast.astype(value.dtype) != value:
        raise OverflowError
    return cast


_PARSERS: Final[dict[str, Callable[[str, np.dtype[Any]], Any]]] = {
    "i": _integer,
    "u": _integer,
    "f": _float,
    "b": _bool,
    "M": _date,
}
