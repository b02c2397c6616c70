"""A Bytewax flow that counts events by key in windows; run by `bench/streams.py` in processes of its own.

Settings come in the environment: EVENTS, KEYS, PER_MS (events in each millisecond of event time), SIZE_MS, SLIDE_MS,
LAG_MS (by so much less than this are events late), PARTS (source partitions), NOTES (a folder: each process writes when
it began and ended, and what it counted).
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import bytewax.operators as op
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.operators.windowing import EventClock, SlidingWindower, TumblingWindower, count_window
from bytewax.outputs import DynamicSink, StatelessSinkPartition

EVENTS, KEYS, PER_MS, SIZE_MS, SLIDE_MS, LAG_MS, PARTS = (
    int(os.environ[name]) for name in ("EVENTS", "KEYS", "PER_MS", "SIZE_MS", "SLIDE_MS", "LAG_MS", "PARTS")
)
NOTES = Path(os.environ["NOTES"])
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
CHUNK_MS = 100


def chunks(part: int) -> Iterator[list[tuple[datetime, str]]]:
    """The events of one source partition, as lists."""
    for first in range(0, EVENTS // PER_MS, CHUNK_MS):
        made = []
        for ms in range(first, first + CHUNK_MS):
            at = EPOCH + timedelta(milliseconds=max(0, ms - ms * 7919 % (LAG_MS or 1)))
            made += [(at, str(n % KEYS)) for n in range(ms * PER_MS + part, (ms + 1) * PER_MS, PARTS)]
        yield made


class Events(StatefulSourcePartition[Any, None]):
    """One partition."""

    def __init__(self, part: int) -> None:
        self._chunks = chunks(part)
        note("began", time.time())

    def next_batch(self) -> list[Any]:
        """The next hundred milliseconds."""
        return next(self._chunks)

    def snapshot(self) -> None:
        """Nothing: there is no recovery here."""


class Source(FixedPartitionedSource[Any, None]):
    """All partitions."""

    def list_parts(self) -> list[str]:
        """Their names."""
        return [str(part) for part in range(PARTS)]

    def build_part(self, step_id: str, for_part: str, resume_state: None) -> Events:
        """One of them."""
        return Events(int(for_part))


class Totals(StatelessSinkPartition[Any]):
    """Adds the counts up."""

    def __init__(self) -> None:
        self._total = 0

    def write_batch(self, items: list[Any]) -> None:
        """Add some."""
        self._total += sum(count for _, (_, count) in items)

    def close(self) -> None:
        """Tell the total."""
        note("ended", time.time())
        note("total", self._total)


class Sink(DynamicSink[Any]):
    """One for each worker."""

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Totals:
        """A new one."""
        return Totals()


def note(name: str, value: float) -> None:
    """Write a value down for the bench."""
    (NOTES / f"{name}-{os.getpid()}-{time.monotonic_ns()}").write_text(json.dumps(value))


def dataflow() -> Dataflow:
    """The flow. Time goes by the events alone, or those of an old time would be late by the wall clock."""
    made = Dataflow("windows")
    events = op.input("events", made, Source())
    lag = timedelta(milliseconds=LAG_MS)
    clock: EventClock[Any] = EventClock(lambda event: event[0], lag, lambda: EPOCH, lambda at: None)
    size, slide = timedelta(milliseconds=SIZE_MS), timedelta(milliseconds=SLIDE_MS)
    windower: Any = TumblingWindower(size, EPOCH) if size == slide else SlidingWindower(size, slide, EPOCH)
    counted = count_window("count", events, clock, windower, lambda event: event[1])
    op.output("totals", counted.down, Sink())
    return made


flow = dataflow()
