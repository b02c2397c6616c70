"""What runs in a Spark Python worker: one partition, from Spark's stream into the memory of a running job.

Must not know how it is connected to the job.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from time import monotonic
from typing import Any

import numpy as np

from shmjet.ipc.channel import ChannelClosed
from shmjet.spark import protocol
from shmjet.spark.arrow import count_rows
from shmjet.spark.errors import FeedEndedError
from shmjet.spark.links import Destination, Link, SupersededError
from shmjet.spark.protocol import ALIGNMENT, Content, Receipt
from shmjet.spark.rows import Chunk
from shmjet.spark.task_links import link_to

_ZEROS = bytes(ALIGNMENT)
_PATIENCE_S = 0.02
"""How long records that could be seen wait for others in the same slot."""


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
        link = link_to(self.destination, partition % self.destination.processors)
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
        except SupersededError as stop:
            return stop.winner


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
        if not self._in_file and protocol.padded(length) <= self._link.area.slot_size:
            self._evict_unproved(protocol.padded(length))
        if self._in_file or protocol.padded(length) > self._link.area.slot_size:
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
                self._evict_unproved(protocol.padded(len(piece)))
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
        protocol.put_head(self._memory, self._at, content, checksum, self._records, rows, length, total, at)
        self._at += protocol.padded(length)
        self._count(rows, at + length == total)
        if self._streams and self._clock() - self._handed_over > _PATIENCE_S:
            self._turn_in()

    def _count(self, rows: int, ends_frame: bool) -> None:
        self._records += 1
        self._frames += ends_frame
        self._rows += rows

    def _evict_unproved(self, size: int) -> None:
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
        protocol.put_head(head, 0, content, checksum, self._records, rows, length, total, at)
        gap = protocol.padded(length) - ALIGNMENT - length
        self._link.spill([memoryview(head), payload, memoryview(_ZEROS)[:gap]])
        self._spilled += protocol.padded(length)
        self._count(rows, True)
