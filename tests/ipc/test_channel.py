"""Channels carry messages whole and in order, with their descriptors, and never block a loop."""

from __future__ import annotations

import os
import resource
import socket
import threading
from collections.abc import Iterator

import pytest

from shmjet.execution.messages import Cancel, Finish, Start
from shmjet.ipc.channel import Channel, ChannelClosed

MESSAGES = Start | Cancel | Finish


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel]]:
    left, right = socket.socketpair()
    pair = Channel(left, MESSAGES), Channel(right, MESSAGES)
    yield pair
    for channel in pair:
        channel.close()
        channel.close()


def test_messages_arrive_in_order(ends: tuple[Channel, Channel]) -> None:
    left, right = ends
    for number in range(100):
        left.send(Start(number))
    assert [message.execution_id for message, _ in right.poll()] == list(range(100))
    assert right.poll() == []


def test_a_message_larger_than_the_sockets_buffer_waits_without_blocking(ends: tuple[Channel, Channel]) -> None:
    left, right = ends
    text = "x" * 5_000_000
    left.queue(Finish(1, text))
    left.queue(Start(2))
    assert not left.flush()
    received = []
    while len(received) < 2:
        left.flush()
        received += right.poll()
    assert received == [(Finish(1, text), []), (Start(2), [])]


def test_descriptors_stay_with_their_messages(ends: tuple[Channel, Channel]) -> None:
    left, right = ends
    reader, writer = os.pipe()
    left.send(Start(1))
    left.send(Start(2), [reader, writer])
    left.send(Start(3))
    os.close(reader)
    os.close(writer)
    (_, none), (message, fds), (_, nothing) = (right.receive() for _ in range(3))
    assert (none, nothing, message) == ([], [], Start(2))
    os.write(fds[1], b"through")
    assert os.read(fds[0], 100) == b"through"
    for fd in fds:
        os.close(fd)


def test_descriptors_that_nobody_took_are_closed(ends: tuple[Channel, Channel]) -> None:
    left, right = ends
    reader, writer = os.pipe()
    left.send(Start(1))
    left.send(Start(2), [writer])
    os.close(writer)
    assert right.receive() == (Start(1), [])
    assert right.has_message, "the second one came with the first"
    right.close()
    assert os.read(reader, 1) == b""
    os.close(reader)


def test_the_end_of_the_other_side_is_told_after_its_last_message(ends: tuple[Channel, Channel]) -> None:
    left, right = ends
    left.send(Start(1))
    left.close()
    assert right.poll() == [(Start(1), [])]
    with pytest.raises(ChannelClosed):
        right.poll()
    with pytest.raises(ChannelClosed):
        right.receive()
    with pytest.raises(ChannelClosed):
        for _ in range(3):
            right.send(Start(1))


def test_receive_waits(ends: tuple[Channel, Channel]) -> None:
    left, right = ends
    timer = threading.Timer(0.01, lambda: left.send(Cancel(5)))
    timer.start()
    assert right.receive() == (Cancel(5), [])
    timer.join()


def test_descriptors_that_the_kernel_had_to_drop_are_an_error_that_names_the_limit(
    ends: tuple[Channel, Channel],
) -> None:
    ours, theirs = ends
    reader, writer = os.pipe()
    ours.send(Start(1), [reader, writer])
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))  # fewer than there are: none can be opened
    try:
        with pytest.raises(OSError, match=r"needs 2 more, and has as many open as RLIMIT_NOFILE allows \(3\)"):
            theirs.receive()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        os.close(reader)
        os.close(writer)
