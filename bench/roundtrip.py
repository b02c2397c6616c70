"""A round trip between two Python processes: one item there and one back through two rings, against two pipe ends.

The two processes are pinned to cores of their own and, in the rings' case, spin: what is measured is the path itself,
encoding, publishing, noticing and decoding in both directions, and no sleep. A pipe cannot be spun on from Python
without making it slower, so its readers block. The item is `bytes` of 64.

* roundtrip_p50, roundtrip_p99: percentiles of the trips of a round, in microseconds.

Targets: a ratio of 50 for the median and of 5 for the 99th percentile.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from itertools import pairwise
from time import perf_counter_ns

from _harness import Bench, Options, Report, parse_options

from shmjet._native import RING_HEADER, Codec, RingConsumer, RingProducer, ring_format
from shmjet.ring.arena import Arena

PERCENTILES = {"roundtrip_p50": 0.50, "roundtrip_p99": 0.99}
TARGETS = {"roundtrip_p50": "ratio >= 50", "roundtrip_p99": "ratio >= 5"}
MESSAGE = bytes(range(64))
CAPACITY = 1 << 16
fork = multiprocessing.get_context("fork")


def trips(answer: Callable[[], object], ask: Callable[[list[int]], object], count: int) -> list[int]:
    """Fork a child that runs `answer`, run `ask` here, and return the nanoseconds of each trip that it noted."""
    cores = sorted(os.sched_getaffinity(0))
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.sched_setaffinity(0, {cores[-1]})
            answer()
            status = 0
        finally:
            os._exit(status)
    times = [0] * (count + 1)
    os.sched_setaffinity(0, {cores[0]})
    try:
        ask(times)
    except BaseException:
        os.kill(child, signal.SIGKILL)
        raise
    finally:
        _, status = os.waitpid(child, 0)
        os.sched_setaffinity(0, cores)
    if status:
        raise RuntimeError(f"the answering process ended with status {status}")
    return [after - before for before, after in pairwise(times)]


class Rings:
    """Two rings in one arena, one for each direction, without doorbells: both sides spin."""

    def __init__(self) -> None:
        self._size = RING_HEADER + CAPACITY
        self.arena = Arena.create(2 * self._size, label="bench")

    def __enter__(self) -> Rings:
        return self

    def __exit__(self, *exc: object) -> None:
        self.arena.close()

    def trips(self, count: int) -> list[int]:
        memory = self.arena.memory
        for offset in (0, self._size):
            ring_format(memory, offset, CAPACITY, 1024)
        there, back = 0, self._size

        def answer() -> None:
            codec, push, pull = Codec(), RingProducer(memory, back).push, RingConsumer(memory, there).pull
            for _ in range(count):
                while (items := pull(codec)) is None:
                    pass
                push(codec, items, 0, 1)  # type: ignore[arg-type]

        def ask(times: list[int]) -> None:
            codec, push, pull = Codec(), RingProducer(memory, there).push, RingConsumer(memory, back).pull
            message = [MESSAGE]
            times[0] = perf_counter_ns()
            for i in range(1, count + 1):
                push(codec, message, 0, 1)
                while pull(codec) is None:
                    pass
                times[i] = perf_counter_ns()

        return trips(answer, ask, count)


def through_pipe(count: int) -> list[int]:
    """The same with `Connection.send` and `recv`."""
    here, there = fork.Pipe()

    def answer() -> None:
        for _ in range(count):
            there.send(there.recv())

    def ask(times: list[int]) -> None:
        times[0] = perf_counter_ns()
        for i in range(1, count + 1):
            here.send(MESSAGE)
            here.recv()
            times[i] = perf_counter_ns()

    with here, there:
        return trips(answer, ask, count)


def percentile(times: list[int], share: float) -> float:
    """That percentile in microseconds; the first tenth, in which the processes find each other, is left out."""
    counted = sorted(times[len(times) // 10 :])
    return counted[int(share * len(counted))] / 1e3


def measure(options: Options, name: str) -> Bench:
    """One percentile of both contenders."""
    scale = 1 if options.quick else 4
    share = PERCENTILES[name]
    bench = Bench(name, "us")
    bench.facts = {"target": TARGETS[name], "cores": len(os.sched_getaffinity(0))}
    rings = bench.resources.enter_context(Rings())
    bench.ours(lambda: percentile(rings.trips(250_000 * scale), share))
    bench.peer("multiprocessing.Pipe", lambda: percentile(through_pipe(10_000 * scale), share))
    return bench


def main() -> int:
    options = parse_options(__doc__, list(PERCENTILES))
    report = Report(options)
    for name in PERCENTILES:
        if options.wants(name):
            with measure(options, name) as bench:
                report.add(bench.measure(rounds=options.rounds))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
