"""Batches of two 8-byte columns from one process to another, each summed on arrival, in rows per second.

Both processes are pinned to cores of their own where there are two; the sender offers the same batch repeatedly,
the receiver sums both columns. columns_8k has 8,192 rows in a batch, columns_64k 65,536.

Peers: `in_process_copy`, one process that copies both columns into one of several warm buffers and sums the copy;
`multiprocessing.Pipe`, which pickles the pair of arrays; `pickle5`, the same pair pickled with its buffers out of band
through the same ring. Targets: 0.8, 40 and 4 times.

What limits it: a batch of 8,192 rows costs 2.5 us of Python to write and 4 to read, next to some 12 us to copy and 8 to
sum it. One of 65,536 rows is a megabyte, of which two are in flight; then the copy from core to core counts and nothing
else: at best 9 GB/s, where copy and sum within one process have 10. On such a machine (two virtual cores, 2 MiB of
second-level cache each) 40 times a pipe and 4 times pickle 5, 15 to 18 GB/s, are beyond what memory gives.
"""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from _harness import Bench, Options, Report, parse_options, rate
from _rings import Ring, transfer

from shmjet._native import Codec
from shmjet.data.batch import Batch
from shmjet.ring.arena import reserve
from shmjet.ring.lane import RingLaneReader, RingLaneWriter
from shmjet.ring.slab import IncomingSlabs, OutgoingSlab

BENCHES = {"columns_8k": 8192, "columns_64k": 65_536}
SLAB = 64 << 20
TARGET = "ratio >= 0.8 to in_process_copy, 40 to multiprocessing.Pipe, 4 to pickle5"


def arrays(rows: int) -> tuple[Any, Any]:
    return np.arange(rows), np.arange(rows) / 2


def total(one: Any, two: Any) -> float:
    return float(one.sum()) + float(two.sum())


def through_lane(ring: Ring, item: Any, count: int, rows: int, take: Callable[[Any], float]) -> float:
    """Send `item` so often through a ring lane with a slab; rows per second."""
    ring.reset()
    memory, fd = ring.arena.memory, ring.arena.fd
    at = ring.arena.reserved

    def send() -> None:
        producer, wait = ring.producer()
        slab = OutgoingSlab(memory, at, SLAB, 0, lambda offset, size: reserve(fd, offset, size))
        writer, items = RingLaneWriter(producer, Codec(), slab), [item] * 8
        left = count
        while left:
            slab.forget_last()  # every batch is written anew
            accepted = writer.push(items[: min(left, 1)])
            left -= accepted
            if not accepted:
                wait()

    def receive() -> None:
        consumer, wait = ring.consumer()
        reader = RingLaneReader(consumer, Codec(), IncomingSlabs(memory, [at], SLAB))
        left, expected = count, take(item)
        while left:
            items = reader.pull()
            if items is None:
                wait()
                continue
            assert isinstance(items, list)
            for got in items:
                if take(got) != expected:
                    raise AssertionError("a batch came with other values")
            left -= len(items)
            del items, got

    return transfer(send, receive, count * rows)


def through_pipe(count: int, rows: int) -> float:
    """Send a pair of arrays so often through a pipe; rows per second."""
    ours, theirs = multiprocessing.Pipe()
    item = arrays(rows)
    expected = total(*item)

    def send() -> None:
        for _ in range(count):
            theirs.send(item)

    def receive() -> None:
        for _ in range(count):
            if total(*ours.recv()) != expected:
                raise AssertionError("a pair came with other values")

    try:
        return transfer(send, receive, count * rows)
    finally:
        ours.close()
        theirs.close()


def in_process(count: int, rows: int) -> float:
    """Copy the arrays into one of eight pairs of warm buffers, and sum the copy; rows per second."""
    one, two = arrays(rows)
    expected = total(one, two)
    buffers = [(np.zeros_like(one), np.zeros_like(two)) for _ in range(8)]

    def run() -> None:
        for n in range(count):
            to_one, to_two = buffers[n % 8]
            np.copyto(to_one, one)
            np.copyto(to_two, two)
            if total(to_one, to_two) != expected:
                raise AssertionError("a copy has other values")

    return rate(count * rows, run)


def measure(name: str, rows: int, options: Options, report: Report) -> None:
    count = (400_000_000 if options.quick else 2_000_000_000) // rows
    slow = max(20, count // 50)
    batch = Batch(dict(zip("ab", arrays(rows), strict=True)))
    with Bench(name, "rows/s") as bench:
        ring = bench.resources.enter_context(Ring(1 << 20, 1024, later=SLAB))
        bench.facts = {"target": TARGET, "rows": rows}
        bench.ours(lambda: through_lane(ring, batch, count, rows, lambda b: total(b["a"], b["b"])))
        if options.wants_peer("in_process_copy"):
            bench.peer("in_process_copy", lambda: in_process(count, rows))
        if options.wants_peer("multiprocessing.Pipe"):
            bench.peer("multiprocessing.Pipe", lambda: through_pipe(slow, rows))
        if options.wants_peer("pickle5"):
            bench.peer("pickle5", lambda: through_lane(ring, arrays(rows), slow, rows, lambda pair: total(*pair)))
        report.add(bench.measure(rounds=options.rounds))


def main() -> int:
    options = parse_options(__doc__, list(BENCHES))
    report = Report(options)
    for name, rows in BENCHES.items():
        if options.wants(name):
            measure(name, rows, options, report)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
