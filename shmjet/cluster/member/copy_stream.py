"""Messages with copies of partitions from one member to another: several under way, each taken once and in its order.

Each message has a number, and says which one has to have been taken right before it. A message may be lost, where a
member is not in the view of the other yet or a connection breaks, so what is not answered is sent again; what comes
while one before it is missing is left alone, and comes again. When one has failed, all behind it in the stream have.
Where there is a connection for copies (`copy_lines`), a stream uses that: nothing is lost there before the connection
is. Must not know what the messages are about.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, Protocol

import msgspec

from shmjet.cluster.member.copy_lines import CopyLine
from shmjet.cluster.membership.peer_messages import CopiedPartitions, CopyPartitions
from shmjet.grid.errors import GridError

WINDOW = 4
"""Messages of a stream that are under way at the same time; they have about a megabyte each."""
WINDOW_OF_LINE = 16
"""The same by a connection for copies."""
_REMEMBERED = 16
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

    async def ask(self, uuid: str, message: CopyPartitions, line: CopyLine | None = None) -> None:
        """Have a member take one message, by a connection for copies if there is one. Raises CopyFailed."""
        numbered = msgspec.structs.replace(message, number=next(self._numbers))
        if line is None:
            await self._insist(uuid, numbered)
        else:
            await (await self._send_by(line, uuid, numbered, b""))

    def stream(self, uuid: str, line: CopyLine | None = None) -> CopyStream:
        """Return a stream to a member, by a connection for copies if there is one."""

        async def send(message: CopyPartitions, parcel: bytes | bytearray) -> asyncio.Future[None]:
            if line is not None:
                return await self._send_by(line, uuid, message, parcel)
            if parcel:
                message = msgspec.structs.replace(message, pieces=parcel)
            insisting = asyncio.ensure_future(self._insist(uuid, message))
            await asyncio.sleep(0)  # now it is on its way
            return insisting

        return CopyStream(lambda: next(self._numbers), send, WINDOW if line is None else WINDOW_OF_LINE)

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
        answer = self._expect(uuid, message)

        def send() -> None:
            self._network.send(uuid, message)  # it is lost where this member is not in the view yet

        await self._answered(message, answer, send)

    async def _send_by(
        self, line: CopyLine, uuid: str, message: CopyPartitions, parcel: bytes | bytearray
    ) -> asyncio.Future[None]:
        """Send a message by a connection, and return what is done when it has been taken."""
        answer = self._expect(uuid, message)
        try:
            await line.send(message, parcel)
        except BaseException as error:
            del self._answers[message.number]
            answer.cancel()
            if isinstance(error, OSError):
                raise NoAnswer(str(error)) from None
            raise
        return asyncio.ensure_future(self._answered(message, answer))

    def _expect(self, uuid: str, message: CopyPartitions) -> asyncio.Future[str]:
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._answers[message.number] = uuid, answer
        return answer

    async def _answered(
        self, message: CopyPartitions, answer: asyncio.Future[str], send: Callable[[], None] = lambda: None
    ) -> None:
        """Wait until a message has been taken; it is sent now and again. Raises CopyFailed."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _ANSWER_S
        try:
            while not answer.done():
                send()
                await asyncio.wait({answer}, timeout=_ASK_AGAIN_S)
                if not answer.done() and loop.time() > deadline:
                    raise NoAnswer(f"a member has not answered for {_ANSWER_S:g} s")
            error = answer.result()
        finally:
            self._answers.pop(message.number, None)
            if not answer.cancel() and not answer.cancelled():
                answer.exception()  # who has given up has no use for it
        if error:
            raise CopyFailed(error)


class CopyStream:
    """Messages to one member, which it takes in their order; an async context manager, whose end waits for nothing.

    Args:
        number: gives out numbers that rise.
        send: sends a message and what belongs to it, and gives what is done when the member has taken it, or raises
            CopyFailed.
        window: messages that are under way at the same time.
    """

    def __init__(
        self,
        number: Callable[[], int],
        send: Callable[[CopyPartitions, bytes | bytearray], Awaitable[asyncio.Future[None]]],
        window: int,
    ) -> None:
        self._number = number
        self._send = send
        self._window = window
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

    async def send(self, message: CopyPartitions, parcel: bytes | bytearray = b"") -> None:
        """Send a message as soon as there are few enough under way. Raises CopyFailed where an earlier one has.

        Args:
            message: without `pieces`.
            parcel: these.
        """
        await self._wait(self._window - 1)
        before, self._last = self._last, self._number()
        numbered = msgspec.structs.replace(message, number=self._last, after=before)
        self._under_way.append(await self._send(numbered, parcel))

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
        send: sends a member an answer, where no other way for it is known.
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

    async def take(self, sender: str, message: CopyPartitions, way: Callable[[Any], None] | None = None) -> None:
        """Take a message, if it is its turn, and answer it, the way that it came where that is known."""
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
        if way is None:
            self._send(sender, CopiedPartitions(number, error))
        else:
            way(CopiedPartitions(number, error))

    async def _error_of(self, message: CopyPartitions) -> str:
        try:
            await self._take(message)
        except (GridError, OSError) as failure:
            return str(failure) or type(failure).__name__
        return ""
