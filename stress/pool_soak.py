"""A pool at 70 % load for ten minutes, a worker killed every 20 s: no result lost, nothing hangs, memory stays flat.

Tasks of a few kinds arrive as from a clock, so many that the workers are busy 70 % of the time: arithmetic, arrays that
come back changed, big arrays that travel in files, exceptions, and now and then a `map`. Every result is compared.
Every 20 s a random worker is killed: what it ran raises `BrokenProcessPool` and is submitted again, everything else
must come. Resident memory of client and workers is sampled every half second; its floor, the least in each of 30 parts
of the run, may rise by less than 0.5 MB a minute after the first quarter. In runs of less than five minutes, where the
allocators are still filling their caches, it may rise by 60 MB in all. Nothing may be left behind.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import statistics
import sys
import time
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from _stress import HANG_S, Options, Tally, all_gone, mark_processes, marked, names, parse_options, private_shm, watch

import shmjet

LOAD = 0.7
KILL_EVERY_S = 20.0
PARTS = 30
WARM_UP = 0.25
"""The first part of the run, in which memory may grow."""
LONG_S = 300.0
MOST_MB = 60.0
"""What memory may grow by in a shorter run than `LONG_S`."""
TASK_S = 0.004
"""How long a task works, on average."""
SLOPE = 0.5
"""Megabytes a minute."""
WINDOW = 64
"""Tasks that may be under way at once; a client that is behind waits for them."""


def spin(seconds: float, value: Any) -> Any:
    """Work for so long, then give the value back."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass
    return value


