"""Members of a Hazelcast cluster are killed and stand still while jobs read and write its maps and lists.

Each round has a cluster of two members with a backup of each entry, and two jobs: one reads the journal of a map that
is changed all the time, and under EXACTLY_ONCE copies the map into another one and notes each event in a list of the
instance; one appends numbers to a list of the cluster, at least once. Meanwhile a member of Hazelcast is killed and
started again, stands still for a while, a worker is killed, or both jobs are restarted. In the end each event of the
journal was noted once and in order, without a gap, the copy is the map, and the list has all numbers. In some rounds
the whole cluster goes: the jobs find it again, and the copy is what the map has then.

Needs Java, Hazelcast (Maven fetches it) and hazelcast-python-client; without them it leaves itself out.

Usage: stress/remote_hazelcast.py [--count N] [--seed S] [--ci] [--only FAULT] [--verbose]     (--ci: under a minute)
"""

from __future__ import annotations

import os
import random
import re
import signal
import sys
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import psutil
from _stress import (
    Options,
    Tally,
    all_gone,
    mark_processes,
    name_of,
    parse_options,
    private_shm,
    wait_until,
    watch,
)

import shmjet
from shmjet import JetConfig, JobConfig, JobStatus, Pipeline, ProcessingGuarantee, sinks, sources
from tests.hazelcast_members import HazelcastMember, free_ports, jar

FAULTS = ("kill", "pause", "worker", "restart", "all")
KEYS = 2000
NUMBERS = 20_000
ROUND_S = 300.0
SETTLED_S = 120.0
"""Seconds that the jobs have after the last fault."""

_WORKER = re.compile(r"shmjet-w\d+$")
"""What workers and carriers call themselves."""


