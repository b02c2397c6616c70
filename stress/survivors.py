"""Jobs of a cluster whose members are killed, leave and join, the coordinator among them: counts stay exact.

Each round has two jobs that count numbers by key on three members of this host, one with a guarantee and one without.
A few things happen to the members or the jobs, one after the other, mostly while an attempt starts or a snapshot is
taken. In the end the futures that a client has held all the time end well, and the counts are exact. `--only EVENT`
limits what happens.

Usage: stress/survivors.py [--count N] [--seed S] [--ci] [--only EVENT] [--verbose]     (--ci: half a minute)
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

from _stress import (
    HANG_S,
    ROOT,
    Options,
    Tally,
    all_gone,
    mark_processes,
    marked,
    name_of,
    parse_options,
    private_shm,
    wait_until,
    watch,
)

sys.path.insert(0, str(ROOT))

import shmjet
from shmjet import (
    ClientConfig,
    Execution,
    JetConfig,
    JetInstance,
    Job,
    JobConfig,
    JobStateError,
    JobStatus,
    Member,
    ProcessingGuarantee,
    ShmjetError,
)
from tests.cluster.counting import SHARDS, Shards, counting, exact

EVENTS = ("kill", "kill_coordinator", "leave", "coordinator_leaves", "join", "suspend", "restart")
COUNT = 400
SECRET = "a secret of this script"


class Wrong(Exception):
    """Something is not as it has to be."""


def own(member: JetInstance) -> Member:
    return next(found for found in member.cluster.members if found.is_local)


class Members:
    """The members of this script, in this process' hands."""

    def __init__(self) -> None:
        self.all: list[JetInstance] = []
        self._ended: list[JetInstance] = []

    def fill(self, count: int) -> None:
        """Have so many members, if there are fewer."""
        while len(self.all) < count:
            seeds = tuple(own(member).address for member in self.all)
            config = JetConfig(cores=1, bind="127.0.0.1:0", secret=SECRET, members=seeds, scale_up_delay=0.2)
            self.all.append(shmjet.new_instance(config))
        self.settle()

    def settle(self) -> None:
        """Wait until all know each other, and all saved state has its backups."""

        def is_settled() -> bool:
            with contextlib.suppress(ShmjetError):  # a member that was halted joins again
                return all(len(m.cluster.members) == len(self.all) and m.cluster.is_safe for m in self.all)
            return False

        if not wait_until(is_settled, HANG_S, 0.01):
            raise Wrong("the members did not find together")

    def pick(self, rng: random.Random, *, coordinator: bool) -> JetInstance:
        """Return the coordinator, or another member."""
        first = self.all[0].cluster.members[0].uuid
        found = [member for member in self.all if (own(member).uuid == first) is coordinator]
        return rng.choice(found)

    def kill(self, member: JetInstance) -> None:
        os.kill(own(member).pid, signal.SIGKILL)
        self.lost(member)

    def lost(self, member: JetInstance) -> None:
        """Take that the process of a member is dead, or about to die."""
        self.all.remove(member)
        self._ended.append(member)

    def leave(self, member: JetInstance) -> None:
        self.all.remove(member)
        member.shutdown()

    def close(self) -> None:
        for member in (*self._ended, *self.all):
            member.shutdown()
        self._ended.clear()
        self.all.clear()


class Counted:
    """One job."""

    def __init__(self, jet: JetInstance, folder: Path, name: str, config: JobConfig) -> None:
        self.file, self.gate = folder / f"{name}.json", folder / f"{name}.gate"
        config.name = name
        dag = counting(self.file, COUNT, gate=self.gate, sources=1, counts=1, spreads=True, source=Shards)
        self.job: Job = jet.new_job(dag, config)
        self.execution: Execution = self.job.execute()

    def runs(self) -> bool:
        return self.job.status is JobStatus.RUNNING

    def end(self) -> None:
        self.gate.touch()
        self.execution.result(HANG_S)
        found = json.loads(self.file.read_text())
        if found != exact(COUNT, SHARDS):
            raise Wrong(f"{self.job.name}: counts are {found}")


