"""`.dt` of an expression: parts of dates and times, and rounding them down."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from shmjet.data.errors import BatchError
from shmjet.data.suggestions import unknown_attribute

E = TypeVar("E")

UNITS: Final = ("year", "quarter", "month", "week", "day", "hour", "minute", "second")
"""What `truncate` takes."""


class DateFunctions(Generic[E]):
    """Functions of a column of dates or times; null gives null, and so does NaT. Parts are int64, in the column's zone.

    Args:
        apply: makes the expression of a function's name and its options.

    Example:
        >>> import datetime
        >>> from shmjet import Batch, column
        >>> from shmjet.columns.expressions import evaluate
        >>> evaluate(column("day").dt.weekday(), Batch({"day": [datetime.date(2024, 2, 29)]})).tolist()
        [4]
    """

    __slots__ = ("_apply",)

    def __init__(self, apply: Callable[..., E]) -> None:
        self._apply = apply

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> E:
            there = ", ".join(each for each in dir(type(self)) if not each.startswith("_"))
            error = unknown_attribute(".dt of an expression", name, type(self))
            raise error if name.startswith("_") else AttributeError(f"{error}; there are {there}", name=name)

    def year(self) -> E:
        """The year."""
        return self._apply("dt.year")

    def quarter(self) -> E:
        """The quarter of the year, 1 to 4."""
        return self._apply("dt.quarter")

    def month(self) -> E:
        """The month, 1 to 12."""
        return self._apply("dt.month")

    def week(self) -> E:
        """The week of ISO 8601, 1 to 53: the first one of a year has its first Thursday."""
        return self._apply("dt.week")

    def day(self) -> E:
        """The day of the month, 1 to 31."""
        return self._apply("dt.day")

    def hour(self) -> E:
        """The hour, 0 to 23."""
        return self._apply("dt.hour")

    def minute(self) -> E:
        """The minute, 0 to 59."""
        return self._apply("dt.minute")

    def second(self) -> E:
        """The second, 0 to 59."""
        return self._apply("dt.second")

    def millisecond(self) -> E:
        """Milliseconds of the second, 0 to 999."""
        return self._apply("dt.millisecond")

    def microsecond(self) -> E:
        """Microseconds of the second, 0 to 999,999."""
        return self._apply("dt.microsecond")

    def nanosecond(self) -> E:
        """Nanoseconds of the second, 0 to 999,999,999."""
        return self._apply("dt.nanosecond")

    def weekday(self) -> E:
        """The day of the week: Monday is 1, Sunday 7."""
        return self._apply("dt.weekday")

    def ordinal_day(self) -> E:
        """The day of the year, 1 to 366."""
        return self._apply("dt.ordinal_day")

    def date(self) -> E:
        """The day, a `datetime64[D]`."""
        return self._apply("dt.date")

    def truncate(self, unit: str) -> E:
        """The beginning of the year, quarter, month, week, day, hour, minute or second that the time is in.

        Args:
            unit: which of these, by its name; weeks begin on Monday.

        Raises:
            BatchError: it is none of these.
        """
        if unit not in UNITS:
            raise BatchError(f"truncate() takes one of {', '.join(UNITS)}, got {unit!r}")
        return self._apply("dt.truncate", unit=unit)