class Round:
    """One cluster, the jobs on it, and what happens to them."""

    def __init__(self, seed: int, options: Options, folder: Path) -> None:
        self.rng = random.Random(seed)
        self.plan = [self.rng.choice(options.only or FAULTS) for _ in range(self.rng.choice([1, 2, 3]))]
        if "all" in self.plan:
            self.plan = ["all"]
        ports = free_ports(2)
        self.members = [
            HazelcastMember(folder, port, others=ports, journals={"source": 2_000_000}, partitions=23, silence=20)
            for port in ports
        ]
        self.config = {**self.members[0].config, "cluster_members": [f"127.0.0.1:{port}" for port in ports]}
        self.stop = threading.Event()
        self.is_lossy = "all" in self.plan

    def __str__(self) -> str:
        return " ".join(self.plan)

    def play(self) -> list[str]:
        """Run it all; return what is wrong."""
        import hazelcast

        client = hazelcast.HazelcastClient(**self.config, redo_operation=True)
        feeder = threading.Thread(target=self._feed, args=(client,))
        try:
            with shmjet.new_instance(JetConfig(cores=2)) as jet:
                self.jobs = [self._copying(jet), self._numbering(jet)]
                feeder.start()
                for what in self.plan:
                    time.sleep(self.rng.uniform(0.3, 1.5))
                    getattr(self, f"_{what}")(jet)
                time.sleep(0.5)
                self.stop.set()
                feeder.join()
                return self._complaints(jet, client)
        finally:
            self.stop.set()
            if feeder.is_alive():
                feeder.join()
            client.shutdown()

    def close(self) -> None:
        """End the members."""
        for member in self.members:
            member.close()

    def _copying(self, jet: shmjet.JetInstance) -> shmjet.Job:
        p = Pipeline()
        events = p.read_from(sources.remote_map_journal("source", self.config)).without_timestamps()
        changes = events.filter(lambda event: event.kind != "lost")
        changes.map(lambda event: (event.key, event.new)).set_local_parallelism(1).write_to(
            sinks.remote_map("copy", self.config)
        )
        events.map(lambda event: (event.partition, event.sequence, event.kind)).set_local_parallelism(1).write_to(
            sinks.list("events")
        )
        return self._started(jet, p, ProcessingGuarantee.EXACTLY_ONCE)

    def _numbering(self, jet: shmjet.JetInstance) -> shmjet.Job:
        p = Pipeline()
        numbers = p.read_from(sources.item_stream(4000, lambda number, _: number if number < NUMBERS else None))
        numbers.without_timestamps().write_to(sinks.remote_list("numbers", self.config))
        return self._started(jet, p, ProcessingGuarantee.AT_LEAST_ONCE)

    def _started(self, jet: shmjet.JetInstance, p: Pipeline, guarantee: ProcessingGuarantee) -> shmjet.Job:
        job = jet.new_job(p, JobConfig(processing_guarantee=guarantee, snapshot_interval=0.2))
        job.execute()
        if not wait_until(lambda: job.status is JobStatus.RUNNING):
            raise AssertionError(f"a job did not start: {job.status}")
        return job

    def _feed(self, client: Any) -> None:
        rng, source, version = random.Random(0), client.get_map("source"), 0
        while not self.stop.is_set():
            version += 1
            source.put_all({rng.randrange(KEYS): version for _ in range(100)}).result()

    def _kill(self, jet: shmjet.JetInstance) -> None:
        member = self.rng.choice(self.members)
        member.kill()
        time.sleep(self.rng.uniform(0.0, 2.0))
        member.start()
        self._await_backups()

    def _await_backups(self) -> None:
        """Wait until both members are in the cluster and have had time to copy their partitions to each other.

        Another loss before that would lose data, as in any cluster with one backup.
        """
        import hazelcast

        for member in self.members:
            client = hazelcast.HazelcastClient(**member.config)
            try:
                if not wait_until(lambda client=client: len(client.cluster_service.get_members()) == 2, pause=0.1):
                    raise AssertionError("the members of Hazelcast did not come together")
            finally:
                client.shutdown()
        time.sleep(5)

    def _pause(self, jet: shmjet.JetInstance) -> None:
        member = self.rng.choice(self.members)
        member.pause()
        time.sleep(self.rng.uniform(0.1, 4.0))
        member.go_on()

    def _worker(self, jet: shmjet.JetInstance) -> None:
        workers = [child for child in psutil.Process().children(recursive=True) if _WORKER.match(name_of(child.pid))]
        os.kill(self.rng.choice(workers).pid, signal.SIGKILL)

    def _restart(self, jet: shmjet.JetInstance) -> None:
        for job in self.jobs:
            if job.status is JobStatus.RUNNING:
                job.restart(graceful=self.rng.random() < 0.5)

    def _all(self, jet: shmjet.JetInstance) -> None:
        for member in self.members:
            member.kill()
        time.sleep(self.rng.uniform(0.0, 5.0))
        for member in self.members:
            member.start()

    def _complaints(self, jet: shmjet.JetInstance, client: Any) -> list[str]:
        source, copy, numbers = client.get_map("source"), client.get_map("copy"), client.get_list("numbers")

        def settled() -> bool:
            copied, wanted = dict(copy.entry_set().result()), dict(source.entry_set().result())
            if self.is_lossy:  # what was on its way into the copy when the map was lost stays there
                copied = {key: value for key, value in copied.items() if key in wanted}
            return copied == wanted

        wrong = []
        if not wait_until(settled, SETTLED_S, 0.1):
            wrong.append(f"the copy is not the map: {[job.status for job in self.jobs]}")
        if not self.is_lossy and not wait_until(
            lambda: len(set(numbers.get_all().result())) == NUMBERS, SETTLED_S, 0.1
        ):
            wrong.append(f"{NUMBERS - len(set(numbers.get_all().result()))} numbers are missing from the list")
        if not self.is_lossy:
            events, last = jet.get_list("events"), -1
            while last != (last := len(events)) or not last:  # the next snapshots bring the rest
                time.sleep(1)
            wrong += _gaps(list(events))
        for job in self.jobs:
            if job.status is not JobStatus.RUNNING:
                wrong.append(f"a job is {job.status}: {job.execution and job.execution.exception(0)}")
            job.cancel()
        return wrong


def _gaps(events: list[tuple[int, int, str]]) -> list[str]:
    """Return what is wrong with the events of a journal that was read from its beginning."""
    if not events:
        return ["no event has come"]
    sequences = defaultdict(list)
    for partition, sequence, kind in events:
        if kind == "lost":
            return [f"partition {partition} has lost events from {sequence} on"]
        sequences[partition].append(sequence)
    return [
        f"partition {partition}: {len(found)} events, {len(set(found))} of them different, up to {max(found)}"
        for partition, found in sequences.items()
        if found != list(range(len(found)))
    ]


def main() -> int:
    options = parse_options(__doc__, count=30, ci=2, parts=FAULTS)
    try:
        jar()
        import hazelcast  # noqa: F401
    except (RuntimeError, ModuleNotFoundError) as error:
        print(f"remote_hazelcast: left out: {error}")
        return 0
    private_shm()
    mark = mark_processes()
    tally = Tally("remote_hazelcast", options)
    for number in range(options.count):
        watch(ROUND_S * options.slack)
        seed = options.seed + number
        with tempfile.TemporaryDirectory(prefix="shmjet-stress-") as folder:
            played = Round(seed, options, Path(folder))
            begun = time.monotonic()
            try:
                wrong = played.play()
            except Exception as error:
                wrong = [f"{type(error).__name__}: {error}"]
            finally:
                played.close()
        options.say(f"round {seed}: {played}: {time.monotonic() - begun:.1f} s: {'; '.join(wrong) or 'right'}")
        for text in wrong:
            tally.complain(f"round {seed} ({played}): {text}")
        tally.done += 1
    tally.check(all_gone(mark), "processes are left")
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
