"""Random jobs with a guarantee under random disturbances: exactly once is exact, at least once loses nothing.

A job has a source with a position, steps with and without state, and a sink that can count; snapshots are taken every
10 ms. Meanwhile workers and carriers are killed (-9), at random moments and exactly in a phase of a snapshot or restore
(`_aimed_kills.py`), the job is restarted (gracefully and not), suspended and resumed, exported, and cancelled with an
export from which another job with other parallelism goes on; as root, /dev/shm is full for a while. What the sink has
in the end is compared with an interpreter over plain lists (`_guaranteed_jobs.py`). Some jobs have no guarantee: they
are only exported, and cancelled with an export.
Each round is replayed by its own seed, which is printed with any fault.

Usage: stress/exactly_once.py [--count N] [--seed S] [--ci] [--only DISTURBANCE] [--verbose]     (--ci: a minute)
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import replace
from pathlib import Path
from typing import Any

from _aimed_kills import PHASES, aim, aimed_step, hits
from _guaranteed_jobs import complaint, found_in, pipeline, random_shape
from _stress import (
    HANG_S,
    SHM,
    Options,
    Tally,
    all_gone,
    mark_processes,
    marked,
    name_of,
    parse_options,
    private_shm,
    watch,
)

import shmjet
from shmjet import JetConfig, JetInstance, JobConfig, JobStateError, JobStatus, ProcessingGuarantee

JOB_S = 240.0
"""Seconds that a job may take before it counts as hanging."""
UNGUARDED = ("export", "move")
"""What may be done to a job without a guarantee so that its result stays exact."""
NOT_EXPORTED = ("table_join", "table_anti")
"""Steps whose state is not kept for exports of such jobs."""
RENEW_AFTER = 12
"""Rounds on one instance."""
DISTURBANCES = (
    "worker",
    "carrier",
    "graceful",
    "forceful",
    "suspend",
    "export",
    "move",
    "full",
    *(f"in_{phase}" for phase in PHASES),
)


class Round:
    """One job and what is done to it."""

    def __init__(
        self, jet: JetInstance, mark: str, seed: int, options: Options, tally: Tally, folder: Path, *, is_alone: bool
    ) -> None:
        self.jet, self.mark, self.tally, self.folder = jet, mark, tally, folder
        self.has_own_shm = is_alone
        self.rng = random.Random(seed)
        self.name = f"round{seed}"
        self.shape = random_shape(self.rng)
        self.guarantee = self.rng.choices(list(ProcessingGuarantee), [0.15, 0.25, 0.6])[0]
        wanted = options.only or DISTURBANCES
        if self.guarantee is ProcessingGuarantee.NONE:
            wanted = [what for what in wanted if what in UNGUARDED]
            if not wanted or self.shape.state in NOT_EXPORTED:
                wanted, self.guarantee = options.only or DISTURBANCES, ProcessingGuarantee.EXACTLY_ONCE
            elif self.shape.sink == "files":  # of a job that is cancelled there are none
                self.shape = replace(self.shape, sink="list")
        times = self.rng.choice([0, 1, 2, 3, 4, 6])
        self.plan = [(self.rng.random() * 0.15, self.rng.choice(wanted)) for _ in range(times)]
        is_aimed = any(what.startswith("in_") for _, what in self.plan)
        self.aimed = aimed_step(folder, cooperative=self.rng.random() < 0.5) if is_aimed else None
        self.done: Counter[str] = Counter()
        self.job: Any = None

    def __str__(self) -> str:
        names = " ".join(what for _, what in self.plan)
        return f"{self.guarantee.name}: {self.shape}, {names or 'undisturbed'}"

    def start(self, initial: str | None = None) -> None:
        """Execute the job, from an exported snapshot if one is named."""
        config = JobConfig(
            name=self.name, processing_guarantee=self.guarantee, snapshot_interval=0.01, initial_snapshot_name=initial
        )
        parallelism = self.rng.choice([None, 1, 2, 4]) if initial else None
        made = pipeline(self.shape, self.jet, self.folder, self.name, parallelism, self.aimed)
        self.job = self.jet.new_job(made, config)
        self.execution = self.job.execute()

    def play(self) -> str:
        """Run and disturb the job; return what is wrong, empty when nothing is."""
        self.start()
        for pause, what in self.plan:
            time.sleep(pause)
            if self.execution.done():
                break
            try:
                if what.startswith("in_"):
                    self._in_phase(what.removeprefix("in_"))
                    continue  # counted when the kill has happened
                getattr(self, f"_{what}")()
                self.done[what] += 1
            except JobStateError:  # it has ended, or is between two states
                continue
        try:
            self.execution.result(JOB_S)
        except FutureTimeout:
            status = self.job.status
            self.execution.cancel()
            return f"HANG: the job is {status.name} after {JOB_S:.0f} s"
        except CancelledError:
            return "the job was cancelled"
        except Exception as error:
            return f"the job failed: {type(error).__name__}: {error}"
        exactly = self.guarantee is not ProcessingGuarantee.AT_LEAST_ONCE
        return complaint(self.shape, found_in(self.shape, self.jet, self.folder, self.name), exactly=exactly)

    def count_hits(self) -> None:
        """Count the kills that met their phase."""
        self.done.update({f"in_{phase}": hits(self.folder, phase) for phase in PHASES})

    def clean(self) -> None:
        """Remove lists, maps and exported snapshots of the round."""
        for name in (self.name, f"{self.name}-in"):
            self.jet.get_list(name).destroy()
            self.jet.get_map(name).destroy()
        for snapshot in self.jet.snapshots():
            snapshot.destroy()

    # -- disturbances -------------------------------------------------------------------------------------------

    def _worker(self) -> None:
        workers = self.jet.cluster.members[0].workers
        if workers:  # the only one may have been killed a moment ago
            _kill(self.rng.choice(workers))

    def _carrier(self) -> None:
        workers = set(self.jet.cluster.members[0].workers)
        carriers = [pid for pid in marked(self.mark) if pid not in workers and name_of(pid).startswith("shmjet-w")]
        if carriers:
            _kill(self.rng.choice(carriers))

    def _graceful(self) -> None:
        self.job.restart(graceful=True)

    def _forceful(self) -> None:
        self.job.restart(graceful=False)

    def _suspend(self) -> None:
        self.job.suspend()
        self._wait_for(JobStatus.SUSPENDED)
        if self.job.status is JobStatus.SUSPENDED:
            self.job.resume()

    def _export(self) -> None:
        self.job.export_snapshot(f"{self.name}-export", timeout=HANG_S)

    def _full(self) -> None:
        """Let /dev/shm be full for a while, so that snapshots fail; not where the job itself writes there."""
        if self.has_own_shm and self.shape.sink == "files" and self.shape.source not in ("list", "map"):
            _fill_shm()
            time.sleep(0.1)
            _resize_shm("50%")

    def _move(self) -> None:
        """Cancel the job with an export, and go on from that with another job."""
        name = f"{self.name}-moved"
        self.job.cancel_and_export_snapshot(name, timeout=HANG_S)
        self._wait_for(JobStatus.FAILED)
        self.start(name)

    def _in_phase(self, phase: str) -> None:
        """Kill a worker or carrier exactly there; a restore is brought about by killing another worker before."""
        aim(self.folder, phase)
        if phase in ("restore", "restored"):
            self._worker()

    def _wait_for(self, status: JobStatus) -> None:
        deadline = time.monotonic() + HANG_S
        while self.job.status not in (status, JobStatus.COMPLETED, JobStatus.FAILED):
            if time.monotonic() > deadline:
                self.tally.complain(f"{self.name}: HANG: {self.job.status.name} instead of {status.name}: {self}")
                return
            time.sleep(0.002)


def _fill_shm() -> None:
    """Make /dev/shm as small as what is in it, which may grow while we look."""
    for left in range(20, 0, -1):
        there = os.statvfs(SHM)
        try:
            _resize_shm(str((there.f_blocks - there.f_bfree) * there.f_frsize))
        except subprocess.CalledProcessError:
            if left == 1:
                raise
        else:
            break


def _resize_shm(size: str) -> None:
    subprocess.run(["mount", "-o", f"remount,size={size}", str(SHM)], check=True)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def main() -> int:
    options = parse_options(__doc__, count=500, ci=30, parts=DISTURBANCES)
    is_alone = private_shm()
    mark = mark_processes()
    tally = Tally("exactly_once", options)
    seen: Counter[str] = Counter()
    jet: JetInstance | None = None
    workers = 0
    with tempfile.TemporaryDirectory() as place:
        for number in range(options.count):
            seed = options.seed + number
            watch(4 * JOB_S)
            if jet is None:
                workers = random.Random(seed).choice([1, 2, 3, 4])
                jet = shmjet.new_instance(JetConfig(cores=workers))
            folder = Path(place) / str(number)
            folder.mkdir()
            one = Round(jet, mark, seed, options, tally, folder, is_alone=is_alone)
            began = time.perf_counter()
            try:
                wrong = one.play()
            except Exception as error:
                wrong = f"{type(error).__name__}: {error}"
            one.count_hits()
            options.say(f"{seed}: {one} on {workers}: {time.perf_counter() - began:.2f} s {dict(one.done)} {wrong}")
            if wrong:
                tally.complain(f"--seed {seed} --count 1, {workers} workers, {one}: {wrong}")
                jet.shutdown()
                jet = None
            else:
                one.clean()
            seen += one.done
            tally.done += 1
            if jet is not None and (number + 1) % RENEW_AFTER == 0:
                jet.shutdown()
                jet = None
        if jet is not None:
            jet.shutdown()
        tally.check(all_gone(mark), f"left behind: {[(pid, name_of(pid)) for pid in marked(mark)]}")
    tally.notes.append(" ".join(f"{what} {times}" for what, times in sorted(seen.items())))
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
