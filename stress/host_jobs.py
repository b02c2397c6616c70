"""Jobs with a guarantee on three hosts made of network namespaces: what is killed there, and counts that are exact.

Each round starts a job that counts numbers by key on all hosts, lets one thing go wrong after one of its snapshots, or
while one is taken, and compares the counts in the end. Parts: `worker` kills one anywhere, `member` a member that does
not coordinate, `link` its link; `stop` halts a member for longer than the time-out; `restart` restarts the job by hand;
`suspend` suspends it, kills a member and resumes it; `export` exports it, kills a member and starts it from there;
`full` fills a host's memory, so that it cannot keep copies, and empties it. Each host has a /dev/shm of its own.
Needs root; says so otherwise.
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
from collections.abc import Callable
from pathlib import Path

from _stress import HANG_S, ROOT, Options, Tally, all_gone, mark_processes, marked, name_of, parse_options, watch

sys.path.insert(0, str(ROOT))

from shmjet import Job, JobConfig, JobStatus, ProcessingGuarantee, ShmjetError
from tests.cluster.counting import SHARDS, Shards, counting, exact
from tests.cluster.hosts import Host, Hosts, why_not

PARTS = ("worker", "member", "link", "restart", "suspend", "export", "full", "stop")
COUNT = 600
CONFIG = JobConfig(processing_guarantee=ProcessingGuarantee.EXACTLY_ONCE, snapshot_interval=0.03)


def wait(what: str, predicate: Callable[[], object]) -> None:
    """Wait until something holds. Raises TimeoutError."""
    deadline = time.monotonic() + HANG_S
    while not predicate():
        if time.monotonic() > deadline:
            raise TimeoutError(f"HANG: not {what}")
        time.sleep(0.005)


class Round:
    """One job, and what goes wrong.

    Args:
        hosts: with a member on each.
        folder: for the job's result.
        rng: chooses.
    """

    def __init__(self, hosts: Hosts, folder: Path, rng: random.Random) -> None:
        self.hosts, self.folder, self.rng = hosts, folder, rng
        self.result, self.gate = folder / "result.json", folder / "gate"
        for file in (self.result, self.gate):
            file.unlink(missing_ok=True)

    def run(self, part: str) -> str | None:
        """Let it go wrong; returns what is wrong with the counts, None for nothing."""
        with self.hosts.client() as jet:
            addresses = [member.address for member in jet.cluster.members]
        lead, victim = (
            next(host for host in self.hosts.hosts if host.address == address)
            for address in (addresses[0], self.rng.choice(addresses[1:]))
        )
        with self.hosts.client([lead]) as jet:
            dag = counting(self.result, COUNT, gate=self.gate, sources=1, counts=1, spreads=True, source=Shards)
            job = jet.new_job(dag, CONFIG)
            execution = job.execute()
            after = self.rng.randrange(3)
            wait("a snapshot", lambda: job.metrics().last_snapshot_id >= after and job.status is JobStatus.RUNNING)
            time.sleep(self.rng.random() * 0.06)
            if part == "export":
                exported = job.export_snapshot("exported")
                execution.cancel()
                self.hosts.kill(victim)
                self.hosts.await_members(2)
                config = JobConfig(
                    processing_guarantee=CONFIG.processing_guarantee,
                    snapshot_interval=CONFIG.snapshot_interval,
                    initial_snapshot_name=exported.name,
                )
                wait("the end", lambda: execution.done())
                execution = jet.new_job(dag, config).execute()
            else:
                self._do(part, job, victim, [member.workers[0] for member in jet.cluster.members])
            self.gate.touch()
            execution.result(HANG_S)
        found = json.loads(self.result.read_text())
        return None if found == exact(COUNT, SHARDS) else f"counts are {found}"

    def _do(self, part: str, job: Job, victim: Host, workers: list[int]) -> None:
        match part:
            case "worker":
                os.kill(self.rng.choice(workers), signal.SIGKILL)
            case "member":
                self.hosts.kill(victim)
            case "link":
                os.kill(victim.children("shmjet-link")[0], signal.SIGKILL)
            case "stop":
                self.hosts.pause(victim, 7.0)
            case "full":
                filler = victim.shm / "filler"
                try:
                    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
                        while file.write(bytes(1 << 16)):
                            pass
                    time.sleep(self.rng.random() * 0.3)
                    if self.rng.random() < 0.5:
                        os.kill(self.rng.choice(workers), signal.SIGKILL)
                finally:
                    filler.unlink()
            case "restart":
                job.restart()
            case "suspend":
                job.suspend()
                wait("suspended", lambda: job.status is JobStatus.SUSPENDED)
                self.hosts.kill(victim)
                self.hosts.await_members(2)
                job.resume()


def main() -> int:
    options: Options = parse_options(__doc__, count=100, ci=12, parts=list(PARTS))
    if (reason := why_not()) is not None:
        print(f"host_jobs: skipped, {reason}")
        return 0
    tally = Tally("host_jobs", options)
    mark = mark_processes()
    wanted = [part for part in PARTS if options.wants(part)]
    with Hosts(3, memory="400m") as hosts, tempfile.TemporaryDirectory() as folder:
        hosts.start()
        for number in range(options.count):
            rng = random.Random(options.seed + number)
            part = wanted[number % len(wanted)]
            watch(6 * HANG_S)
            if dead := [host for host in hosts.hosts if host.process is None]:
                hosts.start(dead)
            hosts.await_members(3)
            options.say(f"round {number}: {part}")
            try:
                wrong = Round(hosts, Path(folder), rng).run(part)
            except (ShmjetError, TimeoutError, OSError) as error:
                wrong = repr(error)
            if wrong is not None:
                tally.complain(f"seed {options.seed + number}, {part}: {wrong}")
            tally.done += 1
        if tally.complaints:
            print(hosts.logs(), file=sys.stderr)
    if not all_gone(mark):
        tally.complain(f"left behind: {', '.join(name_of(pid) for pid in marked(mark))}")
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
