"""What runs in a Spark Python worker: one partition, from Spark's stream into the memory of a running job.

The worker finds the job through its member's socket and keeps the connection and the mapping for the tasks that
follow, since Spark uses its workers again. Waiting for room is a blocking read without a time limit: the end of the
socket, and nothing else, says that the job is gone.
"""

from __future__ import annotations

import os
import socket
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from shmjet.cluster.visiting import visit
from shmjet.core.errors import ShmjetError
from shmjet.execution.channel import Channel, ChannelClosed
from shmjet.spark import protocol as says
from shmjet.spark.area import AttachedArea
from shmjet.spark.arrow import count_rows
from shmjet.spark.errors import FeedEndedError
from shmjet.spark.protocol import ALIGNMENT, Content, Receipt
from shmjet.spark.rows import Chunk

_ZEROS = bytes(ALIGNMENT)
_PATIENCE_S = 0.02
"""How long records that could be seen wait for others in the same slot."""


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
        doors: how many processors there are.
        round: of this Spark job.
        streams: whether records are seen at once.
        host: where the job runs (`host_id`), and its name.
    """

    member_socket: str
    execution_id: int
    feed: str
    doors: int
    round: int
    streams: bool
    host: tuple[str, str]


class FeedTask:
    """The function of `mapPartitionsWithIndex`: sends a partition and yields one receipt.

    Args:
        destination: where to.
        content: of frames that come as bytes (`Content.ARROW`, `Content.ARROW_LARGE`).
        chunks: makes frames of elements, for input that does not come as frames.
    """

    def __init__(self, destination: Destination, content: Content | None = None, chunks: Chunk | None = None) -> None:
        self.destination = destination
        self.content = content
        self.chunks = chunks

    def __call__(self, partition: int, elements: Iterable[Any]) -> Iterator[tuple[int, int, int, int]]:
        """Send all elements; the receipt is that of the attempt that won, be it this one or another.

        Raises:
            FeedEndedError: the job takes no more.
            TornInputError: Spark's stream broke off.
        """
        from pyspark import TaskContext

        context = TaskContext.get()
        number = context.taskAttemptId() if context is not None else 0
        link = _link(self.destination, partition % self.destination.doors)
        try:
            receipt = self._send(link, partition, number, elements)
        except ChannelClosed as error:
            link.close()
            raise FeedEndedError(
                f"the shmjet job that this Spark task feeds (execution {self.destination.execution_id}) has ended; its "
                "own error, if it has one, says why"
            ) from error
        except BaseException:
            link.abandon()
            raise
        yield receipt.partition, receipt.attempt, receipt.frames, receipt.rows

    def _send(self, link: Link, partition: int, number: int, elements: Iterable[Any]) -> Receipt:
        writer = AttemptWriter(link, self.destination.streams)
        link.begin(self.destination.round, partition, number)
        try:
            if self.chunks is None:
                assert self.content is not None
                for length, stream in elements:
                    writer.copy(self.content, stream, length)
            else:
                for content, parts, size, rows in self.chunks.frames(partition, elements):
                    writer.write(content, parts, size, rows)
            return writer.end()
        except _SupersededError as stop:
            return stop.winner


class _SupersededError(Exception):
    """Another attempt of the same partition has won."""

    def __init__(self, winner: Receipt) -> None:
        super().__init__(winner)
        self.winner = winner


class Link:
    """This process' connection to one processor, with its memory mapped; used for one attempt at a time."""

    def __init__(self, destination: Destination, door: int) -> None:
        if host_id() != destination.host[0]:
            raise ShmjetError(
                f"this Spark task runs on host {socket.gethostname()!r}, the shmjet job on {destination.host[1]!r}: a "
                "feed reaches executors on the job's own host only; use master local[N] or local-cluster"
            )
        sock = visit(destination.member_socket, destination.execution_id, f"{destination.feed}/{door}")
        self._channel = Channel(sock, says.Answer)
        self.execution = destination.member_socket, destination.execution_id
        try:
            self._channel.send(says.Hello(False))
            welcome, fds = self._channel.receive()
            self.area = AttachedArea(fds[0], welcome.slot_size, welcome.slots)
        except BaseException:
            self._channel.close()
            raise
        self._file = -1
        self._in_attempt = False
        self.is_open = True

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
        self._channel.queue(says.Begin(round_number, partition, attempt))

    def want(self) -> None:
        """Ask for a slot, which `take` gives."""
        self._channel.send(says.Want())

    def take(self) -> int:
        """Wait for what was wanted: a slot, or -1 when `file` is to be used from now on.

        Raises:
            _SupersededError: the partition is complete.
            ShmjetError: the attempt is not welcome.
            ChannelClosed: the job is gone.
        """
        answer, fds = self._channel.receive()
        if isinstance(answer, says.Grant):
            return answer.slot
        if isinstance(answer, says.Spill):
            self._file = fds[0]
            return -1
        raise self._refusal(answer)

    def filled(self, slot: int, used: int) -> None:
        """Say how much of a slot is used."""
        self._channel.send(says.Filled(slot, used))

    @property
    def file(self) -> int:
        """The file's descriptor."""
        return self._file

    def end(self, frames: int, rows: int, spilled: int) -> Receipt:
        """Say that this is all; returns who has won."""
        self._channel.send(says.End(frames, rows, spilled))
        while True:
            answer, fds = self._channel.receive()
            for fd in fds:
                os.close(fd)
            if isinstance(answer, says.Verdict):
                self._over()
                return answer.winner
            if not isinstance(answer, says.Grant | says.Spill):
                raise self._refusal(answer)

    def _refusal(self, answer: Any) -> Exception:
        if isinstance(answer, says.Superseded):
            self._channel.send(says.Abandon())
            self._over()
            return _SupersededError(answer.winner)
        self.close()
        if isinstance(answer, says.Refused):
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


