"""The lanes of one execution that lead to one peer, as its `PacketWriter` takes packets from them.

Records go out as they lie in the ring, batches of columns as they lie in the slab, straight from shared memory; what
was taken is given back when the connection has sent all of it. Nothing is decoded. Each edge has a window, and a lane
whose edge may not send is left alone, so that it holds up no other.
"""

from __future__ import annotations

from collections.abc import Sequence

from shmjet._native import EdgeFlow, PacketWriter, Poller, RingConsumer
from shmjet.execution.counters import TrafficCounters
from shmjet.net.compression import Lz4Compressor
from shmjet.ring.slab import IncomingSlabs


class OutgoingEdge:
    """One edge to one peer.

    Args:
        number: its index in the plan.
        packet_size_limit: bytes after which a packet is full.
        bounded: whether a window says how far it may go.
        traffic: counts what leaves.
        compressor: makes payloads smaller; None where they travel as they are.
    """

    __slots__ = ("bounded", "compressor", "consumers", "flow", "number", "packet_size_limit")

    def __init__(
        self,
        number: int,
        packet_size_limit: int,
        bounded: bool,
        traffic: TrafficCounters,
        compressor: Lz4Compressor | None = None,
    ) -> None:
        self.compressor = compressor
        self.number = number
        self.packet_size_limit = packet_size_limit
        self.bounded = bounded
        self.flow = EdgeFlow(bounded, traffic.out)
        self.consumers: list[RingConsumer] = []

    def allow(self, limit: int) -> None:
        """Take the peer's word on how far it may go; its rings count as work, or not."""
        self.flow.limit = limit
        for consumer in self.consumers:
            consumer.enabled = self.flow.is_open


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
        slabs: the slabs in its memory.
        edges: to the peer.
        lanes: theirs.
    """

    def __init__(
        self, execution: int, slabs: IncomingSlabs, edges: Sequence[OutgoingEdge], lanes: Sequence[OutgoingLane]
    ) -> None:
        self.edges = {edge.number: edge for edge in edges}
        self.poller = Poller([lane.consumer for lane in lanes], [])
        self._execution = execution
        self._slabs = slabs
        self._lanes = list(lanes)

    def attach(self, writer: PacketWriter) -> None:
        """Let a peer's writer take from these lanes, until it drops the execution."""
        for lane in self._lanes:
            edge = lane.edge
            writer.add(
                self._execution,
                edge.number,
                lane.producer,
                lane.receiver,
                lane.consumer,
                edge.flow,
                edge.packet_size_limit,
                self._slabs.take,
                None if edge.compressor is None else edge.compressor.pack,
            )

    def allow(self, edge: int, limit: int) -> None:
        """Take the peer's word on how far an edge may go."""
        known = self.edges.get(edge)
        if known is not None and known.bounded:
            known.allow(limit)

    def close(self) -> None:
        """Let go of the rings, which the writer must have dropped."""
        for lane in self._lanes:
            lane.consumer.close()
        self._lanes.clear()
        for edge in self.edges.values():
            edge.flow.close()
