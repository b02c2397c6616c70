"""A pool at 70 % load for ten minutes, a worker killed every 20 s: no result lost, nothing hangs, memory stays flat.

Tasks of a few kinds arrive as from a clock, so many that the workers are busy 70 % of the time: arithmetic, arrays that
come back changed, big arrays that travel in files, exceptions, and now and then a `map`. Every result is compared.
Among them are hostile ones: exceptions and values that exit when they are shown, pickled or unpickled, callbacks that
raise anything, futures that their owner ends. They may cost their own task, and nothing else.
Every 20 s a random worker is killed: what it ran raises `BrokenProcessPool` and is submitted again, everything else
must come. Client and workers may grow by less than 0.5 MB a minute once they are warm (`_growth.py` says how that is
judged). Runs of less than five minutes are too short for a slope; there the client may grow by 60 MB in all. Nothing
may be left behind, no descriptor either.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import random
import signal
import statistics
import sys
import time
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, InvalidStateError
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from _growth import Growth
from _stress import HANG_S, Options, Tally, all_gone, mark_processes, marked, names, parse_options, private_shm, watch

import shmjet
from shmjet.pool.layout import Layout

LOAD = 0.7
KILL_EVERY_S = 20.0
LONG_S = 300.0
MOST_MB = 60.0
"""What the client may grow by in a run shorter than `LONG_S`, while the allocators still fill their caches."""
MOST_PAYLOADS_MB = 40.0
"""Shared memory other than the rings: arrays in files, both in this process and in transit."""
MOST_FILES = 8
"""Descriptors that there may be more at the end: those of payloads that are just on their way."""
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


def leave(*_: object) -> None:
    """Exit, wherever this is called."""
    raise SystemExit("called")


class Hostile(Exception):
    """Exits at what `where` names: its text, its pickling, its unpickling; or unpickles to a number."""

    def __init__(self, where: str) -> None:
        super().__init__(where)
        self.where = where

    def __str__(self) -> str:
        if self.where == "text":
            leave()
        return self.where

    def __reduce__(self) -> Any:
        if self.where == "pickle":
            leave()
        return {"load": (leave, ()), "number": (int, (7,))}.get(self.where, (Hostile, (self.where,)))

    def __setattr__(self, name: str, value: object) -> None:
        if name == "__cause__":
            leave()
        super().__setattr__(name, value)


HOSTILE = ("text", "pickle", "load", "number", "no place")
BASES = (SystemExit, KeyboardInterrupt, GeneratorExit, MemoryError, RecursionError)


def attack(seconds: float, where: str) -> Any:
    """Work, then return or raise something hostile."""
    spin(seconds, None)
    if where.startswith("value "):
        return Hostile(where.removeprefix("value "))
    for kind in BASES:
        if kind.__name__ == where:
            raise kind("raised")
    raise Hostile(where)


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
        self.growth = Growth()

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
                self.options.say(self.growth.sample(now - start, self.pool.worker_pids))
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
        if draw < 0.94:
            return self.attack(seconds)
        return Job(
            "exception",
            lambda: pool.submit(failing, seconds, number),
            lambda f: isinstance(f.exception(), LookupError) and f.exception().args == (number,),  # type: ignore[union-attr]
        )

    def attack(self, seconds: float) -> Job:
        """Submit a hostile task, or treat an honest one badly; its end has to come, whatever that is."""
        pool, rng = self.pool, self.rng
        values = [f"value {where}" for where in HOSTILE]
        where = rng.choice([*HOSTILE, *values, *(kind.__name__ for kind in BASES)])
        treatment = rng.choice(["none", "callback", "result", "run", "cancel"])

        def submit() -> Future[Any]:
            future = pool.submit(attack, seconds, where)
            with contextlib.suppress(InvalidStateError, RuntimeError):
                if treatment == "callback":
                    future.add_done_callback(leave)
                elif treatment == "result":
                    future.set_result("its owner's")
                elif treatment == "run":
                    future.set_running_or_notify_cancel()
                elif treatment == "cancel":
                    future.cancel()
            return future

        return Job("attack", submit, lambda future: future.done())

    def judge(self, job: Job) -> None:
        """Wait for a task and compare its result; one whose worker was killed is tried again."""
        try:
            error = job.future.exception(HANG_S)
        except TimeoutError:
            self.tally.complain(f"HANG: {job.kind} has no result after {HANG_S} s")
            return
        except CancelledError:
            error = None
        if isinstance(error, BrokenProcessPool) and job.kind != "attack":
            self.again += 1
            self.tally.check(job.tries <= 3, f"{job.kind} was lost {job.tries} times")
            job.future = job.submit()
            job.tries += 1
            self.under_way.append(job)
            return
        self.tally.check(job.judge(job.future), f"{job.kind}: wrong result ({type(error).__name__})")
        self.kinds[job.kind] += 1
        self.tally.done += 1

    def kill(self) -> None:
        """Kill a random worker."""
        pids = self.pool.worker_pids
        if pids:
            try:
                os.kill(self.rng.choice(pids), signal.SIGKILL)
            except ProcessLookupError:
                return
            self.kills += 1

    def check_memory(self, seconds: float) -> None:
        """See whether anything grows."""
        growth = self.growth
        floors = growth.floors(growth.client, seconds)
        rise = floors[-1][1] - floors[0][1]
        client, worker = growth.client_slope(seconds), growth.worker_slope()
        if seconds >= LONG_S:
            for who, slope in (("the client", client), ("a worker", worker)):
                self.tally.check(slope < SLOPE, f"{who} grows by {slope:.2f} MB a minute, more than {SLOPE}")
        else:
            self.tally.check(rise < MOST_MB, f"the client has grown by {rise:.0f} MB, more than {MOST_MB}")
        shared, most = growth.shared[-1][1], Layout(self.pool.max_workers).size / 2**20 + MOST_PAYLOADS_MB
        self.tally.check(shared < most, f"{shared:.0f} MB of shared memory, more than the rings and what is on its way")
        early, late = (statistics.median(part) for part in (growth.descriptors[:20], growth.descriptors[-20:]))
        self.tally.check(late <= early + MOST_FILES, f"descriptors: {early} at the beginning, {late} at the end")
        print(
            f"pool_soak: {dict(self.kinds)}, {self.kills} kills, {self.again} tasks run again; floor of the client's "
            f"memory {floors[0][1]:.0f} to {floors[-1][1]:.0f} MB, lately {client:+.2f} MB/min; a worker {worker:+.2f} "
            f"MB/min; shared {shared:.0f} MB, {late:.0f} descriptors"
        )


def mapped(pool: shmjet.PoolExecutor, number: int) -> Future[Any]:
    """A `map` as a future, so that it is judged like the rest; a map that a kill hits is tried again."""
    future: Future[Any] = Future()
    try:
        future.set_result(list(pool.map(spin, itertools.repeat(0.0001), range(number, number + 50))))
    except BrokenProcessPool as error:
        future.set_exception(error)
    return future


def main() -> int:
    options = parse_options(__doc__, count=600, ci=60)
    alone = private_shm()
    mark = mark_processes()
    tally = Tally("pool_soak", options)
    logging.getLogger("concurrent.futures").setLevel(logging.CRITICAL)  # what callbacks raise, and there are many
    soak = Soak(options, tally)
    soak.run(options.count)
    soak.pool.shutdown()
    tally.check(all_gone(mark), f"left behind: processes {list(marked(mark))}")
    if alone:
        tally.check(not names(), f"left in /dev/shm: {names()}")
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
