"""Instants with a time zone between Python and their stored form: `datetime64` of UTC."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from shmjet.data.column_types import ZonedType, zone_name
from shmjet.data.errors import BatchError

_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND: Final = datetime.timedelta(microseconds=1)
_PER_SECOND: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_FIRST, _LAST = -62_135_596_800_000_000, 253_402_300_799_999_999
"""Microseconds of the first and last `datetime`."""
_NAT: Final = np.iinfo(np.int64).min


def microseconds(value: datetime.datetime) -> int:
    """Return an aware datetime as microseconds since 1970 in UTC."""
    return (value - _EPOCH) // _MICROSECOND


def type_of_instants(values: Sequence[datetime.datetime]) -> ZonedType:
    """Return the type of aware datetimes: of their zone, or of UTC where they differ or it has no name."""
    names = {zone_name(zone) for zone in {id(value.tzinfo): value.tzinfo for value in values}.values() if zone}
    name = names.pop() if len(names) == 1 else None
    return ZonedType("us", "UTC" if name is None else name)


def stored_instants(values: Sequence[datetime.datetime], kind: ZonedType) -> npt.NDArray[Any]:
    """Return aware datetimes as a column stores them.

    Raises:
        BatchError: one has no zone, or the unit does not hold it.
    """
    naive = next((value for value in values if value.tzinfo is None), None)
    if naive is not None:
        raise BatchError(f"{naive!r} has no time zone, which a value of {kind} needs")
    ticks = [_ticks(value, kind) for value in values]
    return np.array(ticks, np.int64).view(f"M8[{kind.unit}]")


def _ticks(value: datetime.datetime, kind: ZonedType) -> int:
    count = microseconds(value)
    ticks, rest = divmod(count * _PER_SECOND[kind.unit], 1_000_000)
    if rest or not _NAT < ticks <= -_NAT - 1:
        raise BatchError(f"{value} is not a value of {kind}")
    return ticks


def plain_instants(stored: npt.NDArray[Any], kind: ZonedType) -> list[Any]:
    """Return instants as aware datetimes of the zone; None for NaT.

    Where Python has no datetime for one (years beyond 9999, parts of a microsecond), its number of ticks.
    """
    zone, per_second = kind.tzinfo, _PER_SECOND[kind.unit]
    result: list[Any] = []
    for ticks in stored.view(np.int64).tolist():
        count, rest = divmod(ticks * 1_000_000, per_second)
        if ticks == _NAT:
            result.append(None)
        elif rest or not _FIRST <= count <= _LAST:
            result.append(ticks)
        else:
            try:
                result.append((_EPOCH + datetime.timedelta(microseconds=count)).astimezone(zone))
            except OverflowError:  # in the first or last hours of the calendar
                result.append(ticks)
    return result
