"""Batches of columns by schedule: what is due is made as one batch each period, in larger ones where that is much."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shmjet.core.event_time import EventTimePolicy
from shmjet.core.event_timestamps import column_timestamps
from shmjet.data.batch import Batch
from shmjet.data.errors import BatchError
from shmjet.processors.streams.schedule import Schedule
from shmjet.processors.streams.scheduled import Clock, ScheduledProcessor

BatchFn = Callable[[Any, Any], Any]
"""Makes a batch of int64 arrays of numbers and of their timestamps in milliseconds; None: there is none."""
_MS = 1_000_000


class BatchStreamProcessor(ScheduledProcessor):
    """Emits batches that a function makes of the numbers that are due.

    Args:
        schedule, policy, clock: as of `ScheduledProcessor`.
        fn: makes the batches.
        period: nanoseconds between two batches, as long as one has room for what is due.
    """

    state_kind = "batch_stream"

    first_piece = 4096
    most_at_once = 16384
    least_ns = 1_000_000

    def __init__(
        self,
        schedule: Schedule,
        policy: EventTimePolicy | None,
        fn: BatchFn,
        period: int,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(schedule, policy, clock)
        self._fn = fn
        self._period = period

    def next_due_ns(self, number: int) -> int:
        """Return the end of the period in which a number is due."""
        start = self._schedule.start * _MS
        return start - (start - super().next_due_ns(number)) // self._period * self._period

    def made(self, numbers: Sequence[int], now: int) -> list[Any]:
        """Return the batch of numbers, with the watermarks that its rows bring."""
        if isinstance(numbers, range):
            sequences = np.arange(numbers.start, numbers.stop, numbers.step, dtype=np.int64)
        else:
            sequences = np.array(numbers, np.int64)
        stamps = self._schedule.timestamp_array(sequences)
        batch = self._fn(sequences, stamps)
        if batch is None:
            return []
        if not isinstance(batch, Batch):
            raise TypeError(
                f"batch_stream: fn(sequences, timestamps) must return a Batch, got {type(batch).__name__} "
                f"{batch!r:.80}; use Batch({{name: array, ...}})"
            )
        mapper = self._mapper
        if mapper is None or self._policy is None:
            return [batch] if batch.num_rows else []
        return mapper.take_batch(batch, 0, now, self._native(batch, stamps))

    def _native(self, batch: Batch, stamps: Any) -> Any:
        """Return the timestamps of the rows, where they are those of the schedule; else None.

        Raises:
            BatchError: the rows are not one for each number, and have no timestamps.
        """
        assert self._policy is not None
        column = self._policy.column
        if self._policy.timestamps != "native" or column is None or not batch.num_rows:
            return None
        if column in batch:
            return column_timestamps(batch, column)
        if batch.num_rows != len(stamps):
            raise BatchError(
                f"batch_stream: fn(sequences, timestamps) returned {batch.num_rows} rows for {len(stamps)} numbers, so "
                f"their timestamps are not known; put them into a column {column!r}, or say "
                "with_timestamps(column(name))"
            )
        return stamps
