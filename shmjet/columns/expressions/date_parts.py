"""Parts of dates and times, and rounding them down: integer arithmetic on whole columns.

A date is a number of ticks of its unit since 1970. Days become years and months by the arithmetic of a year that begins
in March, so that the day that leap years have is its last one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from shmjet.columns.expressions.vector import Vector
from shmjet.columns.expressions.zones import instants_of, local_times
from shmjet.data.column_types import ZonedType
from shmjet.data.errors import BatchError
from shmjet.data.text import Mask
from shmjet.data.typed_column import TypedColumn

Integers: TypeAlias = npt.NDArray[np.int64]
Applied: TypeAlias = Callable[[Sequence[Vector], int, "Mask | None"], Vector]

_PER_DAY: Final = {
    "h": 24,
    "m": 1_440,
    "s": 86_400,
    "ms": 86_400_000,
    "us": 86_400_000_000,
    "ns": 86_400_000_000_000,
}
"""Ticks of a day; finer units have less than a day in range for some values, and are refused."""

_LEAST: Final = np.iinfo(np.int64).min


def days_and_ticks(values: Any) -> tuple[Integers, Integers, int]:
    """Return the days since 1970, the ticks since midnight, and the ticks of a day.

    Raises:
        BatchError: the unit is none that has days.
    """
    unit, multiple = np.datetime_data(values.dtype)
    if multiple != 1:
        values = values.astype(f"M8[{unit}]")
    ticks: Integers = values.view(np.int64)
    if unit in ("Y", "M", "W", "D"):
        return values.astype("M8[D]").view(np.int64), np.zeros(len(ticks), np.int64), 1
    if unit not in _PER_DAY:
        raise BatchError(f"dates of the unit {unit} have no parts; cast the column to datetime64[ns]")
    per_day = _PER_DAY[unit]
    days = ticks // per_day
    return days, ticks - days * per_day, per_day


def civil(days: Integers) -> tuple[Integers, Integers, Integers]:
    """Return the year, month and day of days since 1970."""
    shifted = days + 719_468  # days since 1 March of the year 0
    era = shifted // 146_097
    of_era = shifted - era * 146_097
    of_year = (of_era - of_era // 1_460 + of_era // 36_524 - of_era // 146_096) // 365
    ordinal = of_era - (365 * of_year + of_year // 4 - of_year // 100)
    march = (5 * ordinal + 2) // 153  # months since March
    day = ordinal - (153 * march + 2) // 5 + 1
    month = np.where(march < 10, march + 3, march - 9)
    return of_year + era * 400 + (month <= 2), month, day


def days_of(year: Integers, month: Any) -> Integers:
    """Return the days since 1970 of the first day of a month."""
    shifted = year - (month <= 2)
    era = shifted // 400
    of_era = shifted - era * 400
    march = np.where(np.asarray(month) > 2, np.asarray(month) - 3, np.asarray(month) + 9)
    ordinal = (153 * march + 2) // 5
    result: Integers = era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + ordinal - 719_468
    return result


def _year(days: Integers, ticks: Integers, per_day: int) -> Integers:
    return civil(days)[0]


def _month(days: Integers, ticks: Integers, per_day: int) -> Integers:
    return civil(days)[1]


def _day(days: Integers, ticks: Integers, per_day: int) -> Integers:
    return civil(days)[2]


def _quarter(days: Integers, ticks: Integers, per_day: int) -> Integers:
    return (civil(days)[1] + 2) // 3


def _weekday(days: Integers, ticks: Integers, per_day: int) -> Integers:
    return (days + 3) % 7 + 1


def _ordinal_day(days: Integers, ticks: Integers, per_day: int) -> Integers:
    return days - days_of(civil(days)[0], np.int64(1)) + 1


def _week(days: Integers, ticks: Integers, per_day: int) -> Integers:
    thursday = days - (days + 3) % 7 + 3
    return (thursday - days_of(civil(thursday)[0], np.int64(1))) // 7 + 1


def _clock(each: int, of: int) -> Callable[[Integers, Integers, int], Integers]:
    """Return the function for a part of the clock: `each` in a day, `of` in the next larger part."""

    def part(days: Integers, ticks: Integers, per_day: int) -> Integers:
        if per_day >= each:
            return ticks // (per_day // each) % of
        return ticks * (each // per_day) % of

    return part


_PARTS: Final[dict[str, Callable[[Integers, Integers, int], Integers]]] = {
    "year": _year,
    "quarter": _quarter,
    "month": _month,
    "week": _week,
    "day": _day,
    "weekday": _weekday,
    "ordinal_day": _ordinal_day,
    "hour": _clock(24, 24),
    "minute": _clock(1_440, 60),
    "second": _clock(86_400, 60),
    "millisecond": _clock(86_400_000, 1_000),
    "microsecond": _clock(86_400_000_000, 1_000_000),
    "nanosecond": _clock(86_400_000_000_000, 1_000_000_000),
}


def checked_dates(function: str, operand: Vector, rows: int) -> tuple[Any, Mask | None, ZonedType | None]:
    """Return the column of dates that a function is given, 1970 for NaT and nulls, as the clock of its zone shows them.

    Returns:
        The dates, where they are neither NaT nor null, and the type that has the zone.

    Raises:
        BatchError: it is another column.
    """
    column = operand.column(rows)
    if isinstance(column, TypedColumn) and isinstance(column.dtype, ZonedType):
        values, valid = _without_nat(column.stored, operand.valid)
        return local_times(values, column.dtype.zone), valid, column.dtype
    if not isinstance(column, np.ndarray) or column.dtype.kind != "M" or np.datetime_data(column.dtype)[0] == "generic":
        raise BatchError(f".dt.{function}() takes a column of dates or times, got {operand.type_name}")
    return *_without_nat(column, operand.valid), None


def _part(function: str) -> Callable[[], Applied]:
    def apply(operands: Sequence[Vector], rows: int, active: Mask | None) -> Vector:
        (one,) = operands
        if one.is_untyped:
            return Vector(np.zeros(rows, np.int64), np.zeros(rows, np.bool_))
        values, valid, _ = checked_dates(function, one, rows)
        return Vector(_PARTS[function](*days_and_ticks(values)), valid)

    return lambda: apply


def _without_nat(values: Any, valid: Mask | None) -> tuple[Any, Mask | None]:
    """Return dates with 1970 for NaT and for nulls, and where they are neither."""
    known = ~np.isnat(values)
    if valid is not None:
        known &= valid
    if known.all():
        return values, valid
    return np.where(known, values, np.zeros((), values.dtype)), known


def _date() -> Applied:
    def apply(operands: Sequence[Vector], rows: int, active: Mask | None) -> Vector:
        (one,) = operands
        if one.is_untyped:
            return Vector(np.zeros(rows, "M8[D]"), np.zeros(rows, np.bool_))
        values, valid, _ = checked_dates("date", one, rows)
        return Vector(days_and_ticks(values)[0].view("M8[D]"), valid)

    return apply


def _truncate(unit: str) -> Applied:
    def apply(operands: Sequence[Vector], rows: int, active: Mask | None) -> Vector:
        (one,) = operands
        if one.is_untyped:
            return Vector(np.zeros(rows, "M8[us]"), np.zeros(rows, np.bool_))
        values, valid, zoned = checked_dates("truncate", one, rows)
        begins = truncated(values, unit, valid if active is None else both_masks(valid, active))
        if zoned is None:
            return Vector(begins, valid)
        if unit in ("hour", "minute", "second"):  # an hour may come twice, and stays the same
            stored: Any = one.column(rows)
            instants, _ = _without_nat(stored.stored, one.valid)
            return Vector(TypedColumn.trusted(zoned, instants - (values - begins)), valid)
        return Vector(TypedColumn.trusted(zoned, instants_of(begins, zoned.zone)), valid)

    return apply


def both_masks(valid: Mask | None, active: Mask) -> Mask:
    """Return the rows that are neither null nor left out."""
    return active if valid is None else valid & active


def truncated(values: Any, unit: str, counts: Mask | None) -> Any:
    """Return the beginning of the period that each date is in, in the dates' unit.

    Args:
        values: dates, none of them NaT.
        unit: the period.
        counts: the rows that count.

    Raises:
        BatchError: the beginning is out of the range of the unit.
    """
    own, _ = np.datetime_data(values.dtype)
    days, ticks, per_day = days_and_ticks(values)
    clock = {"hour": 24, "minute": 1_440, "second": 86_400}.get(unit)
    if clock is not None:
        if per_day <= clock:
            return values
        result = values.astype(f"M8[{own}]").view(np.int64) - ticks % (per_day // clock)
    else:
        if own in ("Y", "M") and unit in ("week", "day"):
            raise BatchError(f"dates of the unit {own} have no {unit}; cast the column to datetime64[D]")
        first = _first_days(days, unit)
        if own in ("Y", "M", "W"):
            if own == "W" and unit != "week":
                raise BatchError("dates of the unit W are Thursdays; cast the column to datetime64[D]")
            return values if own == "W" else first.view("M8[D]").astype(values.dtype)
        result = first * per_day
        wrong = (result // per_day != first) | (result > values.astype(f"M8[{own}]").view(np.int64))
        if counts is not None:
            wrong &= counts
        if wrong.any():
            row = int(np.argmax(wrong))
            raise BatchError(f"the {unit} of {values[row]} in row {row} begins out of the range of {values.dtype}")
    return result.view(f"M8[{own}]").astype(values.dtype)


def _first_days(days: Integers, unit: str) -> Integers:
    if unit == "day":
        return days
    if unit == "week":
        return days - (days + 3) % 7
    year, month, _ = civil(days)
    if unit == "year":
        return days_of(year, np.int64(1))
    return days_of(year, month if unit == "month" else (month - 1) // 3 * 3 + 1)


DATE_FUNCTIONS: Final[dict[str, Callable[..., Applied]]] = {
    **{name: _part(name) for name in _PARTS},
    "date": _date,
    "truncate": _truncate,
}
"""Name → what makes the function of a step, of its options."""
