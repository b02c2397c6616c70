"""Batches between real workers: shared memory lives as long as a view, comes back after faults, and may be short."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shmjet
from shmjet import (
    DAG,
    Edge,
    Inbox,
    JetConfig,
    JetInstance,
    Outbox,
    Processor,
    ProcessorContext,
    WorkerLostError,
    between,
)
from shmjet.core import column
from shmjet.data.batch import Batch

ROWS = 8192


class Emit(Processor):
    """Emits batches of numbers, `count` of them over all processors, each number once."""

    movable = True

    def __init__(self, count: int) -> None:
        self._left = count
        self._next = 0

    def init(self, outbox: Outbox, context: ProcessorContext) -> None:
        super().init(outbox, context)
        self._next, self._step = context.global_index, context.total_parallelism

    def complete(self) -> bool:
        while self._next < self._left:
            start = self._next * ROWS
            if not self.outbox.offer(Batch({"n": np.arange(start, start + ROWS), "half": np.arange(ROWS) / 2})):
                return False
            self._next += self._step
        return True


KEPT: list[Any] = []


class Sum(Processor):
    """Adds the numbers up; emits (rows, sum, pid) at the end. Keeps batches if told to."""

    def __init__(self, keep: str = "") -> None:
        self._keep = keep
        self._rows = self._sum = 0
        self._mine: list[Any] = []

    def process(self, ordinal: int, inbox: Inbox) -> None:
        for batch in inbox:
            self._rows += batch.num_rows
            self._sum += int(batch["n"].sum())
            if self._keep == "all":
                self._mine.append((batch, self._sum))
            elif self._keep == "global" and not KEPT:
                KEPT.append(batch)
        inbox.clear()

    def complete(self) -> bool:
        if self._mine:
            assert sum(int(batch["n"].sum()) for batch, _ in self._mine) == self._sum
        return self.outbox.offer((self._rows, self._sum, os.getpid()))


def summing(count: int, keep: str = "", route: Any = None, out: str = "sums") -> DAG:
    dag = DAG()
    source = dag.new_vertex("source", lambda: Emit(count))
    middle = dag.new_vertex("sum", lambda: Sum(keep))
    sink = dag.new_vertex("sink", shmjet.processors.write_list(out), 1)
    edge: Edge = between(source, middle)
    dag.edge(edge.partitioned(route) if route is not None else edge)
    return dag.edge(between(middle, sink))


def check(jet: JetInstance, count: int, out: str) -> list[int]:
    """Check what `summing` has found; return the pids."""
    found = list(jet.get_list(out))
    assert sum(rows for rows, _, _ in found) == count * ROWS
    assert sum(total for _, total, _ in found) == count * ROWS * (count * ROWS - 1) // 2
    return [pid for _, _, pid in found]


@pytest.mark.parametrize("keep", ["", "all"])
def test_every_row_arrives_also_when_the_consumer_keeps_them_all(jet: JetInstance, out: str, keep: str) -> None:
    jet.new_job(summing(400, keep, column("n"), out)).run(60)
    check(jet, 400, out)


def test_a_batch_that_outlives_its_job_keeps_its_memory(jet: JetInstance, out: str) -> None:
    jet.new_job(summing(40, "global", column("n"), out)).run(60)
    for _ in range(3):  # arenas that are used again would overwrite it
        jet.get_list(out).clear()
        jet.new_job(summing(100, "", column("n"), out)).run(60)
        check(jet, 100, out)

    def kept(_: int) -> tuple[int, bool]:
        from tests.cluster.test_batches import KEPT

        return os.getpid(), all(batch["n"].max() < 41 * ROWS and (np.diff(batch["n"]) > 0).all() for batch in KEPT)

    dag = DAG()
    source = dag.new_vertex("items", shmjet.processors.read_items(range(64)), 1)
    mapper = dag.new_vertex("kept", shmjet.processors.map(kept))
    sink = dag.new_vertex("sink", shmjet.processors.write_list(out + "-kept"), 1)
    jet.new_job(dag.edge(between(source, mapper)).edge(between(mapper, sink))).run(60)
    assert all(good for _, good in jet.get_list(out + "-kept"))


class Die(Processor):
    """Kills its worker when it holds some batches, once."""

    def __init__(self) -> None:
        self._mine: list[Any] = []

    def process(self, ordinal: int, inbox: Inbox) -> None:
        self._mine += inbox
        inbox.clear()
        if len(self._mine) > 20:
            os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_killed_while_it_holds_views_leaves_nothing_behind(jet: JetInstance, out: str) -> None:
    for _ in range(3):
        dag = DAG()
        source, sink = dag.new_vertex("source", lambda: Emit(4000)), dag.new_vertex("die", Die)
        with pytest.raises(WorkerLostError):
            jet.new_job(dag.edge(between(source, sink).partitioned(column("n")))).run(60)
    jet.new_job(summing(200, "", column("n"), out)).run(60)
    check(jet, 200, out)


class ForkAndLook(Processor):
    """Lets a forked child look at each batch, and emits the child's exit status."""

    def process(self, ordinal: int, inbox: Inbox) -> None:
        batch = inbox.poll()
        pid = os.fork()
        if pid == 0:
            good = int(batch["n"].sum()) > 0
            del batch
            os._exit(0 if good else 1)
        assert self.outbox.offer(os.waitpid(pid, 0)[1])


