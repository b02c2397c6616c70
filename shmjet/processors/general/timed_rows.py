"""Timed rows as plain rows that have their time in a column. Pure."""

from __future__ import annotations

from typing import Any

TIME_COLUMN = "timestamp"
"""The column that gets the event time where timed items are gathered into batches."""


def with_time_column(pair: tuple[int, Any]) -> dict[str, Any]:
    """Return a timed row as a row with its timestamp in `TIME_COLUMN`.

    Example:
        >>> with_time_column((10, {"v": 1}))
        {'v': 1, 'timestamp': 10}
    """
    time, row = pair
    fields = row._asdict() if hasattr(row, "_asdict") else row
    return {**fields, TIME_COLUMN: time}
