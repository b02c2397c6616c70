"""kill -9 of a worker of a job with a guarantee, until the first new item is at the sink,
or in the table, where that gives nothing before its end (`restart_native`).

`restart_empty`: a source and a sink without state; target: p95 <= 0.06 s.
`restart_native`: with 64 MB (`--quick`: 6 MB) in the tables of `group_by`; target: p95 <= 0.15 s.
`restart_dicts`: with 64 MB (`--quick`: 6 MB) in dicts of plain tuples; target: p95 <= 0.6 s.
`restart_count`: with a count of 10,000 keys (`--quick`: 1,000), against Bytewax (killed as a whole and started again
with its recovery store, as it has no other way); target: ratio >= 10. Needs bytewax; skipped where it is missing.

Seconds; the figure of a round is the 95th percentile of its kills.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from _harness import Bench, Options, PeerSkipped, Report, parse_options
from _restart_jobs import JOBS

BENCHES = ("restart_empty", "restart_native", "restart_dicts", "restart_count")
TARGETS = dict(zip(BENCHES, ("p95 <= 0.06 s", "p95 <= 0.15 s", "p95 <= 0.6 s", "ratio >= 10"), strict=True))
SOON_S = 60.0


def percentile_of_kills(jet: Any, kind: str, keys: int, kills: int) -> float:
    """Kill a worker so often while the job runs, and return the 95th percentile of the time to the first new item."""
    from shmjet import JobConfig, JobStatus, ProcessingGuarantee

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        config = JobConfig(processing_guarantee=ProcessingGuarantee.EXACTLY_ONCE, snapshot_interval=0.5)
        job = jet.new_job(JOBS[kind](keys, folder), config)
        execution = job.execute()
        _wait(lambda: notes(folder))
        _wait(lambda: not keys or (folder / "full").exists())
        times = []
        for _ in range(kills):
            _wait(lambda: job.status is JobStatus.RUNNING)
            last = execution.metrics().last_snapshot_id
            # without a new snapshot, of the whole state, the next attempt pauses before it begins
            _wait(lambda last=last: execution.metrics().last_snapshot_id > last, every_s=0.02)
            before = notes(folder)
            worker = jet.cluster.members[0].workers[0]
            began = time.monotonic()
            os.kill(worker, signal.SIGKILL)
            _wait(lambda before=before: notes(folder) > before)
            (new,) = notes(folder) - before
            times.append(float((folder / new).read_text()) - began)
        execution.cancel()
        _wait(execution.done)
        return sorted(times)[-(-95 * len(times) // 100) - 1]


def notes(folder: Path) -> set[str]:
    """The attempts of which an item has come."""
    return {path.name for path in folder.iterdir() if path.name.isdigit()}


def _wait(predicate: Any, every_s: float = 0.001) -> None:
    deadline = time.monotonic() + SOON_S
    while not predicate():
        if time.monotonic() > deadline:
            raise TimeoutError(f"nothing has come within {SOON_S:.0f} s")
        time.sleep(every_s)


BYTEWAX_FLOW = """
import os, sys, time
from datetime import datetime, timedelta, timezone
import bytewax.operators as op
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition

KEYS = int(os.environ["KEYS"])

class Numbers(StatefulSourcePartition):
    def __init__(self, position):
        self.position = position or 0
    def next_batch(self):
        size = min(8192, KEYS - self.position) if self.position < KEYS else 1
        start = self.position if self.position < KEYS else 0
        self.position += size
        return list(range(start, start + size))
    def next_awake(self):
        return None if self.position < KEYS else datetime.now(timezone.utc) + timedelta(milliseconds=1)
    def snapshot(self):
        return self.position

class Source(FixedPartitionedSource):
    def list_parts(self):
        return ["one"]
    def build_part(self, step_id, for_part, resume_state):
        return Numbers(resume_state)

class Noted(StatelessSinkPartition):
    noted = False
    def write_batch(self, items):
        if not self.noted:
            self.noted = True
            place = os.path.join(os.environ["NOTES"], str(os.getpid()))
            with open(place + ".part", "w") as file:
                file.write(repr(time.monotonic()))
            os.rename(place + ".part", place)

class Sink(DynamicSink):
    def build(self, step_id, worker_index, worker_count):
        return Noted()

flow = Dataflow("count")
numbers = op.input("numbers", flow, Source())
keyed = op.key_on("key", numbers, str)
counts = op.stateful_map("count", keyed, lambda state, n: ((state or 0) + 1, (state or 0) + 1))
op.output("sink", counts, Sink())
"""


def bytewax_restarts(keys: int, kills: int) -> float:
    """The same for Bytewax, with the same numbers: the process is killed and started again."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "counting.py").write_text(BYTEWAX_FLOW)
        store, noted = folder / "store", folder / "notes"
        store.mkdir()
        noted.mkdir()
        subprocess.run([sys.executable, "-m", "bytewax.recovery", str(store), "1"], check=True)
        command = [sys.executable, "-m", "bytewax.run", "counting:flow", "-r", str(store), "-s", "1", "-b", "0"]
        settings = {
            **os.environ,
            "NOTES": str(noted),
            "KEYS": str(keys),
            "PYTHONPATH": f"{folder}:{os.environ.get('PYTHONPATH', '')}",
        }
        times = []
        child = None
        try:
            for _ in range(kills + 1):
                before, began = notes(noted), time.monotonic()
                if child is not None:
                    child.kill()
                    child.wait()
                child = subprocess.Popen(command, env=settings, cwd=folder, stderr=subprocess.PIPE)
                new = first_note(child, noted, before)
                if before:
                    times.append(float(new.read_text()) - began)
                time.sleep(2.0)  # a snapshot: whole seconds lie between two of them
        finally:
            if child is not None:
                child.kill()
                child.wait()
        return sorted(times)[-(-95 * len(times) // 100) - 1]


def first_note(child: subprocess.Popen[bytes], noted: Path, before: set[str]) -> Path:
    """Wait for a new note, and return where it is.

    Raises:
        PeerSkipped: the child has ended instead.
    """
    _wait(lambda: notes(noted) > before or child.poll() is not None)
    if child.poll() is not None:
        said = child.stderr.read() if child.stderr else b""
        raise PeerSkipped(f"bytewax: {said[-300:].decode()}")
    (new,) = notes(noted) - before
    return noted / new


def restart(options: Options, report: Report, kind: str) -> None:
    """One kind of state."""
    import shmjet

    kills = 3 if options.quick else 20
    whole = {"restart_empty": 0, "restart_native": 2_000_000, "restart_dicts": 400_000, "restart_count": 10_000}[kind]
    keys = whole // 10 if options.quick else whole
    with Bench(kind, "s") as bench:
        jet = bench.resources.enter_context(shmjet.new_instance(shmjet.JetConfig(cores=options.workers)))
        bench.facts = {"target": TARGETS[kind], "workers": options.workers, "keys": keys, "kills a round": kills}
        bench.ours(lambda: percentile_of_kills(jet, kind, keys, kills))
        if kind == "restart_count":
            bench.peer("bytewax", lambda: bytewax_restarts(keys, kills), needs="bytewax")
        report.add(bench.measure(rounds=options.rounds))


def main() -> int:
    """Measure what was asked for."""
    options = parse_options(__doc__, benches=BENCHES)
    report = Report(options)
    for kind in BENCHES:
        if options.wants(kind):
            restart(options, report, kind)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
