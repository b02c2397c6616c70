"""The peers of `link.py`: bare sockets and pyzmq between two processes, on the same two cores as ours."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import socket
import threading
import time
from collections.abc import Callable, Iterator
from itertools import chain, islice, repeat
from typing import Any

BLOCK = 1 << 20
PAUSE_NS = 2_000_000
"""Nanoseconds between two items whose round trip is measured."""
fork = multiprocessing.get_context("fork")


def pairs_of(count: int, index: int, total: int) -> Iterator[tuple[str, int]]:
    """Pairs on the first member only: 16,384 with 5,000 distinct words, repeated."""
    pairs = [(f"word{i * 7919 % 5000}", i % 1000) for i in range(1 << 14)]
    return islice(chain.from_iterable(repeat(pairs)), 0 if index else count)


def two_cores() -> tuple[int, int]:
    """The cores of both sides of each connection; the same one twice where there is no other."""
    available = sorted(os.sched_getaffinity(0))
    return available[0], available[1 % len(available)]


def settle_on(which: int) -> None:
    """Pin the calling thread, and no other of its process, to one of the two cores."""
    os.sched_setaffinity(threading.get_native_id(), {two_cores()[which]})


def in_two(first: Callable[[], None], second: Callable[[Callable[[Any], None]], None]) -> Any:
    """Run two functions in processes of their own; returns what the second one says.

    Each pins itself by `settle_on` when the threads that it needs are there.
    """
    said = fork.SimpleQueue()
    children = [fork.Process(target=first), fork.Process(target=second, args=(said.put,))]
    for child in children:
        child.start()
    result = said.get()
    for child in children:
        child.join()
    said.close()
    return result


def bare_sockets(count: int) -> float:
    """Bytes per second of a blocking TCP connection that sends blocks of 1 MiB."""
    listener = socket.create_server(("127.0.0.1", 0))

    def send() -> None:
        settle_on(0)
        with socket.create_connection(listener.getsockname()) as sock:
            block = bytes(BLOCK)
            for _ in range(count):
                sock.sendall(block)

    def receive(say: Callable[[Any], None]) -> None:
        settle_on(1)
        sock, _ = listener.accept()
        buffer, left = memoryview(bytearray(BLOCK)), count * BLOCK
        start = time.perf_counter()
        while left:
            left -= sock.recv_into(buffer)
        say(time.perf_counter() - start)
        sock.close()

    with listener:
        return count * BLOCK / float(in_two(send, receive))


def zmq_tuples(count: int) -> float:
    """Tuples per second of pyzmq PUSH/PULL over tcp, in pickled lists of 256."""
    import zmq

    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as free:
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"

    def send() -> None:
        with zmq.Context() as context, context.socket(zmq.PUSH) as sock:
            sock.connect(address)
            settle_on(0)
            pairs = pairs_of(count, 0, 1)
            while portion := list(islice(pairs, 256)):
                sock.send(pickle.dumps(portion, 5))

    def receive(say: Callable[[Any], None]) -> None:
        with zmq.Context() as context, context.socket(zmq.PULL) as sock:
            sock.bind(address)
            settle_on(1)
            got, start = len(pickle.loads(sock.recv())), time.perf_counter()
            while got < count:
                got += len(pickle.loads(sock.recv()))
            say(time.perf_counter() - start)

    return count / float(in_two(send, receive))


def zmq_round_trips(count: int) -> list[float]:
    """Microseconds of REQ/REP over tcp, one every `PAUSE_NS`."""
    import zmq

    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as free:
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"

    def answer() -> None:
        with zmq.Context() as context, context.socket(zmq.REP) as sock:
            sock.bind(address)
            settle_on(1)
            for _ in range(count):
                sock.send(pickle.dumps(pickle.loads(sock.recv())))

    def ask(say: Callable[[Any], None]) -> None:
        times = []
        with zmq.Context() as context, context.socket(zmq.REQ) as sock:
            sock.connect(address)
            settle_on(0)
            for number in range(count):
                start = time.monotonic_ns()
                sock.send(pickle.dumps(number))
                pickle.loads(sock.recv())
                times.append((time.monotonic_ns() - start) / 1e3)
                time.sleep(PAUSE_NS / 1e9)
        say(times[count // 10 :])

    return list(in_two(answer, ask))
