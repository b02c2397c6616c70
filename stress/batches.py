"""Many jobs with batches in one instance: what they take of memory, descriptors and shared memory comes back.

Each job sends random batches (of numbers and text, with and without nulls, of 1 to 100,000 rows) over random edges to
consumers that add them up, hoard them or leave one behind in a module, is now and then cancelled or fails half way, and
has the right sum when it ends. After a quarter of the jobs, own memory, descriptors and what is in /dev/shm are
noted; at the end they are compared.
"""

from __future__ import annotations

import os
import random
import sys
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import numpy as np
from _stress import HANG_S, SHM, Tally, all_gone, mark_processes, names, parse_options, private_shm, watch

import shmjet
from shmjet import DAG, Batch, Inbox, JetConfig, JetInstance, JobFailedError, Processor, Text, between, column

MOST_GROWTH = 48 << 20
"""Bytes that the processes together may have more at the end than after the first jobs: what the allocator keeps, and
what the member remembers of jobs that have ended."""
LEFT: list[Any] = []


class Emit(Processor):
    """Emits batches whose column `n` adds up to what `expected` says."""

    def __init__(self, seed: int, count: int, rows: int) -> None:
        self._seed, self._left, self._rows = seed, count, rows

    def init(self, outbox: Any, context: Any) -> None:
        super().init(outbox, context)
        self._rng = np.random.default_rng([self._seed, context.global_index])
        self._batch: Batch | None = None

    def complete(self) -> bool:
        while self._left:
            if self._batch is None:
                self._batch = random_batch(self._rng, self._rows)
            if not self.outbox.offer(self._batch):
                return False
            self._batch = None
            self._left -= 1
        return True


def random_batch(rng: np.random.Generator, rows: int) -> Batch:
    """Return a batch of up to so many rows."""
    count = int(rng.integers(1, rows + 1))
    columns: dict[str, Any] = {"n": rng.integers(0, 1000, count), "x": rng.random(count)}
    if rng.random() < 0.5:
        columns["t"] = Text.of([str(n) * 3 for n in columns["n"].tolist()])
    validity = {"x": columns["x"] < 0.9} if rng.random() < 0.5 else None
    return Batch(columns, validity)


def expected(seed: int, count: int, rows: int, processors: int) -> int:
    """Return the sum of `n` over all batches of a job."""
    total = 0
    for index in range(processors):
        rng = np.random.default_rng([seed, index])
        total += sum(int(random_batch(rng, rows)["n"].sum()) for _ in range(count))
    return total


class Sum(Processor):
    """Adds `n` up; hoards batches, leaves one behind, or fails half way, when told to."""

    def __init__(self, manner: str) -> None:
        self._manner = manner
        self._sum = self._seen = 0
        self._kept: list[Batch] = []

    def process(self, ordinal: int, inbox: Inbox) -> None:
        for batch in inbox.take():
            self._sum += int(batch["n"].sum())
            self._seen += 1
            if self._manner == "hoards":
                self._kept.append(batch)
            elif self._manner == "leaves":
                LEFT[:] = [batch]
            elif self._manner == "fails" and self._seen == 3:
                raise ValueError("as it was told")

    def complete(self) -> bool:
        return self.outbox.offer(self._sum)


def one_job(jet: JetInstance, rng: random.Random, tally: Tally, number: int) -> None:
    """Run a random job and check what comes of it."""
    seed, count, rows = rng.randrange(1 << 30), rng.randint(1, 20), rng.choice([10, 1000, 8192, 100_000])
    manner = rng.choice(["sums", "sums", "hoards", "leaves", "fails", "is cancelled"])
    dag = DAG()
    source = dag.new_vertex("source", lambda: Emit(seed, count, rows), 2)
    middle = dag.new_vertex("sum", lambda: Sum(manner), rng.choice([1, 2, 4]))
    sink = dag.new_vertex("sink", shmjet.processors.write_list("sums"), rng.choice([1, 2]))
    edge = between(source, middle)
    if rng.random() < 0.5:
        edge.partitioned(column("n"))
    dag.edge(edge).edge(between(middle, sink))
    what = f"job {number} ({count} batches of up to {rows} rows, {manner})"
    execution = jet.new_job(dag).execute()
    if manner == "is cancelled":
        execution.cancel()
    try:
        execution.result(HANG_S)
    except CancelledError:
        tally.check(manner == "is cancelled", f"{what}: was cancelled")
    except JobFailedError as error:
        tally.check(manner == "fails", f"{what}: {error}")
    except TimeoutError:
        tally.complain(f"{what}: HANG")
    else:
        if manner != "fails":
            found = sum(jet.get_list("sums"))
            tally.check(found == expected(seed, count, rows, 2), f"{what}: the sum is wrong: {found}")
    jet.get_list("sums").clear()
    tally.done += 1


def taken(pids: list[int]) -> tuple[int, int, int]:
    """Return bytes of the processes' own memory, descriptors, and bytes in /dev/shm.

    Without arenas, which are kept for the next jobs: USS would have pages that only one process happens to map, and
    how many there are depends on how many jobs overlapped, by their last messages.
    """
    statuses = [Path(f"/proc/{pid}/status").read_text() for pid in pids]
    own = sum(int(status.split("RssAnon:")[1].split()[0]) << 10 for status in statuses)
    shared = sum(entry.stat().st_blocks * 512 for entry in os.scandir(SHM) if entry.is_file())
    opened = [os.readlink(f"/proc/{pid}/fd/{fd}") for pid in pids for fd in os.listdir(f"/proc/{pid}/fd")]
    return own, sum(not target.endswith("(deleted)") for target in opened), shared


def main() -> int:
    options = parse_options(__doc__, count=5000, ci=150)
    alone = private_shm()
    mark = mark_processes()
    rng = random.Random(options.seed)
    tally = Tally("batches", options)
    with shmjet.new_instance(JetConfig(cores=2, work_stealing=rng.random() < 0.5)) as jet:
        member = jet.cluster.members[0]
        pids = [member.pid, *member.workers]
        before: tuple[int, int, int] | None = None
        for number in range(options.count):
            watch(6 * HANG_S)
            one_job(jet, rng, tally, number)
            if number + 1 == max(20, options.count // 4):
                before = taken(pids)
        after = taken(pids)
        tally.check(list(jet.cluster.members[0].workers) == pids[1:], "a worker was replaced")
        if before is not None:
            grown = [now - then for now, then in zip(after, before, strict=True)]
            tally.notes.append(
                f"own memory {grown[0] / 1024:+.0f} KiB, descriptors {grown[1]:+d}, /dev/shm {grown[2]:+d} bytes"
            )
            tally.check(grown[0] < MOST_GROWTH, f"private memory has grown by {grown[0] >> 20} MiB")
            tally.check(grown[1] <= 0, f"{grown[1]} more descriptors are open")
    tally.check(all_gone(mark), "processes are left")
    if alone:
        tally.check(not names(), f"left in /dev/shm: {names()}")
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
