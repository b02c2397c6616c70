"""kill -9 of a member with a storage, and start it again: its jobs go on, and exactly once stays exact.

Each round has a random job with state (`_guaranteed_jobs.py`) on a member whose storage is a folder. Meanwhile the
member is killed a few times at random moments or exactly in a phase of a snapshot or restore (`_aimed_kills.py`), or
shut down, and started again with another number of workers; in between the newest manifest or chunk file may be torn
(cut, or a byte turned), after which nothing may be lost. As root the storage lies on a file
system of a few megabytes, which is full for a while: snapshots fail then, and the job does not.

Usage: stress/restart_member.py [--count N] [--seed S] [--ci] [--only FAULT] [--verbose]     (--ci: half a minute)
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as FutureTimeout
from pathlib import Path
from typing import Any

from _aimed_kills import PHASES, aim, aim_away, aimed_step, hits
from _guaranteed_jobs import complaint, found_in, pipeline, random_shape
from _stress import (
    Options,
    Tally,
    all_gone,
    can_unshare,
    is_zombie,
    mark_processes,
    marked,
    name_of,
    parse_options,
    private_shm,
    wait_until,
    watch,
)

import shmjet
from shmjet import JetConfig, JetInstance, JobConfig, JobStatus, MemberLostError, ProcessingGuarantee

JOB_S = 240.0
"""Seconds that a job may take after the last fault before it counts as hanging."""
STORAGE_BYTES = 8 << 20
FAULTS = ("kill", "shutdown", "torn_manifest", "torn_chunk", "full", *(f"in_{phase}" for phase in PHASES))


class Round:
    """One job, and the lives of its member."""

    def __init__(self, seed: int, options: Options, place: Path, *, has_disk: bool) -> None:
        self.rng = random.Random(seed)
        self.shape = dataclasses.replace(
            random_shape(self.rng), source=self.rng.choice(["items", "built", "files"]), sink="files"
        )
        self.shape = dataclasses.replace(self.shape, count=self.rng.choice([0, 400, 800, 1600]))
        self.name = f"round{seed}"
        self.folder = place / str(seed)
        self.storage = place / "disk" / str(seed)
        self.folder.mkdir()
        wanted = [fault for fault in options.only or FAULTS if has_disk or fault != "full"]
        self.plan = [(self.rng.random() * 0.4, self.rng.choice(wanted)) for _ in range(self.rng.choice([1, 1, 2, 3]))]
        is_aimed = any(what.startswith("in_") for _, what in self.plan)
        self.aimed = aimed_step(self.folder, cooperative=self.rng.random() < 0.5) if is_aimed else None
        self.done: Counter[str] = Counter()
        self.was_running = False
        self.exactly = True
        self.starts = 0
        self.jet: JetInstance
        self.execution: Any

    def __str__(self) -> str:
        return f"{self.shape}, {' '.join(what for _, what in self.plan)}"

    def play(self) -> str:
        """Run the job through all faults; return what is wrong, empty when nothing is."""
        self._start()
        try:
            for pause, what in self.plan:
                time.sleep(pause)
                self.was_running = self.was_running or self._job_runs()
                if what.startswith("in_"):
                    self._in_phase(what.removeprefix("in_"))
                    continue
                getattr(self, f"_{what}")()
                self.done[what] += 1
            return self._end()
        finally:
            self.jet.shutdown()

    def _job_runs(self) -> bool:
        job = self.jet.job(name=self.name)
        return job is not None and job.status is JobStatus.RUNNING

    def _start(self) -> None:
        """Start the member, and look for the job that it goes on with; give it the job if there is none yet."""
        self.starts += 1
        self.jet = shmjet.new_instance(JetConfig(cores=self.rng.choice([1, 2, 3]), storage=str(self.storage)))
        job = self.jet.job(name=self.name)
        self.execution = None if job is None else job.execution
        if self.execution is None and not self._result_is_complete():
            if self.was_running:
                raise AssertionError("the job is gone, and its result is not complete")
            config = JobConfig(
                name=self.name, processing_guarantee=ProcessingGuarantee.EXACTLY_ONCE, snapshot_interval=0.02
            )
            made = pipeline(self.shape, self.jet, self.folder, self.name, aimed=self.aimed)
            self.execution = self.jet.new_job(made, config).execute()

    def _result_is_complete(self) -> bool:
        return not self._complaint()

    def _complaint(self) -> str:
        return complaint(self.shape, found_in(self.shape, self.jet, self.folder, self.name), exactly=self.exactly)

    def _end(self) -> str:
        if self.execution is not None:
            try:
                self.execution.result(JOB_S)
            except FutureTimeout:
                return f"HANG: the job has not ended {JOB_S:.0f} s after the last fault"
            except (CancelledError, MemberLostError) as error:
                return f"{type(error).__name__}: {error}"
            except Exception as error:
                return f"the job failed: {type(error).__name__}: {error}"
        return self._complaint()

    # -- faults -------------------------------------------------------------------------------------------------

    def _kill(self) -> None:
        self._kill_member()
        self._start()

    def _kill_member(self) -> None:
        os.kill(self.jet.cluster.members[0].pid, signal.SIGKILL)
        self.jet.shutdown()

    def _in_phase(self, phase: str) -> None:
        """Have the member killed exactly there; a restore is brought about by killing a worker before."""
        if self.execution is not None and not self.execution.done():
            wait_until(lambda: self._job_runs() or self.execution.done())
            self.was_running = self.was_running or self._job_runs()
            (member,) = self.jet.cluster.members
            before = hits(self.folder, phase)
            aim(self.folder, phase, member.pid)
            if phase in ("restore", "restored"):
                wait_until(lambda: any(self.storage.glob("snapshots/*/*.manifest")) or self.execution.done(), 5.0)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.rng.choice(member.workers), signal.SIGKILL)
            wait_until(lambda: is_zombie(member.pid) or self.execution.done(), 5.0)
            aim_away(self.folder, phase)
            self.done[f"in_{phase}"] += hits(self.folder, phase) - before
        self.jet.shutdown()
        self._start()

    def _shutdown(self) -> None:
        self.jet.shutdown()
        self._start()

    def _torn_manifest(self) -> None:
        self._kill_member()
        self._tear("*.manifest")
        self._start()

    def _torn_chunk(self) -> None:
        self._kill_member()
        self._tear("*.chunk")
        self._start()

    def _tear(self, pattern: str) -> None:
        """Cut the newest such file, or turn a byte of it; only where there is another snapshot before."""
        files = sorted(self.storage.glob(f"snapshots/*/{pattern}"), key=lambda path: path.stat().st_mtime_ns)
        manifests = list(self.storage.glob("snapshots/*/*.manifest"))
        if len(manifests) < 2:
            return
        data = files[-1].read_bytes()
        at = self.rng.randrange(len(data))
        torn = data[:at] if self.rng.random() < 0.5 else data[:at] + bytes([data[at] ^ 0x40]) + data[at + 1 :]
        files[-1].write_bytes(torn)
        self.exactly = False  # what the sink has made visible with that snapshot comes again

    def _full(self) -> None:
        """Let the disk be full for a while; the member may be killed in it."""
        filler = self.storage.parent / "filler"
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        time.sleep(self.rng.random() * 0.3)
        dies = self.rng.random() < 0.3
        if dies:
            self._kill_member()
        filler.unlink()
        if dies:
            self._start()


@contextlib.contextmanager
def disk(place: Path, *, is_own: bool) -> Iterator[None]:
    """Have a small file system for storages, where this user may."""
    folder = place / "disk"
    folder.mkdir()
    if not is_own:
        yield
        return
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={STORAGE_BYTES}", "tmpfs", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def main() -> int:
    options = parse_options(__doc__, count=100, ci=5, parts=FAULTS)
    is_alone = private_shm()
    mark = mark_processes()
    tally = Tally("restart_member", options)
    seen: Counter[str] = Counter()
    is_own = is_alone and can_unshare()
    if not is_own:
        print("restart_member: no full disk, as this user may not mount one")
    with tempfile.TemporaryDirectory() as name, disk(Path(name), is_own=is_own):
        for number in range(options.count):
            watch(4 * JOB_S)
            seed = options.seed + number
            one = Round(seed, options, Path(name), has_disk=is_own)
            began = time.perf_counter()
            try:
                wrong = one.play()
            except Exception as error:
                wrong = f"{type(error).__name__}: {error}"
            options.say(f"{seed}: {one}: {time.perf_counter() - began:.2f} s, {one.starts} starts {wrong}")
            if wrong:
                tally.complain(f"--seed {seed} --count 1, {one}: {wrong}")
            seen += one.done
            tally.done += 1
        tally.check(all_gone(mark), f"left behind: {[(pid, name_of(pid)) for pid in marked(mark)]}")
    tally.notes.append(" ".join(f"{what} {times}" for what, times in sorted(seen.items())))
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
