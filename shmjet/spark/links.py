"""A connection of a Spark worker to one processor of a feed, and what it writes there.

The worker finds the job through its member's socket and keeps the connection and the mapping, since Spark uses its
workers again. Waiting for room is a blocking read without a time limit: the end of the socket, and nothing else, says
that the job is gone. Must not know frames.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from shmjet.data.errors import ShmjetError
from shmjet.ipc.channel import Channel
from shmjet.spark import protocol
from shmjet.spark.errors import FeedEndedError
from shmjet.spark.protocol import Receipt
from shmjet.spark.shm_area import AttachedArea


class Area(Protocol):
    """Where a task writes (`shmjet.spark.shm_area.AttachedArea`)."""

    slot_size: int

    def slot(self, number: int) -> memoryview:
        """Return a slot's memory, writable."""

    def close(self) -> None:
        """Let go of it."""


def host_id() -> str:
    """Return what tells this host, as it runs now, from others."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return socket.gethostname()


@dataclass(frozen=True)
class Destination:
    """Where a feed is: the same for all tasks of a Spark job.

    Args:
        member_socket, execution_id, feed: who to ask for.
        processors: how many processors there are.
        round: of this Spark job.
        streams: whether records are seen at once.
        host: where the job runs (`host_id`), and its name.
        gateway: where tasks on other hosts come in, and what they have to know there; None: nowhere.
    """

    member_socket: str
    execution_id: int
    feed: str
    processors: int
    round: int
    streams: bool
    host: tuple[str, str]
    gateway: tuple[str, bytes] | None = None


class SupersededError(Exception):
    """Another attempt of the same partition has won."""

    def __init__(self, winner: Receipt) -> None:
        super().__init__(winner)
        self.winner = winner


class Link:
    """This process' connection to one processor, with its memory mapped; used for one attempt at a time.

    Args:
        sock: connected to the processor; belongs to the link.

    Raises:
        ShmjetError: the processor's memory cannot be mapped here.
        ChannelClosed: the job is gone.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._channel = Channel(sock, protocol.Answer)
        try:
            self.area = self._area()
        except BaseException:
            self._channel.close()
            raise
        self._file = -1
        self._in_attempt = False
        self.is_open = True

    def _area(self) -> Area:
        """Introduce this process, and return where its slots are."""
        self._channel.send(protocol.Hello(False))
        welcome, fds = self._channel.receive()
        return AttachedArea(fds[0], welcome.slot_size, welcome.slots)

    @property
    def is_alive(self) -> bool:
        """Whether the processor is there: nothing is under way between attempts, so only its end can be read."""
        sock = socket.socket(fileno=os.dup(self._channel.fileno()))
        try:
            return sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False
        finally:
            sock.close()

    def begin(self, round_number: int, partition: int, attempt: int) -> None:
        """Be this attempt from now on."""
        self._in_attempt = True
        self._channel.queue(protocol.Begin(round_number, partition, attempt))

    def want(self) -> None:
        """Ask for a slot, which `take` gives."""
        self._channel.send(protocol.Want())

    def take(self) -> int:
        """Wait for what was wanted: a slot, or -1 when all goes to `spill` from now on.

        Raises:
            SupersededError: the partition is complete.
            ShmjetError: the attempt is not welcome.
            ChannelClosed: the job is gone.
        """
        answer, fds = self._channel.receive()
        if isinstance(answer, protocol.Grant):
            return answer.slot
        if isinstance(answer, protocol.Spill):
            self._file = fds[0] if fds else -1
            return -1
        raise self._refusal(answer)

    def filled(self, slot: int, used: int) -> None:
        """Say how much of a slot is used."""
        self._channel.send(protocol.Filled(slot, used))

    def spill(self, parts: Sequence[Any]) -> None:
        """Append to the file, all of what is in some buffers."""
        left = list(parts)
        while left:
            written = os.writev(self._file, left)
            while left and written >= len(left[0]):
                written -= len(left.pop(0))
            if left:
                left[0] = left[0][written:]

    def end(self, frames: int, rows: int, spilled: int) -> Receipt:
        """Say that this is all; returns who has won."""
        self._channel.send(protocol.End(frames, rows, spilled))
        while True:
            answer, fds = self._channel.receive()
            for fd in fds:
                os.close(fd)
            if isinstance(answer, protocol.Verdict):
                self._over()
                return answer.winner
            if not isinstance(answer, protocol.Grant | protocol.Spill):
                raise self._refusal(answer)

    def _refusal(self, answer: Any) -> Exception:
        if isinstance(answer, protocol.Superseded):
            self._channel.send(protocol.Abandon())
            self._over()
            return SupersededError(answer.winner)
        self.close()
        if isinstance(answer, protocol.Refused):
            return FeedEndedError(answer.text)
        return ShmjetError(f"a feed answered {answer!r}")

    def abandon(self) -> None:
        """Give the attempt up, whatever answers are still under way."""
        if self._in_attempt:  # they would be taken for those of the next attempt
            self.close()

    def _over(self) -> None:
        self._in_attempt = False
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def close(self) -> None:
        """Let go of everything; the processor drops what was not ended. May be called twice."""
        if self.is_open:
            self.is_open = False
            self._over()
            self._channel.close()
            self.area.close()
