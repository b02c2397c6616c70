"""PoolExecutor against ProcessPoolExecutor, multiprocessing.Pool, loky and joblib: rates, latency, memory, start.

Every pool has the same number of workers and lives through all rounds of its bench, except in `pool_start`. The
functions are in this module, so that peers can pickle them by name.
"""

from __future__ import annotations

import multiprocessing
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from _harness import Bench, Options, Report, elapsed, installed, parse_options, rate

import shmjet

BENCHES = ["pool_submit", "pool_roundtrip", "pool_map", "pool_map_1MB", "pool_100MB", "pool_memory", "pool_start"]

_MEMORY = """
import os, sys
sys.path.insert(0, {here!r})
import shmjet
from concurrent.futures import ProcessPoolExecutor
from pool import same

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

def most():
    with open("/proc/self/status") as file:  # ru_maxrss would be that of the process which started this one
        return next(int(line.split()[1]) * 1024 / 1e6 for line in file if line.startswith("VmHWM:"))

with {make} as pool:
    list(pool.map(same, range(1000), chunksize=100))
    before = resident()
    seen = 0
    early = None
    for _ in pool.map(same, range({count}), chunksize=1000):
        seen += 1
        if seen == {count} // 10:
            early = resident()
    assert seen == {count}
    print(most() - before, resident() - early)
"""


def same(value: Any) -> Any:
    """The task: as little as there can be."""
    return value


def executors(options: Options) -> dict[str, Callable[[], Executor]]:
    """How each pool that is a `concurrent.futures.Executor` is made, ours first."""
    found: dict[str, Callable[[], Executor]] = {
        "shmjet": lambda: shmjet.PoolExecutor(options.workers),
        "ProcessPoolExecutor": lambda: ProcessPoolExecutor(options.workers),
    }
    if installed("loky"):
        import loky

        found["loky"] = lambda: loky.ProcessPoolExecutor(options.workers)
    return {name: make for name, make in found.items() if name == "shmjet" or options.wants_peer(name)}


def add(bench: Bench, name: str, run: Callable[[], float]) -> None:
    """Add a contender."""
    if name == "shmjet":
        bench.ours(run)
    else:
        bench.peer(name, run)


def warmed(bench: Bench, make: Callable[[], Executor], options: Options) -> Executor:
    """Open a pool and have all its workers started."""
    pool = bench.resources.enter_context(make())
    for future in [pool.submit(time.sleep, 0.05) for _ in range(2 * options.workers)]:
        future.result()
    return pool


def submit(options: Options, report: Report) -> None:
    """Tasks per second, submitted one by one, all results awaited."""
    count = 5_000 if options.quick else 20_000

    def all_of(pool: Executor) -> None:
        for future in [pool.submit(same, i) for i in range(count)]:
            future.result()

    with Bench("pool_submit", "tasks/s") as bench:
        for name, make in executors(options).items():
            pool = warmed(bench, make, options)
            add(bench, name, lambda pool=pool: rate(count, lambda: all_of(pool)))  # type: ignore[misc]
        if options.wants_peer("multiprocessing.Pool"):
            processes = bench.resources.enter_context(multiprocessing.Pool(options.workers))

            def apply_all() -> None:
                for found in [processes.apply_async(same, (i,)) for i in range(count)]:
                    found.get()

            bench.peer("multiprocessing.Pool", lambda: rate(count, apply_all))
        report.add(bench.measure(rounds=options.rounds))


def roundtrip(options: Options, report: Report) -> None:
    """Median time from submitting one task to having its result, with nothing else to do."""
    count = 300 if options.quick else 1000

    def median(call: Callable[[], object]) -> float:
        return statistics.median(elapsed(call) for _ in range(count)) * 1e6

    with Bench("pool_roundtrip", "us") as bench:
        for name, make in executors(options).items():
            pool = warmed(bench, make, options)
            add(bench, name, lambda pool=pool: median(lambda: pool.submit(same, 1).result()))  # type: ignore[misc]
        if options.wants_peer("multiprocessing.Pool"):
            processes = bench.resources.enter_context(multiprocessing.Pool(options.workers))
            bench.peer("multiprocessing.Pool", lambda: median(lambda: processes.apply(same, (1,))))
        report.add(bench.measure(rounds=options.rounds))


