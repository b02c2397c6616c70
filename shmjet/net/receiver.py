"""The lanes of one execution that come from one peer: from packets into the rings of their consumers.

The peer's `PacketReader` puts runs of records into rings itself. What finds no room in a ring waits here; the edge's
window bounds how much that can be. Bytes count as acknowledged when a ring has taken them. A large batch is read into a
slot of the link's slab and handed on as a place, as between workers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from shmjet._native import RECORD_HEADER, EdgeFlow, PacketReader, Poller, RingProducer
from shmjet.execution.counters import TrafficCounters
from shmjet.net.compression import Lz4Compressor
from shmjet.net.packets import FLOW_ENTRY, Header
from shmjet.net.window import BLOCK, ReceiveWindow
from shmjet.ring import frames
from shmjet.ring.fragments import FragmentWriter
from shmjet.ring.slab import OutgoingSlab

_SLOT_RECORD = RECORD_HEADER + -(-frames.SLOT.size // 16) * 16
_LANE_BYTES = 4 << 20
"""A lane whose consumer has as much before it in slots gets no more of them."""

_KEPT_BYTES = 32 << 20
"""Memory for batches without a slot that is kept to be used again: fresh memory costs more than the copy into it."""

Claimed = tuple[int, int]
"""A slot: its offset in the slab, and in the arena."""


class OverflowBuffer:
    """Memory for batches that find no slot, used repeatedly.

    Args:
        kept: bytes that it keeps at most.
    """

    def __init__(self, kept: int = _KEPT_BYTES) -> None:
        self._most = kept
        self._free: dict[int, list[bytearray]] = {}
        self._bytes = 0

    def take(self, size: int) -> memoryview:
        """Return memory of `size` bytes."""
        rounded = -(-size // 4096) * 4096
        found = self._free.get(rounded)
        if found:
            self._bytes -= rounded
            return memoryview(found.pop())[:size]
        return memoryview(bytearray(rounded))[:size]

    def give(self, memory: memoryview) -> None:
        """Take memory back that is not looked at any more."""
        whole = memory.obj
        memory.release()
        if isinstance(whole, bytearray) and self._bytes + len(whole) <= self._most:
            self._bytes += len(whole)
            self._free.setdefault(len(whole), []).append(whole)


class IncomingEdge:
    """One edge from one peer.

    Args:
        number: its index in the plan.
        window: grants the sender how far it may go.
        traffic: counts what comes.
        due: gets the edge's flow when half of a window has been taken since the sender was told.
        compressor: brings back payloads that were made smaller; None where there are none.
    """

    __slots__ = ("compressor", "flow", "limit", "number", "window")

    def __init__(
        self,
        number: int,
        window: ReceiveWindow,
        traffic: TrafficCounters,
        due: list[EdgeFlow],
        compressor: Lz4Compressor | None = None,
    ) -> None:
        self.compressor = compressor
        self.number = number
        self.window = window
        self.flow = EdgeFlow(False, traffic.into, due)
        self.limit: int | None = None

    @property
    def waiting(self) -> int:
        """Bytes that have come and found no room in a ring yet."""
        return self.flow.bytes - self.flow.acked

    def next_limit(self, now_ns: int) -> int | None:
        """Return what the sender has to be told at the end of a period; None when it knows."""
        return self._told(self.window.limit_at(now_ns, self.flow.acked, starved=self.waiting == 0))

    def renewed_limit(self) -> int | None:
        """Return what the sender has to be told within a period; None when it knows."""
        return self._told(self.window.limit_from(self.flow.acked))

    def _told(self, limit: int) -> int | None:
        self.flow.renew_at = self.flow.acked + max(1, self.window.blocks) * BLOCK // 2
        if limit == self.limit:
            return None
        self.limit = limit
        return limit


class IncomingLane:
    """One ring to be filled.

    Args:
        edge: the lane's.
        producer: the ring's writing end.
        slab: the link's.
        arena: in which it lies.
        shelf: the link's.
    """

    __slots__ = ("_arena", "_fragments", "_shelf", "edge", "producer", "share", "slab", "waiting")

    def __init__(
        self,
        edge: IncomingEdge,
        producer: RingProducer,
        slab: OutgoingSlab | None,
        arena: memoryview,
        shelf: OverflowBuffer,
    ) -> None:
        self._arena = arena
        self._shelf = shelf
        self.edge = edge
        self.producer = producer
        self.slab = slab
        self.waiting: deque[tuple[str, Any, int, int]] = deque()
        """What finds no room, in order: "run" or "batch" with bytes, or "slot" with its offset; then bytes, items."""
        self.share = 0 if slab is None else min(_LANE_BYTES, slab.size // 4)
        """Bytes of batches, if they are more than two, that lie in slots before its consumer at most."""
        self._fragments: FragmentWriter | None = None

    def put_run(self, body: memoryview) -> None:
        """Take a run of records, or the rest of one, which may have to wait."""
        size = len(body)
        self.edge.flow.bytes += size
        end = 0
        if not self.waiting:
            end = self._put(body)
            if end == size:
                return
        self._wait("run", bytes(body[end:]), size - end, 0)

    def _put(self, body: bytes | memoryview) -> int:
        end, items = self.producer.put_run(body, 0, len(body))
        self.edge.flow.took(items, end)
        return end

    def _wait(self, kind: str, content: Any, size: int, items: int) -> None:
        """Keep something until there is room; what comes meanwhile has to wait behind it."""
        self.waiting.append((kind, content, size, items))
        self.producer.reserved = True

    def claim(self, size: int) -> Claimed | None:
        """Return a slot for a batch of `size` bytes, if there is one and what waits on this edge leaves others some."""
        slab = self.slab
        if slab is None or size > slab.largest_slot or self.edge.waiting + size > slab.size // 2:
            return None
        return slab.claim(size)

    def put_batch(self, slot: int | None, body: memoryview, items: int) -> None:
        """Take a batch read into the slot at an offset, or else into memory of its own; it may have to wait."""
        size = len(body)
        self.edge.flow.bytes += size
        entry = ("slot", slot, size, items) if slot is not None else ("batch", body, size, items)
        if self.waiting or not self._deliver(*entry):
            self._wait(*entry)

    def flush(self) -> bool:
        """Hand on what waits; True when nothing is left."""
        waiting = self.waiting
        while waiting:
            if not self._deliver(*waiting[0]):
                return False
            waiting.popleft()
        self.producer.reserved = False
        return True

    def _deliver(self, kind: str, content: Any, size: int, items: int) -> bool:
        if kind == "run":
            end = self._put(content)
            if end < len(content):
                self.waiting[0] = ("run", content[end:], size - end, 0)
                return False
            return True
        if not (self._put_slot(content, size, items) if kind == "slot" else self._put_memory(content, size, items)):
            return False
        self.edge.flow.took(items, size)
        return True

    def _put_slot(self, offset: int, size: int, items: int) -> bool:
        producer, slab = self.producer, self.slab
        assert slab is not None
        if not self._may_queue(size):
            return False
        place = frames.SLOT.pack(slab.number, 0, offset, size)
        return producer.push_bytes(frames.KIND_ITEMS, frames.CODEC_SLOT, 0, items, (place,))

    def _may_queue(self, size: int) -> bool:
        """Say whether the consumer has so little before it that another slot may lie there; else ask to be woken."""
        producer = self.producer
        queued = (producer.capacity - producer.free_bytes) // _SLOT_RECORD
        return queued < 2 or queued * size <= self.share or not producer.leave_mark(frames.SLOT.size)

    def _put_memory(self, body: memoryview, size: int, items: int) -> bool:
        """Copy a batch for which there was no slot into one now, or write it into the ring in fragments."""
        fragments, slab = self._fragments, self.slab
        if fragments is not None:
            done = fragments.go_on()
        elif not self._may_queue(size) or not self.producer.admit(items, frames.SLOT.size):
            return False
        else:
            claimed = None if slab is None or size > slab.largest_slot else slab.claim(size)
            if claimed is not None:
                self._arena[claimed[1] : claimed[1] + size] = body
                done = self._put_slot(claimed[0], size, items)
            else:
                fragments = self._fragments = FragmentWriter(self.producer)
                done = fragments.begin(body, frames.CODEC_BATCH, [body], items)
        if done:
            if fragments is not None:
                fragments.clear()
                self._fragments = None
            self._shelf.give(body)
        return done


class Incoming:
    """All lanes of an execution from one peer.

    Args:
        execution: its id.
        edges: from the peer.
        lanes: theirs, by (edge, producer, consumer).
        arena: the execution's memory.
        shelf: of the link.
        due: the flows of edges whose sender has to be told now how far it may go.
    """

    def __init__(
        self,
        execution: int,
        edges: Sequence[IncomingEdge],
        lanes: dict[tuple[int, int, int], IncomingLane],
        arena: memoryview,
        shelf: OverflowBuffer,
        due: list[EdgeFlow],
    ) -> None:
        self.due = due
        self._execution = execution
        self._shelf = shelf
        self.edges = list(edges)
        self.poller = Poller([], [lane.producer for lane in lanes.values()])
        self._lanes = lanes
        self._arena = arena
        self._blocked: list[IncomingLane] = []
        self._claimed: Claimed | None = None
        self._reader: PacketReader | None = None
        self._has_slab_target = False

    def attach(self, reader: PacketReader) -> None:
        """Let a peer's reader put runs of records into these lanes, until it drops the execution.

        It puts batches into slots itself, too, once there is a slab.
        """
        self._reader = reader
        for (edge, producer, consumer), lane in self._lanes.items():
            reader.add(self._execution, edge, producer, consumer, lane.producer, lane.edge.flow)

    def lane(self, header: Header) -> IncomingLane | None:
        """Return the lane that a packet is for; None when there is none."""
        return self._lanes.get((header.edge, header.producer, header.consumer))

    def put_run(self, header: Header, body: memoryview) -> bool:
        """Take a DATA packet, or what the reader could not put into a ring of one; False when there is no such lane.

        The reader has noted it.

        Raises:
            RingCorruptError: it holds something else than records.
        """
        lane = self.lane(header)
        if lane is None:
            return False
        was_blocked = bool(lane.waiting)
        lane.put_run(body)
        self._note(lane, was_blocked)
        return True

    def note(self, header: Header) -> None:
        """Count a DATA packet that the reader has left alone."""
        lane = self.lane(header)
        assert lane is not None
        lane.edge.flow.note(header.items, header.length)

    def _note(self, lane: IncomingLane, was_blocked: bool) -> None:
        if lane.waiting and not was_blocked:
            self._blocked.append(lane)

    def place(self, header: Header) -> memoryview | None:
        """Return memory for a BATCH packet's payload; None when there is no such lane."""
        lane = self.lane(header)
        if lane is None:
            return None
        self._claimed = lane.claim(header.length)
        if self._claimed is None:
            return self._shelf.take(header.length)
        if not self._has_slab_target:
            self._add_slab_target(lane)
        at = self._claimed[1]
        return self._arena[at : at + header.length]

    def _add_slab_target(self, lane: IncomingLane) -> None:
        """Let the reader take slots itself from now on; what it finds none for is still ours."""
        slab, reader = lane.slab, self._reader
        if slab is not None and slab.writer is not None and reader is not None:
            reader.add_slab_target(self._execution, slab.writer, self._arena, slab.number, lane.share)
            self._has_slab_target = True

    def put_batch(self, header: Header, body: memoryview) -> None:
        """Take a BATCH packet whose payload lies in what `place` has given, or in a slot that the reader has taken."""
        lane = self.lane(header)
        assert lane is not None
        lane.edge.flow.note(header.items, header.length)
        was_blocked = bool(lane.waiting)
        if self._claimed is not None:
            slot: int | None = self._claimed[0]
        else:
            slot = None if self._reader is None else self._reader.slot
        lane.put_batch(slot, body, header.items)
        self._note(lane, was_blocked)
        self._claimed = None

    @property
    def is_blocked(self) -> bool:
        """Whether something waits for room."""
        return bool(self._blocked)

    def retry(self) -> None:
        """Hand on what waits, as far as there is room."""
        self._blocked = [lane for lane in self._blocked if not lane.flush()]

    def limits(self, now_ns: int) -> Iterator[bytes]:
        """Yield the entries of a FLOW packet at the end of a period."""
        for edge in self.edges:
            yield from self._entry(edge, edge.next_limit(now_ns))

    def renewals(self) -> Iterator[bytes]:
        """Yield the entries of a FLOW packet for the limits that are due before."""
        due = self.due[:]
        self.due.clear()
        for edge in self.edges:
            if any(edge.flow is flow for flow in due):
                yield from self._entry(edge, edge.renewed_limit())

    def _entry(self, edge: IncomingEdge, limit: int | None) -> Iterator[bytes]:
        if limit is not None:
            yield FLOW_ENTRY.pack(self._execution, edge.number, 0, limit)

    def close(self) -> None:
        """Let go of the rings, which the reader must have dropped."""
        self._blocked.clear()
        for lane in self._lanes.values():
            lane.waiting.clear()
            lane.producer.close()
        self._lanes.clear()
        for edge in self.edges:
            edge.flow.close()
        self.due.clear()
