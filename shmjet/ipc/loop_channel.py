"""A `Channel` on the member's event loop: messages come by callback, writing never blocks the loop."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from shmjet.ipc.channel import LONGEST, Channel, ChannelClosed, DescriptorsDropped
from shmjet.ipc.fair_turns import Turns
from shmjet.ipc.rate_limited_log import RateLimitedLog

_MOST_IN_TURN = 16
"""Messages that are passed on in one turn."""
_MOST_UNREAD = 64
MOST_UNREAD_BYTES = 8 << 20
"""Messages, and bytes, that may wait for the other end to read; with turns nothing more is taken from it then."""

logger = logging.getLogger("shmjet.member")
_words = RateLimitedLog(logger)


class LoopChannel:
    """One connection of a member.

    Args:
        sock: connected; owned by this object.
        receives: the union of structs that may arrive.
        on_message: called with each message and its descriptors, which it owns then.
        on_closed: called once when the other end is gone.
        on_delayed: called when something was written that an earlier `send` had to leave.
        longest: bytes of a message at most.
        turns: where others must not suffer from what the other end does. Then of what it sends a little is taken when
            it has its turn, and nothing while it does not read what it was sent.
    """

    def __init__(
        self,
        sock: socket.socket,
        receives: Any,
        on_message: Callable[[Any, list[int]], None],
        on_closed: Callable[[], None],
        on_delayed: Callable[[], None] | None = None,
        *,
        longest: int = LONGEST,
        turns: Turns | None = None,
    ) -> None:
        self._channel = Channel(sock, receives, longest)
        self._turns = turns
        self._held = False
        self._reading = False
        self._later: deque[tuple[Any, list[int]]] = deque()
        """What has come and has not been passed on yet."""
        self._stalled = False
        """Whether nothing is taken before the other end has read, or its owner lets go."""
        self._on_message = on_message
        self._on_closed = on_closed
        self._on_delayed = on_delayed
        self._loop: asyncio.AbstractEventLoop | None = None
        self._writing = False
        self._closed = False
        self._to_close: list[int] = []
        self._until_read: list[asyncio.Future[None]] = []

    def open(self, leftover: bytes = b"") -> None:
        """Start reading; needs the running loop.

        Args:
            leftover: what has been read from the socket before it came here.
        """
        self._loop = asyncio.get_running_loop()
        self._read_on()
        if leftover:
            self._loop.call_soon(self._take_leftover, leftover)

    def _take_leftover(self, leftover: bytes) -> None:
        if not self._closed:
            self._understood(lambda: self._channel.feed(leftover))
            self._readable()

    def hold(self, held: bool) -> None:
        """Take no more of what the other end sends, or go on; only with turns."""
        self._held = held
        self._go_on_if_stalled()

    def queue(self, message: object) -> None:
        """Add a message to what the next `send` or `flush` sends."""
        if not self._closed:
            self._channel.queue(message)

    def send(self, message: object, fds: Sequence[int] = ()) -> None:
        """Send a message, or as much of it as the socket takes, the rest when it takes more.

        The descriptors must stay open until then: see `when_flushed`. Nothing is sent to an end that is gone.
        """
        if not self._closed:
            self._channel.queue(message, fds)
            self.flush()

    @property
    def backlog(self) -> int:
        """Messages that have not left, because the other end does not read."""
        return self._channel.backlog

    async def until_read(self) -> None:
        """Wait until the other end has read most of what it was sent, or is gone."""
        while self._has_much_unread:
            assert self._loop is not None
            read = self._loop.create_future()
            self._until_read.append(read)
            await read

    @property
    def _has_much_unread(self) -> bool:
        return not self._closed and self._writing and self._channel.unsent >= MOST_UNREAD_BYTES

    def _tell_of_room(self) -> None:
        if self._until_read and not self._has_much_unread:
            for read in self._until_read:
                if not read.done():
                    read.set_result(None)
            self._until_read.clear()

    def when_flushed(self, fds: Sequence[int]) -> None:
        """Close these descriptors when all that was sent so far has left."""
        self._to_close += fds
        self._close_sent()

    def flush(self) -> None:
        """Send what is queued, or as much of it as the socket takes."""
        if self._closed:
            return
        assert self._loop is not None
        try:
            flushed = self._channel.flush()
        except ChannelClosed:
            self._loop.call_soon(self._gone)
            return
        if flushed and self._writing:
            self._loop.remove_writer(self._channel.fileno())
            self._writing = False
        elif not flushed and not self._writing:
            self._loop.add_writer(self._channel.fileno(), self._writable)
            self._writing = True
        self._close_sent()
        self._go_on_if_stalled()
        self._tell_of_room()

    def _writable(self) -> None:
        self.flush()
        if self._on_delayed is not None:
            self._on_delayed()

    def _close_sent(self) -> None:
        if not self._writing:
            for fd in self._to_close:
                os.close(fd)
            self._to_close.clear()

    def _readable(self) -> None:
        if self._closed:
            return
        if self._turns is None:
            self._take()
        elif not self._turns.now(self._take):
            self._pause()
            self._turns.add(self._take)

    def _take(self) -> None:
        """Read, and pass on what has come: with turns a little, and the rest when others have had theirs."""
        if self._closed:
            return
        if self._turns is None or not self._later:
            self._understood(self._poll)
        most = len(self._later) if self._turns is None else _MOST_IN_TURN
        try:
            while self._later and most > 0 and not self._closed and not self._must_wait:
                message, fds = self._later.popleft()
                most -= 1
                self._on_message(message, fds)
        finally:
            if not self._closed:
                self._go_on()

    def _go_on(self) -> None:
        """Read on, or when there is time, or when the other end has read."""
        if self._must_wait:
            self._pause()
            self._stalled = True
        elif not self._later:
            self._read_on()
        elif self._turns is not None:
            self._pause()
            self._turns.add(self._take)
        elif self._loop is not None:
            self._loop.call_soon(self._take)

    def _go_on_if_stalled(self) -> None:
        if self._stalled and not self._must_wait and self._turns is not None:
            self._stalled = False
            self._turns.add(self._take)

    def _poll(self) -> None:
        self._later += self._channel.poll(once=self._turns is not None)

    def _understood(self, read: Callable[[], None]) -> None:
        """Read; close the connection when it has ended, or brings what cannot be understood."""
        try:
            read()
        except ChannelClosed:
            self._gone()
        except msgspec.DecodeError as error:  # of another version, or no client of ours at all
            _words.warning("closed a connection whose client sent an invalid message: %s", error)
            self._gone()
        except DescriptorsDropped as error:
            logger.error("a connection is closed: %s", error)
            self._gone()

    @property
    def _must_wait(self) -> bool:
        """Whether the other end has to read first, or the owner to let go."""
        has_unread = self._writing and (self.backlog >= _MOST_UNREAD or self._has_much_unread)
        return self._turns is not None and (self._held or has_unread)

    def _read_on(self) -> None:
        assert self._loop is not None
        if not self._reading:
            self._loop.add_reader(self._channel.fileno(), self._readable)
            self._reading = True

    def _pause(self) -> None:
        assert self._loop is not None
        if self._reading:
            self._loop.remove_reader(self._channel.fileno())
            self._reading = False

    def _gone(self) -> None:
        if not self._closed:
            self.close()
            self._on_closed()

    def give_away(self) -> socket.socket | None:
        """Stop reading, and return the socket, which is the caller's then; None when the other end is gone.

        Every message sent must have been answered. What could not be sent at once is lost.
        """
        if self._closed or self._writing:
            self._gone()
            return None
        sock = self._channel.duplicate()
        self._gone()
        return sock

    def close(self) -> None:
        """Stop reading and writing and close the socket; may be called twice."""
        if self._closed:
            return
        self._closed = True
        if self._loop is not None:
            self._pause()
            if self._writing:
                self._loop.remove_writer(self._channel.fileno())
        self._channel.close()
        while self._later:
            for fd in self._later.popleft()[1]:
                os.close(fd)
        self._writing = False
        self._close_sent()
        self._tell_of_room()
