"""Event time of a source: what a pipeline asks for. Pure.

After Jet's `EventTimePolicy`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from shmjet.core.column_key import ColumnKey

TimestampFn = Callable[[Any], Any] | ColumnKey
"""Gives the timestamp of an item (see `durations.timestamp_of`); or names the column of batches that has it."""


@dataclass(frozen=True)
class EventTimePolicy:
    """How the timestamps and watermarks of a source are made. Durations are in milliseconds.

    Args:
        timestamps: "items": by `timestamp_fn`; "native": by the source itself; "ingestion": the wall clock at
            the source.
        timestamp_fn: with "items".
        allowed_lag: how far behind the highest timestamp of its source partition an event may come.
        stride: watermarks are sent when they pass a multiple of it; 0: there are none.
        idle_timeout: a source partition that gives nothing for so long holds no watermark back; None: it always does.
        advance_when_idle: after so much silence the time of a source partition goes on at the wall clock's pace; None:
            it does not.
        max_skew: a source partition that is so far ahead of the others waits; None: none does.
        timed: emit timed items; otherwise bare ones, between watermarks.
        is_aligned: some source of the job has a `max_skew`, so that all of them tell each other how far they are.

    Example:
        >>> EventTimePolicy(timestamp_fn=lambda event: event.ms, allowed_lag=2_000, stride=100).idle_timeout
        60000
    """

    timestamps: Literal["items", "native", "ingestion"] = "items"
    timestamp_fn: TimestampFn | None = None
    allowed_lag: int = 0
    stride: int = 1
    idle_timeout: int | None = 60_000
    advance_when_idle: int | None = None
    max_skew: int | None = None
    timed: bool = True
    is_aligned: bool = False

    @property
    def column(self) -> str | None:
        """The column of batches that has the timestamps; None where items come one by one."""
        return self.timestamp_fn.names[0] if isinstance(self.timestamp_fn, ColumnKey) else None