class Round:
    """One story.

    Args:
        members: of the cluster.
        folder: for results.
        rng: chooses.
        options: of the script.
    """

    def __init__(self, members: Members, folder: Path, rng: random.Random, options: Options) -> None:
        self.members, self.folder, self.rng, self.options = members, folder, rng, options
        self.events = [event for event in EVENTS if options.wants(event)]
        self.happened: list[str] = []

    def run(self) -> None:
        self.members.fill(3)
        with shmjet.new_client([own(m).address for m in self.members.all], ClientConfig(secret=SECRET)) as jet:
            config = JobConfig(
                processing_guarantee=ProcessingGuarantee.EXACTLY_ONCE,
                snapshot_interval=self.rng.choice([0.02, 0.05, 0.3]),
            )
            saved = Counted(jet, self.folder, "saved", config)
            jobs = [saved, Counted(jet, self.folder, "begun anew", JobConfig())]
            for _ in range(self.rng.randint(1, 4)):
                time.sleep(self.rng.choice([0.0, 0.02, 0.1, 0.3]) * self.rng.random())
                self.happen(self.rng.choice(self.events), jobs)
            for job in jobs:
                job.end()

    def happen(self, event: str, jobs: list[Counted]) -> None:
        self.happened.append(event)
        members, rng = self.members, self.rng
        match event:
            case "kill" | "kill_coordinator":
                members.kill(members.pick(rng, coordinator=event == "kill_coordinator"))
                self.recover(jobs)
            case "leave" | "coordinator_leaves":
                members.leave(members.pick(rng, coordinator=event == "coordinator_leaves"))
                self.recover(jobs)
            case "join":
                members.fill(len(members.all) + 1)
            case "suspend":
                with contextlib.suppress(JobStateError):
                    jobs[0].job.suspend()
                if rng.random() < 0.5:
                    members.kill(members.pick(rng, coordinator=rng.random() < 0.5))
                self.await_status(jobs[0], JobStatus.SUSPENDED)
                jobs[0].job.resume()
                self.recover(jobs)
            case "restart":
                with contextlib.suppress(JobStateError):
                    rng.choice(jobs).job.restart(graceful=rng.random() < 0.5)

    def recover(self, jobs: list[Counted]) -> None:
        """Wait until jobs run again, mostly: then what is lost next was copied before."""
        self.members.fill(2 if self.rng.random() < 0.3 else 3)
        for job in jobs:
            self.await_status(job, JobStatus.RUNNING)

    def await_status(self, job: Counted, status: JobStatus) -> None:
        if not wait_until(lambda: job.job.status is status or job.execution.done(), HANG_S, 0.005):
            raise Wrong(f"HANG: {job.job.name} is {job.job.status.name}, not {status.name}")
        if job.execution.done():
            raise Wrong(f"{job.job.name} has ended: {job.execution.exception(0)!r}")


def main() -> int:
    options = parse_options(__doc__, count=100, ci=6, parts=list(EVENTS))
    private_shm()
    tally = Tally("survivors", options)
    mark = mark_processes()
    members = Members()
    for number in range(options.count):
        seed = options.seed + number
        watch(8 * HANG_S)
        with tempfile.TemporaryDirectory() as folder:
            story = Round(members, Path(folder), random.Random(seed), options)
            try:
                story.run()
            except (ShmjetError, Wrong, TimeoutError, OSError) as error:
                tally.complain(f"seed {seed}, {', '.join(story.happened)}: {error!r}")
                members.close()
        options.say(f"seed {seed}: {', '.join(story.happened)}")
        tally.done += 1
    members.close()
    if not all_gone(mark):
        tally.complain(f"left behind: {', '.join(name_of(pid) for pid in marked(mark))}")
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