def test_a_child_forked_by_user_code_can_look_at_a_batch(jet: JetInstance, out: str) -> None:
    dag = DAG()
    source, look = dag.new_vertex("source", lambda: Emit(2)), dag.new_vertex("look", ForkAndLook, 2)
    sink = dag.new_vertex("sink", shmjet.processors.write_list(out), 1)
    jet.new_job(dag.edge(between(source, look).broadcast()).edge(between(look, sink))).run(60)
    assert list(jet.get_list(out)) == [0] * 4  # each of two looks at both batches


def belongings(pids: list[int]) -> tuple[int, list[int]]:
    """Bytes of the processes' own memory, and how many descriptors each of them has.

    Without arenas, which are kept for the next jobs: USS would have pages that one process happens to map, and how many
    there are depends on how many jobs overlapped, by their last messages.
    """
    statuses = [Path(f"/proc/{pid}/status").read_text() for pid in pids]
    own = sum(int(status.split("RssAnon:")[1].split()[0]) << 10 for status in statuses)
    return own, [sum(not target.endswith("(deleted)") for target in opened(pid)) for pid in pids]


def opened(pid: int) -> list[str]:
    """What the descriptors of a process lead to."""
    return [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]


@pytest.mark.slow
def test_two_hundred_jobs_with_batches_leave_memory_descriptors_and_shared_memory_as_they_were(out: str) -> None:
    with shmjet.new_instance(JetConfig(cores=2)) as jet:
        member = jet.cluster.members[0]
        pids = [member.pid, *member.workers]

        def jobs(count: int) -> None:
            for n in range(count):
                route = column("n") if n % 2 else None
                jet.new_job(summing(12, keep="all" if n % 5 == 0 else "", route=route, out=out)).run(60)
                check(jet, 12, out)
                jet.get_list(out).clear()

        both = DAG()
        items = both.new_vertex("items", shmjet.processors.generate(lambda i, n: [i]), 2)
        both.edge(between(items, both.new_vertex("sink", shmjet.processors.write_list(out), 2)).isolated())
        jet.new_job(both).run(60)  # now each worker has opened the lists
        jet.get_list(out).clear()
        jobs(30)
        memory, fds = belongings(pids)
        files = sorted(Path(jet.folder).rglob("*"))
        jobs(200)
        later, fds_later = belongings(pids)
        assert fds_later == fds
        assert all(sum(target.endswith("(deleted)") for target in opened(pid)) < 16 for pid in pids)
        assert sorted(Path(jet.folder).rglob("*")) == files
        assert later - memory < 6 << 20, f"{(later - memory) / 200 / 1024:.1f} KiB a job"


def test_with_little_memory_batches_go_by_the_ring() -> None:
    with shmjet.new_instance(JetConfig(cores=2, ring_memory=1 << 20)) as jet:
        jet.new_job(summing(100, "", column("n"))).run(60)
        check(jet, 100, "sums")


@pytest.mark.slow
def test_a_limit_on_file_sizes_stops_no_job() -> None:
    """RLIMIT_FSIZE makes reserving memory fail half way, as a full /dev/shm does."""
    program = """
        import resource
        import shmjet
        from tests.cluster.test_batches import JetConfig, check, column, summing

        if __name__ == "__main__":
            resource.setrlimit(resource.RLIMIT_FSIZE, (300 << 20, 300 << 20))
            with shmjet.new_instance(JetConfig(cores=2)) as jet:
                jet.new_job(summing(100, "all", column("n"))).run(60)
                check(jet, 100, "sums")
            print("good")
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "good\n"), done.stderr
