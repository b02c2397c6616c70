"""How late results of a stream are, by the schedule of its source.

Items are due one after the other at a rate; what the engine costs shows as lateness, a source that falls behind too.
Each figure is in milliseconds, the median of the rounds; the latencies of a round are those of all its results but for
the first seconds.

* items_10k, items_100k: p99 of windows: numbers -> map -> key -> tumbling window of 100 ms, count -> noted. A result is
  due at the end of its window, and the item that is due there brings the watermark: no time is lost by definition, here
  or in Bytewax. All 100 results of a window are due at once, so p99 is that of the last one of nearly the worst window.
  Peers: the same without windows, where an item is due when its number is; and Bytewax in one process.
* items_10k_exactly_once: the same with a snapshot each second; its peer is the job without.
* batches_p50, batches_p9999: rows of batches at a million a second over one partitioned edge, each row due by itself.
  A batch has what was due in half a millisecond, so the first of its rows has waited for that long when it is made.
* batches_p9999_exactly_once: the same with a snapshot each second, compared with the job without.

Targets: windows at most half of Bytewax and twice the items; batches at most 0.5 and 6 ms; EXACTLY_ONCE at most twice.
`SHMJET_BENCH_SECONDS` is how long a round measures (5; 3 with `--quick`).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from _harness import Bench, Options, PeerSkipped, Report, installed, parse_options
from _latencies import BUCKETS, KEYS, STEPS, WINDOW_MS, Latencies, at, read

import shmjet
from shmjet import (
    DAG,
    Batch,
    Inbox,
    JetConfig,
    JetInstance,
    JobConfig,
    Pipeline,
    ProcessingGuarantee,
    Processor,
    aggregate_ops,
    between,
    column,
    sources,
    tumbling,
)
from shmjet.pipeline import SinkDef

WARM_UP_S = 2.0
BATCH_RATE = 1_000_000
BATCH_S = 0.0005
PARTITIONS = 1000


def item(sequence: int, timestamp: int, rate: int) -> tuple[int, int]:
    """Number n with the time at which it is due, in nanoseconds."""
    start = timestamp - sequence * 1000 // rate
    return sequence, start * 1_000_000 + sequence * 10**9 // rate


class Noted(Processor):
    """Notes how late each item is, on a worker as all else, as Bytewax's sinks run."""

    def __init__(self, folder: str, begin_ns: int, due: Callable[[Any], int]) -> None:
        self._latencies = Latencies(folder, begin_ns)
        self._due = due

    def process(self, ordinal: int, inbox: Inbox) -> None:
        self._latencies.note(map(self._due, inbox.take()))

    def close(self) -> None:
        self._latencies.write()


def noted(folder: str, begin_ns: int, due: Callable[[Any], int]) -> Any:
    """A sink that notes how late what comes is."""
    return SinkDef("noted", lambda: Noted(folder, begin_ns, due), 1)


def items(folder: str, begin_ns: int, rate: int, *, windows: bool) -> Pipeline:
    """numbers -> map -> key -> window -> noted, or without the window."""
    p = Pipeline()
    stream = p.read_from(sources.item_stream(rate, lambda sequence, timestamp: item(sequence, timestamp, rate)))
    if windows:
        timed = stream.with_native_timestamps().map(lambda pair: (pair[0] % KEYS, pair[1]))
        counted = timed.grouping_key(lambda pair: pair[0]).window(tumbling(WINDOW_MS / 1000))
        counted.aggregate(aggregate_ops.counting()).write_to(
            noted(folder, begin_ns, lambda result: result.end * 1_000_000)
        )
    else:
        plain = stream.without_timestamps().map(lambda pair: (pair[0] % KEYS, pair[1]))
        plain.partition_by(lambda pair: pair[0]).write_to(noted(folder, begin_ns, lambda pair: pair[1]))
    return p


class NotedRows(Processor):
    """Notes how late each row is."""

    def __init__(self, folder: str, begin_ns: int) -> None:
        self._latencies = Latencies(folder, begin_ns)

    def process(self, ordinal: int, inbox: Inbox) -> None:
        now = time.time_ns()
        for batch in inbox.take():
            due = np.asarray(batch["due"])
            late = np.maximum(now - due[due >= self._latencies.begin_ns], 1)
            counts = np.bincount((STEPS * np.log(late)).astype(np.int64), minlength=BUCKETS)
            found = np.frombuffer(self._latencies.counts, np.int64)
            found += counts

    def close(self) -> None:
        self._latencies.write()


