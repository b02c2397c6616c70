"""Connections between members for copies of partitions: with large messages, and nothing else behind them.

By the links each byte of a copy would pass four more processes, and be held up by what else is there. A frame is a
message and, behind it, a parcel of pieces as they are: what is in it is encoded once. Answers come back the same way.
So much is under way that reading, sending and storing go on at the same time; a receiver takes no more while it has
enough to do. A connection that breaks ends the copies that are under way; they begin anew. Must not know what messages
mean, nor how connections are made.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec

from shmjet.cluster.membership.peer_messages import CopiedPartitions, CopyPartitions
from shmjet.data.decoders import msgpack_decoder
from shmjet.ipc.background_tasks import BackgroundTasks
from shmjet.ipc.decode_errors import UNREADABLE

_HEAD = struct.Struct("<II")
"""Bytes of the message, and of the parcel behind it."""
_LONGEST = 1 << 30
MOST_TAKEN = 3
"""Frames of a connection that are being taken at the same time: one is stored, others come."""
_AGAIN_S = 30.0
"""When a member is tried again whose connection could not be made, or has broken; copies go by the links meanwhile."""
_BULK = 0x08
"""The type of service of what is large and has time: of a host's packets it goes last, where these are told apart."""

logger = logging.getLogger("shmjet.member")


class _Lost(Exception):
    """The other end is gone, or says what cannot be understood."""


class Take(Protocol):
    """Takes what comes."""

    def __call__(self, sender: str, message: Any, way: Callable[[Any], None]) -> Awaitable[None]:
        """Take a message and answer it by `way`; its parcel is memory that is used again afterwards."""


class CopyLine:
    """One connection; both ends are such.

    Args:
        sock: connected; owned by this object.
        receives: the type of messages that come here.
        take: is called with each message and its parcel, some at the same time, in their order.
        gone: called once when the connection has ended.
    """

    def __init__(
        self,
        sock: socket.socket,
        receives: Any,
        take: Callable[[CopyLine, Any, memoryview], Awaitable[None]],
        gone: Callable[[CopyLine], None],
    ) -> None:
        sock.setblocking(False)
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, _BULK)
        self._sock = sock
        self._decode = msgpack_decoder(receives).decode
        self._encode = msgspec.msgpack.Encoder().encode
        self._take = take
        self._gone = gone
        self._sending = asyncio.Lock()
        self._rooms = [bytearray() for _ in range(MOST_TAKEN)]
        self._room_is_free = asyncio.Semaphore(MOST_TAKEN)
        self._tasks = BackgroundTasks()
        self.is_closed = False

    async def send(self, message: object, parcel: bytes | bytearray = b"") -> None:
        """Send a message and what belongs to it. Raises OSError where the connection is gone, or breaks."""
        encoded = self._encode(message)
        async with self._sending:
            if self.is_closed:
                raise OSError("the connection is closed")
            loop = asyncio.get_running_loop()
            try:
                await loop.sock_sendall(self._sock, _HEAD.pack(len(encoded), len(parcel)) + encoded)
                if parcel:
                    await loop.sock_sendall(self._sock, parcel)
            except BaseException:  # a part of it may have gone
                self.close()
                raise

    def close(self) -> None:
        """End it; may be called twice. `run` returns soon."""
        if not self.is_closed:
            self.is_closed = True
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_RDWR)

    def dispose(self) -> None:
        """Let go of the socket of a connection that does not run, and will not."""
        self._sock.close()

    async def run(self) -> None:
        """Receive until the connection ends."""
        try:
            while True:
                await self._receive()
        except (OSError, _Lost) as error:
            logger.debug("a connection for copies has ended: %s", str(error))
        finally:
            self.close()
            await self._tasks.cancel()
            async with self._sending:  # who sends has found out
                self.dispose()
            self._gone(self)

    async def _receive(self) -> None:
        await self._room_is_free.acquire()
        room = self._rooms.pop()
        if len(room) < _HEAD.size:
            room = bytearray(_HEAD.size)
        await self._fill(memoryview(room)[: _HEAD.size])
        size, more = _HEAD.unpack_from(room)
        if size + more > _LONGEST:
            raise _Lost(f"a message of {size + more} bytes; {_LONGEST} are allowed")
        if len(room) < size + more:
            room = bytearray(size + more)
        frame = memoryview(room)[: size + more]
        await self._fill(frame)
        try:
            message = self._decode(frame[:size])
        except UNREADABLE as error:
            raise _Lost(str(error)) from None
        self._tasks.start(self._pass_on(message, frame[size:], room))

    async def _fill(self, view: memoryview) -> None:
        loop = asyncio.get_running_loop()
        while view:
            got = await loop.sock_recv_into(self._sock, view)
            if not got:
                raise _Lost("the other end has closed it")
            view = view[got:]

    async def _pass_on(self, message: Any, parcel: memoryview, room: bytearray) -> None:
        try:
            await self._take(self, message, parcel)
        finally:
            self._rooms.append(room)
            self._room_is_free.release()

    def answer(self, message: object) -> None:
        """Send an answer, if the connection is still there."""
        self._tasks.start(self._answer(message))

    async def _answer(self, message: object) -> None:
        with contextlib.suppress(OSError):
            await self.send(message)