def changed(seconds: float, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Work, then change the array in place and return it."""
    spin(seconds, None)
    array += 1
    return array


def failing(seconds: float, value: int) -> None:
    """Work, then raise."""
    spin(seconds, None)
    raise LookupError(value)


@dataclass
class Job:
    """A task under way, and how its result is judged."""

    kind: str
    submit: Callable[[], Future[Any]]
    judge: Callable[[Future[Any]], bool]
    future: Future[Any] = field(init=False)
    tries: int = 1

    def __post_init__(self) -> None:
        self.future = self.submit()


class Soak:
    """One pool under load."""

    def __init__(self, options: Options, tally: Tally) -> None:
        self.rng = random.Random(options.seed)
        self.options, self.tally = options, tally
        self.pool = shmjet.PoolExecutor(2)
        self.under_way: deque[Job] = deque()
        self.kinds: Counter[str] = Counter()
        self.kills = self.again = 0
        self.memory: list[tuple[float, float]] = []

    def run(self, seconds: float) -> None:
        """Keep the pool busy for so long."""
        start = time.monotonic()
        arrivals = start
        next_kill, next_sample = start + min(KILL_EVERY_S, seconds / 4), start
        for number in itertools.count():
            now = time.monotonic()
            if now - start > seconds:
                break
            watch(60 + 10 * HANG_S)
            self.under_way.append(self.new_job(number))
            arrivals += self.rng.expovariate(LOAD * self.pool.max_workers / TASK_S)
            if now > next_kill:
                self.kill()
                next_kill = now + min(KILL_EVERY_S, seconds / 4)
            if now > next_sample:
                self.memory.append((now - start, self.megabytes()))
                self.options.say(f"{now - start:.1f} s: {self.memory[-1][1]:.1f} MB {self.each()}")
                next_sample = now + 0.5
            while self.under_way and (self.under_way[0].future.done() or len(self.under_way) > WINDOW):
                self.judge(self.under_way.popleft())
            time.sleep(max(0.0, arrivals - time.monotonic()))
            arrivals = max(arrivals, time.monotonic() - 1.0)  # a machine that stood still is not made up for
        while self.under_way:
            self.judge(self.under_way.popleft())
        self.check_memory(seconds)

    def new_job(self, number: int) -> Job:
        """Submit a task of a random kind."""
        seconds = self.rng.expovariate(1 / TASK_S)
        draw = self.rng.random()
        pool = self.pool
        if draw < 0.6:
            return Job("plain", lambda: pool.submit(spin, seconds, number), lambda f: f.result() == number)
        if draw < 0.85:
            small = np.full(1000, number)
            return Job(
                "array", lambda: pool.submit(changed, seconds, small), lambda f: bool((f.result() == number + 1).all())
            )
        if draw < 0.87:
            big = np.full(700_000, number)
            return Job(
                "big array",
                lambda: pool.submit(changed, seconds, big),
                lambda f: bool((f.result() == number + 1).all()),
            )
        if draw < 0.88:
            return Job("map", lambda: mapped(pool, number), lambda f: f.result() == [number + i for i in range(50)])
        return Job(
            "exception",
            lambda: pool.submit(failing, seconds, number),
            lambda f: isinstance(f.exception(), LookupError) and f.exception().args == (number,),  # type: ignore[union-attr]
        )

    def judge(self, job: Job) -> None:
        """Wait for a task and compare its result; one whose worker was killed is tried again."""
        try:
            error = job.future.exception(HANG_S)
        except TimeoutError:
            self.tally.complain(f"HANG: {job.kind} has no result after {HANG_S} s")
            return
        if isinstance(error, BrokenProcessPool):
            self.again += 1
            self.tally.check(job.tries <= 3, f"{job.kind} was lost {job.tries} times")
            job.future = job.submit()
            job.tries += 1
            self.under_way.append(job)
            return
        self.tally.check(job.judge(job.future), f"{job.kind}: wrong result ({error!r})")
        self.kinds[job.kind] += 1
        self.tally.done += 1

    def kill(self) -> None:
        """Kill a random worker."""
        pids = [pid for pid in self.pool.worker_pids if pid]
        if pids:
            try:
                os.kill(self.rng.choice(pids), signal.SIGKILL)
            except ProcessLookupError:
                return
            self.kills += 1

    def megabytes(self) -> float:
        """Resident memory of this process and the workers."""
        pids = [os.getpid(), *(pid for pid in self.pool.worker_pids if pid)]
        total = 0
        for pid in pids:
            try:
                total += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            except (OSError, IndexError):  # it has just been killed
                return self.memory[-1][1] if self.memory else 0.0
        if len(pids) <= self.pool.max_workers:  # one is being replaced
            return self.memory[-1][1] if self.memory else 0.0
        return total * os.sysconf("SC_PAGE_SIZE") / 1e6

    def each(self) -> list[int]:
        """Resident megabytes of this process and each worker, for those who look closer."""
        found = []
        for pid in (os.getpid(), *self.pool.worker_pids):
            try:
                pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            except OSError:
                pages = 0
            found.append(pages * os.sysconf("SC_PAGE_SIZE") // 10**6)
        return found

    def check_memory(self, seconds: float) -> None:
        """See how fast the floor of memory rises; big arrays come and go above it."""
        part = seconds / PARTS
        floors = [
            (at, min(sizes))
            for at in (i * part for i in range(PARTS))
            if (sizes := [size for when, size in self.memory if at <= when < at + part and size])
        ]
        late = [floor for floor in floors if floor[0] >= WARM_UP * seconds]
        slope = theil_sen(late) * 60
        growth = floors[-1][1] - floors[0][1]
        if seconds >= LONG_S:
            self.tally.check(slope < SLOPE, f"memory grows by {slope:.2f} MB a minute, more than {SLOPE}")
        else:
            self.tally.check(growth < MOST_MB, f"memory has grown by {growth:.0f} MB, more than {MOST_MB}")
        print(
            f"pool_soak: {dict(self.kinds)}, {self.kills} kills, {self.again} tasks run again; floor of memory "
            f"{floors[0][1]:.0f} to {floors[-1][1]:.0f} MB, lately {slope:+.2f} MB/min"
        )


def mapped(pool: shmjet.PoolExecutor, number: int) -> Future[Any]:
    """A `map` as a future, so that it is judged like the rest; one that a kill hits is tried again."""
    future: Future[Any] = Future()
    try:
        future.set_result(list(pool.map(spin, itertools.repeat(0.0001), range(number, number + 50))))
    except BrokenProcessPool as error:
        future.set_exception(error)
    return future


def theil_sen(points: list[tuple[float, float]]) -> float:
    """The median of the slopes between any two points: a young worker in an old one's place does not move it."""
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in itertools.combinations(points, 2)]
    return statistics.median(slopes) if slopes else 0.0


def main() -> int:
    options = parse_options(__doc__, count=600, ci=20)
    alone = private_shm()
    mark = mark_processes()
    tally = Tally("pool_soak", options)
    soak = Soak(options, tally)
    soak.run(options.count)
    soak.pool.shutdown()
    tally.check(all_gone(mark, 2.0), f"left behind: processes {list(marked(mark))}")
    if alone:
        tally.check(not names(), f"left in /dev/shm: {names()}")
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
