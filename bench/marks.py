"""What marks and lanes cost one worker of many, counted and not timed, so that two cores say it of 192 workers.

A worker has one producer and one consumer of an edge from all to all, so it writes to as many lanes as there are
workers and reads from as many. An event is a watermark, a barrier or its end that every producer sends, or a list of
items of which every consumer gets one. Counted is what the worker does for it, at both of its ends:

* `calls`: of functions, in Python and from there in C (`sys.setprofile`),
* `records`: put into its lanes and taken from them,
* `bytes`: of its lanes that they take,
* `wake_ups`: of other workers, all of which sleep.

`lane`: what a worker has of an edge whether it is used or not: bytes of rings, and calls to look for news.

Each line gives the costs with 64 workers and then those with 192; the ratio says how much faster than the number
of workers the dearest of them grows. Target: none grows faster, so at most 1. Otherwise the exit status is 1.
"""

from __future__ import annotations

import itertools
import mmap
import struct
import sys
from array import array
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from _harness import Bench, Report, parse_options

from shmjet._native import DOORBELL_SIZE, RING_HEADER, Codec, Doorbell, RingConsumer, RingProducer, ring_format
from shmjet.core.latency_policy import LOW_LATENCY
from shmjet.data.marks import DONE, Barrier, Mark, Watermark
from shmjet.execution.inbound_edge import InboundEdge
from shmjet.execution.outbound_edge import Outbound
from shmjet.execution.partitioned_router import PartitionedRouter
from shmjet.ring.lane import RingLaneReader, RingLaneWriter

FEW, MANY = 64, 192
CAPACITY = 4096
QUEUE_SIZE = 64
SLEEPING_AT = 128
"""Where in a doorbell its owner says that it sleeps (`doorbell.h`)."""


@dataclass(frozen=True)
class Costs:
    """What one event costs a worker."""

    calls: int
    records: int
    bytes: int
    wake_ups: int


class Lanes:
    """Both ends of lanes, each with the bell of its reader.

    Args:
        count: how many.
    """

    def __init__(self, count: int) -> None:
        size = RING_HEADER + CAPACITY
        codec = Codec()
        self.memory_bytes = size * count
        memory = memoryview(mmap.mmap(-1, size * count))
        self._bell_memory = memoryview(mmap.mmap(-1, DOORBELL_SIZE * count))
        self._bells = [Doorbell(self._bell_memory, at * DOORBELL_SIZE) for at in range(count)]
        self.producers: list[RingProducer] = []
        self.writers: list[RingLaneWriter] = []
        self.readers: list[RingLaneReader] = []
        for at, bell in enumerate(self._bells):
            ring_format(memory, at * size, CAPACITY, QUEUE_SIZE)
            self.producers.append(RingProducer(memory, at * size, bell))
            self.writers.append(RingLaneWriter(self.producers[-1], codec))
            self.readers.append(RingLaneReader(RingConsumer(memory, at * size), codec))

    def fall_asleep(self) -> None:
        """Have all readers sleep."""
        for at in range(len(self._bells)):
            struct.pack_into("I", self._bell_memory, at * DOORBELL_SIZE + SLEEPING_AT, 1)

    @property
    def awake(self) -> int:
        """How many readers have been woken."""
        return sum(not bell.sleeping for bell in self._bells)

    @property
    def used_bytes(self) -> int:
        """Bytes that what is in the lanes takes."""
        return sum(producer.capacity - producer.free_bytes for producer in self.producers)

    def empty(self) -> int:
        """Take out what is in the lanes; return the number of records."""
        return sum(1 for reader in self.readers for _ in iter(reader.pull, None))


def calls_of(work: Callable[[], object]) -> int:
    """Run something; return how many functions it has called, generators that went on included."""
    found = 0

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal found
        found += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return found


class Worker:
    """One producer and one consumer of an edge from all to all.

    Args:
        workers: how many producers and consumers the edge has.
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.written, self.read = Lanes(workers), Lanes(workers)
        table = array("H", range(workers))
        delay = LOW_LATENCY.row_delay_ns
        router = PartitionedRouter(self.written.writers, None, _itself, table, "bench", row_delay_ns=delay)
        self.outbound = Outbound(self.written.writers, router)
        self.inbound = InboundEdge(0, self.read.readers)
        self._numbers = itertools.count(1)

    def watermark(self) -> Costs:
        """Send a watermark, and take those of all."""
        return self._mark(Watermark(next(self._numbers)))

    def barrier(self) -> Costs:
        """Send a barrier, and take those of all."""
        return self._mark(Barrier(next(self._numbers)))

    def end(self) -> Costs:
        """Send the end, and take that of all."""
        return self._mark(DONE)

    def items(self) -> Costs:
        """Send an item to each consumer, and take one of each producer."""
        for at, writer in enumerate(self.read.writers):
            writer.push([at])
        return self._counted(lambda: self.outbound.add(list(range(self.workers))))

    def looks(self) -> int:
        """Return the calls that it takes to find that nothing has come."""
        return calls_of(self._drain)

    def _mark(self, mark: Mark) -> Costs:
        for writer in self.read.writers:
            writer.push_mark(mark)
        return self._counted(lambda: self.outbound.add_mark(mark))

    def _counted(self, queue: Callable[[], None]) -> Costs:
        taken_bytes = self.read.used_bytes
        self.written.fall_asleep()

        def work() -> None:
            queue()
            self.outbound.flush_buffered()
            self._drain()

        calls = calls_of(work)
        assert not self.read.used_bytes, "not all was taken"
        used, awake = self.written.used_bytes + taken_bytes, self.written.awake
        return Costs(calls, self.written.empty() + self.workers, used, awake)

    def _drain(self) -> None:
        while self.inbound.drain(QUEUE_SIZE)[2]:
            pass


def _itself(key: Any, count: int) -> int:
    return int(key) % count


EVENTS: dict[str, Callable[[Worker], Costs]] = {
    "watermark": Worker.watermark,
    "barrier": Worker.barrier,
    "items": Worker.items,
    "end": Worker.end,
}


def growth(event: str, few: int, many: int) -> float:
    """Return how much faster than the number of workers the cost of an event grows that grows most.

    Args:
        event: one of `EVENTS`, or `lane`.
        few, many: workers.
    """
    cheap, dear = costs(event, few), costs(event, many)
    return max(dear[name] / cheap[name] for name in cheap) * few / many


def costs(event: str, workers: int) -> dict[str, int]:
    """Return what an event costs a worker, or what its lanes cost (`lane`)."""
    worker = Worker(workers)
    if event == "lane":
        return {"calls": worker.looks(), "bytes": worker.written.memory_bytes}
    return asdict(EVENTS[event](worker))


def main() -> int:
    names = [*EVENTS, "lane"]
    options = parse_options(__doc__, names)
    report, grows = Report(options), False
    for name in names:
        if options.wants(name):
            with Bench(name, "growth by worker", higher_is_better=False) as bench:
                few, many = costs(name, FEW), costs(name, MANY)
                bench.facts = {
                    "target": "at most 1",
                    **{f"{cost} with {FEW} and {MANY}": [few[cost], many[cost]] for cost in few},
                }
                bench.ours(partial(growth, name, FEW, MANY))
                result = bench.measure(rounds=1, warm_up=0)
                grows = grows or result.shmjet is None or result.shmjet > 1
                report.add(result)
    return 1 if grows else report.finish()


if __name__ == "__main__":
    sys.exit(main())
