"""A bounded stream of events as fast as they are taken, and the same streams by schedule.

`Replay` is Jet's `EventSourceP` without the schedule: it makes the events of its numbers, with their times and a
watermark at each stride, and ends. Number n goes to processor n % P.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import Any

import numpy as np

from nexmark.events import Stream
from shmjet import Pipeline, Processor, ProcessorMetaSupplier, ProcessorSupplier, Watermark, column, sources
from shmjet.pipeline import StreamSourceDef, StreamStage

ITEMS_AT_ONCE = 1024
ROWS_AT_ONCE = 16384
LONG_AGO = -(1 << 62)


class EventSource(Processor):
    """Emits the events of its numbers up to a bound.

    Args:
        stream: whose events.
        end: the number after the last one.
        columns: emit batches.
        policy: what the engine wants of event time; None: bare events.
    """

    def __init__(self, stream: Stream, end: int, columns: bool, policy: Any) -> None:
        self._stream = stream
        self._end = end
        self._make = self._batch if columns else self._items
        self._stride = policy.stride if policy is not None else 0
        self._pairs = policy is not None and policy.timed and not columns
        self._mark = LONG_AGO
        self._waiting: list[Any] = []

    def init(self, outbox: Any, context: Any) -> None:
        """Begin with the first number of this processor."""
        super().init(outbox, context)
        self._next, self._step = context.global_index, context.total_parallelism

    def complete(self) -> bool:
        """Emit the next events; True after the last one."""
        if not self._waiting and self._next < self._end:
            self._waiting = self._make()
        accepted = self.outbox.offer_all(self._waiting)
        self._waiting = self._waiting[accepted:]
        return not self._waiting and self._next >= self._end

    def _numbers(self, count: int) -> tuple[Any, Any]:
        """Take the next numbers; return them and their times."""
        end = min(self._end, self._next + count * self._step)
        column = np.arange(self._next, end, self._step, dtype=np.int64)
        self._next += len(column) * self._step
        return column, self._stream.due(column)

    def _items(self) -> list[Any]:
        column, times = self._numbers(ITEMS_AT_ONCE)
        made: list[Any] = self._stream.items(column, times)
        stamps = times.tolist()
        if self._pairs:
            made = list(zip(stamps, made, strict=True))
        stride = self._stride
        if not stride or stamps[-1] < self._mark + stride:
            return made
        marked: list[Any] = []
        begin = 0
        while (at := bisect_left(stamps, self._mark + stride, begin)) < len(stamps):
            marked += made[begin:at]
            marked.append(self._mark_at(stamps[at]))
            begin = at
        return marked + made[begin:]

    def _batch(self) -> list[Any]:
        column, times = self._numbers(ROWS_AT_ONCE)
        assert self._stream.batch is not None
        made: list[Any] = [self._stream.batch(column, times)]
        if self._stride and times[-1] >= self._mark + self._stride:
            made.append(self._mark_at(int(times[-1])))
        return made

    def _mark_at(self, ts: int) -> Watermark:
        self._mark = ts - ts % self._stride
        return Watermark(self._mark)


class _Supplier(ProcessorMetaSupplier):
    """Makes one source on each worker."""

    is_endless = True  # it is a stream, which may end

    def __init__(self, stream: Stream, end: int, columns: bool, policy: Any) -> None:
        self._make = partial(EventSource, stream, end, columns, policy)

    def get(self, addresses: Sequence[str]) -> Mapping[str, ProcessorSupplier]:
        """Return the supplier for each member."""
        return dict.fromkeys(addresses, ProcessorSupplier.of(self._make))


@dataclass(frozen=True)
class Replay:
    """Reads the events of a span of event time as fast as they are taken.

    Args:
        pipeline: gets the sources.
        span_ms: milliseconds.
        parallelism: processors of each source; -1: one on each worker.
    """

    pipeline: Pipeline
    span_ms: int
    parallelism: int = -1

    def items(self, stream: Stream) -> StreamStage[Any]:
        """Return the events of a stream as tuples."""
        stage: StreamStage[Any] = self._source(stream, False).with_native_timestamps()
        return stage

    def batches(self, stream: Stream) -> StreamStage[Any]:
        """Return the events of a stream as batches."""
        stage: StreamStage[Any] = self._source(stream, True).with_timestamps(column("ts"))
        return stage

    def count(self, stream: Stream) -> int:
        """Return how many events of a stream there are."""
        return ceil(self.span_ms * stream.rate / 1000)

    def _source(self, stream: Stream, columns: bool) -> Any:
        supplier = partial(_Supplier, stream, self.count(stream), columns)
        source: StreamSourceDef[Any] = StreamSourceDef(
            stream.name,
            supplier(None),
            self.parallelism,
            columnar=columns,
            timed=supplier,
            has_native_timestamps=True,
        )
        return self.pipeline.read_from(source)


@dataclass(frozen=True)
class Schedule:
    """Reads events when they are due: `stream.rate` of them a second, for ever."""

    pipeline: Pipeline

    def items(self, stream: Stream) -> StreamStage[Any]:
        """Return the events of a stream as tuples."""
        source: Any = self.pipeline.read_from(sources.item_stream(stream.rate, stream.item))
        stage: StreamStage[Any] = source.with_native_timestamps()
        return stage

    def batches(self, stream: Stream) -> StreamStage[Any]:
        """Return the events of a stream as batches."""
        assert stream.batch is not None
        source: Any = self.pipeline.read_from(sources.batch_stream(stream.rate, stream.batch))
        stage: StreamStage[Any] = source.with_timestamps(column("ts"))
        return stage


Reader = Replay | Schedule
