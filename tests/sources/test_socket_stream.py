"""`socket_stream`: lines as they come, without asking for them; and the thread that waits for them."""

from __future__ import annotations

import math
import os
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import shmjet
from shmjet import JobFailedError, Pipeline, ProcessingGuarantee, sinks, sources
from shmjet.core.wake_up import set_wake_up
from shmjet.data.marks import Watermark
from shmjet.execution.plan import declaration
from shmjet.processors.streams.readable import ReadableThread
from shmjet.testing import TestContext, TestOutbox
from tests.processors.driving import processors_of


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        yield server


def port_of(server: socket.socket) -> int:
    return int(server.getsockname()[1])


class Started:
    """A processor that has been started, and the event that is set when it is woken."""

    def __init__(self, source: Any) -> None:
        (self.processor,) = processors_of(source.supplier)
        self.woken = threading.Event()
        self.outbox = TestOutbox()
        context = TestContext()
        set_wake_up(context, self.woken.set)
        self.processor.init(self.outbox, context)

    def call(self) -> list[Any]:
        """Call it until it waits, and return what it emitted."""
        out: list[Any] = []
        while True:
            ended = self.processor.complete()
            out += self.outbox.drain()
            if ended or self.processor.next_call:
                return out

    def next(self) -> list[Any]:
        """Wait until it is woken, and call it."""
        assert self.woken.wait(60)
        self.woken.clear()
        return self.call()


def test_it_sleeps_until_lines_come_and_ends_with_the_connection(server: socket.socket) -> None:
    started = Started(sources.socket_stream("127.0.0.1", port_of(server)))
    connection, _ = server.accept()
    with connection:
        assert started.call() == []
        assert started.processor.next_call == math.inf
        connection.sendall("a\r\nbä".encode()[:-1])
        assert started.next() == ["a"]
        connection.sendall("ä".encode()[1:] + b"\n\nlast")
        found = started.next()
        while len(found) < 2:
            found += started.next()
        assert found == ["bä", ""]
    assert started.next() == ["last"]
    assert started.processor.complete()
    started.processor.close()


def test_a_thread_wakes_once_for_each_time_that_it_is_armed() -> None:
    reader, writer = os.pipe()
    woken = threading.Semaphore(0)
    thread = ReadableThread(reader, woken.release)
    os.write(writer, b"x")
    assert not woken.acquire(timeout=0.02)  # it is not armed
    thread.arm()
    assert woken.acquire(timeout=60)
    assert not woken.acquire(timeout=0.02)
    thread.arm()  # nothing was read
    assert woken.acquire(timeout=60)
    thread.close()
    os.close(reader)
    os.close(writer)


def test_it_promises_nothing_and_is_endless() -> None:
    source = sources.socket_stream("localhost", 5000)
    assert source.guarantee is ProcessingGuarantee.NONE
    assert declaration(source.supplier, "is_endless") is True


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        (("", 5000), TypeError, "socket_stream: expected a host name"),
        (("h", 0), ValueError, "socket_stream: port must be 1 to 65535"),
    ],
)
def test_wrong_addresses_are_refused(arguments: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        sources.socket_stream(*arguments)
    with pytest.raises(LookupError):
        sources.socket_stream("h", 1, charset="no-such")


def test_a_job_ends_with_the_connection_and_one_without_a_server_fails(
    server: socket.socket, eventually: Any, jet: shmjet.JetInstance
) -> None:
    p = Pipeline()
    source = sources.socket_stream("127.0.0.1", port_of(server))
    p.read_from(source).with_ingestion_timestamps().write_to(sinks.list("lines"))
    execution = jet.new_job(p).execute()
    connection, _ = server.accept()
    found = jet.get_list("lines")
    with connection:
        connection.sendall(b"one\n")
        eventually(lambda: list(found) == ["one"])
        connection.sendall(b"two\n")
        eventually(lambda: list(found) == ["one", "two"])
    execution.result(60)
    assert not any(isinstance(item, Watermark) for item in found)
    server.close()
    with pytest.raises(JobFailedError, match="ConnectionRefusedError"):
        jet.new_job(p).run(60)
