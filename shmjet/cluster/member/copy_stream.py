"""Messages with copies of partitions from one member to another: several under way, each taken once and in its order.

Each message has a number, and says which one has to have been taken right before it. A message may be lost, where a
member is not in the view of the other yet or a connection breaks, so what is not answered is sent again; what comes
while one before it is missing is left alone, and comes again. When one has failed, all behind it in the stream have.
Must not know what the messages are about.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Protocol

import msgspec

from shmjet.cluster.membership.peer_messages import CopiedPartitions, CopyPartitions
from shmjet.grid.errors import GridError

WINDOW = 4
"""Messages of a stream that are under way at the same time; they have about a megabyte each."""
_REMEMBERED = 4 * WINDOW
"""Answers to a sender that are remembered, should one be asked for again."""
_ANSWER_S = 60.0
"""How long a member may take to store what a message has."""
_ASK_AGAIN_S = 0.5
"""When a message is sent again."""


class NetworkOfCopies(Protocol):
    """The member's network, as far as copies are concerned."""

    def send(self, identity: str, message: object) -> None: ...
    async def reach(self, identities: Sequence[str]) -> None: ...


class CopyFailed(Exception):
    """A member has not taken a message."""


class NoAnswer(CopyFailed):
    """It is not known whether a member has taken a message."""


class CopySender:
    """Sends messages and knows their answers.

    Args:
        network: of the member.
    """

    def __init__(self, network: NetworkOfCopies) -> None:
        self._network = network
        self._numbers = itertools.count(1)
        self._answers: dict[int, tuple[str, asyncio.Future[str]]] = {}

    async def ask(self, uuid: str, message: CopyPartitions) -> None:
        """Have a member take one message. Raises CopyFailed."""
        await self._insist(uuid, msgspec.structs.replace(message, number=next(self._numbers)))

    def stream(self, uuid: str) -> CopyStream:
        """Return a stream to a member."""
        return CopyStream(lambda: next(self._numbers), lambda message: self._insist(uuid, message))

    def answered(self, sender: str, message: CopiedPartitions) -> None:
        """Take an answer."""
        asked, answer = self._answers.get(message.number, ("", None))
        if asked == sender and answer is not None and not answer.done():
            answer.set_result(message.error)

    def connection_lost(self, uuid: str) -> None:
        """Take that the connection to a member has broken, or that the member is gone."""
        for other, answer in list(self._answers.values()):
            if other == uuid and not answer.done():
                answer.set_exception(NoAnswer("the connection to the member was lost"))

    async def _insist(self, uuid: str, message: CopyPartitions) -> None:
        try:
            await self._network.reach([uuid])
        except OSError as unreachable:
            raise NoAnswer(str(unreachable)) from None
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[str] = loop.create_future()
        self._answers[message.number] = uuid, answer
        deadline = loop.time() + _ANSWER_S
        try:
            while not answer.done():
                self._network.send(uuid, message)  # it is lost where this member is not in the view yet
                await asyncio.wait({answer}, timeout=_ASK_AGAIN_S)
                if not answer.done() and loop.time() > deadline:
                    raise NoAnswer(f"a member has not answered for {_ANSWER_S:g} s")
            error = answer.result()
        finally:
            self._answers.pop(message.number, None)
        if error:
            raise CopyFailed(error)


class CopyStream:
    """Messages to one member, which it takes in their order; an async context manager, whose end waits for nothing.

    Args:
        number: gives out numbers that rise.
        insist: has the member take a message, or raises CopyFailed.
    """

    def __init__(self, number: Callable[[], int], insist: Callable[[CopyPartitions], Awaitable[None]]) -> None:
        self._number = number
        self._insist = insist
        self._last = 0
        self._under_way: list[asyncio.Future[None]] = []

    async def __aenter__(self) -> CopyStream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)

    async def send(self, message: CopyPartitions) -> None:
        """Send a message as soon as there are few enough under way. Raises CopyFailed where an earlier one has."""
        await self._wait(WINDOW - 1)
        before, self._last = self._last, self._number()
        numbered = msgspec.structs.replace(message, number=self._last, after=before)
        self._under_way.append(asyncio.ensure_future(self._insist(numbered)))
        await asyncio.sleep(0)  # now it is on its way

    async def finish(self) -> None:
        """Wait until all has been taken. Raises CopyFailed."""
        await self._wait(0)

    async def _wait(self, most: int) -> None:
        while len(self._under_way) > most:
            await self._under_way[0]
            del self._under_way[0]


class CopyTaker:
    """Takes messages and answers them.

    Args:
        send: sends a member an answer.
        take: does what a message says, or raises GridError or OSError.
    """

    def __init__(
        self, send: Callable[[str, CopiedPartitions], None], take: Callable[[CopyPartitions], Awaitable[None]]
    ) -> None:
        self._send = send
        self._take = take
        self._taking = asyncio.Lock()
        self._answers: dict[str, dict[int, str]] = {}
        """By sender: its last messages by their numbers, with what was answered."""

    async def take(self, sender: str, message: CopyPartitions) -> None:
        """Take a message, if it is its turn, and answer it."""
        async with self._taking:
            answers = self._answers.setdefault(sender, {})
            number, last = message.number, next(reversed(answers), 0)
            if number not in answers:
                if number < last or message.after not in (0, last):
                    return
                answers[number] = (message.after and answers[last]) or await self._error_of(message)
                if len(answers) > _REMEMBERED:
                    del answers[next(iter(answers))]
            error = answers[number]
        self._send(sender, CopiedPartitions(number, error))

    async def _error_of(self, message: CopyPartitions) -> str:
        try:
            await self._take(message)
        except (GridError, OSError) as failure:
            return str(failure) or type(failure).__name__
        return ""
