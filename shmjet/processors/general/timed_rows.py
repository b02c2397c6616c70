"""Timed rows as plain rows that have their time in a column. Pure."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from shmjet.core.durations import timestamp_of
from shmjet.data.errors import BatchError

TIME_COLUMN = "timestamp"
"""The column that gets the event time where timed items are gathered into batches."""


def with_time_column(pair: tuple[int, Any]) -> dict[str, Any]:
    """Return a timed row as a row with its timestamp in `TIME_COLUMN`.

    Raises:
        BatchError: the row has a field of that name that says another time, or something else.

    Example:
        >>> with_time_column((10, {"v": 1}))
        {'v': 1, 'timestamp': 10}
    """
    time, row = pair
    fields = row._asdict() if hasattr(row, "_asdict") else row
    own = fields.get(TIME_COLUMN, time)
    if type(own) is not int or own != time:
        _check(own, time)
    return {**fields, TIME_COLUMN: time}


def _check(own: Any, time: int) -> None:
    with suppress(TypeError, OverflowError, ValueError):
        if timestamp_of(own) == time:
            return
    raise BatchError(
        f"a row has a field {TIME_COLUMN!r} of its own, {own!r:.80}, and the event time {time} goes into a column of "
        "that name: give the field another name (map) before to_batches()"
    )
