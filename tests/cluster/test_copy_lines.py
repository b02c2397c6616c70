"""Copies by connections of their own: whole, in order, no more at once than is stored, and ended when one breaks."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from shmjet.cluster.member import copy_lines
from shmjet.cluster.member.copy_lines import CopyLine, CopyLines
from shmjet.cluster.member.copy_stream import CopyFailed, CopySender, CopyTaker, NoAnswer
from shmjet.cluster.membership.peer_messages import CopiedPartitions, CopyPartitions
from shmjet.grid.errors import GridError
from tests.cluster.test_asking_again import until

PARCELS = [os.urandom(size) for size in (0, 1, 300_000, 5, 1 << 20, 0, 70_000)] * 3


class Pair:
    """A sender "a" and a taker "b", and a network between them that brings nothing but connections."""

    def __init__(self) -> None:
        self.taken: list[tuple[list[int], bytes]] = []
        self.may_take = asyncio.Event()
        self.may_take.set()
        self.coming = 0
        self.connects = True
        self.ends: list[socket.socket] = []
        self.sender = CopySender(self)
        self._taker = CopyTaker(self.send, self._take)
        self.here = CopyLines(self._connect, self._nothing, self.sender.answered, self.sender.connection_lost)
        self.there = CopyLines(self._connect, self._come, lambda *_: None, lambda _: None)

    async def reach(self, identities: Sequence[str]) -> None:
        pass

    def send(self, identity: str, message: object) -> None:
        pass

    async def _connect(self, identity: str) -> socket.socket | None:
        if not self.connects:
            return None
        ours, theirs = socket.socketpair()
        self.ends.append(theirs)
        self.there.taken("a", theirs)
        return ours

    async def _nothing(self, sender: str, message: Any, way: Callable[[Any], None]) -> None:
        raise AssertionError

    async def _come(self, sender: str, message: CopyPartitions, way: Callable[[Any], None]) -> None:
        assert sender == "a"
        self.coming += 1
        await self._taker.take(sender, message, way)

    async def _take(self, message: CopyPartitions) -> None:
        await self.may_take.wait()
        if message.begin == [-1]:
            raise GridError("no room")
        self.taken.append((message.begin, bytes(message.pieces)))

    async def copy(self, parcels: Sequence[bytes], first: int = 0) -> None:
        """Send parcels by a connection."""
        line = await self.here.to("b")
        assert line is not None
        async with self.sender.stream("b", line) as stream:
            for number, parcel in enumerate(parcels, first):
                await stream.send(CopyPartitions(1, 0, [number]), parcel)
            await stream.finish()


def tell(story: Callable[[Pair], Coroutine[Any, Any, None]]) -> None:
    """Tell a story of two members."""

    async def main() -> None:
        pair = Pair()
        try:
            async with asyncio.timeout(60):
                await story(pair)
        finally:
            await pair.here.stop()
            await pair.there.stop()

    asyncio.run(main())


def test_all_parcels_are_taken_whole_and_in_their_order() -> None:
    async def story(pair: Pair) -> None:
        await pair.copy(PARCELS)
        await pair.copy(PARCELS[:3], 50)
        numbered = [*enumerate(PARCELS), *enumerate(PARCELS[:3], 50)]
        assert pair.taken == [([number], parcel) for number, parcel in numbered]
        assert len(pair.ends) == 1, "one connection for all"

    tell(story)


def test_a_member_takes_no_more_than_it_can_store() -> None:
    async def story(pair: Pair) -> None:
        pair.may_take.clear()
        copying = asyncio.create_task(pair.copy([b"x" * 1000] * 10))
        await until(lambda: pair.coming == copy_lines.MOST_TAKEN)
        for _ in range(100):
            await asyncio.sleep(0)
        assert pair.coming == copy_lines.MOST_TAKEN
        pair.may_take.set()
        await copying
        assert len(pair.taken) == 10

    tell(story)


def test_a_copy_that_is_not_taken_fails_and_the_connection_goes_on() -> None:
    async def story(pair: Pair) -> None:
        with pytest.raises(CopyFailed, match="no room"):
            await pair.copy([b"x"] * 40, -1)
        await pair.copy([b"y"])
        assert pair.taken == [([0], b"y")]
        assert len(pair.ends) == 1

    tell(story)


def test_a_connection_that_breaks_ends_the_copy_and_is_not_made_again_at_once() -> None:
    async def story(pair: Pair) -> None:
        pair.may_take.clear()
        copying = asyncio.create_task(pair.copy(PARCELS))
        await until(lambda: pair.coming)
        pair.ends[0].shutdown(socket.SHUT_RDWR)
        with pytest.raises(NoAnswer):
            await copying
        pair.may_take.set()
        assert await pair.here.to("b") is None

    tell(story)


@pytest.mark.parametrize("data", [struct.pack("<II", 1 << 30, 1), struct.pack("<II", 3, 0) + b"\xc1ab"])
def test_what_is_no_message_ends_the_connection(data: bytes) -> None:
    async def story(pair: Pair) -> None:
        ours, theirs = socket.socketpair()
        with ours:
            ours.setblocking(False)
            pair.there.taken("a", theirs)
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(ours, data)
            assert await loop.sock_recv(ours, 1) == b""

    tell(story)


def test_a_member_to_which_there_is_no_connection_is_not_asked_for_one_each_time() -> None:
    async def story(pair: Pair) -> None:
        pair.connects = False
        assert await pair.here.to("b") is None
        pair.connects = True
        assert await pair.here.to("b") is None
        assert await pair.here.to("c") is not None

    tell(story)


def test_connections_end_with_the_member_at_the_other_end() -> None:
    async def story(pair: Pair) -> None:
        await pair.copy([b"x"])
        line = await pair.here.to("b")
        assert line is not None
        pair.there.connection_lost("a")
        await until(lambda: line.is_closed)
        with pytest.raises(OSError, match="closed"):
            await line.send(CopiedPartitions(1, ""))

    tell(story)


def test_who_sends_when_a_connection_is_closed_is_told_so() -> None:
    async def story(_: Pair) -> None:
        ours, theirs = socket.socketpair()

        async def take(line: CopyLine, message: Any, parcel: memoryview) -> None:
            raise AssertionError

        with theirs:
            line = CopyLine(ours, CopiedPartitions, take, lambda _: None)
            running = asyncio.create_task(line.run())
            sending = asyncio.create_task(line.send(CopiedPartitions(1, ""), bytes(8 << 20)))
            await asyncio.to_thread(theirs.recv, 1)
            line.close()
            with pytest.raises(OSError):
                await sending
            await running

    tell(story)