_links: dict[tuple[str, int, str, int], Link] = {}


def _link(destination: Destination, door: int) -> Link:
    """Return the connection of this process to a processor, the one of earlier tasks if it is still good."""
    key = (destination.member_socket, destination.execution_id, destination.feed, door)
    for old, link in list(_links.items()):
        if not link.is_open or (old[:3] != key[:3] and not link.is_alive):
            link.close()
            del _links[old]
    if key in _links and not _links[key].is_alive:
        _links.pop(key).close()
    if key not in _links:
        _links[key] = Link(destination, door)
    return _links[key]


class AttemptWriter:
    """Writes the frames of one attempt as records: into slots, or into a file once it is told so.

    While one slot is filled, the next is asked for already. Records that are seen at once are handed over before a slot
    is full, if Spark takes its time.

    Args:
        link: to the processor.
        streams: whether records are seen at once, and need checksums.
        clock: seconds, monotonic.
    """

    def __init__(self, link: Link, streams: bool, clock: Callable[[], float] = monotonic) -> None:
        self._link = link
        self._streams = streams
        self._clock = clock
        self._handed_over = clock()
        self._slot = -1
        self._memory: memoryview | None = None
        self._at = 0
        self._wanted = False
        self._in_file = False
        self._spilled = 0
        self._records = self._frames = self._rows = 0

    def copy(self, content: Content, stream: Any, length: int) -> None:
        """Read a frame of `length` bytes from a stream straight into its place."""
        if not self._in_file and says.padded(length) <= self._link.area.slot_size:
            self._make_room(says.padded(length))
        if self._in_file or says.padded(length) > self._link.area.slot_size:
            frame = np.empty(length, np.uint8).data
            stream.readinto(frame)
            self._put(content, frame, count_rows(frame, 0, length))
            return
        assert self._memory is not None
        payload = self._memory[self._at + ALIGNMENT : self._at + ALIGNMENT + length]
        stream.readinto(payload)
        self._note(content, payload, count_rows(payload, 0, length), length, 0)

    def write(self, content: Content, parts: Iterable[Any], size: int, rows: int) -> None:
        """Write a frame that is here in parts."""
        frame = np.empty(size, np.uint8).data
        at = 0
        for part in parts:
            piece = memoryview(part).cast("B")
            frame[at : at + len(piece)] = piece
            at += len(piece)
        self._put(content, frame, rows)

    def end(self) -> Receipt:
        """Send what is left, and that this is all; returns who has won."""
        self._turn_in()
        return self._link.end(self._frames, self._rows, self._spilled)

    def _put(self, content: Content, frame: memoryview, rows: int) -> None:
        """Write a frame wherever it goes, in pieces if it is larger than a slot."""
        total, at = len(frame), 0
        most = self._link.area.slot_size - ALIGNMENT
        while True:
            piece = frame[at:] if self._in_file else frame[at : at + most]
            if not self._in_file:
                self._make_room(says.padded(len(piece)))
            if self._in_file:
                self._spill(content, frame[at:], rows, total, at)
                return
            assert self._memory is not None
            payload = self._memory[self._at + ALIGNMENT : self._at + ALIGNMENT + len(piece)]
            payload[:] = piece
            last = at + len(piece) == total
            self._note(content, payload, rows if last else 0, total, at)
            at += len(piece)
            if last:
                return

    def _note(self, content: Content, payload: memoryview, rows: int, total: int, at: int) -> None:
        """Write the head before a payload that is in its place."""
        assert self._memory is not None
        length = len(payload)
        checksum = zlib.crc32(payload) if self._streams else 0
        says.put_head(self._memory, self._at, content, checksum, self._records, rows, length, total, at)
        self._at += says.padded(length)
        self._count(rows, at + length == total)
        if self._streams and self._clock() - self._handed_over > _PATIENCE_S:
            self._turn_in()

    def _count(self, rows: int, ends_frame: bool) -> None:
        self._records += 1
        self._frames += ends_frame
        self._rows += rows

    def _make_room(self, size: int) -> None:
        """Have a slot with room for `size` bytes, or be in the file."""
        if self._slot >= 0:
            if self._at + size <= self._link.area.slot_size:
                return
            self._turn_in()
        if not self._wanted:
            self._link.want()
        self._wanted = False
        self._slot = self._link.take()
        if self._slot < 0:
            self._in_file = True
            return
        self._memory = self._link.area.slot(self._slot)
        self._at = 0
        self._link.want()
        self._wanted = True

    def _turn_in(self) -> None:
        if self._slot >= 0:
            self._link.filled(self._slot, self._at)
            self._handed_over = self._clock()
            self._slot = -1
            self._memory = None

    def _spill(self, content: Content, payload: memoryview, rows: int, total: int, at: int) -> None:
        head = bytearray(ALIGNMENT)
        length = len(payload)
        checksum = zlib.crc32(payload) if self._streams else 0
        says.put_head(head, 0, content, checksum, self._records, rows, length, total, at)
        gap = says.padded(length) - ALIGNMENT - length
        left = [memoryview(head), payload, memoryview(_ZEROS)[:gap]]
        while left:
            written = os.writev(self._link.file, left)
            while left and written >= len(left[0]):
                written -= len(left.pop(0))
            if left:
                left[0] = left[0][written:]
        self._spilled += says.padded(length)
        self._count(rows, True)
