"""The lanes of one execution that lead to one peer: from the rings of its producers into packets.

Records go out as they lie in the ring, batches of columns as they lie in the slab, straight from shared memory; what
was taken is given back when the connection has sent all of it. Nothing is decoded. Each edge has a window, and a lane
whose edge may not send is left alone, so that it holds up no other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shmjet._native import Poller, RingConsumer
from shmjet.execution.counters import TrafficCounters
from shmjet.net.packets import BATCH, DATA, HEADER
from shmjet.net.window import SendWindow
from shmjet.ring.slab import IncomingSlabs

_SHARE = 1 << 17
"""Bytes that one lane may add when others have something, too."""


class OutgoingEdge:
    """One edge to one peer.

    Args:
        number: its index in the plan.
        packet_size_limit: bytes after which a packet is full.
        window: how far it may go; None for without a limit.
        traffic: counts what leaves.
    """

    __slots__ = ("bytes", "consumers", "items", "number", "packet_size_limit", "traffic", "window")

    def __init__(
        self, number: int, packet_size_limit: int, window: SendWindow | None, traffic: TrafficCounters
    ) -> None:
        self.traffic = traffic
        self.number = number
        self.packet_size_limit = packet_size_limit
        self.window = window
        self.consumers: list[RingConsumer] = []
        self.items = self.bytes = 0

    def may_send(self) -> bool:
        """Say whether another packet may be sent now."""
        return self.window is None or self.window.is_open

    def enable(self, enabled: bool) -> None:
        """Let its rings count as work, or not."""
        for consumer in self.consumers:
            consumer.enabled = enabled


class OutgoingLane:
    """One ring to be emptied.

    Args:
        edge: the lane's.
        consumer: the ring's reading end.
        producer, receiver: the lane's ends, as numbers on the edge.
    """

    __slots__ = ("consumer", "edge", "producer", "receiver")

    def __init__(self, edge: OutgoingEdge, consumer: RingConsumer, producer: int, receiver: int) -> None:
        self.edge = edge
        self.consumer = consumer
        self.producer = producer
        self.receiver = receiver
        edge.consumers.append(consumer)


class Outgoing:
    """All lanes of an execution to one peer.

    Args:
        execution: its id.
        arena: its memory.
        slabs: the slabs in it.
        edges: those that lead to the peer.
        lanes: theirs.
    """

    def __init__(
        self,
        execution: int,
        arena: memoryview,
        slabs: IncomingSlabs,
        edges: Sequence[OutgoingEdge],
        lanes: Sequence[OutgoingLane],
    ) -> None:
        self.edges = {edge.number: edge for edge in edges}
        self.poller = Poller([lane.consumer for lane in lanes], [])
        self._execution = execution
        self._arena = arena
        self._slabs = slabs
        self._lanes = list(lanes)
        self._cursor = 0
        self._taken: list[RingConsumer] = []

    def allow(self, edge: int, limit: int) -> None:
        """Take the peer's word on how far an edge may go."""
        known = self.edges.get(edge)
        if known is not None and known.window is not None:
            known.window.allow(limit)
            known.enable(known.window.is_open)

    def fill(self, buffers: list[Any], budget: int) -> int:
        """Append packets to `buffers`; returns bytes of payload, more than `budget` by a packet at most.

        What was taken stays in its ring until `sent` is called.
        """
        ready = self.poller.ready_inputs()
        if not ready:
            return 0
        if len(ready) > 1:
            at = self._cursor
            ready = [i for i in ready if i >= at] + [i for i in ready if i < at]
        share = budget if len(ready) == 1 else min(_SHARE, budget)
        total = 0
        for i in ready:
            lane = self._lanes[i]
            if lane.edge.may_send():
                total += self._take(lane, buffers, min(share, budget - total))
                if not lane.edge.may_send():
                    lane.edge.enable(False)
            self._cursor = i + 1
            if total >= budget:
                break
        return total

    def _take(self, lane: OutgoingLane, buffers: list[Any], most: int) -> int:
        edge, consumer, arena = lane.edge, lane.consumer, self._arena
        window, limit, total, items = edge.window, edge.packet_size_limit, 0, 0
        while total < most:
            run = consumer.take_run(limit)
            if run is None:
                break
            if len(run) == 3:
                start, length, count = run
                kind, payload = DATA, arena[start : start + length]
            else:
                slab, offset, length, count = run
                kind, payload = BATCH, memoryview(self._slabs.take(slab, offset, length))
            head = HEADER.pack(length, kind, 0, edge.number, self._execution, lane.producer, lane.receiver, count, 0)
            buffers.append(head)
            buffers.append(payload)
            total += length
            items += count
            if window is not None:
                window.sent += length
                if not window.is_open:
                    break
        if total:
            self._taken.append(consumer)
            edge.items += items
            edge.bytes += total
            edge.traffic.sent(items, total)
        return total

    def sent(self) -> None:
        """Give back what `fill` has taken: it has left."""
        for consumer in self._taken:
            consumer.release()
        self._taken.clear()

    def close(self) -> None:
        """Let go of the rings."""
        self._taken.clear()
        for lane in self._lanes:
            lane.consumer.close()
        self._lanes.clear()
