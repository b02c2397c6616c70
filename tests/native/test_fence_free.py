"""Small records to a reader that is awake need no fence of their producer's; and who goes to sleep makes up for it."""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import signal
import struct
import time
from collections.abc import Callable

import pytest

from shmjet._native import DOORBELL_SIZE, RING_HEADER, Codec, Doorbell, Poller, RingConsumer, RingProducer, ring_format

FENCE_FREE_AT = 264
ENOUGH = 64
"""Records in a row that find their reader awake before a producer does without fences."""
SYS_MEMBARRIER = 324
CAPACITY = 1 << 14
SECOND = 1_000_000_000
REGISTER = 1 << 2

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="fences cost nothing extra there")


def membarrier() -> bool:
    """Whether the kernel has it, and lets us."""
    return ctypes.CDLL(None, use_errno=True).syscall(SYS_MEMBARRIER, REGISTER, 0, 0) == 0


class Rings:
    """A ring each way between this process and a forked one, which runs `other`."""

    def __init__(self) -> None:
        self.memory = mmap.mmap(-1, 1 << 16)
        for at in (self.at(0), self.at(1)):
            ring_format(self.memory, at, CAPACITY, 1000)

    @staticmethod
    def at(way: int) -> int:
        return 4096 + way * (RING_HEADER + CAPACITY)

    def bell(self, side: int) -> Doorbell:
        return Doorbell(self.memory, side * DOORBELL_SIZE)

    def producer(self, way: int) -> RingProducer:
        """The writing end of a ring whose reader is on side `way`."""
        return RingProducer(self.memory, self.at(way), self.bell(way))

    def consumer(self, way: int) -> RingConsumer:
        return RingConsumer(self.memory, self.at(way), None)

    def is_fence_free(self, way: int) -> bool:
        return struct.unpack_from("<Q", self.memory, self.at(way) + FENCE_FREE_AT)[0] == 1

    def wait(self, side: int, consumer: RingConsumer, timeout_ns: int = 20 * SECOND) -> bool:
        """Sleep for records; at most one wake-up for nothing may come before them."""
        bell, pollers = self.bell(side), [Poller([consumer], [])]
        return bell.wait(pollers, 0, 0, timeout_ns) or bell.wait(pollers, 0, 0, timeout_ns)


def in_a_child(work: Callable[[], object]) -> int:
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return pid


def ended_well(pid: int) -> bool:
    return os.waitpid(pid, 0)[1] == 0


def become_fence_free(rings: Rings, producer: RingProducer, consumer: RingConsumer, codec: Codec) -> None:
    for _ in range(ENOUGH):
        assert producer.push(codec, [1], 0, 1)
        assert consumer.pull(codec, 1) == [1]


@pytest.mark.skipif(not membarrier(), reason="no membarrier here")
def test_nobody_sleeps_through_a_record_that_was_published_without_a_fence() -> None:
    rings, rounds = Rings(), 300

    def answer_every_last_one() -> None:
        incoming, back, codec = rings.consumer(0), rings.producer(1), Codec()
        for _ in range(2 * rounds):
            got: list[int] | None = None
            while got != [-1]:
                got = incoming.pull(codec, 1)
                if got is None:
                    assert rings.wait(0, incoming), "slept for twenty seconds"
            assert back.push(codec, [0], 0, 1)

    pid = in_a_child(answer_every_last_one)
    try:
        outgoing, answers, codec = rings.producer(0), rings.consumer(1), Codec()

        def send_and_wait(items: list[int]) -> None:
            for n in range(len(items)):
                assert outgoing.push(codec, items, n, n + 1)
            while answers.pull(codec, 1) is None:
                assert rings.wait(1, answers), "slept for twenty seconds"

        times_fence_free = 0
        for _ in range(rounds):
            send_and_wait([0] * 2 * ENOUGH + [-1])
            times_fence_free += rings.is_fence_free(0)  # and the child is on its way to sleep
            send_and_wait([-1])
        assert times_fence_free > 0
        assert ended_well(pid)
        pid = 0
    finally:
        if pid:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


@pytest.mark.skipif(not membarrier(), reason="no membarrier here")
def test_a_fence_free_producer_wakes_its_reader_and_starts_anew() -> None:
    rings = Rings()
    producer, consumer, codec = rings.producer(0), rings.consumer(0), Codec()
    become_fence_free(rings, producer, consumer, codec)
    assert rings.is_fence_free(0)

    def sleep_until_it_comes() -> None:
        reader = rings.consumer(0)
        assert rings.wait(0, reader)
        assert reader.pull(Codec(), 1) == [2]

    pid = in_a_child(sleep_until_it_comes)
    deadline = time.monotonic() + 60
    while not rings.bell(0).sleeping and time.monotonic() < deadline:
        pass
    assert producer.push(codec, [2], 0, 1)
    assert ended_well(pid)
    assert not rings.is_fence_free(0)


def forbid_membarrier() -> None:
    """Have every membarrier() of this process fail, as in a container that does not know it."""
    load_number, jump_if, allow, refuse = 0x20, 0x15, 0x7FFF0000, 0x00050000 | 1
    lines = [(load_number, 0, 0, 0), (jump_if, 0, 1, SYS_MEMBARRIER), (0x06, 0, 0, refuse), (0x06, 0, 0, allow)]
    program = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *line) for line in lines))
    header = struct.pack("<H6xQ", len(lines), ctypes.addressof(program))
    libc = ctypes.CDLL(None, use_errno=True)
    pr_set_no_new_privs, pr_set_seccomp, mode_filter = 38, 22, 2
    if libc.prctl(pr_set_no_new_privs, 1, 0, 0, 0) or libc.prctl(pr_set_seccomp, mode_filter, header, 0, 0):
        os._exit(77)
    assert not membarrier()


def needing_seccomp(work: Callable[[], None]) -> None:
    def run() -> None:
        forbid_membarrier()
        work()

    status = os.waitpid(in_a_child(run), 0)[1]
    if os.waitstatus_to_exitcode(status) == 77:
        pytest.skip("no seccomp here")
    assert status == 0


def test_where_membarrier_is_forbidden_every_record_has_its_fence() -> None:
    def work() -> None:
        rings = Rings()
        producer, consumer, codec = rings.producer(0), rings.consumer(0), Codec()
        for _ in range(3):
            become_fence_free(rings, producer, consumer, codec)
            assert not rings.is_fence_free(0)

    needing_seccomp(work)


@pytest.mark.skipif(not membarrier(), reason="no membarrier here")
def test_who_may_not_call_it_sleeps_for_a_fence_free_ring_in_short_naps() -> None:
    rings = Rings()
    become_fence_free(rings, rings.producer(0), rings.consumer(0), Codec())
    struct.pack_into("<Q", rings.memory, rings.at(0) + FENCE_FREE_AT, 1)

    def work() -> None:
        reader = rings.consumer(0)
        start = time.monotonic()
        assert not rings.bell(0).wait([Poller([reader], [])], 0, 0, 60 * SECOND)
        assert time.monotonic() - start < 30

    needing_seccomp(work)
