"""Bytewax' side of `bench/latency.py`, in a process of its own: by schedule -> map -> key -> window -> noted.

python _latency_bytewax.py FOLDER RATE SECONDS WARM_UP
"""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import bytewax.operators as op
import bytewax.operators.windowing as win
from _latencies import KEYS, WINDOW_MS, Latencies
from bytewax import testing
from bytewax.dataflow import Dataflow
from bytewax.inputs import DynamicSource, StatelessSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Scheduled(StatelessSourcePartition[Any]):
    """Emits number n when it is due, with its due time in nanoseconds."""

    def __init__(self, rate: int, start_ns: int, end_ns: int) -> None:
        self._rate, self._start, self._end, self._next = rate, start_ns, end_ns, 0

    def next_batch(self) -> list[Any]:
        now = time.time_ns()
        if now >= self._end:
            raise StopIteration
        bound = min((now - self._start) * self._rate // 10**9 + 1, self._next + 1000)
        due = [(n, self._start + n * 10**9 // self._rate) for n in range(self._next, bound)]
        self._next = max(self._next, bound)
        return due

    def next_awake(self) -> datetime | None:
        return EPOCH + timedelta(microseconds=(self._start + self._next * 10**9 // self._rate) / 1000)


class Source(DynamicSource[Any]):
    def __init__(self, *args: int) -> None:
        self._args = args

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Scheduled:
        return Scheduled(*self._args)


class Noted(StatelessSinkPartition[Any]):
    def __init__(self, latencies: Latencies) -> None:
        self._latencies = latencies

    def write_batch(self, items: list[Any]) -> None:
        self._latencies.note((window + 1) * WINDOW_MS * 1_000_000 for _, (window, _) in items)

    def close(self) -> None:
        self._latencies.write()


class Sink(DynamicSink[Any]):
    def __init__(self, latencies: Latencies) -> None:
        self._latencies = latencies

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Noted:
        return Noted(self._latencies)


def moment(event: tuple[int, int]) -> datetime:
    """Return when an event was due."""
    return EPOCH + timedelta(microseconds=event[1] / 1000)


def main(folder: str, rate: int, seconds: float, warm_up: float) -> None:
    now = time.time_ns()
    begin, end = now + int(warm_up * 1e9), now + int((warm_up + seconds) * 1e9)
    flow = Dataflow("latency")
    events = op.input("in", flow, Source(rate, now, end))
    mapped = op.map("map", events, lambda event: (event[0] % KEYS, event[1]))
    keyed = op.key_on("key", mapped, lambda event: str(event[0]))
    clock = win.EventClock(moment, wait_for_system_duration=timedelta(0))
    windower = win.TumblingWindower(length=timedelta(milliseconds=WINDOW_MS), align_to=EPOCH)
    counted = win.fold_window("count", keyed, clock, windower, lambda: 0, lambda so_far, _: so_far + 1, int.__add__)
    op.output("out", counted.down, Sink(Latencies(folder, begin)))
    run: Any = testing.run_main  # which has no types
    run(flow)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]))
