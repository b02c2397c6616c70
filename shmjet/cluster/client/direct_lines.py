"""A client's own connections to the members that have the maps and lists that it uses, with no member in between.

A client that asks a member often enough gets a line to it: a connection on which the thread that asks reads the answer,
so that no other thread or process is woken for that. Lines are made in the background, and lost without a word: what
they do not carry goes over the client's connection, which leads to every member. Must not know what is asked for.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from shmjet.cluster.protocol import DescribePartitions, PartitionsReply, Reply
from shmjet.data.errors import ShmjetError
from shmjet.ipc.channel import Channel, ChannelClosed

OFTEN = 64
"""So many requests to a member are worth a line, and so many that find all lines in use are worth another one."""
LINES_EACH = 4
"""Lines to a member, at most: a thread has one for itself while it asks."""
MOST_LINES = 16
"""Members to which there are lines, at most."""
SILENCE_S = 3.0
"""How long a line is waited for; then the client's connection is used, which knows more of the member."""
_AGAIN_S = 30.0
"""When a member to which no line could be made, or whose line was lost, is dialled again."""

Dial = Callable[[str], tuple[socket.socket, bytes, Callable[[], None]]]

logger = logging.getLogger("shmjet.client")


class LineLost(Exception):
    """Whether a request has been carried out is not known."""


class _Line:
    """One connection, for one thread at a time."""

    def __init__(self, sock: socket.socket, leftover: bytes, close: Callable[[], None]) -> None:
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            sock.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", int(SILENCE_S), 0))
        self._channel = Channel(sock, Reply)
        self._close = close
        self._numbers = itertools.count(1)
        self.lock = threading.Lock()
        if leftover:
            self._channel.feed(leftover)

    def ask(self, make: Callable[[int], Any]) -> Any:
        """Return the reply to a request. Raises LineLost."""
        request = make(next(self._numbers))
        try:
            self._channel.send(request)
            while True:
                reply, _ = self._channel.receive()
                if getattr(reply, "request", 0) == request.request:
                    return reply
        except (ChannelClosed, OSError, msgspec.DecodeError) as error:
            raise LineLost(str(error)) from error

    def close(self) -> None:
        self._channel.close()
        self._close()


class DirectLines:
    """See the module. Safe for several threads.

    Args:
        dial: connects to the member at an address.
        addresses: asks for those of all members, by identity.
    """

    def __init__(self, dial: Dial, addresses: Callable[[], Mapping[str, str]]) -> None:
        self._dial = dial
        self._addresses = addresses
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._lines: dict[str, list[_Line]] = {}
        self._asked: Counter[str] = Counter()
        self._not_before: dict[str, float] = {}
        self._dialling: threading.Thread | None = None
        self._closed = False

    def ask(self, member: str, make: Callable[[int], Any]) -> Any | None:
        """Ask a member over a line; None where there is none that other threads do not use.

        Raises:
            LineLost: the line has broken.
        """
        line = self._taken(member)
        if line is None:
            self._count(member)
            return None
        try:
            return line.ask(make)
        except LineLost:
            self._drop(member, line)
            raise
        finally:
            line.lock.release()

    def _taken(self, member: str) -> _Line | None:
        """Return a line to a member that is locked for this thread."""
        lines = self._lines.get(member)
        if lines is not None and os.getpid() == self._pid:
            for line in tuple(lines):
                if line.lock.acquire(blocking=False):
                    return line
        return None

    def _count(self, member: str) -> None:
        """Note a request without a line; make one when there have been enough."""
        with self._lock:
            self._asked[member] += 1
            if self._asked[member] < OFTEN or self._closed or self._dialling is not None or os.getpid() != self._pid:
                return
            lines = self._lines.get(member, ())
            if len(lines) >= LINES_EACH or (not lines and len(self._lines) >= MOST_LINES):
                return
            if time.monotonic() < self._not_before.get(member, 0.0):
                return
            del self._asked[member]
            self._not_before[member] = time.monotonic() + _AGAIN_S
            self._dialling = threading.Thread(target=self._make, args=(member,), name="shmjet-client-line", daemon=True)
            self._dialling.start()

    def _make(self, member: str) -> None:
        try:
            line = self._made(member)
        except (OSError, ShmjetError, LineLost) as error:
            logger.debug("no line to a member: %s", error)
            line = None
        with self._lock:
            self._dialling = None
            if line is not None and not self._closed:
                self._lines.setdefault(member, []).append(line)
                del self._not_before[member]
                line = None
        if line is not None:
            line.close()

    def _made(self, member: str) -> _Line | None:
        address = self._addresses().get(member)
        if address is None:
            return None
        line = _Line(*self._dial(address))
        try:
            reply = line.ask(DescribePartitions)
            if isinstance(reply, PartitionsReply) and reply.me == member:  # else an address leads elsewhere from here
                return line
        except BaseException:
            line.close()
            raise
        line.close()
        return None

    def _drop(self, member: str, line: _Line) -> None:
        with self._lock:
            lines = self._lines.get(member, [])
            if line in lines:
                lines.remove(line)
                if not lines:
                    del self._lines[member]
                self._not_before[member] = time.monotonic() + _AGAIN_S
        line.close()

    def close(self) -> None:
        """Close all lines; no one uses them any more."""
        with self._lock:
            self._closed = True
            lines, self._lines = [line for some in self._lines.values() for line in some], {}
            dialling = self._dialling
        for line in lines:
            with contextlib.suppress(OSError):
                line.close()
        if dialling is not None:
            dialling.join()
