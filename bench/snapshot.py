"""What snapshots cost: the same job with EXACTLY_ONCE and without a guarantee, and how long taking one lasts.

`snapshot_native`: batches into `group_by`, whose tables grow to 100 MB (`--quick`: 10 MB), a snapshot each second;
unit rows/s, peer `none`. Target: ratio >= 0.9.

`snapshot_dicts`: the same for counts by key in Python dicts, 10^6 keys (`--quick`: 10^5); peer `none`. Target: >= 0.8.

`snapshot_taking_native`, `snapshot_taking_dicts`: seconds from the order to the validation record, of 10^6 counts and
sums by key (`--quick`: 10^5) in a job that stands still; peer Hazelcast 5, the same keys on the same cores, backup
count 0, by its own record. Targets: >= 5, >= 1. Needs Java and Maven; skipped where they are missing.

`snapshot_pause`: the 99th percentile of the seconds between two items of a processor that keeps 10^5 keys in a dict, of
those between which it was saved; the fact `others` is that of all others. Target: at most 0.03 s.

`snapshot_pause_native`: the same between two batches of a `group_by` with 10^5 keys, in a job with a latency target of
a millisecond: without one the edge fills its batches first, for longer than any pause. Target: at most 0.001 s. The
fact `undisturbed` is the percentile of the waits in which nothing else ran on the worker's core, `disturbed` the share
of the others: where all cores have workers, the member and the kernel run in between.
"""

from __future__ import annotations

import dataclasses
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _harness import Bench, Options, PeerSkipped, Report, elapsed, parse_options
from _hazelcast import member

BENCHES = (
    *("snapshot_native", "snapshot_dicts", "snapshot_taking_native", "snapshot_taking_dicts"),
    *("snapshot_pause", "snapshot_pause_native"),
)
BATCH_ROWS = 8192
JOB_S = 600.0


def config(guarantee: bool, interval: float = 1.0) -> Any:
    """Exactly once with a snapshot each `interval` seconds, or no guarantee."""
    from shmjet import JobConfig, ProcessingGuarantee

    if not guarantee:
        return JobConfig()
    return JobConfig(processing_guarantee=ProcessingGuarantee.EXACTLY_ONCE, snapshot_interval=interval)


