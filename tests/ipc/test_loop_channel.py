"""The member's end of a connection."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import socket
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from shmjet.cluster.membership.peer_messages import PartLogs
from shmjet.execution.messages import Finish, Start
from shmjet.ipc.channel import LONGEST, Channel
from shmjet.ipc.fair_turns import Turns
from shmjet.ipc.loop_channel import LoopChannel


def test_who_sends_what_is_no_message_loses_the_connection() -> None:
    async def run() -> list[Any]:
        ours, theirs = socket.socketpair()
        closed, events = asyncio.Event(), list[Any]()
        channel = LoopChannel(ours, Start, lambda message, fds: events.append(message), closed.set)
        channel.open()
        other = Channel(theirs, Start)
        other.send(Start(1))
        while not events:
            await asyncio.sleep(0)
        other.send(Finish(2, None))
        await asyncio.wait_for(closed.wait(), 60)
        assert theirs.recv(1) == b""
        other.close()
        return events

    assert asyncio.run(run()) == [Start(1)]


class Ends:
    """A fair channel, what it has passed on, and the other end's socket."""

    def __init__(
        self,
        answer: bytes = b"",
        longest: int = LONGEST,
        clock: Callable[[], float] = time.monotonic,
        kind: type[socket.socket] = socket.socket,
    ) -> None:
        pair = socket.socketpair()
        ours, self.theirs = kind(fileno=pair[0].detach()), pair[1]
        self.theirs.setblocking(False)
        self.events: list[Any] = []
        self.closed = asyncio.Event()
        self.most_between_turns = self._since_turn = 0
        self._answer = answer
        self.channel = LoopChannel(ours, Start, self._take, self.closed.set, longest=longest, turns=Turns(clock))
        self.channel.open()

    def _take(self, message: Any, fds: list[int]) -> None:
        self.events.append(message)
        self._since_turn += 1
        if self._answer:
            self.channel.send(PartLogs(1, [self._answer], 0))

    async def turn(self) -> None:
        """Let the loop do one turn."""
        self._since_turn = 0
        await asyncio.sleep(0)
        self.most_between_turns = max(self.most_between_turns, self._since_turn)

    def close(self) -> None:
        """Close both ends."""
        self.channel.close()
        self.theirs.close()


def encoded(message: object, fds: int = 0) -> bytes:
    body = msgspec.msgpack.encode(message)
    return len(body).to_bytes(4, "little") + bytes([fds]) + body


def test_one_that_sends_without_end_leaves_others_their_turn() -> None:
    async def run() -> tuple[Ends, int]:
        ends = Ends(clock=itertools.count().__next__)  # each step takes all the time that there is
        flood, sent = memoryview(encoded(Start(1)) * 100_000), 0
        for _ in range(500):
            with contextlib.suppress(BlockingIOError):
                sent += ends.theirs.send(flood[sent:])
            await ends.turn()
        ends.close()
        return ends, sent

    ends, sent = asyncio.run(run())
    assert sent > 100_000
    assert len(ends.events) > 1_000
    assert ends.most_between_turns == 16


def test_one_that_is_held_is_not_listened_to() -> None:
    async def run() -> list[int]:
        ends = Ends()
        seen = []
        ends.channel.hold(True)
        ends.theirs.sendall(encoded(Start(1)) * 40)
        for held in (True, False, True, False):
            ends.channel.hold(held)
            for _ in range(20):
                await ends.turn()
            seen.append(len(ends.events))
            ends.theirs.sendall(encoded(Start(1)))
        ends.close()
        return seen

    assert asyncio.run(run()) == [0, 41, 41, 43]


def test_one_that_does_not_read_is_not_listened_to_until_it_does() -> None:
    async def run() -> None:
        ends = Ends(answer=bytes(1 << 16))
        asked = encoded(Start(1)) * 2_000
        ends.theirs.sendall(asked)
        unchanged = 0
        while unchanged < 50:
            before = len(ends.events)
            await ends.turn()
            unchanged = unchanged + 1 if len(ends.events) == before else 0
        assert len(ends.events) < 200
        assert ends.channel.backlog <= 64
        while len(ends.events) < 2_000:
            with contextlib.suppress(BlockingIOError):
                ends.theirs.recv(1 << 20)
            await ends.turn()
        ends.close()

    asyncio.run(asyncio.wait_for(run(), 60))


@pytest.mark.parametrize(
    ("said", "longest"),
    [
        (encoded(Start(1), fds=3), LONGEST),
        ((1 << 20).to_bytes(4, "little") + b"\0", 1 << 16),
        (b"\xff\xff\xff\xff\0", 1 << 30),
        (b"\x03\0\0\0\0\xc1\xc1\xc1", LONGEST),
        (encoded(["\x00"]).replace(b"\xa1\x00", b"\xa1\x94"), LONGEST),
        ((50_000).to_bytes(4, "little") + b"\0" + b"\x92\xa5Start" + b"\x91" * 49_993, LONGEST),
    ],
)
def test_what_cannot_be_a_message_ends_the_connection(
    said: bytes, longest: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> list[Any]:
        ends = Ends(longest=longest)
        ends.theirs.sendall(encoded(Start(7)))
        while not ends.events:
            await ends.turn()
        ends.theirs.sendall(said)
        await asyncio.wait_for(ends.closed.wait(), 60)
        ends.close()
        return ends.events

    assert asyncio.run(run()) == [Start(7)]
    assert "an invalid message" in caplog.text


def test_a_hostile_leftover_ends_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        ours, theirs = socket.socketpair()
        closed = asyncio.Event()
        channel = LoopChannel(ours, Start, lambda message, fds: None, closed.set, turns=Turns())
        channel.open(b"\x03\0\0\0\0\xc1\xc1\xc1")
        await asyncio.wait_for(closed.wait(), 60)
        theirs.close()

    asyncio.run(run())
    assert "an invalid message" in caplog.text


def test_one_that_has_gone_without_a_word_is_gone() -> None:
    """A send to a host that does not answer ends in its own kind of error, and must not be retried forever."""

    class Unreachable(socket.socket):
        def sendmsg(self, *_: Any) -> int:
            raise TimeoutError(errno.ETIMEDOUT, "Connection timed out")

    async def run() -> None:
        ends = Ends(kind=Unreachable)
        ends.channel.send(Start(1))
        await asyncio.wait_for(ends.closed.wait(), 60)
        ends.close()

    asyncio.run(run())
