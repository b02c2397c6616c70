"""Sleeping and waking: nothing is lost, no one waits for long, signals get through."""

from __future__ import annotations

import mmap
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from shmjet._native import (
    DOORBELL_SIZE,
    RING_HEADER,
    Codec,
    Doorbell,
    Poller,
    RingConsumer,
    RingProducer,
    clock_ns,
    ring_format,
)

SECOND = 1_000_000_000


def make_bell() -> Doorbell:
    return Doorbell(mmap.mmap(-1, 4096), 0)


@contextmanager
def forked(child: object) -> Iterator[int]:
    """Run a function in a forked child; it must return within the test."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            child()  # type: ignore[operator]
            status = 0
        finally:
            os._exit(status)
    try:
        yield pid
    finally:
        _, status = os.waitpid(pid, 0)
    assert status == 0


def test_a_command_is_seen_before_and_during_the_wait(eventually: object) -> None:
    bell = make_bell()
    bell.post()
    assert bell.wait([], 0, 0, 10 * SECOND)
    assert bell.commands == 1
    results: list[bool] = []
    sleeper = threading.Thread(target=lambda: results.append(bell.wait([], 1, 0, 10 * SECOND)))
    sleeper.start()
    eventually(lambda: bell.sleeping)  # type: ignore[operator]
    bell.post()
    sleeper.join()
    assert results == [True]
    assert not bell.sleeping


def test_a_wait_ends_after_its_timeout() -> None:
    start = clock_ns()
    assert not make_bell().wait([], 0, 0, SECOND // 100)
    assert SECOND // 100 <= clock_ns() - start < 5 * SECOND


def test_no_timeout_means_only_a_look() -> None:
    start = clock_ns()
    assert not make_bell().wait([], 0, 0, 0)
    assert clock_ns() - start < SECOND


def test_a_bare_ring_wakes_a_sleeper_that_sees_nothing(eventually: object) -> None:
    bell = make_bell()
    results: list[bool] = []
    sleeper = threading.Thread(target=lambda: results.append(bell.wait([], 0, 0, 10 * SECOND)))
    start = clock_ns()
    sleeper.start()
    eventually(lambda: bell.sleeping)  # type: ignore[operator]
    bell.ring()
    sleeper.join()
    assert results == [False]
    assert clock_ns() - start < 9 * SECOND


def test_a_signal_handler_runs_while_its_process_sleeps(eventually: object) -> None:
    bell = make_bell()
    seen: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))
    try:
        killer = threading.Thread(
            target=lambda: (eventually(lambda: bell.sleeping), os.kill(os.getpid(), signal.SIGUSR1))  # type: ignore[operator]
        )
        killer.start()
        start = clock_ns()
        while not seen and clock_ns() - start < 9 * SECOND:
            bell.wait([], 0, 0, 10 * SECOND)
        killer.join()
        assert seen == [signal.SIGUSR1]
        assert clock_ns() - start < 9 * SECOND
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_wait_refuses_what_is_no_poller() -> None:
    with pytest.raises(TypeError, match="Poller"):
        make_bell().wait([object()], 0, 0, 0)  # type: ignore[list-item]


def test_no_wake_up_is_lost_between_two_processes_that_both_sleep() -> None:
    """A ring of one item, so that each side must sleep for the other repeatedly."""
    memory = mmap.mmap(-1, 1 << 16)
    ring_format(memory, 1024, 4096, 1)
    bells = [Doorbell(memory, 0), Doorbell(memory, DOORBELL_SIZE)]
    assert len(memory) > 1024 + RING_HEADER + 4096
    count, codec = 5000, Codec()

    def produce() -> None:
        producer = RingProducer(memory, 1024, bells[1])
        pollers = [Poller([], [producer])]
        for i in range(count):
            while not producer.push(codec, [i], 0, 1):
                assert bells[0].wait(pollers, 0, 0, 20 * SECOND)

    consumer = RingConsumer(memory, 1024, bells[0])
    pollers = [Poller([consumer], [])]
    with forked(produce):
        expected = 0
        while expected < count:
            got = consumer.pull(codec)
            if got is None:
                start = clock_ns()
                bells[1].wait(pollers, 0, 0, 20 * SECOND)
                assert clock_ns() - start < 15 * SECOND, "a wake-up was lost"
            else:
                assert got == [expected]
                expected += 1
