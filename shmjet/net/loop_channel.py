"""A `Channel` on the member's event loop: messages come by callback, writing never blocks the loop."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from shmjet.execution.channel import Channel, ChannelClosed

logger = logging.getLogger("shmjet.member")


class LoopChannel:
    """One connection of a member.

    Args:
        sock: connected; owned by this object.
        receives: the union of structs that may arrive.
        on_message: called with each message and its descriptors, which it owns then.
        on_closed: called once when the other end is gone.
        on_delayed: called when something was written that an earlier `send` had to leave.
    """

    def __init__(
        self,
        sock: socket.socket,
        receives: Any,
        on_message: Callable[[Any, list[int]], None],
        on_closed: Callable[[], None],
        on_delayed: Callable[[], None] | None = None,
    ) -> None:
        self._channel = Channel(sock, receives)
        self._on_message = on_message
        self._on_closed = on_closed
        self._on_delayed = on_delayed
        self._loop: asyncio.AbstractEventLoop | None = None
        self._writing = False
        self._closed = False
        self._to_close: list[int] = []

    def open(self, leftover: bytes = b"") -> None:
        """Start reading; needs the running loop.

        Args:
            leftover: what has been read from the socket before it came here.
        """
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._channel.fileno(), self._readable)
        if leftover:
            self._channel.feed(leftover)
            self._loop.call_soon(self._readable)

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
        try:
            messages = self._channel.poll()
        except ChannelClosed:
            self._gone()
            return
        except msgspec.DecodeError as error:  # of another version, or no client of ours at all
            logger.warning("sent away a client that said what nobody here understands: %s", error)
            self._gone()
            return
        for message, fds in messages:
            self._on_message(message, fds)

    def _gone(self) -> None:
        if not self._closed:
            self.close()
            self._on_closed()

    def give_away(self) -> socket.socket | None:
        """Stop reading, and return the socket, which is the caller's then; None when the other end is gone.

        Nobody may have sent anything that is not answered yet. What could not be sent at once is lost.
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
            self._loop.remove_reader(self._channel.fileno())
            if self._writing:
                self._loop.remove_writer(self._channel.fileno())
        self._channel.close()
        self._writing = False
        self._close_sent()
