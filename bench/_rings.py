"""Two pinned processes with a ring between them, for the benches of rings and columns."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

from shmjet._native import DOORBELL_SIZE, RING_HEADER, Doorbell, Poller, RingConsumer, RingProducer, ring_format
from shmjet.ring.arena import Arena

SPIN_NS = 50_000
SECOND = 1_000_000_000


def transfer(send: Callable[[], object], receive: Callable[[], object], count: float) -> float:
    """Run `send` in a forked child and `receive` here; `count` things per second between the start and the last one."""
    ready, go = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            pin(1)
            os.write(ready[1], b"r")
            os.read(go[0], 1)
            send()
            status = 0
        finally:
            os._exit(status)
    before = os.sched_getaffinity(0)
    try:
        pin(0)
        os.read(ready[0], 1)
        start = time.perf_counter()
        os.write(go[1], b"g")
        receive()
        seconds = time.perf_counter() - start
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        raise
    finally:
        _, status = os.waitpid(pid, 0)
        os.sched_setaffinity(0, before)
        for fd in (*ready, *go):
            os.close(fd)
    if status:
        raise RuntimeError(f"the sending process ended with status {status}")
    return count / seconds


def pin(index: int) -> None:
    """Keep this process on one core; the two sides get different ones."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) > 1:
        os.sched_setaffinity(0, {cores[index % len(cores)]})


class Ring:
    """A ring in an arena of its own; both ends sleep on doorbells, as the engine's do."""

    def __init__(self, capacity: int, queue_size: int, later: int = 0) -> None:
        size = -(-(4096 + RING_HEADER + capacity) // 4096) * 4096
        self.arena = Arena.create(size, label="bench", later=later)
        self.capacity, self.queue_size = capacity, queue_size

    def __enter__(self) -> Ring:
        return self

    def __exit__(self, *exc: object) -> None:
        self.arena.close()

    def reset(self) -> None:
        ring_format(self.arena.memory, 4096, self.capacity, self.queue_size)

    def bell(self, side: int) -> Doorbell:
        return Doorbell(self.arena.memory, side * DOORBELL_SIZE)

    def producer(self) -> tuple[RingProducer, Callable[[], object]]:
        """Return the writing end, and what to call when it refuses."""
        producer = RingProducer(self.arena.memory, 4096, self.bell(1))
        bell, pollers = self.bell(0), [Poller([], [producer])]
        return producer, lambda: bell.wait(pollers, 0, SPIN_NS, SECOND)

    def consumer(self) -> tuple[RingConsumer, Callable[[], object]]:
        """Return the reading end, and what to call when it is empty."""
        consumer = RingConsumer(self.arena.memory, 4096, self.bell(0))
        bell, pollers = self.bell(1), [Poller([consumer], [])]
        return consumer, lambda: bell.wait(pollers, 0, SPIN_NS, SECOND)
