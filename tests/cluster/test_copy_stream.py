"""Messages with copies over a network that loses some of them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import pytest

from shmjet.cluster.member import copy_stream
from shmjet.cluster.member.copy_stream import CopyFailed, CopySender, CopyTaker, NoAnswer
from shmjet.cluster.membership.peer_messages import CopiedPartitions, CopyPartitions
from shmjet.grid.errors import GridError
from tests.cluster.test_asking_again import until

MESSAGES = [CopyPartitions(1, 0, [number]) for number in range(60)]


class Wire:
    """A sender "a" and a taker "b"."""

    def __init__(self, loss: float = 0.0, fails_at: int = -1) -> None:
        self.taken: list[int] = []
        self.sent = 0
        self.sender = CopySender(self)
        self._chance = random.Random(2)
        self._loss = loss
        self._fails_at = fails_at
        self._taker = CopyTaker(self._answer, self._take)
        self._tasks: set[asyncio.Task[None]] = set()

    async def reach(self, identities: Sequence[str]) -> None:
        await asyncio.sleep(0)

    def send(self, identity: str, message: object) -> None:
        assert isinstance(message, CopyPartitions)
        self.sent += 1
        if self._chance.random() >= self._loss:
            task = asyncio.create_task(self._taker.take("a", message))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _answer(self, identity: str, answer: CopiedPartitions) -> None:
        if self._chance.random() >= self._loss:
            self.sender.answered("b", answer)

    async def _take(self, message: CopyPartitions) -> None:
        await asyncio.sleep(0)
        if message.begin == [self._fails_at]:
            raise GridError("no room")
        self.taken += message.begin


async def send_all(wire: Wire) -> None:
    async with wire.sender.stream("b") as stream:
        for message in MESSAGES:
            await stream.send(message)
        await stream.finish()


def test_each_message_is_taken_once_and_in_order_whatever_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy_stream, "_ASK_AGAIN_S", 0.001)

    async def story() -> None:
        wire = Wire(loss=0.3)
        for _ in range(2):
            await send_all(wire)
            await wire.sender.ask("b", CopyPartitions(1, 0, [99]))
        assert wire.taken == [*range(60), 99, *range(60), 99]

    asyncio.run(story())


def test_nothing_behind_a_message_that_failed_is_taken() -> None:
    async def story() -> None:
        wire = Wire(fails_at=7)
        with pytest.raises(CopyFailed, match="no room"):
            await send_all(wire)
        await wire.sender.ask("b", CopyPartitions(1, 0, [99]))
        assert wire.taken == [*range(7), 99]

    asyncio.run(story())


def test_who_waits_for_answers_is_told_that_a_connection_was_lost() -> None:
    async def story() -> None:
        wire = Wire(loss=1.0)
        sending = asyncio.create_task(send_all(wire))
        await until(lambda: wire.sent == copy_stream.WINDOW)
        wire.sender.connection_lost("b")
        with pytest.raises(NoAnswer, match="connection"):
            await sending

    asyncio.run(story())
