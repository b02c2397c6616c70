"""The offset of a time zone at many instants at once.

`zoneinfo` knows one instant at a time. The offset is the same on most days from beginning to end, so it is asked once
for each day of UTC, and once for each second of the days in which it changes. What it has said is kept for each zone.
"""

from __future__ import annotations

import datetime
import functools
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from shmjet.data.column_types import zone_of
from shmjet.data.errors import BatchError

Integers = npt.NDArray[np.int64]

_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_SECOND: Final = datetime.timedelta(seconds=1)
_DAY: Final = 86_400
_FIRST_DAY, _LAST_DAY = -719_160, 2_932_890
"""Days that have a `datetime` in every zone."""

_CYCLE: Final = 146_097
"""Days of 400 years, after which the calendar and its weekdays repeat."""

_MOST_DAYS: Final = 200_000
"""Days that are kept for a zone."""

_TABLE_START, _TABLE_DAYS = -110_000, 220_000
"""The days around 1970 whose offsets are looked up in an array: about 300 years before and after."""

_UNKNOWN, _CHANGES, _SHIFT = 0, 1, 200_000
"""What stands in the array, next to shifted offsets; zeros are memory that is not touched yet."""


class ZoneOffsets:
    """Seconds by which a zone's clock is ahead of UTC.

    Args:
        name: of the zone.

    Example:
        >>> ZoneOffsets("Europe/Berlin").at(np.array([0, 15_552_000])).tolist()
        [3600, 3600]
    """

    def __init__(self, name: str) -> None:
        self._zone = zone_of(name)
        self._days: dict[int, int | None] = {}  # None: it changes on that day
        self._table = np.zeros(_TABLE_DAYS, np.int32)

    def at(self, seconds: Integers) -> Integers:
        """Return the offset at each instant.

        Args:
            seconds: of UTC, since 1970.
        """
        days = seconds // _DAY
        place = days - _TABLE_START
        if len(days) and (int(place.min()) < 0 or int(place.max()) >= _TABLE_DAYS):
            days, place = np.unique(days, return_inverse=True)
            found = np.array([self._shifted(day) for day in days.tolist()], np.int32)[place]
        else:
            found = self._table[place]
            if not found.all():
                for day in np.unique(days[found == _UNKNOWN]).tolist():
                    self._table[day - _TABLE_START] = self._shifted(day)
                found = self._table[place]
        result: Integers = found.astype(np.int64) - _SHIFT
        rows = np.flatnonzero(found == _CHANGES)
        if len(rows):
            moments, again = np.unique(seconds[rows], return_inverse=True)
            each = np.fromiter((self._of_second(moment) for moment in moments.tolist()), np.int64, len(moments))
            result[rows] = each[again]
        return result

    def _shifted(self, day: int) -> int:
        offset = self._of_day(day)
        return _CHANGES if offset is None else offset + _SHIFT

    def _of_day(self, day: int) -> int | None:
        if day not in self._days:
            if len(self._days) >= _MOST_DAYS:
                self._days.clear()
            first, last = self._of_second(day * _DAY), self._of_second((day + 1) * _DAY - 1)
            self._days[day] = first if first == last else None
        return self._days[day]

    def _of_second(self, second: int) -> int:
        day, of_day = divmod(second, _DAY)
        if day > _LAST_DAY:
            day -= -(-(day - _LAST_DAY) // _CYCLE) * _CYCLE
        moment = _EPOCH + datetime.timedelta(days=max(day, _FIRST_DAY), seconds=of_day)
        return int((moment.astimezone(self._zone).utcoffset() or datetime.timedelta()) // _SECOND)


@functools.lru_cache(maxsize=64)
def offsets_of(name: str) -> ZoneOffsets:
    """Return the offsets of a zone; the same object each time."""
    return ZoneOffsets(name)


def local_times(instants: Any, zone: str) -> Any:
    """Return instants as what the clock of a zone shows.

    Args:
        instants: `datetime64` of UTC in a unit of seconds or less, none of them NaT.
        zone: its name.

    Raises:
        BatchError: one lies within a day of the end of the unit's range.
    """
    ticks, per_second = _ticks(instants)
    _check_range(ticks, per_second, instants.dtype)
    return (ticks + offsets_of(zone).at(ticks // per_second) * per_second).view(instants.dtype)


def instants_of(local: Any, zone: str) -> Any:
    """Return the instants at which the clock of a zone shows some times: the earlier one of two.

    A time that the clock leaves out gives the instant at which the clock before it would have shown it.

    Raises:
        BatchError: one lies within two days of the end of the unit's range.
    """
    ticks, per_second = _ticks(local)
    _check_range(ticks, per_second, local.dtype)
    seconds, offsets = ticks // per_second, offsets_of(zone)
    before, after = offsets.at(seconds - _DAY), offsets.at(seconds + _DAY)
    early, late = seconds - before, seconds - after
    is_late = (offsets.at(early) != before) & (offsets.at(late) == after)
    return (ticks - np.where(is_late, after, before) * per_second).view(local.dtype)


def _ticks(times: Any) -> tuple[Integers, int]:
    unit = np.datetime_data(times.dtype)[0]
    return times.view(np.int64), {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}[unit]


def _check_range(ticks: Integers, per_second: int, dtype: np.dtype[Any]) -> None:
    limit = np.iinfo(np.int64).max - 2 * _DAY * per_second
    if len(ticks) and (int(ticks.max()) > limit or int(ticks.min()) < -limit):
        raise BatchError(f"a time of {dtype} is so far away that its zone's clock is out of range; cast the column")
