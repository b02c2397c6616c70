from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from shmjet import processors
from shmjet.core.latency_policy import LOW_LATENCY
from shmjet.testing import TestInbox

from .driving import Driver, processors_of


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        yield server


def port_of(server: socket.socket) -> int:
    return int(server.getsockname()[1])


def test_lines_are_read_until_the_other_side_closes(server: socket.socket) -> None:
    (processor,) = processors_of(processors.read_lines_socket("127.0.0.1", port_of(server)))
    assert not processor.is_cooperative
    driver = Driver(processor, room=2)
    connection, _ = server.accept()
    with connection:
        connection.sendall("a\r\nbä".encode()[:-1])
        driver.call(processor.complete)
        connection.sendall("ä".encode()[1:] + b"\n\nlast")
    assert driver.complete(edges=()) == ["a", "bä", "", "last"]


def test_a_quiet_connection_gives_the_engine_its_turn(server: socket.socket) -> None:
    (processor,) = processors_of(processors.read_lines_socket("127.0.0.1", port_of(server)))
    driver = Driver(processor, policy=LOW_LATENCY)
    assert not driver.call(processor.complete)
    processor.close()


def test_items_are_sent_as_lines_also_when_the_other_side_is_slow(server: socket.socket) -> None:
    processor = processors.write_socket("127.0.0.1", port_of(server), lambda n: f"{n:0100}")()
    assert not processor.is_cooperative
    driver = Driver(processor, policy=LOW_LATENCY)
    connection, _ = server.accept()
    received = bytearray()
    go = threading.Event()

    def receive() -> None:
        assert go.wait(60)
        while data := connection.recv(1 << 20):
            received.extend(data)

    receiver = threading.Thread(target=receive)
    receiver.start()
    items = range(100_000)
    inbox = TestInbox(*items)
    driver.call(processor.process, 0, inbox)
    assert len(inbox) == 1  # the kernel's buffers are full, so the engine must call again
    go.set()
    while inbox:
        driver.call(processor.process, 0, inbox)
    driver.complete()
    receiver.join(60)
    connection.close()
    assert bytes(received) == b"".join(b"%0100d\n" % n for n in items)


def test_a_refused_connection_is_an_error(server: socket.socket) -> None:
    port = port_of(server)
    server.close()
    (processor,) = processors_of(processors.read_lines_socket("127.0.0.1", port))
    with pytest.raises(ConnectionRefusedError):
        Driver(processor)
    processor.close()


def test_wrong_addresses_are_refused_where_the_processor_is_made() -> None:
    with pytest.raises(ValueError, match="port"):
        processors.read_lines_socket("localhost", 0)
    with pytest.raises(TypeError, match="host"):
        processors.write_socket("", 80)
