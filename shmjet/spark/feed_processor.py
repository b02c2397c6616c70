"""The processor of a feed: takes what Spark tasks send, and emits what counts.

One for each worker; partition `p` belongs to processor `p % count`, whatever task sends it, so each decides about its
partitions alone. Spark tasks and the client's feed connect to it (`ProcessorContext.open_endpoint`). The processor is
cooperative: each call looks at its sockets without waiting, and emits for about a millisecond.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
from collections import deque
from collections.abc import Iterator
from typing import Any

from shmjet.core.inbox import Inbox
from shmjet.core.latency_policy import policy_in
from shmjet.core.outbox import Outbox
from shmjet.core.processor import Processor, ProcessorContext
from shmjet.data.errors import BatchError
from shmjet.ipc.channel import Channel, ChannelClosed
from shmjet.processors.general.emission import Emission
from shmjet.spark import protocol
from shmjet.spark.errors import SparkError
from shmjet.spark.ledger import Attempt, Ledger
from shmjet.spark.mapping import Contents, Pieces, head_of, map_file
from shmjet.spark.protocol import Mode, Record
from shmjet.spark.schema import Field
from shmjet.spark.shm_area import FeedArea
from shmjet.spark.staging import Extent, Room, StagingMemory

_SLOT = 2 << 20
_LEAST_SLOT = 1 << 16
_LEAST_SLOTS = 8


def slots_for(memory: int, processors: int) -> tuple[int, int]:
    """Return the size and the number of the slots of each of so many processors that share `memory` bytes.

    Example:
        >>> slots_for(256 << 20, 4)
        (2097152, 32)
    """
    share = memory // processors
    size = _SLOT
    while size > _LEAST_SLOT and share // size < _LEAST_SLOTS:
        size //= 2
    return size, max(_LEAST_SLOTS, share // size)


def path_of(fd: int) -> str:
    """Return where other processes of the same user can open what a descriptor of this process refers to."""
    return f"/proc/{os.getpid()}/fd/{fd}"


class _Connection:
    """One socket: a process of Spark's with its attempts, one after the other, or the client's feed."""

    def __init__(self, sock: socket.socket) -> None:
        self.channel = Channel(sock, protocol.Request)
        self.is_driver = False
        self.by_path = False
        self.attempt: Attempt[Extent] | None = None
        self.wants = 0
        self.granted: set[int] = set()
        self.file = -1


class FeedProcessor(Processor):
    """Emits what Spark tasks send.

    Args:
        feed: the name by which they find it.
        fields: of the DataFrame's columns; empty for a feed from an RDD.
        memory: bytes of shared memory for all processors of the vertex.
        heads: begin with a batch without rows.
    """

    movable = False

    def __init__(self, feed: str, fields: tuple[Field, ...], memory: int, heads: bool = False) -> None:
        self._feed = feed
        self._head = head_of(fields) if heads else None
        self._contents = Contents(fields)
        self._memory = memory
        self.area: FeedArea | None = None
        self._connections: dict[int, _Connection] = {}
        self._ready: deque[tuple[Extent, list[Record] | None, Pieces]] = deque()
        self._streams: dict[tuple[int, int], Pieces] = {}
        self._finished = False

    def init(self, outbox: Outbox, context: ProcessorContext) -> None:
        """Reserve the first slot, and open the endpoint."""
        super().init(outbox, context)
        size, slots = slots_for(self._memory, context.local_parallelism)
        self.area = FeedArea(size, slots, f"spark-{context.global_index}")
        self._staging = StagingMemory(self.area, size * slots)
        self._ledger: Ledger[Extent] = Ledger(context.global_index, context.total_parallelism)
        self._emission = Emission(outbox, call_ns=policy_in(context).call_ns)
        self._poll = select.epoll()
        self._endpoint = context.open_endpoint(f"{self._feed}/{context.global_index}")

    def process(self, ordinal: int, inbox: Inbox) -> None:
        """Refuse items: a feed is a source."""
        raise SparkError(f"vertex {self.context.vertex_name!r} is fed by Spark: it accepts no items")

    def complete(self) -> bool:
        """Listen, then emit."""
        self._listen()
        done = self._emission.flush()
        if done and self._head is not None:
            head, self._head = self._head, None
            self._emission.start(iter([head]))
            done = self._emission.flush()
        if done and self._ready:
            self._emission.start(self._opened())
            done = self._emission.flush()
        self._serve()
        return done and self._finished and not self._ready

    def close(self) -> None:
        """Close all connections."""
        for connection in list(self._connections.values()):
            self._disconnect(connection)
        if self.area is not None:
            for extent, _, _ in self._ready:
                self._staging.drop(extent)
            self._ready.clear()
            if hasattr(self, "_poll"):
                self._poll.close()
            self.area.close()

    # -- connections ---------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        while (sock := self._endpoint.take()) is not None:
            connection = _Connection(sock)
            self._connections[sock.fileno()] = connection
            self._poll.register(sock.fileno(), select.EPOLLIN)
        if not self._connections:
            return
        for fd, _ in self._poll.poll(0):
            connection = self._connections[fd]
            try:
                for message, fds in connection.channel.poll():
                    for given in fds:  # no message of the protocol brings any
                        os.close(given)
                    self._handle(connection, message)
            except ChannelClosed:
                self._disconnect(connection)
                if connection.is_driver and not self._finished:
                    raise SparkError("the process that runs the Spark job of this feed is gone") from None

    def _disconnect(self, connection: _Connection) -> None:
        self._drop_attempt(connection)
        fd = connection.channel.fileno()
        self._poll.unregister(fd)
        del self._connections[fd]
        connection.channel.close()

    def _send(self, connection: _Connection, message: protocol.Message, fds: tuple[int, ...] = ()) -> None:
        """Answer; a task reads its answers before it asks anything new, so the socket always takes them."""
        with contextlib.suppress(ChannelClosed):  # the next look at the socket tells
            connection.channel.send(message, fds)

    def _handle(self, connection: _Connection, message: Any) -> None:
        match message:
            case protocol.Want():
                connection.wants += 1
            case protocol.Filled():
                self._filled(connection, message)
            case protocol.Begin():
                self._begin(connection, message)
            case protocol.End():
                self._end(connection, message)
            case protocol.Abandon():
                self._drop_attempt(connection)
            case protocol.Hello():
                assert self.area is not None
                connection.is_driver, connection.by_path = message.driver, message.by_path
                area, count = self.area, self.context.total_parallelism
                welcome = protocol.Welcome(count, area.slot_size, area.slots, path_of(area.fd))
                self._send(connection, welcome, () if message.driver or message.by_path else (area.fd,))
            case protocol.OpenRound():
                is_open = self._ledger.open_round(message.number, message.partitions, message.mode)
                self._send(connection, protocol.RoundOpened(message.number, not is_open))
            case protocol.CloseRound():
                self._close_round(message)
                self._send(connection, protocol.RoundClosed(message.number))
            case protocol.GiveUpRound():
                for attempt in self._ledger.give_up_round(message.number):
                    self._drop(attempt)
            case protocol.Failure():
                error = SparkError(message.summary)
                if message.details:
                    error.add_note(message.details)
                raise error
            case protocol.Finish():
                self._finished = True

    # -- attempts ------------------------------------------------------------------------------------------------

    def _begin(self, connection: _Connection, message: protocol.Begin) -> None:
        self._drop_attempt(connection)
        try:
            connection.attempt = self._ledger.begin(message.round, message.partition, message.attempt)
        except SparkError as error:
            self._send(connection, protocol.Refused(str(error)))

    def _is_late(self, connection: _Connection, attempt: Attempt[Extent]) -> bool:
        """Refuse an attempt whose round is over."""
        if self._ledger.is_open(attempt.round):
            return False
        self._forget_attempt(connection)
        self._send(connection, protocol.Refused(f"the round {attempt.round} of Spark's data is over"))
        return True

    def _filled(self, connection: _Connection, message: protocol.Filled) -> None:
        attempt = connection.attempt
        if attempt is None or message.slot not in connection.granted:
            return  # it has been told to stop, and has not heard it yet
        assert self.area is not None
        connection.granted.discard(message.slot)
        extent = Extent(message.used, message.slot)
        found = protocol.records(self.area.memory(message.slot), message.used)
        fresh = self._ledger.add(attempt, extent, found)
        if self._ledger.mode(attempt) is not Mode.STREAM:
            return
        if fresh:
            key = attempt.round, attempt.partition
            self._show(extent, fresh, self._streams.setdefault(key, Pieces(self._contents)))
        else:
            self._staging.drop(extent)

    def _end(self, connection: _Connection, message: protocol.End) -> None:
        attempt = connection.attempt
        if attempt is None or self._is_late(connection, attempt):
            return
        if message.spilled:
            extent = Extent(message.spilled, file=connection.file)
            connection.file = -1
            if os.fstat(extent.file).st_size < message.spilled:
                raise BatchError(f"the file of a Spark task lacks bytes: it should have {message.spilled}")
            self._ledger.add(attempt, extent, protocol.records(map_file(extent.file, extent.used), extent.used))
        winner, visible = self._ledger.end(attempt, message.frames, message.rows)
        connection.attempt = None
        self._release(connection)
        self._send(connection, protocol.Verdict(winner))
        if visible:
            self._show_all(attempt)
        elif winner.attempt != attempt.number:
            self._drop(attempt)
        else:
            for extent in attempt.extents:
                self._staging.compact(extent)

    def _close_round(self, message: protocol.CloseRound) -> None:
        chosen, losers = self._ledger.close_round(message.number, message.receipts)
        for attempt in chosen:
            self._show_all(attempt)
        for attempt in losers:
            self._drop(attempt)
        self._streams = {key: pieces for key, pieces in self._streams.items() if key[0] != message.number}

    def _show_all(self, attempt: Attempt[Extent]) -> None:
        pieces = Pieces(self._contents)
        for extent in attempt.extents:
            self._staging.compact(extent)
            self._show(extent, None, pieces)

    def _show(self, extent: Extent, records: list[Record] | None, pieces: Pieces) -> None:
        self._staging.mark_visible(extent)
        self._ready.append((extent, records, pieces))

    def _drop(self, attempt: Attempt[Extent]) -> None:
        for extent in attempt.extents:
            self._staging.drop(extent)
        attempt.extents.clear()

    def _forget_attempt(self, connection: _Connection) -> None:
        """Drop what an attempt has sent. Its slots stay its own: it may be writing there until it says otherwise."""
        if connection.attempt is not None:
            self._drop(connection.attempt)
            connection.attempt = None
        connection.wants = 0

    def _drop_attempt(self, connection: _Connection) -> None:
        """Drop what an attempt has sent, and take its slots back: it has stopped."""
        self._forget_attempt(connection)
        self._release(connection)

    def _release(self, connection: _Connection) -> None:
        """Take back what a task was given and has not used."""
        assert self.area is not None
        for slot in connection.granted:
            self.area.give_back(slot)
        connection.granted.clear()
        connection.wants = 0
        if connection.file >= 0:
            os.close(connection.file)
            connection.file = -1

    # -- memory --------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        """Give memory to the tasks that want some, as far as there is any."""
        for connection in list(self._connections.values()):
            while connection.wants and connection.attempt is not None:
                if not self._serve_one(connection, connection.attempt):
                    break

    def _serve_one(self, connection: _Connection, attempt: Attempt[Extent]) -> bool:
        if self._is_late(connection, attempt):
            return False
        winner = self._ledger.winner(attempt)
        if winner is not None:
            self._forget_attempt(connection)
            self._send(connection, protocol.Superseded(winner))
            return False
        room, given = self._staging.room(self._ledger.mode(attempt))
        if room is Room.WAIT:
            return False
        connection.wants -= 1
        if room is Room.SLOT:
            connection.granted.add(given)
            self._send(connection, protocol.Grant(given))
        else:
            connection.file = given
            if connection.by_path:
                self._send(connection, protocol.Spill(path_of(given)))
            else:
                self._send(connection, protocol.Spill(), (given,))
        return True

    # -- output --------------------------------------------------------------------------------------------------

    def _opened(self) -> Iterator[Any]:
        """Yield the items of all that may be seen."""
        while self._ready:
            extent, records, pieces = self._ready.popleft()
            memory = self._staging.open(extent)
            if records is None:
                records = protocol.records(memory, extent.used)
            for record in records:
                yield from pieces.open(record, memory, own=self._staging.must_copy)
            del memory
