"""Kills workers and carriers of busy instances, at any moment, with several jobs under way.

Each run starts a few random jobs (chains of all routings, of items or of batches of columns, writers to lists,
processors with a process of their own, suppliers that are looked at in a worker first), waits a random moment and kills
a random worker or carrier. Every job that used it must fail within half a second with `WorkerLostError` naming worker,
pid, signal and vertices; every other one must go on; the worker must be replaced, and a further job on all workers must
give the right result.
"""

from __future__ import annotations

import functools
import itertools
import os
import random
import signal
import sys
import time
from collections import deque
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from _stress import (
    HANG_S,
    Options,
    Tally,
    Times,
    all_gone,
    mark_processes,
    marked,
    name_of,
    names,
    parse_options,
    private_shm,
    wait_until,
    watch,
)

import shmjet
from shmjet import (
    DAG,
    AbstractProcessor,
    Batch,
    Inbox,
    JetConfig,
    JetInstance,
    Processor,
    Text,
    WorkerLostError,
    between,
    column,
    processors,
)

RENEW_AFTER = 50
"""Kills that one instance sees before a new one is made, with other settings."""


class Endless(Processor):
    """Emits numbers, or pairs of them, until it is killed."""

    def __init__(self, pause: float = 0.0) -> None:
        self._pause = pause
        self._next = 0

    def complete(self) -> bool:
        if self._pause:
            time.sleep(self._pause)
        batch = [(self._next + i, "x" * 20) for i in range(64)]
        self._next += self.outbox.offer_all(batch)
        return False


class EndlessBatches(Processor):
    """Emits batches until it is killed: small ones, which lie in the ring, and large ones, in slots of a slab."""

    def __init__(self) -> None:
        self._small = Batch({"n": np.arange(100), "x": np.arange(100) / 2})
        self._large = Batch({"n": np.arange(8192), "t": Text.of([f"row {n}" for n in range(8192)])})
        self._next = self._small

    def complete(self) -> bool:
        while self.outbox.offer(self._next):
            self._next = self._large if self._next is self._small else self._small
        return False


class Keep(Processor):
    """Hands batches on, and keeps the last hundred of them: views of slots."""

    def __init__(self) -> None:
        self._kept: deque[Batch] = deque(maxlen=100)

    def process(self, ordinal: int, inbox: Inbox) -> None:
        while inbox and self.outbox.offer(inbox.peek()):
            self._kept.append(inbox.remove())


class Blocking(AbstractProcessor):
    """Hands items on, in a process of its own."""

    is_cooperative = False

    def try_process_any(self, ordinal: int, item: Any) -> bool:
        return self.try_emit(item)


class Pass(AbstractProcessor):
    """Hands items on."""

    def process(self, ordinal: int, inbox: Inbox) -> None:
        if self.outbox.offer_all(inbox._items[inbox._pos : inbox._pos + 1]):
            inbox.remove()


@dataclass
class Running:
    """A job under way, and what was seen of it."""

    execution: shmjet.Execution
    dag: DAG
    carriers: bool
    ended_at: float | None = None
    places: dict[str, set[int]] = field(default_factory=dict)

    def look(self) -> None:
        """Note on which workers its processors are."""
        self.places = {
            name: {processor.worker for processor in vertex.processors}
            for name, vertex in self.execution.metrics().vertices.items()
        }

    def ended(self, _: object) -> None:
        self.ended_at = time.perf_counter()

    def is_placed(self) -> bool:
        """Whether it has a plan, or its end behind it."""
        return self.execution.done() or bool(self.execution.metrics().vertices)

    def has_emitted_more(self, seen: int) -> bool:
        """Whether it goes on, or has its end behind it."""
        return self.execution.done() or self.emitted() > seen

    def emitted(self) -> int:
        return self.execution.metrics().vertices["source"].emitted_count


