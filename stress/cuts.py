"""Clusters on hosts made of network namespaces whose network is cut: jobs with a guarantee and maps stay exact.

Each round has two jobs that count in windows with exactly-once, one of them with `split_brain_protection`, and a client
that writes to a map. Packets between two sides of five members are dropped, and later pass again; then each job runs
once, all of its windows come one after the other with exact counts, and each write that was confirmed is there. Parts:
`uneven` cuts 3|2 or 4|1, `even` 2|2 of four (there the protected job runs in neither half, the other one in both),
`outage` cuts each member off from all others, `one_way` drops what one side sends and not what it gets, `restart`
heals a cut while a job is being restarted, `stop` halts members for longer than the time-out, the coordinator among
them. `two_lost` kills two of four members at once, with one backup of everything: jobs go on, or are suspended and say
that their snapshots are lost. Needs root and nftables; says so otherwise.

Usage: stress/cuts.py [--count N] [--seed S] [--ci] [--only PART] [--verbose]      (--ci: under 40 s)
"""

from __future__ import annotations

import contextlib
import faulthandler
import random
import sys
import tempfile
import threading
import time
from pathlib import Path

from _stress import HANG_S, ROOT, Options, Tally, all_gone, mark_processes, marked, name_of, parse_options, wait_until
from _stress import watch as watch_for
from day import KEYS, SIZE, windows

sys.path.insert(0, str(ROOT))

from shmjet import (
    ClientConfig,
    Execution,
    JetInstance,
    Job,
    JobConfig,
    JobStatus,
    MemberLostError,
    ProcessingGuarantee,
    ShmjetError,
)
from shmjet.cluster.client.remote import endpoint_of
from shmjet.cluster.jobs.lineage import LOST_ALL
from shmjet.cluster.monitor.remote import RemoteMonitor
from tests.cluster.hosts import SECRET, Host, Hosts, why_no_rules, why_not

CUTS = ("even", "outage", "restart", "uneven", "one_way", "stop")
PARTS = (*CUTS, "two_lost")
SILENCE_S = 5.0
"""After so many seconds a member counts as lost at the latest."""
ANSWER_S = 60.0
"""So long a request may take while the network is cut, on a busy machine."""
ENTRIES = 40


class Wrong(Exception):
    """Something is not as it has to be."""


