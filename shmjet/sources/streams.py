"""Endless sources by schedule: items and batches at a rate."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from fractions import Fraction
from functools import partial
from typing import Any

from shmjet.core.durations import Duration, milliseconds
from shmjet.core.event_time import EventTimePolicy
from shmjet.core.job import ProcessingGuarantee
from shmjet.core.processor import Processor
from shmjet.data.errors import ConfigError
from shmjet.pipeline.definitions import StreamSourceDef
from shmjet.processors.streams.item_stream import ItemStreamProcessor
from shmjet.processors.streams.schedule import checked_rate
from shmjet.processors.streams.scheduled import ScheduledSupplier

_ORDERED = 100_000
"""Up to so many items a second come from one processor on each member, in order; more from all workers."""


def item_stream(rate: float, fn: Callable[[int, int], Any] | None = None) -> StreamSourceDef[Any]:
    """Emit items without end, by schedule.

    Number n is due n / `rate` seconds after the start. It is not made before, and has the timestamp
    `start + n * 1000 // rate` whenever it is made. A source that is behind catches up, so what the engine costs shows
    as lateness. The numbers are dealt to the processors in turn; together they have no gap. Up to 100,000 items a
    second come from one processor on each member, more from one on each worker, unless `set_local_parallelism` says
    otherwise.

    In a job with EXACTLY_ONCE a stream that goes on from a snapshot goes on with the next number and with the same
    schedule, also with another number of processors. So what was due while the job was suspended comes then.

    Args:
        rate: items a second, from all processors together; any number above 0.
        fn: `fn(sequence, timestamp_ms)` makes an item of a number from 0 and its timestamp; None leaves the number out.
            Without it items are `SimpleEvent(timestamp, sequence)`. Its own time counts: it should take microseconds.

    Returns:
        a source for `Pipeline.read_from`; its native timestamps are those of the schedule, in order.

    Raises:
        TypeError: `rate` is not a number, or `fn` cannot be called.
        ConfigError: `rate` is not above 0, not finite, or too large.

    Example:
        >>> item_stream(10, lambda sequence, timestamp: f"item {sequence}").name
        'item_stream'
        >>> p.read_from(sources.item_stream(1_000)).with_native_timestamps()        # doctest: +SKIP
    """
    exact = checked_rate("item_stream: rate", rate)
    if fn is not None:
        _check_function("item_stream", fn)
    return _scheduled("item_stream", partial(_items, fn), exact, columnar=False)


def batch_stream(rate: float, fn: Callable[[Any, Any], Any], period: Duration = 0.001) -> StreamSourceDef[Any]:
    """Emit batches of columns without end, by schedule; see `item_stream` for what that means.

    Each processor makes a batch of the numbers that were due in a period; a processor that is behind makes larger ones,
    of up to 16,384 rows.

    Args:
        rate: rows a second, from all processors together; any number above 0.
        fn: `fn(sequences, timestamps)` makes a `Batch` of two int64 arrays: numbers from 0, and their timestamps in
            milliseconds. Rows may be left out; None is an empty batch.
        period: seconds, or a `timedelta`, between two batches; 0: a batch as soon as a row is due.

    Returns:
        a source for `Pipeline.read_from`. `with_timestamps(column(name))` takes the timestamps from a column of the
        batches; `with_native_timestamps()` adds those of the schedule as a column "timestamp" of
        `datetime64[ms]`, unless there is one.

    Raises:
        TypeError: `rate` is not a number, `period` not a duration, or `fn` cannot be called.
        ConfigError: `rate` is not above 0, not finite, or too large; `period` is negative.

    What `fn` returns that is not a `Batch` fails the job with a `TypeError`.

    Example:
        >>> from shmjet import Batch
        >>> def made(sequences, timestamps):
        ...     return Batch({"ts": timestamps, "user": sequences % 100})
        >>> batch_stream(1_000_000, made).name
        'batch_stream'
        >>> p.read_from(batch_stream(1_000_000, made)).with_timestamps(column("ts"))        # doctest: +SKIP
    """
    exact = checked_rate("batch_stream: rate", rate)
    _check_function("batch_stream", fn)
    return _scheduled("batch_stream", partial(_batches, fn, _nanoseconds(period)), exact, columnar=True)


def _scheduled(
    name: str, make: Callable[[EventTimePolicy | None], Callable[..., Processor]], rate: Fraction, *, columnar: bool
) -> StreamSourceDef[Any]:
    parallelism = 1 if rate <= _ORDERED else -1
    timed = partial(_supplier, make, rate, parallelism)
    return StreamSourceDef(
        name,
        timed(None),
        parallelism,
        columnar=columnar,
        guarantee=ProcessingGuarantee.EXACTLY_ONCE,
        timed=timed,
        has_native_timestamps=True,
    )


def _supplier(
    make: Callable[[EventTimePolicy | None], Callable[..., Processor]],
    rate: Fraction,
    parallelism: int,
    policy: EventTimePolicy | None,
) -> ScheduledSupplier:
    return ScheduledSupplier(make(policy), rate, parallelism)


def _items(fn: Callable[[int, int], Any] | None, policy: EventTimePolicy | None) -> Callable[..., Processor]:
    return partial(ItemStreamProcessor, policy=policy, fn=fn)


def _batches(fn: Callable[[Any, Any], Any], period: int, policy: EventTimePolicy | None) -> Callable[..., Processor]:
    from shmjet.processors.streams.batch_stream import BatchStreamProcessor

    return partial(BatchStreamProcessor, policy=policy, fn=fn, period=period)


def _nanoseconds(period: Duration) -> int:
    """Return a period in nanoseconds, at least one; other durations are whole milliseconds."""
    milliseconds("batch_stream: period", period, least=0)
    seconds = period.total_seconds() if isinstance(period, timedelta) else period
    if seconds < 0:
        raise ConfigError(f"batch_stream: period must be at least 0, got {period!r}")
    return max(1, round(seconds * 1e9))


def _check_function(where: str, fn: Any) -> None:
    if not callable(fn):
        raise TypeError(f"{where}: fn must be callable, got {fn!r} ({type(fn).__name__})")
