"""A day of a cluster in a few minutes: members join, leave and die under one windowed job, and every window is right.

Hosts are network namespaces with one member each. The job counts numbers by key in tumbling windows, with exactly-once;
what follows checks for each key that its windows come one after the other, each once and with the exact count. Seeded
events happen one after the other: a member joins, leaves or is killed (-9), the coordinator among them; the job is
restarted, suspended and resumed, or goes on as another job with new code from an exported snapshot. In the end all
windows were right, and the members that have lived long have neither grown nor kept descriptors. Needs root; says so
otherwise.

Usage: stress/day.py [--count N] [--seed S] [--ci] [--only EVENT] [--verbose]      (--ci: half a minute)
"""

from __future__ import annotations

import contextlib
import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from _growth import resident
from _stress import HANG_S, ROOT, Options, Tally, all_gone, mark_processes, marked, name_of, parse_options, wait_until
from _stress import watch as watch_for

sys.path.insert(0, str(ROOT))

from shmjet import (
    Execution,
    JetInstance,
    Job,
    JobConfig,
    JobStateError,
    JobStatus,
    Pipeline,
    ProcessingGuarantee,
    ShmjetError,
    aggregate_ops,
    sinks,
    sources,
    tumbling,
)
from tests.cluster.hosts import Host, Hosts, why_not

EVENTS = ("join", "leave", "kill", "restart", "suspend", "upgrade")
HOSTS = 4
LEAST = 2
"""Members that stay at least."""
SIZE, KEYS, AT_ONCE = 100, 10, 5
"""Numbers in a window, keys, and numbers that come together, every few milliseconds."""
OLD = 16
"""So many events a member has to have lived through for its growth to say something."""
MOST_MB, MOST_DESCRIPTORS = 24.0, 16


class Wrong(Exception):
    """Something is not as it has to be."""


def source(gate: Path) -> Any:
    """Return a source of numbers, each of them a millisecond, that ends at the end of a window when a file is there."""
    ended = gate.with_suffix(".ended")

    def fill(position: list[int], buffer: Any) -> None:
        if position[0] % SIZE == 0 and gate.exists():
            ended.write_text(str(position[0]))
            buffer.close()
            return
        for number in range(position[0], position[0] + AT_ONCE):
            buffer.add(number, timestamp=number)
        position[0] += AT_ONCE
        time.sleep(0.004)

    made = sources.builder("numbers", lambda _: [0]).fill_buffer_fn(fill)
    made = made.create_snapshot_fn(lambda position: position[0])
    return made.restore_snapshot_fn(lambda position, states: position.__setitem__(0, states[0])).stream()


