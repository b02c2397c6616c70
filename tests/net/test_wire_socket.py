"""How a connection between members is tuned."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from shmjet.net import wire_socket

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def loopback() -> Iterator[Pair]:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as client:
        server, _ = listener.accept()
        with closing(server):
            yield client, server


def send_buffer(sock: socket.socket) -> int:
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)


@pytest.mark.skipif(
    int(Path("/proc/sys/net/core/wmem_max").read_text()) < wire_socket.NEAR_BUFFER,
    reason="net.core.wmem_max is too small",
)
def test_little_is_under_way_to_a_member_on_this_host(loopback: Pair) -> None:
    for sock in loopback:
        assert wire_socket.round_trip_us(sock) < 1_000_000, "the system has measured the handshake"
    for sock in loopback:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(wire_socket, "NEAR_US", 1_000_000)  # however busy this machine was
            wire_socket.tune_near(sock)
        assert send_buffer(sock) == 2 * wire_socket.NEAR_BUFFER


def test_a_long_way_keeps_the_buffer_that_the_system_lets_grow(loopback: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    before = [send_buffer(sock) for sock in loopback]
    monkeypatch.setattr(wire_socket, "round_trip_us", lambda _: wire_socket.NEAR_US + 1)
    for sock in loopback:
        wire_socket.tune_near(sock)
    assert [send_buffer(sock) for sock in loopback] == before


def test_a_socket_without_round_trips_is_left_alone() -> None:
    one, other = socket.socketpair()
    with closing(one), closing(other):
        before = send_buffer(one)
        wire_socket.tune_near(one)
        assert send_buffer(one) == before
