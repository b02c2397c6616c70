"""Durations and timestamps as users write them, in the milliseconds that the engine counts in. Pure.

numpy is loaded where a value may be numpy's: programs without columns do without it.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from shmjet.data.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Duration = float | timedelta
"""Seconds (int or float), or a `timedelta`."""

LONGEST_MS = 1 << 62
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def milliseconds(what: str, duration: Duration, *, least: int = 1) -> int:
    """Return a duration in whole milliseconds, rounded to the nearest, of halves to the even one.

    Args:
        what: name of the setting, for errors.
        duration: seconds, or a `timedelta`.
        least: the smallest number of milliseconds that is allowed.

    Raises:
        TypeError: it is neither a number nor a `timedelta`.
        ConfigError: it is below `least` once rounded, not finite, or beyond 64 bits.

    Example:
        >>> milliseconds("size", 1.5), milliseconds("lag", timedelta(minutes=1)), milliseconds("lag", 0, least=0)
        (1500, 60000, 0)
    """
    if isinstance(duration, timedelta):
        found = round(duration / _MILLISECOND)
    elif not _is_number(duration):
        raise TypeError(f"{what} must be seconds or a timedelta, got {duration!r} ({type(duration).__name__})")
    elif not isinstance(duration, int) and not math.isfinite(duration):
        raise ConfigError(f"{what} must be finite, got {duration!r}")
    else:
        seconds = duration if isinstance(duration, int | float) else duration.item()
        found = round(max(-LONGEST_MS, min(LONGEST_MS, seconds)) * 1000)
    if found < least:
        bound = "0" if least == 0 else f"{least / 1000:g} s"
        raise ConfigError(f"{what} must be at least {bound}, got {duration!r}")
    if found > LONGEST_MS:
        raise ConfigError(f"{what} is too long: {duration!r:.80}")
    return found


def _is_number(value: Any) -> bool:
    if isinstance(value, int | float):
        return not isinstance(value, bool)
    import numpy as np

    return isinstance(value, np.integer | np.floating) and not isinstance(value, np.timedelta64)


def timestamp_of(value: Any) -> int:
    """Return milliseconds since the epoch of what a timestamp function has returned.

    Args:
        value: an int, an aware `datetime`, or a `datetime64` (which is UTC).

    Raises:
        TypeError: a naive `datetime`, a missing `datetime64`, or something else.
        OverflowError: an int or a `datetime64` beyond 63 bits.

    Example:
        >>> import numpy as np
        >>> timestamp_of(1_500), timestamp_of(np.datetime64("1970-01-01T00:00:01.5"))
        (1500, 1500)
    """
    if type(value) is int:
        if not -LONGEST_MS <= value <= LONGEST_MS:
            raise OverflowError(f"a timestamp must be milliseconds since 1970 that fit 63 bits, got {value}")
        return value
    if isinstance(value, datetime):
        if value.utcoffset() is None:
            raise TypeError(
                f"a timestamp must have a time zone, got the naive {value!r}; say value.replace(tzinfo=timezone.utc) "
                "if it is in UTC"
            )
        return (value - _EPOCH) // _MILLISECOND
    import numpy as np

    if isinstance(value, int | np.integer) and not isinstance(value, bool | np.timedelta64):
        return timestamp_of(int(value))
    if isinstance(value, np.datetime64):
        if np.isnat(value):
            raise TypeError("a timestamp must not be missing, got NaT")
        return int(datetime_milliseconds(np.array([value]))[0])
    raise TypeError(
        "a timestamp must be an int of milliseconds since 1970, an aware datetime or a datetime64, got "
        f"{value!r:.80} ({type(value).__name__})"
    )


def datetime_milliseconds(values: npt.NDArray[np.datetime64]) -> npt.NDArray[np.int64]:
    """Return datetimes of any unit, none of them missing, in milliseconds, rounded down.

    Raises:
        OverflowError: one is beyond 63 bits; numpy itself wraps around before 2.5.

    Example:
        >>> import numpy as np
        >>> datetime_milliseconds(np.array(["1970-01-01T00:00:01.0005"], "datetime64[us]"))
        array([1000])
    """
    import numpy as np

    beyond = OverflowError("a timestamp must be milliseconds since 1970 that fit 63 bits, got a datetime64 beyond")
    try:
        stamps = values.astype("datetime64[ms]")
    except OverflowError:
        raise beyond from None
    found = stamps.astype(np.int64)
    is_coarser = np.can_cast(values.dtype, stamps.dtype, "safe")
    if len(found) and (
        (is_coarser and not np.array_equal(stamps.astype(values.dtype), values))
        or not -LONGEST_MS <= int(found.min()) <= int(found.max()) <= LONGEST_MS
    ):
        raise beyond
    return found