def windows(gate: Path, version: int, name: str = "day") -> Pipeline:
    """Return the job; of each key the map of that name has the number of windows, the wrong ones, and the version."""

    def check(state: list[Any], key: int, window: Any) -> tuple[int, tuple[int, list[Any], int]]:
        if (window.end, window.result) != (SIZE * (state[0] + 1), SIZE // KEYS):
            state[1].append((state[0], window.end, window.result))
        state[0] += 1
        return key, (state[0], state[1], version)

    made = Pipeline()
    numbers = made.read_from(source(gate)).with_native_timestamps(allowed_lag=0).set_name("numbers in time")
    keyed = numbers.grouping_key(lambda number: number % KEYS)
    counts = keyed.window(tumbling(SIZE / 1000)).aggregate(aggregate_ops.counting()).set_name("windows")
    checked = counts.grouping_key(lambda window: window.key).map_stateful(lambda: [0, []], check).set_name("check")
    checked.write_to(sinks.map(name))
    return made


class Looks:
    """What members have used after each event, by their pids."""

    def __init__(self) -> None:
        self._seen: dict[int, list[tuple[float, int]]] = {}

    def look(self, hosts: list[Host]) -> None:
        for host in hosts:
            with contextlib.suppress(OSError):
                memory, descriptors = resident(host.pid), len(os.listdir(f"/proc/{host.pid}/fd"))
                if memory is not None:
                    self._seen.setdefault(host.pid, []).append((memory["RssAnon"], descriptors))

    def complaints(self) -> list[str]:
        """Say which members have grown between the second quarter of their lives and the last."""
        found = []
        for pid, seen in self._seen.items():
            if len(seen) < OLD:
                continue
            quarter = len(seen) // 4
            early, late = seen[quarter : 2 * quarter], seen[-quarter:]
            before, after = (statistics.median(memory for memory, _ in part) for part in (early, late))
            if after - before > MOST_MB:
                found.append(f"member {pid} has grown from {before:.0f} to {after:.0f} MB in {len(seen)} events")
            first, last = (min(descriptors for _, descriptors in part) for part in (early, late))
            if last - first > MOST_DESCRIPTORS:
                found.append(f"member {pid} had {first} descriptors, and has {last} after {len(seen)} events")
        return found

    @property
    def old(self) -> int:
        """How many members have lived long."""
        return sum(len(seen) >= OLD for seen in self._seen.values())


class Day:
    """One story.

    Args:
        hosts: with a member on each.
        jet: a client that stays.
        folder: for what the source says.
        rng: chooses.
    """

    def __init__(self, hosts: Hosts, jet: JetInstance, folder: Path, rng: random.Random) -> None:
        self.hosts, self.jet, self.rng = hosts, jet, rng
        self.gate = folder / "gate"
        self.version = 0
        self.looks = Looks()
        self.job: Job
        self.execution: Execution
        self.start(None)

    @property
    def up(self) -> list[Host]:
        return [host for host in self.hosts.hosts if host.process is not None]

    def start(self, snapshot: str | None) -> None:
        """Begin the job, or go on with new code from an exported snapshot."""
        self.version += 1
        config = JobConfig(
            name=f"day {self.version}",
            processing_guarantee=ProcessingGuarantee.EXACTLY_ONCE,
            snapshot_interval=0.2,
            initial_snapshot_name=snapshot,
        )
        self.job = self.jet.new_job(windows(self.gate, self.version), config)
        self.execution = self.job.execute()
        self.settle()

    def happen(self, event: str) -> None:
        time.sleep(self.rng.choice([0.0, 0.1, 0.5]) * self.rng.random())
        down = [host for host in self.hosts.hosts if host.process is None]
        if event in ("leave", "kill") and len(self.up) <= LEAST:
            event = "join"
        match event:
            case "join" if down:
                self.hosts.start([self.rng.choice(down)], SHMJET_SCALE_UP_DELAY="0.2")
            case "leave":
                self.hosts.stop(self.rng.choice(self.up))
            case "kill":
                self.hosts.kill(self.rng.choice(self.up))
            case "suspend":
                with contextlib.suppress(JobStateError):
                    self.job.suspend()
                self.await_status(JobStatus.SUSPENDED)
                self.job.resume()
            case "upgrade":
                self.await_status(JobStatus.RUNNING)  # it may have begun anew for a member that joined
                name = f"version {self.version}"
                self.job.cancel_and_export_snapshot(name, timeout=HANG_S)
                self.start(name)
            case _:
                with contextlib.suppress(JobStateError):
                    attempts = self.job.metrics().attempts
                    self.job.restart(graceful=self.rng.random() < 0.5)
                    self.await_attempt(attempts)
        self.settle()
        self.looks.look(self.up)

    def settle(self) -> None:
        """Wait until the members know each other, the job runs, and all has its backups: one loss is one loss."""

        def is_settled() -> bool:
            with contextlib.suppress(ShmjetError):
                cluster = self.jet.cluster
                return len(cluster.members) == len(self.up) and cluster.is_safe
            return False

        if not wait_until(is_settled, HANG_S, 0.02):
            raise Wrong(f"HANG: not {len(self.up)} members with all backups")
        self.await_status(JobStatus.RUNNING)

    def await_attempt(self, before: int) -> None:
        """Wait for another attempt."""
        if not wait_until(lambda: self.job.metrics().attempts > before or self.execution.done(), HANG_S, 0.01):
            raise Wrong("HANG: the job is not restarted")

    def await_status(self, status: JobStatus) -> None:
        def is_there() -> bool:
            return self.job.status is status or self.execution.done()

        if not wait_until(is_there, HANG_S, 0.01):
            raise Wrong(f"HANG: the job is {self.job.status.name}, not {status.name}: {self.job.explain_time()}")
        if self.execution.done():
            raise Wrong(f"the job has ended: {self.execution.exception(0)!r}")

    def end(self) -> int:
        """End the job, and return how many windows there were, if all of them were right."""
        time.sleep(self.rng.random())
        self.gate.touch()
        self.execution.result(HANG_S)
        numbers = int(self.gate.with_suffix(".ended").read_text())
        found = dict(self.jet.get_map("day").items())
        wanted = {key: (numbers // SIZE, [], self.version) for key in range(KEYS)}
        if found != wanted:
            raise Wrong(f"windows of {numbers} numbers: {found}")
        return numbers // SIZE


def main() -> int:
    options: Options = parse_options(__doc__, count=200, ci=8, parts=list(EVENTS))
    if (reason := why_not()) is not None:
        print(f"day: skipped, {reason}")
        return 0
    tally = Tally("day", options)
    mark = mark_processes()
    rng = random.Random(options.seed)
    wanted = [event for event in EVENTS if options.wants(event)]
    with Hosts(HOSTS, memory="400m") as hosts, tempfile.TemporaryDirectory() as folder:
        hosts.start(SHMJET_SCALE_UP_DELAY="0.2")
        hosts.await_members(HOSTS)
        with hosts.client() as jet:
            happened: list[str] = []
            try:
                day = Day(hosts, jet, Path(folder), rng)
                for _ in range(options.count):
                    watch_for(4 * HANG_S)
                    happened.append(rng.choice(wanted))
                    options.say(f"event {len(happened)}: {happened[-1]}, {len(day.up)} members")
                    day.happen(happened[-1])
                    tally.done += 1
                options.say(f"{day.end()} windows, {day.looks.old} members lived long")
                for complaint in day.looks.complaints():
                    tally.complain(complaint)
            except (ShmjetError, Wrong, TimeoutError, OSError, AssertionError) as error:
                tally.complain(f"seed {options.seed}, {', '.join(happened[-6:])}: {error!r}")
                print(hosts.logs(), file=sys.stderr)
    if not all_gone(mark):
        tally.complain(f"left behind: {', '.join(name_of(pid) for pid in marked(mark))}")
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
