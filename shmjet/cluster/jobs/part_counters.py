"""The counters of a member's part of an attempt, as metrics: as they are now, and as they were at its end.

They are read from shared memory, which user code may have overwritten: that must not keep the attempt from its end.
"""

from __future__ import annotations

import logging

from shmjet.cluster.jobs.context import ExecutionContext
from shmjet.execution.collect import FinalReading, Reading
from shmjet.execution.metrics import NO_METRICS, Metrics

_NONSENSE = (ValueError, LookupError, OverflowError)
"""What comes of reading numbers that mean nothing."""

logger = logging.getLogger("shmjet.member")


class PartCounters:
    """See the module.

    Args:
        name: how the job is called in messages.
        started_at: when the part began, in seconds since 1970.
    """

    def __init__(self, name: str, started_at: float) -> None:
        self._name = name
        self._started_at = started_at
        self._final: FinalReading | None = None

    def end(self, context: ExecutionContext | None, completed_at: float) -> None:
        """Keep the counters as they are, for the part has ended; what they say is worked out when it is asked for."""
        reading = self._reading(context)
        self._final = None if reading is None else reading.final(self._started_at, completed_at)

    def now(self, context: ExecutionContext | None, completed_at: float | None) -> Metrics:
        """Return the metrics as they are now, or as they were at the end."""
        if self._final is not None:
            return self.final()
        reading = self._reading(context)
        try:
            return NO_METRICS if reading is None else reading.metrics(self._started_at, completed_at)
        except _NONSENSE as error:
            self._cannot_be_read(error)
            return NO_METRICS

    def final(self) -> Metrics:
        """Return the metrics as they were at the end; none before that."""
        try:
            return NO_METRICS if self._final is None else self._final.metrics()
        except _NONSENSE as error:
            self._cannot_be_read(error)
            return NO_METRICS

    def _reading(self, context: ExecutionContext | None) -> Reading | None:
        try:
            return None if context is None else context.reading()
        except _NONSENSE as error:
            self._cannot_be_read(error)
            return None

    def _cannot_be_read(self, error: Exception) -> None:
        text = "job %s has no metrics: its shared memory was overwritten, by its own code (%s)"
        logger.error(text, self._name, error)