def rows(sequences: Any, timestamps: Any) -> Batch:
    """A batch with the time at which each row is due, in nanoseconds."""
    start = timestamps[0] - sequences[0] * 1000 // BATCH_RATE
    return Batch({"key": sequences % PARTITIONS, "due": start * 1_000_000 + sequences * 10**9 // BATCH_RATE})


def batches(folder: str, begin_ns: int, workers: int) -> DAG:
    """Batches of rows over one partitioned edge."""
    dag = DAG()
    source = dag.new_vertex("rows", sources.batch_stream(BATCH_RATE, rows, BATCH_S).supplier, workers)
    sink = dag.new_vertex("noted", lambda: NotedRows(folder, begin_ns), workers)
    return dag.edge(between(source, sink).partitioned(column("key")))


def measured(jet: JetInstance, make: Callable[[str, int], Any], seconds: float, *, exact: bool = False) -> array[int]:
    """Run a job for some seconds and return its latencies."""
    guarantee = ProcessingGuarantee.EXACTLY_ONCE if exact else ProcessingGuarantee.NONE
    with tempfile.TemporaryDirectory() as folder:
        begin_ns = time.time_ns() + int(WARM_UP_S * 1e9)
        job = jet.new_job(make(folder, begin_ns), JobConfig(processing_guarantee=guarantee, snapshot_interval=1.0))
        execution = job.execute()
        time.sleep(WARM_UP_S + seconds)
        if execution.done():
            execution.result()
        execution.cancel()
        deadline = time.monotonic() + 10
        while not execution.done() and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.2)  # close comes with the end
        return read(Path(folder))


def bytewax(rate: int, seconds: float) -> array[int]:
    """Run Bytewax' flow in a process of its own and return its latencies."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(__file__).with_name("_latency_bytewax.py")
        command = [sys.executable, str(script), folder, str(rate), str(seconds), str(WARM_UP_S)]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=60 + seconds, check=False)
        if answer.returncode:
            raise PeerSkipped((answer.stderr.strip() or "it has failed").splitlines()[-1][:200])
        return read(Path(folder))


def main() -> int:
    names = ["items_10k", "items_100k", "items_10k_exactly_once"]
    options = parse_options(__doc__, [*names, "batches_p50", "batches_p9999", "batches_p9999_exactly_once"])
    seconds = float(os.environ.get("SHMJET_BENCH_SECONDS", "3" if options.quick else "5"))
    report = Report(options)
    for rate, name in ((10_000, "items_10k"), (100_000, "items_100k")):
        if options.wants(name):
            report.add(_items(name, rate, seconds, options))
    for name, share, exact in (
        ("items_10k_exactly_once", 0.99, True),
        ("batches_p50", 0.5, False),
        ("batches_p9999", 0.9999, False),
        ("batches_p9999_exactly_once", 0.9999, True),
    ):
        if options.wants(name):
            report.add(_alone(name, share, seconds, options, exact=exact))
    return report.finish()


def _contender(bench: Bench, who: str, share: float, run: Callable[[], array[int]]) -> Callable[[], float]:
    """Return what runs it, keeps other percentiles as facts, and returns the one asked for."""

    def once() -> float:
        found = run()
        figures = {f"p{100 * s:g}": round(at(found, s), 2) for s in (0.5, 0.99, 0.9999)}
        bench.facts[f"{who}, last round"] = {**figures, "results": sum(found)}
        return at(found, share)

    return once


def _items(name: str, rate: int, seconds: float, options: Options) -> Any:
    with Bench(name, "ms p99") as bench:
        jet = bench.resources.enter_context(shmjet.new_instance(JetConfig(cores=options.workers)))

        def ours(windows: bool) -> array[int]:
            return measured(jet, lambda folder, begin: items(folder, begin, rate, windows=windows), seconds)

        bench.ours(_contender(bench, "shmjet", 0.99, lambda: ours(True)))
        bench.peer("without windows", _contender(bench, "without windows", 0.99, lambda: ours(False)))
        if options.wants_peer("bytewax"):
            run = _contender(bench, "bytewax", 0.99, lambda: bytewax(rate, seconds))
            if installed("bytewax"):
                bench.peer("bytewax", run)
            else:
                bench.skip("bytewax", "bytewax is not installed")
        return bench.measure(rounds=options.rounds, warm_up=0)


def _alone(name: str, share: float, seconds: float, options: Options, *, exact: bool) -> Any:
    with Bench(name, f"ms p{100 * share:g}") as bench:
        jet = bench.resources.enter_context(shmjet.new_instance(JetConfig(cores=options.workers)))

        def made(folder: str, begin_ns: int) -> Any:
            if name.startswith("items"):
                return items(folder, begin_ns, 10_000, windows=True)
            return batches(folder, begin_ns, options.workers)

        bench.ours(_contender(bench, "shmjet", share, lambda: measured(jet, made, seconds, exact=exact)))
        if exact:
            bench.peer("without", _contender(bench, "without", share, lambda: measured(jet, made, seconds)))
        return bench.measure(rounds=options.rounds, warm_up=0)


if __name__ == "__main__":
    sys.exit(main())