class CopyLines:
    """The connections of one member, which it or others have made.

    Args:
        connect: makes one to a member; gives None where that cannot be done.
        take: takes what others send.
        answered: takes an answer of a member.
        lost: is told of a member to which a connection has ended.
    """

    def __init__(
        self,
        connect: Callable[[str], Awaitable[socket.socket | None]],
        take: Take,
        answered: Callable[[str, CopiedPartitions], None],
        lost: Callable[[str], None],
    ) -> None:
        self._connect = connect
        self._take = take
        self._answered = answered
        self._lost = lost
        self._made: dict[str, CopyLine] = {}
        self._taken: dict[CopyLine, str] = {}
        self._all: set[CopyLine] = set()
        self._not_before: dict[str, float] = {}
        self._tasks = BackgroundTasks()

    async def to(self, identity: str) -> CopyLine | None:
        """Return a connection to a member, where there is one or can be made."""
        line = self._made.get(identity)
        if line is not None and not line.is_closed:
            return line
        loop = asyncio.get_running_loop()
        if loop.time() < self._not_before.get(identity, 0):
            return None
        sock = await self._connect(identity)
        if sock is None:
            self._not_before[identity] = loop.time() + _AGAIN_S
            return None

        async def take(_: CopyLine, message: CopiedPartitions, parcel: memoryview) -> None:
            self._answered(identity, message)

        def gone(line: CopyLine) -> None:
            self._all.discard(line)
            if self._made.get(identity) is line:
                del self._made[identity]
                self._not_before[identity] = loop.time() + _AGAIN_S
                self._lost(identity)

        self._made[identity] = line = self._run(CopyLine(sock, CopiedPartitions, take, gone))
        return line

    def taken(self, identity: str, sock: socket.socket) -> None:
        """Receive copies of a member by a connection that it has made."""

        async def take(line: CopyLine, message: CopyPartitions, parcel: memoryview) -> None:
            if parcel:
                message = msgspec.structs.replace(message, pieces=parcel)
            await self._take(identity, message, line.answer)

        def gone(line: CopyLine) -> None:
            self._all.discard(line)
            del self._taken[line]

        self._taken[self._run(CopyLine(sock, CopyPartitions, take, gone))] = identity

    def _run(self, line: CopyLine) -> CopyLine:
        self._all.add(line)
        self._tasks.start(line.run())
        return line

    def let_go(self) -> None:
        """End the connections that this member has made: there is nothing to be copied now."""
        made, self._made = self._made, {}
        for line in made.values():
            line.close()

    def connection_lost(self, identity: str) -> None:
        """Take that a member is gone, or cannot be heard."""
        made = self._made.pop(identity, None)
        for line in [*(line for line, sender in self._taken.items() if sender == identity), made]:
            if line is not None:
                line.close()

    async def stop(self) -> None:
        """End all."""
        await self._tasks.cancel()
        for line in self._all:  # its task has not begun
            line.dispose()