def native_dag(rows: int, keys: int) -> Any:
    """Batches with a key and a value, grouped by the key on all workers, and counted."""
    import numpy

    from shmjet import DAG, Batch, between, column, processors
    from shmjet.columns import count, sum_

    def batches(index: int, of: int) -> Any:
        chance = numpy.random.default_rng(index)
        values = numpy.ones(BATCH_ROWS, "int64")
        for _ in range(rows // BATCH_ROWS // of):
            yield Batch({"key": chance.integers(0, keys, BATCH_ROWS), "value": values})

    dag = DAG()
    source = dag.new_vertex("source", processors.generate(batches))
    groups = dag.new_vertex("groups", processors.group_by("key").agg(n=count(), total=sum_("value")))
    sink = dag.new_vertex("sink", processors.noop())
    dag.edge(between(source, groups).partitioned(column("key")))
    return dag.edge(between(groups, sink))


def dict_dag(items: int, keys: int) -> Any:
    """Numbers counted by key in dicts."""
    from shmjet import DAG, between, processors

    def key_of(number: int) -> int:
        return number * 7919 % keys

    dag = DAG()
    source = dag.new_vertex("source", processors.generate(lambda index, of: range(index, items, of)))
    counts = dag.new_vertex("counts", processors.aggregate_by_key([key_of], processors.counting()))
    sink = dag.new_vertex("sink", processors.noop())
    dag.edge(between(source, counts).partitioned(key_of))
    return dag.edge(between(counts, sink))


def with_and_without(options: Options, report: Report, name: str, dag: Any, items: int, target: str) -> None:
    """The throughput of a job with snapshots each second, and without."""
    import shmjet

    with Bench(name, "rows/s" if "native" in name else "items/s") as bench:
        jet = bench.resources.enter_context(shmjet.new_instance(shmjet.JetConfig(cores=options.workers)))
        bench.facts = {"target": target, "workers": options.workers, "items": items}

        def contender(guarantee: bool) -> Any:
            return lambda: items / elapsed(lambda: jet.new_job(dag, config(guarantee)).run(timeout=JOB_S))

        bench.ours(contender(True))
        bench.peer("none", contender(False))
        report.add(bench.measure(rounds=options.rounds))


class Waits:
    """Seconds between two items or batches, apart for waits that a snapshot came between and for all others.

    Those with a snapshot in which no other process, nor the kernel, took the core away are noted once more.
    """

    def __init__(self) -> None:
        self._found: dict[str, list[float]] = {"saved": [], "others": [], "undisturbed": []}
        self._taken_away = 0

    def note(self, seconds: float, was_saved: bool) -> None:
        """Add one."""
        self._found["saved" if was_saved else "others"].append(seconds)
        taken_away = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
        if was_saved and taken_away == self._taken_away:
            self._found["undisturbed"].append(seconds)
        self._taken_away = taken_away

    def write(self, folder: Path) -> None:
        """Leave the 99th percentiles in a file `waits`."""
        found = {kind: sorted(waits)[len(waits) * 99 // 100] for kind, waits in self._found.items() if waits}
        found["disturbed"] = 1 - len(self._found["undisturbed"]) / len(self._found["saved"])
        (folder / "waits").write_text(json.dumps(found))


def standing_dag(keys: int, folder: Path, workers: int, pause: bool = False) -> Any:
    """Counts that are full, and stand still until a file is there; with `pause` they go on, and note their waits."""
    from shmjet import DAG, AbstractProcessor, Processor, between

    class Numbers(Processor):
        """Gives each key once, then none (or the first one), until the file is there."""

        def __init__(self) -> None:
            self._next = 0

        def complete(self) -> bool:
            while self._next < keys:
                if not self.outbox.offer(self._next):
                    return False
                self._next += 1
            (folder / "full").touch()
            if pause:
                self.outbox.offer(0)
            return (folder / "end").exists()

        def save_to_snapshot(self) -> bool:
            return self.outbox.offer_to_snapshot("next", self._next)

    class Counts(AbstractProcessor):
        """Counts by key in a dict, and notes the time between two items that a snapshot came between."""

        def __init__(self) -> None:
            self._counts: dict[int, tuple[int, int]] = {}
            self._last = 0.0
            self._waits = Waits()
            self._saving: Any = None
            self._was_saved = False

        def try_process_any(self, ordinal: int, item: int) -> bool:
            found, total = self._counts.get(item, (0, 0))
            self._counts[item] = found + 1, total + item
            if pause and item == 0:
                now = time.perf_counter()
                if self._last:
                    self._waits.note(now - self._last, self._was_saved)
                self._last, self._was_saved = now, False
            return True

        def save_to_snapshot(self) -> bool:
            self._saving = self._saving or iter(self._counts.items())
            if not self.outbox.offer_all_to_snapshot(self._saving):
                return False
            self._saving, self._was_saved = None, True
            return True

        def complete(self) -> bool:
            if pause:
                self._waits.write(folder)
            return True

    dag = DAG()
    numbers = dag.new_vertex("numbers", Numbers, 1)
    counts = dag.new_vertex("counts", Counts, workers)
    return dag.edge(between(numbers, counts).partitioned(_itself))


def _itself(item: int) -> int:
    return item


def pausing_dict(keys: int, folder: Path) -> Any:
    """A dict that notes its waits."""
    return standing_dag(keys, folder, 1, pause=True)


def pausing_dag(keys: int, folder: Path) -> Any:
    """A `group_by` that notes the time between two batches that a snapshot came between, as `standing_dag` does."""
    import numpy

    from shmjet import DAG, Batch, Processor, between, column, processors
    from shmjet.columns import count, sum_
    from shmjet.processors.general.wrapping import WrappingProcessor

    class Batches(Processor):
        """Gives each key once, then batches of a few rows until the file is there."""

        def __init__(self) -> None:
            self._chance = numpy.random.default_rng(1)
            self._next = 0

        def complete(self) -> bool:
            if self._next < keys:
                taken = numpy.arange(self._next, min(keys, self._next + BATCH_ROWS))
            else:
                (folder / "full").touch()
                taken = self._chance.integers(0, keys, 256)
            if self.outbox.offer(Batch({"key": taken, "value": taken})):
                self._next += len(taken)
            return (folder / "end").exists()

        def save_to_snapshot(self) -> bool:
            return self.outbox.offer_to_snapshot("next", self._next)

    class Noting(WrappingProcessor):
        """Notes its waits in a file when its input has ended."""

        def __init__(self) -> None:
            super().__init__(grouping())
            self._last = 0.0
            self._was_saved = False
            self._waits = Waits()

        def passed_on(self, callback: str, *args: Any) -> Any:
            self._was_saved |= callback in ("_capture", "save_to_snapshot")
            if callback == "complete" and self._last:
                self._waits.write(folder)
            return super().passed_on(callback, *args)

        def process(self, ordinal: int, inbox: Any) -> None:
            if self._last:
                self._waits.note(time.perf_counter() - self._last, self._was_saved)
            super().process(ordinal, inbox)
            self._last, self._was_saved = time.perf_counter(), False

    grouping = processors.group_by("key").agg(n=count(), total=sum_("value"))
    dag = DAG()
    source = dag.new_vertex("source", Batches, 1)
    groups = dag.new_vertex("groups", Noting, 1)
    dag.edge(between(source, groups).partitioned(column("key")))
    return dag.edge(between(groups, dag.new_vertex("sink", processors.noop(), 1)))


def standing_batches(keys: int, folder: Path, workers: int) -> Any:
    """Each key once in batches, counted and summed in the tables of `group_by`, which then stand still."""
    import numpy

    from shmjet import DAG, Batch, Processor, between, column, processors
    from shmjet.columns import count, sum_

    class Keys(Processor):
        """Gives each key once, then none until the file is there."""

        def __init__(self) -> None:
            self._next = 0

        def complete(self) -> bool:
            while self._next < keys:
                found = numpy.arange(self._next, min(self._next + BATCH_ROWS, keys))
                if not self.outbox.offer(Batch({"key": found, "value": found})):
                    return False
                self._next += len(found)
            (folder / "full").touch()
            return (folder / "end").exists()

        def save_to_snapshot(self) -> bool:
            return self.outbox.offer_to_snapshot("next", self._next)

    dag = DAG()
    source = dag.new_vertex("keys", Keys, 1)
    groups = dag.new_vertex("groups", processors.group_by("key").agg(n=count(), total=sum_("value")), workers)
    sink = dag.new_vertex("sink", processors.noop())
    dag.edge(between(source, groups).partitioned(column("key")))
    return dag.edge(between(groups, sink))


def snapshot_taking(options: Options, report: Report, name: str, standing: Any, target: str) -> None:
    """An export of a job whose state is full and that stands still."""
    import shmjet
    from shmjet import JobStatus

    keys = 100_000 if options.quick else 1_000_000
    cores = sorted(os.sched_getaffinity(0))[: options.workers]
    with Bench(name, "s") as bench, tempfile.TemporaryDirectory() as place:
        jet = bench.resources.enter_context(shmjet.new_instance(shmjet.JetConfig(cores=cores)))
        bench.facts = {"target": target, "keys": keys, "workers": len(cores)}
        folder = Path(place)
        job = jet.new_job(standing(keys, folder, len(cores)), config(True, 1000.0))
        execution = job.execute()
        _wait_for(folder / "full")
        while job.status is not JobStatus.RUNNING:
            time.sleep(0.001)
        bench.ours(lambda: elapsed(lambda: job.export_snapshot("bench", timeout=JOB_S)))
        try:
            hazelcast = bench.resources.enter_context(member(cores, "snapshots", keys))
        except PeerSkipped as why:
            bench.skip("hazelcast", str(why))
        else:
            bench.peer("hazelcast", hazelcast.next_snapshot)
        report.add(bench.measure(rounds=options.rounds))
        (folder / "end").touch()
        execution.result(JOB_S)


def snapshot_pause(
    options: Options,
    report: Report,
    name: str,
    target: str,
    dag: Callable[[int, Path], Any],
    latency_target: float | None = None,
) -> None:
    """How long a processor with much state lets an item wait."""
    import shmjet

    keys, seconds = 100_000, 2.0 if options.quick else 6.0
    with Bench(name, "s") as bench:
        jet = bench.resources.enter_context(shmjet.new_instance(shmjet.JetConfig(cores=options.workers)))
        bench.facts = {"target": f"p99 <= {target} s", "keys": keys, "snapshots each": "0.2 s"}
        facts: dict[str, list[float]] = {}

        def run() -> float:
            with tempfile.TemporaryDirectory() as place:
                folder = Path(place)
                settings = dataclasses.replace(config(True, 0.2), latency_target=latency_target)
                execution = jet.new_job(dag(keys, folder), settings).execute()
                _wait_for(folder / "full")
                time.sleep(seconds)
                (folder / "end").touch()
                execution.result(JOB_S)
                waits = json.loads((folder / "waits").read_text())
                for kind, found in waits.items():
                    facts.setdefault(kind, []).append(found)
                    bench.facts[kind] = round(statistics.median(facts[kind]), 6)
                return float(waits["saved"])

        bench.ours(run)
        report.add(bench.measure(rounds=options.rounds))


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + JOB_S
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path} has not come within {JOB_S:.0f} s")
        time.sleep(0.01)


def main() -> int:
    """Measure what was asked for."""
    options = parse_options(__doc__, benches=BENCHES)
    report = Report(options)
    if options.wants("snapshot_native"):
        rows, keys = (20_000_000, 300_000) if options.quick else (400_000_000, 3_000_000)
        dag = native_dag(rows, keys)
        with_and_without(options, report, "snapshot_native", dag, rows, "ratio >= 0.9")
    if options.wants("snapshot_dicts"):
        items, keys = (1_000_000, 100_000) if options.quick else (20_000_000, 1_000_000)
        with_and_without(options, report, "snapshot_dicts", dict_dag(items, keys), items, "ratio >= 0.8")
    if options.wants("snapshot_taking_native"):
        snapshot_taking(options, report, "snapshot_taking_native", standing_batches, ">= 5x of Hazelcast 5")
    if options.wants("snapshot_taking_dicts"):
        snapshot_taking(options, report, "snapshot_taking_dicts", standing_dag, ">= 1x of Hazelcast 5")
    if options.wants("snapshot_pause"):
        snapshot_pause(options, report, "snapshot_pause", "0.03", pausing_dict)
    if options.wants("snapshot_pause_native"):
        snapshot_pause(options, report, "snapshot_pause_native", "0.001", pausing_dag, latency_target=0.001)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
