"""`is_in`: whether a value is equal to one of a list.

What a row costs does not depend on how long the list is: text is looked up by its hash, numbers and times in a table or
by halving a sorted list. Values of other types are compared one after the other.
"""

from __future__ import annotations

import contextlib
import datetime
import decimal
import fractions
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from shmjet._native._columns import text_among
from shmjet.columns.expressions.operations import check_comparable, without_category
from shmjet.columns.expressions.vector import Vector
from shmjet.data import operators
from shmjet.data.column_descriptors import descriptor
from shmjet.data.column_types import DecimalType, ZonedType
from shmjet.data.instants import stored_instants
from shmjet.data.text import Mask, Text
from shmjet.data.typed_column import TypedColumn

_Array = npt.NDArray[Any]
_Lookup = Callable[[Any], Mask]

_MOST_PLACES: Final = 1 << 20
"""Of a table with one byte for each integer between the least and the greatest that are listed."""

_LEAST_FLOATS: Final = 4
"""Fewer are compared one after the other."""

_MOST_EXACT: Final = 1 << 53
"""Integers up to this one are floats of 64 bits."""

_MOST_DIGITS: Final = 18
"""Of a decimal that is stored as an integer of 64 bits."""


def prepared_membership(values: Sequence[Any]) -> Callable[[Sequence[Vector], int, Mask | None], Vector]:
    """Return the function that tells what is equal to one of some values, none of which is null."""
    texts = {value for value in values if isinstance(value, str | bytes)}
    weak_integers = {value for value in values if type(value) is int}
    others = [value for value in values if not isinstance(value, str | bytes) and type(value) is not int]
    is_of_str = all(isinstance(value, str) for value in values)
    encoded = sorted(value.encode() if isinstance(value, str) else value for value in texts)
    listed = Text.of(encoded)
    lookups: dict[Any, tuple[_Lookup | None, list[Any]]] = {}

    def apply(operands: Sequence[Vector], rows: int, active: Mask | None) -> Vector:
        (one,) = operands
        if one.is_untyped:
            return Vector(np.zeros(rows, np.bool_), np.zeros(rows, np.bool_))
        column = one.column(rows)
        if is_of_str:
            column = without_category(column)
        if isinstance(column, Text):
            check(column)
            found, rest = _texts_in(column, listed), others
        else:
            known = lookups.get(column.dtype)
            if known is None:
                check(column)
                known = lookups[column.dtype] = _lookup(column.dtype, weak_integers, texts, others)
            lookup, rest = known
            stored = column.stored if isinstance(column, TypedColumn) else column
            found = np.zeros(rows, np.bool_) if lookup is None else lookup(stored)
        for value in rest:
            found |= operators.compare("==", column, value, np.ones(rows, np.bool_))
        return Vector(found, one.valid)

    def check(column: Any) -> None:
        for value in (*list(texts)[:1], *list(weak_integers)[:1], *others):
            check_comparable(Vector(column), Vector(value, is_scalar=True))

    return apply


def _texts_in(column: Text, values: Text) -> Mask:
    found = np.empty(len(column), np.bool_)
    text_among(descriptor(column), descriptor(values), found)
    return found


def _lookup(kind: Any, integers: set[int], texts: set[Any], others: list[Any]) -> tuple[_Lookup | None, list[Any]]:
    """Return the function that looks stored values of a type up, and the values to compare one after the other."""
    rest = [*others, *integers, *texts]
    if isinstance(kind, np.dtype) and kind.kind in "iu":
        info = np.iinfo(kind)
        fitting = [value for value in integers if info.min <= value <= info.max]
        return _among_integers(fitting, kind), others
    if isinstance(kind, ZonedType) and all(_is_instant(value) for value in rest):
        instants = list(stored_instants(rest, ZonedType("us", "UTC")))
        return _among_integers(_ticks(instants, kind.stored), np.dtype(np.int64)), []
    if isinstance(kind, np.dtype) and kind.kind == "M" and all(isinstance(value, np.datetime64) for value in rest):
        return _among_integers(_ticks(rest, kind), np.dtype(np.int64)), []
    is_short = isinstance(kind, DecimalType) and kind.stored == np.int64
    if is_short and all(type(value) in (int, decimal.Decimal) for value in rest):
        return _among_integers(_unscaled(rest, kind.scale), np.dtype(np.int64)), []
    if kind == np.float64 and len(rest) >= _LEAST_FLOATS and all(type(value) in (int, float) for value in rest):
        floats = [float(value) for value in rest if type(value) is float or abs(value) <= _MOST_EXACT]
        large = [value for value in rest if type(value) is int and abs(value) > _MOST_EXACT]
        listed = np.array(sorted(value for value in floats if value == value))
        return lambda column: _among_sorted(column, listed), large
    return None, rest


def _is_instant(value: Any) -> bool:
    return isinstance(value, datetime.datetime) and value.tzinfo is not None


def _ticks(times: Sequence[np.datetime64], kind: Any) -> list[int]:
    """Return times as integers in the unit of a dtype; a time that the unit does not hold equals nothing."""
    found: list[int] = []
    for time in times:
        with contextlib.suppress(OverflowError):
            made = time.astype(kind)
            if made.astype(time.dtype) == time:  # NaT equals nothing
                found.append(int(made.view(np.int64)))
    return found


def _unscaled(values: Sequence[int | decimal.Decimal], scale: int) -> list[int]:
    """Return numbers as integers of the last of `scale` digits; a number with more digits equals nothing."""
    found: list[int] = []
    for value in values:
        number = decimal.Decimal(value)
        if number.is_finite() and number.adjusted() + scale < _MOST_DIGITS:
            ratio = fractions.Fraction(number) * 10**scale
            if ratio.denominator == 1:
                found.append(int(ratio))
    return found


def _among_integers(listed: list[int], dtype: np.dtype[Any]) -> _Lookup:
    """Return the function that tells which integers of a dtype are among some; times are viewed as integers."""
    values = np.array(sorted(listed), dtype)
    if not len(values):
        return lambda column: np.zeros(len(column), np.bool_)
    least, places = int(values[0]), int(values[-1]) - int(values[0]) + 1
    if places > _MOST_PLACES:
        return lambda column: _among_sorted(column.view(dtype), values)
    table = np.zeros(places + 1, np.bool_)
    table[[int(value) - least for value in values]] = True
    wide = np.uint64 if dtype.kind == "u" else np.int64
    start = np.uint64(least % 2**64)

    def among(column: _Array) -> Mask:
        # What is less than the least wraps to a large number.
        place = column.view(dtype).astype(wide, copy=False).view(np.uint64) - start
        found: Mask = table[np.minimum(place, np.uint64(places))]
        return found

    return among


def _among_sorted(column: _Array, values: _Array) -> Mask:
    if not len(values):
        return np.zeros(len(column), np.bool_)
    place = np.minimum(np.searchsorted(values, column), len(values) - 1)
    found: Mask = values[place] == column
    return found