def random_job(rng: random.Random, jet: JetInstance) -> Running:
    """Start a random endless job."""
    dag = DAG()
    carriers = rng.random() < 0.4
    wide = rng.choice([1, 1, 2, 4, -1])
    # A lambda's manners are unknown, so that a worker is asked first; a class tells them itself.
    endless: Any = Endless if rng.random() < 0.5 else (lambda: Endless(0.001))
    batches = rng.random() < 0.4
    source = dag.new_vertex("source", EndlessBatches if batches else endless, rng.choice([1, wide]))
    stages = [source]
    for number in range(rng.randint(0, 2)):
        stages.append(dag.new_vertex(f"stage{number}", Keep if batches else Pass, wide))
    if carriers:
        stages.append(dag.new_vertex("carried", Blocking, rng.choice([1, 2])))
    stages.append(dag.new_vertex("sink", processors.noop(), wide))
    for above, below in itertools.pairwise(stages):
        edge = between(above, below)
        match rng.randrange(4):
            case 0:
                edge.partitioned(column("n") if batches else lambda item: item[0])
            case 1:
                edge.broadcast()
            case 2:
                edge.all_to_one()
        dag.edge(edge)
    running = Running(jet.new_job(dag).execute(), dag, carriers)
    running.execution.add_done_callback(running.ended)
    return running


def works(jet: JetInstance, number: int) -> bool:
    """Run a job over all workers and compare its result."""
    dag = DAG()
    source = dag.new_vertex("items", processors.read_items(range(500)), 1)
    middle = dag.new_vertex("square", processors.map(lambda x: x * x))
    sink = dag.new_vertex("sink", processors.write_list(f"out{number}"))
    dag.edge(between(source, middle).partitioned(lambda x: x)).edge(between(middle, sink))
    jet.new_job(dag).run(HANG_S)
    found = jet.get_list(f"out{number}")
    good = sorted(found) == [x * x for x in range(500)]
    found.destroy()
    return good


def carriers_of(mark: str, workers: int) -> list[int]:
    """The pids of all carriers."""
    found = []
    for pid in marked(mark):
        name = name_of(pid)
        if name.startswith("shmjet-w") and name[8:].isdigit() and int(name[8:]) >= workers:
            found.append(pid)
    return found


