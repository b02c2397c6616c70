"""Decimals between Python and their stored form: integers of 64 or 128 bits that count units of the last digit."""

from __future__ import annotations

import decimal
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from shmjet.data.column_types import MOST_DIGITS, NARROW_DIGITS, WIDE, DecimalType
from shmjet.data.errors import BatchError

Array = npt.NDArray[Any]

_EXACT: Final = decimal.Context(prec=2 * MOST_DIGITS + 4, traps=[decimal.InvalidOperation, decimal.Inexact])
_HALVES: Final = np.dtype([("low", "<u8"), ("high", "<i8")])
_LOW: Final = (1 << 64) - 1


def digits_of(value: decimal.Decimal | int) -> tuple[int, int]:
    """Return the digits before and after the point that a number needs.

    Raises:
        BatchError: it is NaN or infinite, or has more digits than a decimal may have.
    """
    if isinstance(value, int):
        return len(str(abs(value))) if abs(value) < 10**MOST_DIGITS else MOST_DIGITS + 1, 0
    if not value.is_finite():
        raise BatchError(f"a decimal is a finite number, got {value}; use None for what is missing, or floats")
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int)
    return max(value.adjusted() + 1, 0) if value else 0, max(-exponent, 0)


def type_of_values(values: Iterable[decimal.Decimal | int]) -> DecimalType:
    """Return the type that holds all values: of 18 digits where these are enough, else of 38.

    Raises:
        BatchError: none does.
    """
    before = after = 0
    for value in values:
        left, right = digits_of(value)
        before, after = max(before, left), max(after, right)
    if before + after > MOST_DIGITS:
        raise BatchError(
            f"decimals with up to {before} digits before and {after} after the point do not fit into one column: "
            f"{MOST_DIGITS} digits are possible"
        )
    return DecimalType(NARROW_DIGITS if before + after <= NARROW_DIGITS else MOST_DIGITS, after)


def unscaled(value: decimal.Decimal | int | str, kind: DecimalType) -> int:
    """Return a number as units of the last digit of a type.

    Args:
        value: `Decimal`, int, or text of a decimal.
        kind: the type.

    Raises:
        BatchError: the type does not hold it exactly.
    """
    if isinstance(value, str):
        try:
            number: decimal.Decimal | int = decimal.Decimal(value)
        except decimal.InvalidOperation:
            raise BatchError(f"{value!r:.60} is not a decimal") from None
    else:
        number = value
    if isinstance(number, int):
        units = number * 10**kind.scale
    else:
        if not number.is_finite():
            raise BatchError(f"a decimal is a finite number, got {value}; use None for what is missing, or floats")
        if number.adjusted() > MOST_DIGITS:
            raise not_in(value, kind)
        try:
            scaled = number.scaleb(kind.scale, _EXACT) if number else decimal.Decimal(0)
            units = int(scaled)
        except decimal.Inexact:
            scaled, units = number, 0
        if units != scaled:
            raise BatchError(f"{value} has more than {kind.scale} digits after the point, which {kind} does not hold")
    if abs(units) >= 10**kind.precision:
        raise not_in(value, kind)
    return int(units)


def not_in(value: Any, kind: DecimalType) -> BatchError:
    """Return the error for a number that is too large for its type."""
    most = kind.precision - kind.scale
    return BatchError(f"{value!s:.80} is not a value of {kind}: it has more than {most} digits before the point")


def stored_decimals(values: Iterable[Any], kind: DecimalType) -> Array:
    """Return numbers as a column of a type stores them. Raises BatchError as `unscaled`."""
    return stored_units([unscaled(value, kind) for value in values], kind)


def stored_units(units: Sequence[int], kind: DecimalType) -> Array:
    """Return integers that count units of the last digit as a column stores them."""
    if kind.stored != WIDE:
        return np.array(units, np.int64)
    halves = np.empty(len(units), _HALVES)
    halves["low"] = [unit & _LOW for unit in units]
    halves["high"] = [unit >> 64 for unit in units]
    return halves.view(WIDE)


def units_of(stored: Array) -> list[int]:
    """Return what is stored as integers that count units of the last digit."""
    if stored.dtype != WIDE:
        units: list[int] = stored.tolist()
        return units
    halves = stored.view(_HALVES)
    return [(high << 64) | low for low, high in zip(halves["low"].tolist(), halves["high"].tolist(), strict=True)]


def plain_decimals(stored: Array, scale: int) -> list[decimal.Decimal]:
    """Return what is stored as Python's decimals, all with `scale` digits after the point."""
    make, shift = decimal.Decimal, decimal.Decimal.scaleb
    if not scale:
        return list(map(make, units_of(stored)))
    return [shift(make(unit), -scale, _EXACT) for unit in units_of(stored)]
