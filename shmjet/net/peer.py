"""The connection to one peer: everything that goes to it and comes from it, packed and cut by kernels in C.

What is urgent (messages, flow control, heartbeats) goes before data, at the next packet's end, and what may wait behind
it. Data is taken from rings
only when the socket has taken all that was taken before, so nothing is queued here but what is urgent.
"""

from __future__ import annotations

from typing import Protocol

from shmjet._native import LinkLoop, PacketWriter, clock_ns
from shmjet.net.packets import (
    BATCH,
    BULK,
    CONTROL,
    DATA,
    FLAG_LZ4,
    FLAG_MORE,
    FLOW,
    FLOW_ENTRY,
    GOODBYE,
    HEADER,
    HEARTBEAT,
    LONGEST,
    Header,
    PacketError,
    check,
    message_packets,
    packet_reader,
)
from shmjet.net.receiver import Incoming
from shmjet.net.sender import Outgoing
from shmjet.net.wire_socket import BLOCKED, MORE, Wire

_KEPT_LIMITS = 4096
"""Limits that are remembered for executions that are not open here yet."""


class PeerOwner(Protocol):
    """What a peer tells its link."""

    def message(self, peer: Peer, payload: bytes) -> None:
        """A member has sent this."""

    def leaves(self, peer: Peer) -> None:
        """A member has said goodbye: nothing follows."""


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
        self.fd = wire.fileno()
        """The connection's descriptor, also when it has been closed."""
        self.outgoing: dict[int, Outgoing] = {}
        self.incoming: dict[int, Incoming] = {}
        self.is_blocked = False
        """Whether the socket has refused, so that its link waits until it takes more."""
        self.leaving: str | None = None
        """Why the peer has said goodbye."""
        self.heard_ns = 0
        self.reported_ns = 0
        self._owner = owner
        self._message_bytes = message_bytes
        self.writer = PacketWriter()
        self._pieces: dict[int, list[bytes]] = {CONTROL: [], BULK: []}
        self._pieces_size = dict.fromkeys(self._pieces, 0)
        self._early_limits: dict[tuple[int, int], int] = {}
        self._reader = packet_reader(self._deliver, self._place)

    @property
    def is_native(self) -> bool:
        """Whether a link loop may carry its packets: there is no TLS between them and the socket."""
        return self.wire.is_plain

    def join(self, link_loop: LinkLoop) -> None:
        """Have a link loop send and receive for this peer, until it is told to remove the descriptor."""
        link_loop.add(self.fd, self.writer, self._reader)

    # -- sending ------------------------------------------------------------------------------------------------

    @property
    def queued(self) -> int:
        """Bytes of urgent packets that have not left."""
        return self.writer.queued

    @property
    def bytes_out(self) -> int:
        """Bytes that have been sent."""
        return self.writer.bytes_out

    @property
    def bytes_in(self) -> int:
        """Bytes that have come."""
        return self._reader.bytes_in

    def send_message(self, payload: bytes, *, may_wait: bool = False) -> None:
        """Queue a message for the peer's member.

        Args:
            payload: of it.
            may_wait: whether data goes first.
        """
        queue = self.writer.queue_bulk if may_wait else self.writer.queue
        for head, piece in message_packets(payload, BULK if may_wait else CONTROL):
            queue(head + piece)

    def send_heartbeat(self) -> None:
        """Queue a sign of life."""
        self.writer.queue(HEADER.pack(0, HEARTBEAT, 0, 0, 0, 0, 0, 0, 0))

    def send_limits(self, entries: list[bytes]) -> None:
        """Queue limits of windows."""
        most = LONGEST[FLOW] // FLOW_ENTRY.size
        for at in range(0, len(entries), most):
            body = b"".join(entries[at : at + most])
            self.writer.queue(HEADER.pack(len(body), FLOW, 0, 0, 0, 0, 0, 0, 0) + body)

    def send_goodbye(self, reason: str) -> None:
        """Queue the last packet."""
        body = reason.encode()[: LONGEST[GOODBYE]]
        self.writer.queue(HEADER.pack(len(body), GOODBYE, 0, 0, 0, 0, 0, 0, 0) + body)

    @property
    def has_output(self) -> bool:
        """Whether there is something to send that is not in rings."""
        return self.writer.has_output or self.wire.has_staged

    def flush(self) -> bool:
        """Send what the socket takes, from rings when nothing urgent is left; True when there is more to be sent now.

        Raises:
            OSError: the connection is broken.
            RingCorruptError: a ring or slab of this member is damaged.
        """
        status = self.wire.flush(self.writer)
        self.is_blocked = status == BLOCKED
        return status == MORE

    # -- receiving ----------------------------------------------------------------------------------------------

    def receive(self) -> bool:
        """Read what has come and hand it on; False at the end of the stream.

        Raises:
            OSError: the connection is broken.
            PacketError: what has come is not a packet.
            RingCorruptError: what has come is not a run of records.
        """
        return self.wire.receive(self._reader)

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
            if lanes is not None:
                if header.flags:
                    header, body = unpacked_payload(lanes, header, body)
                    lanes.note(header)
                if not lanes.put_run(header, body):
                    raise PacketError(_no_lane(header))
        elif kind == BATCH:
            lanes = self.incoming.get(header.execution)
            if lanes is not None:
                if header.flags:
                    header, unpacked = unpacked_payload(lanes, header, body)
                    body = self._place(header)
                    body[:] = unpacked
                lanes.put_batch(header, body)
        elif kind == FLOW:
            for execution, edge, _, limit in FLOW_ENTRY.iter_unpack(body):
                self._allow(execution, edge, limit)
        elif kind == HEARTBEAT:
            self.heard_ns = clock_ns()  # nothing else counts: a link goes on with its data when its member is stuck
        elif kind in (CONTROL, BULK):
            self._take_piece(header, body)
        elif kind == GOODBYE:
            self.leaving = bytes(body).decode(errors="replace")
            self._owner.leaves(self)

    def _place(self, header: Header) -> memoryview:
        lanes = self.incoming.get(header.execution)
        # Of an execution that has been closed here: to be read and forgotten. What is to be unpacked has no place yet.
        if lanes is None or header.flags & FLAG_LZ4:
            return memoryview(bytearray(header.length))
        place = lanes.place(header)
        if place is None:
            raise PacketError(_no_lane(header))
        return place

    def _take_piece(self, header: Header, body: memoryview) -> None:
        kind, pieces = header.kind, self._pieces[header.kind]
        self._pieces_size[kind] += len(body)
        if self._pieces_size[kind] > self._message_bytes:
            raise PacketError(f"a message of more than {self._message_bytes} bytes")
        pieces.append(bytes(body))
        if not header.flags & FLAG_MORE:
            payload = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            pieces.clear()
            self._pieces_size[kind] = 0
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
        outgoing.attach(self.writer)
        incoming.attach(self._reader)
        for key in [key for key in self._early_limits if key[0] == execution]:
            outgoing.allow(key[1], self._early_limits.pop(key))

    def drop(self, execution: int) -> None:
        """Stop carrying an execution: what was taken from its rings and has not left is copied."""
        outgoing = self.outgoing.pop(execution, None)
        incoming = self.incoming.pop(execution, None)
        if outgoing is not None:
            self.writer.drop(execution)
            outgoing.close()
        if incoming is not None:
            self._reader.drop(execution)
            incoming.close()
        for key in [key for key in self._early_limits if key[0] == execution]:
            del self._early_limits[key]

    def close(self, *, hard: bool = False) -> None:
        """Close the connection and let go of all rings."""
        self.writer.clear()
        self._reader.close()
        for lanes in self.outgoing.values():
            lanes.close()
        for incoming in self.incoming.values():
            incoming.close()
        self.outgoing.clear()
        self.incoming.clear()
        self.wire.close(hard=hard)


def unpacked_payload(lanes: Incoming, header: Header, body: memoryview) -> tuple[Header, memoryview]:
    """Return a packet as it was before its payload was made smaller."""
    lane = lanes.lane(header)
    if lane is None:
        raise PacketError(_no_lane(header))
    if lane.edge.compressor is None:
        raise PacketError(f"a compressed packet on edge {header.edge} of execution {header.execution}, which is not")
    payload = memoryview(lane.edge.compressor.unpack(header.kind, body))
    header = header._replace(length=len(payload), flags=0)
    check(header)
    return header, payload


def _no_lane(header: Header) -> str:
    return (
        f"execution {header.execution} has no lane from processor {header.producer} to {header.consumer} "
        f"on edge {header.edge}"
    )
