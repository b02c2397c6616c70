"""The connection to one peer: everything that goes to it and comes from it, packed and cut.

What is urgent (messages, flow control, heartbeats) goes before data, at the next packet's end. Data is taken from rings
only when the socket has taken all that was taken before, so nothing is queued here but what is urgent.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from shmjet.net.incoming import Incoming
from shmjet.net.outgoing import Outgoing
from shmjet.net.packets import (
    BATCH,
    CONTROL,
    DATA,
    FLAG_MORE,
    FLOW,
    FLOW_ENTRY,
    GOODBYE,
    HEADER,
    HEARTBEAT,
    LONGEST,
    Header,
    PacketError,
    PacketReader,
    control_packets,
)
from shmjet.net.wires import MOST_BUFFERS, WOULD_BLOCK, Buffer, Wire

_BUDGET = 1 << 19
"""Bytes of data that are taken from rings at once."""
_MOST_TURNS = 8
"""Times that one call sends or reads, so that no peer keeps the link for itself."""
_KEPT_LIMITS = 4096
"""Limits that are remembered for executions that are not open here yet."""


class PeerOwner(Protocol):
    """What a peer tells its link."""

    def message(self, peer: Peer, payload: bytes) -> None:
        """A member has sent this."""


class Peer:
    """A connection to a member that has proved itself.

    Args:
        uuid: the member's.
        address: that it is known by.
        wire: the connection; the peer owns it.
        owner: gets messages.
        message_bytes: bytes of one message at most.
    """

    def __init__(self, uuid: str, address: str, wire: Wire, owner: PeerOwner, message_bytes: int) -> None:
        self.uuid = uuid
        self.address = address
        self.wire = wire
        self.outgoing: dict[int, Outgoing] = {}
        self.incoming: dict[int, Incoming] = {}
        self.is_blocked = False
        """Whether the socket has refused, so that its link waits until it takes more."""
        self.leaving: str | None = None
        """Why the peer has said goodbye."""
        self.heard_ns = 0
        self._now_ns = 0
        self.reported_ns = 0
        self.bytes_out = self.bytes_in = 0
        self._owner = owner
        self._message_bytes = message_bytes
        self._urgent: deque[Buffer] = deque()
        self._urgent_bytes = 0
        self._sending: list[Buffer] = []
        self._holds_data = False
        self._turn = 0
        self._pieces: list[bytes] = []
        self._pieces_size = 0
        self._early_limits: dict[tuple[int, int], int] = {}
        self._reader = PacketReader(self._deliver, self._place)

    # -- sending ------------------------------------------------------------------------------------------------

    @property
    def queued(self) -> int:
        """Bytes of urgent packets that have not left."""
        return self._urgent_bytes

    def send_message(self, payload: bytes) -> None:
        """Queue a message for the peer's member."""
        for head, piece in control_packets(payload):
            self._queue(head, piece)

    def send_heartbeat(self) -> None:
        """Queue a sign of life, unless so much waits that it would say nothing."""
        self._queue(HEADER.pack(0, HEARTBEAT, 0, 0, 0, 0, 0, 0, 0))

    def send_limits(self, entries: list[bytes]) -> None:
        """Queue limits of windows."""
        most = LONGEST[FLOW] // FLOW_ENTRY.size
        for at in range(0, len(entries), most):
            body = b"".join(entries[at : at + most])
            self._queue(HEADER.pack(len(body), FLOW, 0, 0, 0, 0, 0, 0, 0), body)

    def send_goodbye(self, reason: str) -> None:
        """Queue the last packet."""
        body = reason.encode()[: LONGEST[GOODBYE]]
        self._queue(HEADER.pack(len(body), GOODBYE, 0, 0, 0, 0, 0, 0, 0), body)

    def _queue(self, *parts: Buffer) -> None:
        for part in parts:
            if len(part):
                self._urgent.append(part)
                self._urgent_bytes += len(part)

    @property
    def has_output(self) -> bool:
        """Whether there is something to send that is not in rings."""
        return bool(self._sending or self._urgent)

    def flush(self) -> bool:
        """Send what the socket takes, from rings when nothing urgent is left; True when there is more to be sent now.

        Raises:
            OSError: the connection is broken.
        """
        for _ in range(_MOST_TURNS):
            if not self._sending and not self._collect():
                return False
            some = len(self._sending) > MOST_BUFFERS
            sent = self.wire.send(self._sending[:MOST_BUFFERS] if some else self._sending)
            if sent == WOULD_BLOCK:
                self.is_blocked = True
                return False
            self.bytes_out += sent
            if not self._advance(sent) and not some:
                self.is_blocked = True
                return False
        return True

    def _collect(self) -> bool:
        """Gather the next buffers to send; False when there are none."""
        sending = self._sending
        while self._urgent and len(sending) < MOST_BUFFERS:
            sending.append(self._urgent.popleft())
        if sending:
            self._urgent_bytes -= sum(map(len, sending))
        if self._urgent:
            return True
        budget = _BUDGET
        outgoing = list(self.outgoing.values())
        if len(outgoing) > 1:
            self._turn = (self._turn + 1) % len(outgoing)
            outgoing = outgoing[self._turn :] + outgoing[: self._turn]
        for lanes in outgoing:
            taken = lanes.fill(sending, budget)
            if taken:
                self._holds_data = True
                budget -= taken
                if budget <= 0:
                    break
        return bool(sending)

    def _advance(self, sent: int) -> bool:
        """Drop what has been sent; True when nothing is left, and then rings have their records back."""
        sending, at = self._sending, 0
        while at < len(sending):
            size = len(sending[at])
            if sent < size:
                break
            sent -= size
            at += 1
        if at == len(sending):
            sending.clear()
            if self._holds_data:
                self._holds_data = False
                for lanes in self.outgoing.values():
                    lanes.sent()
            return True
        del sending[:at]
        if sent:
            sending[0] = memoryview(sending[0])[sent:]
        return False

    # -- receiving ----------------------------------------------------------------------------------------------

    def receive(self, now_ns: int) -> bool:
        """Read what has come and hand it on; False at the end of the stream.

        Raises:
            OSError: the connection is broken.
            PacketError: what has come is no packet.
            RingCorruptError: what has come are no records.
        """
        reader, wire = self._reader, self.wire
        for _ in range(_MOST_TURNS):
            room = reader.room()
            count = wire.receive_into(room)
            if count == WOULD_BLOCK:
                return True
            if count == 0:
                return False
            self._now_ns = now_ns
            self.bytes_in += count
            reader.received(count)
            if self.leaving is not None:
                return False
            if count < len(room) and not wire.has_more:
                return True
        return True

    def take(self, data: bytes) -> None:
        """Take what has been read behind the handshake."""
        while data:
            room = self._reader.room()
            piece, data = data[: len(room)], data[len(room) :]
            room[: len(piece)] = piece
            self._reader.received(len(piece))

    def _deliver(self, header: Header, body: memoryview) -> None:
        kind = header.kind
        if kind == DATA:
            lanes = self.incoming.get(header.execution)
            if lanes is not None and not lanes.put_run(header, body):
                raise PacketError(_no_lane(header))
        elif kind == BATCH:
            lanes = self.incoming.get(header.execution)
            if lanes is not None:
                lanes.put_batch(header, body)
        elif kind == FLOW:
            for execution, edge, _, limit in FLOW_ENTRY.iter_unpack(body):
                self._allow(execution, edge, limit)
        elif kind == HEARTBEAT:
            self.heard_ns = self._now_ns  # nothing else counts: a link goes on with its data when its member is stuck
        elif kind == CONTROL:
            self._take_piece(header, body)
        elif kind == GOODBYE:
            self.leaving = bytes(body).decode(errors="replace")

    def _place(self, header: Header) -> memoryview:
        lanes = self.incoming.get(header.execution)
        if lanes is None:  # an execution that has been closed here: to be read and forgotten
            return memoryview(bytearray(header.length))
        place = lanes.place(header)
        if place is None:
            raise PacketError(_no_lane(header))
        return place

    def _take_piece(self, header: Header, body: memoryview) -> None:
        self._pieces_size += len(body)
        if self._pieces_size > self._message_bytes:
            raise PacketError(f"a message of more than {self._message_bytes} bytes")
        self._pieces.append(bytes(body))
        if not header.flags & FLAG_MORE:
            payload = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
            self._pieces.clear()
            self._pieces_size = 0
            self._owner.message(self, payload)

    def _allow(self, execution: int, edge: int, limit: int) -> None:
        lanes = self.outgoing.get(execution)
        if lanes is not None:
            lanes.allow(edge, limit)
            return
        # The peer has opened an execution before this member, or this member has closed it: the oldest is forgotten.
        self._early_limits[execution, edge] = limit
        if len(self._early_limits) > _KEPT_LIMITS:
            del self._early_limits[next(iter(self._early_limits))]

    # -- executions ---------------------------------------------------------------------------------------------

    def carry(self, execution: int, outgoing: Outgoing, incoming: Incoming) -> None:
        """Begin to carry an execution's lanes."""
        self.outgoing[execution] = outgoing
        self.incoming[execution] = incoming
        for key in [key for key in self._early_limits if key[0] == execution]:
            outgoing.allow(key[1], self._early_limits.pop(key))

    def drop(self, execution: int) -> None:
        """Stop carrying an execution: what was taken from its rings and has not left is copied."""
        outgoing = self.outgoing.pop(execution, None)
        incoming = self.incoming.pop(execution, None)
        if outgoing is not None:
            if self._holds_data:
                self._sending = [
                    bytes(buffer) if isinstance(buffer, memoryview) else buffer for buffer in self._sending
                ]
            outgoing.close()
        if incoming is not None:
            self._reader.forget_placed()
            incoming.close()
        for key in [key for key in self._early_limits if key[0] == execution]:
            del self._early_limits[key]

    def close(self, *, hard: bool = False) -> None:
        """Close the connection and let go of all rings."""
        self._sending.clear()
        self._urgent.clear()
        for lanes in self.outgoing.values():
            lanes.close()
        for incoming in self.incoming.values():
            incoming.close()
        self.outgoing.clear()
        self.incoming.clear()
        self._reader.forget_placed()
        self.wire.close(hard=hard)


def _no_lane(header: Header) -> str:
    return (
        f"execution {header.execution} has no lane from processor {header.producer} to {header.consumer} "
        f"on edge {header.edge}"
    )
