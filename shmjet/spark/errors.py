"""What can go wrong between Spark and a job."""

from __future__ import annotations

from shmjet.data.errors import ShmjetError


class SparkError(ShmjetError):
    """Spark failed, or what it sent cannot be accepted; the text says what Spark said, and what to do."""


class FeedEndedError(ShmjetError):
    """Raised in a Spark task whose execution takes no more data: it has ended, failed or was cancelled."""


class TornInputError(ShmjetError):
    """Raised in a Spark task when the stream from Spark's JVM breaks off before its end mark.

    PySpark's own deserializers take that for the end of the partition, so a half-read partition would look whole.
    """