class Killer:
    """One instance under fire."""

    def __init__(self, options: Options, rng: random.Random, tally: Tally, times: Times, again: Times) -> None:
        self.options, self.rng, self.tally, self.times, self.again = options, rng, tally, times, again
        self.mark = mark_processes()
        self.workers = rng.choice([2, 2, 3, 4])
        self.stealing = rng.random() < 0.5
        self.jet = shmjet.new_instance(JetConfig(cores=self.workers, work_stealing=self.stealing))
        self.folder = self.jet.folder
        self.kills = 0

    def one(self, number: int) -> None:
        """Kill once."""
        rng, tally, jet = self.rng, self.tally, self.jet
        jobs = [random_job(rng, jet) for _ in range(rng.choice([0, 1, 2, 3, 3, 4]))]
        time.sleep(rng.choice([0.0, rng.random() * 0.01, rng.random() * 0.1]))
        carriers = carriers_of(self.mark, self.workers) if rng.random() < 0.4 else []
        before = jet.cluster.members[0].workers
        index = rng.randrange(self.workers)
        victim = rng.choice(carriers) if carriers else before[index]
        for job in jobs:
            job.look()
        at = time.perf_counter()
        try:
            os.kill(victim, signal.SIGKILL)
        except ProcessLookupError:  # a carrier on its way out
            victim = 0
        what = f"kill {number} of {'carrier' if carriers else f'worker {index}'} (pid {victim})"
        used = []
        for job in jobs:
            on_it = {name for name, where in job.places.items() if index in where}
            if not victim:
                continue
            if not carriers and on_it and (not self.stealing or on_it & {"source", "sink"}):
                used.append(job)
        for job in used:
            self.expect_lost(job, at, victim, index, what)
        if carriers and victim:
            wait_until(lambda: any(job.execution.done() for job in jobs if job.carriers), HANG_S)
            lost = [job for job in jobs if job.execution.done()]
            tally.check(len(lost) == 1, f"{what}: {len(lost)} jobs failed, not one")
            for job in lost:
                self.expect_lost(job, at, victim, -1, what)
        self.others(jobs, at, victim, index, bool(carriers), what)
        begun = time.perf_counter()
        replaced = wait_until(lambda: victim not in jet.cluster.members[0].workers)
        tally.check(replaced, f"{what}: the worker is not replaced")
        try:
            tally.check(works(jet, number), f"{what}: the next job gave a wrong result")
        except Exception as error:
            tally.complain(f"{what}: the next job failed: {type(error).__name__}: {error}")
        self.again.add(time.perf_counter() - begun)
        self.kills += 1
        tally.done += 1
        self.options.say(f"{what}: {len(jobs)} jobs, {len(used)} used it")

    def expect_lost(self, job: Running, at: float, victim: int, index: int, what: str) -> None:
        """The job must fail soon, with an error that says all."""
        tally = self.tally
        try:
            error = job.execution.exception(HANG_S)
        except FutureTimeout:
            tally.complain(f"{what}: HANG: {job.execution} with {job.places} does not end")
            return
        except CancelledError:
            tally.complain(f"{what}: {job.execution} was cancelled")
            return
        if not tally.check(isinstance(error, WorkerLostError), f"{what}: got {type(error).__name__}: {error}"):
            return
        assert isinstance(error, WorkerLostError)
        if not tally.check(wait_until(lambda: job.ended_at is not None, HANG_S), f"{what}: no callback was called"):
            return
        assert job.ended_at is not None
        took = job.ended_at - at
        self.times.add(took)
        if took > self.times.target:
            self.options.say(f"SLOW: {what}: {took:.3f} s, stealing {self.stealing}, {job.places}")
        text = str(error)
        place = "carrier" if index < 0 else f"worker {index}"
        good = error.pid == victim and error.signal == signal.SIGKILL and f"{place} (pid {victim})" in text
        tally.check(good and "SIGKILL" in text, f"{what}: the error names another one: {text}")
        expected = {name for name, where in job.places.items() if index in where}
        named = set(error.vertices)
        if index < 0:
            tally.check(named == {"carried"}, f"{what}: names the vertices {named}")
        elif not self.stealing:
            tally.check(named == expected, f"{what}: names the vertices {named} instead of {expected}")
        else:
            tally.check(named & expected and named <= set(job.places), f"{what}: names the vertices {named}")
        tally.check(all(repr(name) in text for name in named), f"{what}: the text names no vertices: {text}")

    def others(self, jobs: list[Running], at: float, victim: int, index: int, carrier: bool, what: str) -> None:
        """Every other job goes on, unless it was not placed yet or a tasklet had moved; then end them all."""
        for job in jobs:
            fuzzy = not job.places or (self.stealing and not carrier) or (carrier and job.carriers)
            # A job that was starting may have been given the dead worker after the check.
            if wait_until(job.execution.done, 0.02 if fuzzy else 0.0):
                error = job.execution.exception(0)
                if isinstance(error, WorkerLostError) and error.pid == victim:
                    on_it = any(index in where for where in job.places.values())
                    self.tally.check(fuzzy or on_it, f"{what}: a job that did not use it failed: {error}")
                else:
                    self.tally.complain(f"{what}: a bystander failed: {type(error).__name__}: {error}")
                continue
            going = wait_until(job.is_placed)
            if going and not job.execution.done():
                seen = job.emitted()
                going = wait_until(functools.partial(job.has_emitted_more, seen))
            if job.execution.done():
                error = job.execution.exception(0)
                good = fuzzy and isinstance(error, WorkerLostError) and error.pid == victim
                self.tally.check(good, f"{what}: a bystander failed later: {type(error).__name__}: {error}")
                continue
            self.tally.check(going, f"{what}: HANG: a job that did not use it stands still: {job.execution}")
            job.execution.cancel()
        for job in jobs:
            try:
                job.execution.exception(HANG_S)
            except CancelledError:
                pass
            except FutureTimeout:
                self.tally.complain(f"{what}: HANG: cancel() does not end {job.execution}")

    def close(self) -> None:
        """End the instance; nothing may stay."""
        self.jet.shutdown()
        gone = all_gone(self.mark) and not self.folder.exists()
        self.tally.check(gone, f"left behind: processes {list(marked(self.mark))}, folder {self.folder.exists()}")


def main() -> int:
    options = parse_options(__doc__, count=1000, ci=30)
    alone = private_shm()
    rng = random.Random(options.seed)
    tally = Tally("kill_workers", options)
    times = tally.timing("killed to WorkerLostError", 0.5)
    again = tally.timing("replaced and the next job done", 2.0)
    killer: Killer | None = None
    for number in range(options.count):
        watch(10 * HANG_S)
        if killer is None:
            killer = Killer(options, rng, tally, times, again)
        killer.one(number)
        if killer.kills == RENEW_AFTER or number == options.count - 1:
            killer.close()
            killer = None
    if alone:
        tally.check(not names(), f"left in /dev/shm: {names()}")
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