def mapping(options: Options, report: Report) -> None:
    """Tiny tasks per second through `map`; ours chooses its chunks, the peers get one hundred tasks each."""
    count = 100_000

    def consume(pool: Executor, chunk: dict[str, int]) -> None:
        assert len(list(pool.map(same, range(count), **chunk))) == count

    with Bench("pool_map", "tasks/s") as bench:
        bench.facts["chunks"] = "shmjet and multiprocessing.Pool choose, the others have 100 items"
        for name, make in executors(options).items():
            pool = warmed(bench, make, options)
            chunk = {} if name == "shmjet" else {"chunksize": 100}
            add(bench, name, partial(rate, count, partial(consume, pool, chunk)))
        if options.wants_peer("multiprocessing.Pool"):
            processes = bench.resources.enter_context(multiprocessing.Pool(options.workers))
            bench.peer("multiprocessing.Pool", lambda: rate(count, lambda: processes.map(same, range(count))))
        joblib_peer(
            bench,
            options,
            lambda parallel, delayed: rate(count, lambda: parallel(delayed(same)(i) for i in range(count))),
        )
        report.add(bench.measure(rounds=options.rounds))


def joblib_peer(bench: Bench, options: Options, run: Callable[[Any, Any], float]) -> None:
    """Add joblib with its own workers (loky's), if it is there."""
    if not installed("joblib"):
        bench.skip("joblib (loky)", "joblib is not installed")
    elif options.wants_peer("joblib (loky)"):
        import joblib

        parallel = bench.resources.enter_context(joblib.Parallel(n_jobs=options.workers, max_nbytes=None))
        bench.peer("joblib (loky)", lambda: run(parallel, joblib.delayed))


def arrays(options: Options, report: Report, name: str, count: int, size: int) -> None:
    """Seconds to map over arrays of `size` bytes, each of which comes back."""
    given = [np.full(size // 8, float(i)) for i in range(count)]

    def consume(pool: Executor) -> None:
        assert sum(int(found[-1]) for found in pool.map(same, given)) == count * (count - 1) // 2

    with Bench(name, "s") as bench:
        for peer, make in executors(options).items():
            pool = warmed(bench, make, options)
            add(bench, peer, lambda pool=pool: elapsed(lambda: consume(pool)))  # type: ignore[misc]
        if options.wants_peer("multiprocessing.Pool"):
            processes = bench.resources.enter_context(multiprocessing.Pool(options.workers))
            bench.peer("multiprocessing.Pool", lambda: elapsed(lambda: list(processes.imap(same, given))))
        joblib_peer(
            bench, options, lambda parallel, delayed: elapsed(lambda: parallel(delayed(same)(a) for a in given))
        )
        report.add(bench.measure(rounds=options.rounds))


def memory(options: Options, report: Report) -> None:
    """Megabytes by which the client grows while it maps over ten million items, and takes each result as it comes."""
    count = 1_000_000 if options.quick else 10_000_000
    growth: dict[str, float] = {}

    def peak(name: str, make: str) -> float:
        program = _MEMORY.format(here=str(Path(__file__).parent), make=make, count=count)
        answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        most, growth[name] = map(float, answer.stdout.split())
        return most

    with Bench("pool_memory", "MB") as bench:
        bench.ours(lambda: peak("shmjet", f"shmjet.PoolExecutor({options.workers})"))
        if options.wants_peer("ProcessPoolExecutor"):
            make = f"ProcessPoolExecutor({options.workers})"
            bench.peer("ProcessPoolExecutor", lambda: peak("ProcessPoolExecutor", make))
        result = bench.measure(rounds=1, warm_up=0)
        bench.facts["growth from a tenth of the items to the last"] = f"{growth['shmjet']:.1f} MB"
        report.add(replace(result, facts=bench.facts))


def start(options: Options, report: Report) -> None:
    """Seconds from making a pool to its first result and its end. ProcessPoolExecutor forks this very process."""

    def once(make: Callable[[], Executor]) -> None:
        with make() as pool:
            assert pool.submit(same, 1).result() == 1

    with Bench("pool_start", "s") as bench:
        for name, make in executors(options).items():
            add(bench, name, lambda make=make: elapsed(lambda: once(make)))  # type: ignore[misc]
        if options.wants_peer("ProcessPoolExecutor (spawn)"):
            context = multiprocessing.get_context("spawn")
            bench.peer(
                "ProcessPoolExecutor (spawn)",
                lambda: elapsed(lambda: once(lambda: ProcessPoolExecutor(options.workers, mp_context=context))),
            )
        report.add(bench.measure(rounds=options.rounds))


def main() -> int:
    """Run the benches that are asked for."""
    options = parse_options(__doc__, BENCHES)
    report = Report(options)
    if options.wants("pool_submit"):
        submit(options, report)
    if options.wants("pool_roundtrip"):
        roundtrip(options, report)
    if options.wants("pool_map"):
        mapping(options, report)
    if options.wants("pool_map_1MB"):
        arrays(options, report, "pool_map_1MB", 200 if options.quick else 1000, 10**6)
    if options.wants("pool_100MB"):
        arrays(options, report, "pool_100MB", 3, 10**8)
    if options.wants("pool_memory"):
        memory(options, report)
    if options.wants("pool_start"):
        start(options, report)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