class Counted:
    """A windowed job.

    Args:
        jet: submits it.
        folder: for what its source says.
        name: of the job, and of the map with its results.
        protected: whether it has `split_brain_protection`.
    """

    def __init__(self, jet: JetInstance, folder: Path, name: str, *, protected: bool) -> None:
        self.name = name
        self.gate = folder / f"{name}.gate"
        config = JobConfig(
            name=name,
            processing_guarantee=ProcessingGuarantee.EXACTLY_ONCE,
            snapshot_interval=0.1,
            split_brain_protection=protected,
        )
        self.execution: Execution = jet.new_job(windows(self.gate, 1, name), config).execute()

    def status(self, jet: JetInstance) -> JobStatus | None:
        """Return the status that a client is told; None where it is told of no such job."""
        job = jet.job(self.name)
        return None if job is None else job.status

    def end(self, jet: JetInstance) -> None:
        """End the job by itself, and check its windows."""
        found = jet.job(self.name)
        if found is None or found.execution is None:
            raise Wrong(f"{self.name} is not known any more")
        self.gate.touch()
        try:
            found.execution.result(HANG_S)
        except TimeoutError:
            has_closed, metrics = self.gate.with_suffix(".ended").exists(), found.metrics()
            told = f"its source has closed: {has_closed}; attempts {metrics.attempts}, {found.explain_time()}"
            raise Wrong(f"HANG: {self.name} is {found.status} and does not end; {told}") from None
        numbers = int(self.gate.with_suffix(".ended").read_text())
        got = dict(jet.get_map(self.name).items())
        if got != {key: (numbers // SIZE, [], 1) for key in range(KEYS)}:
            raise Wrong(f"{self.name}: windows of {numbers} numbers: {got}")
        jet.get_map(self.name).clear()

    def check_future(self) -> None:
        """Check what was told to the client that has waited all the time: a member that is cut off knows no more."""
        error = self.execution.exception(HANG_S)
        if error is not None and not isinstance(error, MemberLostError):
            raise Wrong(f"the future of {self.name} ended with {error!r}")


class Writer(threading.Thread):
    """Writes to a map all the time, each entry under a number that grows.

    Args:
        jet: a client of its own; it is closed in the end.
        name: of the map.
    """

    def __init__(self, jet: JetInstance, name: str) -> None:
        super().__init__(name="writer", daemon=True)
        self._jet, self._name = jet, name
        self._over = threading.Event()
        self._confirmed = dict.fromkeys(range(ENTRIES), 0)
        self._tried = dict.fromkeys(range(ENTRIES), 0)
        self.longest = 0.0
        self.refused = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            with self._jet as jet:
                self._write(jet)
        except BaseException as error:
            self.error = error

    def _write(self, jet: JetInstance) -> None:
        number, written = 0, jet.get_map(self._name)
        while not self._over.is_set():
            number += 1
            key = number % ENTRIES
            self._tried[key] = number
            begun = time.monotonic()
            try:
                written.put(key, number)
            except ShmjetError:
                self.refused += 1
                time.sleep(0.05)
            else:
                self._confirmed[key] = number
            self.longest = max(self.longest, time.monotonic() - begun)
            time.sleep(0.002)

    def end(self) -> None:
        """Write no more."""
        self._over.set()
        self.join(ANSWER_S)
        if self.is_alive():
            faulthandler.dump_traceback()
        if self.is_alive() or self.longest > ANSWER_S:
            raise Wrong(f"HANG: a write took {self.longest:.1f} s" + (" and goes on" if self.is_alive() else ""))
        if self.error is not None:
            raise Wrong(f"a writer ended with {self.error!r}")

    def lost(self, jet: JetInstance) -> list[str]:
        """Say which confirmed writes are not there."""
        found = jet.get_map(self._name)
        wrong = []
        for key, confirmed in self._confirmed.items():
            value = found.get(key) or 0
            if not confirmed <= value <= self._tried[key]:
                wrong.append(f"{key}: {value}, confirmed {confirmed}")
        found.clear()
        return wrong


class Round:
    """One thing that goes wrong.

    Args:
        hosts: with a member on each.
        folder: for what sources say.
        number: of the round.
        rng: chooses.
        options: of the script.
    """

    def __init__(self, hosts: Hosts, folder: Path, number: int, rng: random.Random, options: Options) -> None:
        self.hosts, self.folder, self.number, self.rng, self.options = hosts, folder, number, rng, options
        self.story = ""
        self.is_early = rng.random() < 0.3
        """Whether jobs may not have saved anything when it goes wrong."""
        self.drops_a_half = False
        """Whether what a half has written is dropped when the halves meet."""

    @property
    def up(self) -> list[Host]:
        return [host for host in self.hosts.hosts if host.process is not None]

    def run(self, part: str) -> None:
        hosts = self.hosts
        if dead := [host for host in hosts.hosts if host.process is None]:
            hosts.start(dead, **ENVIRONMENT)
        if part == "even":
            hosts.kill(self.rng.choice(hosts.hosts))
        near, far = self._sides(part)
        with hosts.client(near if self.rng.random() < 0.7 else far) as jet:
            self._settle(jet)
            jobs = [
                Counted(jet, self.folder, f"{name} {self.number}", protected=name == "protected")
                for name in ("protected", "plain")
            ]
            self._await_running(jet, jobs, 0 if self.is_early else 2)
            writer = Writer(hosts.client(near), f"written {self.number}")
            writer.start()
            try:
                time.sleep(self.rng.random() * 0.3)
                self._go_wrong(part, near, far, jobs)
            finally:
                hosts.heal()
                self._settle(None)
                writer.end()
            with hosts.client() as fresh:
                self._settle(fresh)
                self._await_running(fresh, jobs)
                self._check_runs(jobs)
                for job in jobs:
                    job.end(fresh)
                if (lost := writer.lost(fresh)) and not self.drops_a_half:
                    raise Wrong(f"confirmed writes are lost: {lost[:3]} and more, {len(lost)} of {ENTRIES}")
            for job in jobs:
                job.check_future()
        self.options.say(f"   {self.story}; longest write {writer.longest:.1f} s, {writer.refused} refused")

    def _sides(self, part: str) -> tuple[list[Host], list[Host]]:
        """Return the larger side, and the other one."""
        shuffled = self.rng.sample(self.up, len(self.up))
        smaller = self.rng.choice([1, 2, 2]) if part != "even" else 2
        return shuffled[smaller:], shuffled[:smaller]

    def _go_wrong(self, part: str, near: list[Host], far: list[Host], jobs: list[Counted]) -> None:
        hosts, rng = self.hosts, self.rng
        self.story = f"{' '.join(h.ip for h in near)} | {' '.join(h.ip for h in far)}"
        match part:
            case "even":
                self.drops_a_half = True
                hosts.separate(near, far)
                self._check_halves((near, far), jobs)
            case "uneven":
                hosts.separate(near, far)
                time.sleep(rng.choice([0.5, 1.5, SILENCE_S, SILENCE_S + 2]))
            case "outage":
                self.story += ", and all others"
                for host in self.up:
                    hosts.separate([other for other in self.up if other is not host], [host], one_way=True)
                time.sleep(rng.choice([1.5, SILENCE_S, SILENCE_S + 2]))
            case "one_way":
                sides = (near, far) if rng.random() < 0.5 else (far, near)
                self.story += f", one way from {sides[0][0].ip}"
                hosts.separate(*sides, one_way=True)
                time.sleep(rng.choice([1.5, SILENCE_S, 2 * SILENCE_S]))
            case "restart":
                hosts.separate(near, far, one_way=rng.random() < 0.3)
                with hosts.client(near) as jet:
                    self._await_restart(jet, jobs)
                time.sleep(rng.choice([0.0, 0.02, 0.2]))
            case "stop":
                seconds = SILENCE_S + rng.choice([0.5, 2.0])
                self.story += f", the latter stand still for {seconds} s"
                hosts.pause_all(far, seconds, everything=rng.random() < 0.6)

    def _await_restart(self, jet: JetInstance, jobs: list[Counted]) -> None:
        """Wait until a job does not run any more; not for long, as all may have gone too quickly to be seen."""

        def is_restarting() -> bool:
            with contextlib.suppress(ShmjetError):
                return any(job.status(jet) is not JobStatus.RUNNING for job in jobs)
            return True

        wait_until(is_restarting, 3 * SILENCE_S, 0.002)

    def _check_halves(self, halves: tuple[list[Host], list[Host]], jobs: list[Counted]) -> None:
        """Check that of two halves each has the plain job run, and the protected one wait."""
        protected, plain = jobs
        for half in halves:
            with self.hosts.client(half[:1]) as jet:

                def is_there(jet: JetInstance = jet, half: list[Host] = half) -> bool:
                    with contextlib.suppress(ShmjetError):
                        return (
                            len(jet.cluster.members) == len(half)
                            and plain.status(jet) is JobStatus.RUNNING
                            and protected.status(jet) in (JobStatus.NOT_RUNNING, JobStatus.STARTING)
                        )
                    return False

                if not wait_until(is_there, HANG_S, 0.05):
                    told = f"{plain.status(jet)} and {protected.status(jet)}, {len(jet.cluster.members)} members"
                    raise Wrong(f"HANG: the half with {half[0].address} has {told}")

    # -- before and after -------------------------------------------------------------------------------------------

    def _settle(self, jet: JetInstance | None) -> None:
        """Wait until all members know each other; with a client, until all has its backups, too."""
        self.hosts.await_members(len(self.up), timeout=HANG_S)

        def is_safe() -> bool:
            with contextlib.suppress(ShmjetError):
                return jet is None or jet.cluster.is_safe
            return False

        if not wait_until(is_safe, HANG_S, 0.02):
            raise Wrong("HANG: not all has its backups")

    def _await_running(self, jet: JetInstance, jobs: list[Counted], least: int = 0) -> None:
        """Wait until jobs run and have so many snapshots; jobs may have lost them all if there was none before."""
        for job in jobs:
            found = jet.job(job.name)
            assert found is not None

            status = JobStatus.NOT_RUNNING

            def is_there(found: Job = found) -> bool:
                nonlocal status
                status = found.status
                if status is JobStatus.SUSPENDED and self.is_early and LOST_ALL in str(found.suspension_cause):
                    self.story += ", with nothing saved"
                    found.resume()
                is_running = status is JobStatus.RUNNING
                return status is JobStatus.FAILED or (is_running and found.metrics().last_snapshot_id >= least)

            there = wait_until(is_there, HANG_S, 0.02)
            if not there or status is JobStatus.FAILED:
                error = None if found.execution is None or not found.execution.done() else found.execution.exception(0)
                what = f"{status}, {error!r}, {found.suspension_cause}, {found.explain_time()}"
                raise Wrong(f"{'' if there else 'HANG: '}{job.name} is {what}")

    def _check_runs(self, jobs: list[Counted]) -> None:
        """Check that one member coordinates one run of each job."""
        monitor = RemoteMonitor(endpoint_of([host.address for host in self.up], ClientConfig(secret=SECRET)))
        try:

            def wrong() -> list[str]:
                rows = [row for member in monitor.members() for row in member.executions()]
                rows = [row for row in rows if not JobStatus(row.status).is_terminal]
                runs = {job.name: [row.id for row in rows if row.job_name == job.name and row.leads] for job in jobs}
                return [f"{name} has the runs {ids}" for name, ids in runs.items() if len(ids) != 1]

            if not wait_until(lambda: not wrong(), 10.0, 0.3):
                raise Wrong("; ".join(wrong()))
        finally:
            monitor.close()


ENVIRONMENT = {"SHMJET_LONGEST_SILENCE": str(SILENCE_S), "SHMJET_SCALE_UP_DELAY": "0.2", "SHMJET_BACKUP_COUNT": "2"}


def two_lost(folder: Path, number: int, rng: random.Random) -> str:
    """Kill two of four members at once, with one backup; returns what the job has done."""
    with Hosts(4, memory="200m") as hosts:
        hosts.start(**{**ENVIRONMENT, "SHMJET_BACKUP_COUNT": "1"})
        hosts.await_members(4)
        victims = rng.sample(hosts.hosts, 2)
        rest = [host for host in hosts.hosts if host not in victims]
        with hosts.client(rest) as jet:
            wait_until(lambda: jet.cluster.is_safe)
            name = f"two lost {number}"
            counted = Counted(jet, folder, name, protected=False)
            job = jet.job(name)
            assert job is not None
            wait_until(lambda: job.metrics().last_snapshot_id > rng.choice([0, 1, 5]))
            for host in victims:
                hosts.kill(host)
            hosts.await_members(2, rest)
            done = (JobStatus.RUNNING, JobStatus.SUSPENDED)
            if not wait_until(lambda: job.status in done and len(jet.cluster.members) == 2, HANG_S, 0.02):
                raise Wrong(f"HANG: {name} is {job.status}: {job.explain_time()}")
            if job.status is JobStatus.SUSPENDED:
                cause = str(job.suspension_cause)
                if LOST_ALL not in cause:
                    raise Wrong(f"{name} is suspended: {cause}")
                counted.execution.cancel()
                return "suspended"
            counted.gate.touch()
            counted.execution.result(HANG_S)
            return "went on"


def main() -> int:
    options: Options = parse_options(__doc__, count=40, ci=2, parts=list(PARTS))
    if (reason := why_not() or why_no_rules()) is not None:
        print(f"cuts: skipped, {reason}")
        return 0
    tally = Tally("cuts", options)
    mark = mark_processes()
    wanted = [part for part in CUTS if options.wants(part)]
    found: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        with Hosts(5, memory="200m") if wanted else contextlib.nullcontext() as hosts:  # type: ignore[attr-defined]
            for number in range(options.count if wanted else 0):
                rng = random.Random(options.seed + number)
                part = wanted[number % len(wanted)]
                watch_for(8 * HANG_S)
                options.say(f"round {number}: {part}")
                story = Round(hosts, Path(folder), number, rng, options)
                try:
                    story.run(part)
                except (ShmjetError, Wrong, TimeoutError, OSError, AssertionError, RuntimeError) as error:
                    tally.complain(f"seed {options.seed}, round {number}, {part}, {story.story}: {error!r}")
                    print(hosts.logs(), file=sys.stderr)
                    break
                tally.done += 1
        for number in range(max(1, options.count // 10) if options.wants("two_lost") and not options.ci else 0):
            watch_for(8 * HANG_S)
            try:
                found.append(two_lost(Path(folder), number, random.Random(options.seed + number)))
            except (ShmjetError, Wrong, TimeoutError, OSError, AssertionError) as error:
                tally.complain(f"seed {options.seed}, two_lost {number}: {error!r}")
            tally.done += 1
    if found:
        tally.notes.append(f"of {len(found)} jobs {found.count('went on')} went on without two members")
    if not all_gone(mark):
        tally.complain(f"left behind: {', '.join(name_of(pid) for pid in marked(mark))}")
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
