"""One execution in the link process: its arena, and the rings of all lanes that lead to other members and come from
them.

Which lanes there are, and where, follows from the plan, as in every process of the execution.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Container

from shmjet._native import EdgeFlow, RingConsumer, RingProducer
from shmjet.execution.assembly import Bells
from shmjet.execution.counters import TrafficCounters
from shmjet.execution.job_plan import EdgePlan
from shmjet.execution.layout import lay_out, slab_offsets, slab_size
from shmjet.execution.plan_lanes import is_remote, lane_pairs, member_of, spans
from shmjet.net.compression import Lz4Compressor
from shmjet.net.messages import EdgeStats, OpenExecution
from shmjet.net.receiver import Incoming, IncomingEdge, IncomingLane, OverflowBuffer
from shmjet.net.sender import Outgoing, OutgoingEdge, OutgoingLane
from shmjet.net.window import ReceiveWindow
from shmjet.ring.arena import map_segment, reserve
from shmjet.ring.slab import IncomingSlabs, OutgoingSlab


class CarriedExecution:
    """The distributed edges of one execution.

    Args:
        order: what the member has asked for.
        fd: the arena's descriptor; owned by this object.
        control: the control segment, with the doorbells of workers.
        period_ns: of flow control.
        overflow: memory of the link for batches that find no slot.
    """

    def __init__(
        self, order: OpenExecution, fd: int, control: memoryview, period_ns: int, overflow: OverflowBuffer
    ) -> None:
        self._overflow = overflow
        self.execution = order.execution
        self._fd = fd
        try:
            self._mapping = map_segment(fd, order.arena_size, f"of execution {order.execution}")
        except BaseException:
            os.close(fd)
            raise
        self._arena = memoryview(self._mapping)
        self._words = self._arena.cast("q")
        plan = self._plan = order.plan
        self._order = order
        self._period_ns = period_ns
        self._layout = lay_out(plan)
        start_barrier = plan.start_barrier_endpoint
        assert start_barrier is not None
        self._bells = Bells(plan, self._layout, control, self._arena)
        size, offsets = slab_size(plan), slab_offsets(plan, order.arena_reserved)
        self._slabs = IncomingSlabs(self._arena, offsets, size)
        self._slab: OutgoingSlab | None = None
        if offsets:
            self._slab = OutgoingSlab(self._arena, offsets[start_barrier], size, start_barrier, self._reserve)
        self._compressor: Lz4Compressor | None = None
        self.outgoing: dict[str, Outgoing] = {}
        self.incoming: dict[str, Incoming] = {}

    def peers(self) -> list[str]:
        """Return the uuids of the other members."""
        return [peer for index, peer in enumerate(self._plan.slot.peers) if index != self._plan.slot.index]

    def open(self) -> None:
        """Open the rings of all lanes, by peer."""
        plan = self._plan
        out_edges: dict[tuple[int, int], OutgoingEdge] = {}
        in_edges: dict[tuple[int, int], IncomingEdge] = {}
        out_lanes: dict[int, list[OutgoingLane]] = {}
        in_lanes: dict[int, dict[tuple[int, int, int], IncomingLane]] = {}
        due: dict[int, list[EdgeFlow]] = {index: [] for index in range(len(plan.slot.peers))}
        for e, edge in enumerate(plan.edges):
            if not spans(plan, edge):
                continue
            for producer, consumer in lane_pairs(plan, edge):
                if not is_remote(plan, edge, producer, consumer):
                    continue
                source = member_of(plan, edge, edge.source, producer)
                target = member_of(plan, edge, edge.destination, consumer)
                at = self._layout.rings[e, producer, consumer]
                if source == plan.slot.index:
                    out = out_edges.get((target, e))
                    if out is None:
                        out = out_edges[target, e] = self._outgoing_edge(edge, e, target)
                    bell = self._bells.at(edge, edge.source, producer)
                    lane = OutgoingLane(out, RingConsumer(self._arena, at, bell), producer, consumer)
                    out_lanes.setdefault(target, []).append(lane)
                else:
                    into = in_edges.get((source, e))
                    if into is None:
                        into = in_edges[source, e] = self._incoming_edge(edge, e, source, due[source])
                    bell = self._bells.at(edge, edge.destination, consumer)
                    ring = RingProducer(self._arena, at, bell)
                    lanes = in_lanes.setdefault(source, {})
                    lanes[e, producer, consumer] = IncomingLane(into, ring, self._slab, self._arena, self._overflow)
        for index, peer in enumerate(plan.slot.peers):
            if index == plan.slot.index:
                continue
            edges = [edge for (member, _), edge in out_edges.items() if member == index]
            self.outgoing[peer] = Outgoing(self.execution, self._slabs, edges, out_lanes.get(index, []))
            into_here = [edge for (member, _), edge in in_edges.items() if member == index]
            lanes = in_lanes.get(index, {})
            self.incoming[peer] = Incoming(self.execution, into_here, lanes, self._arena, self._overflow, due[index])

    def _outgoing_edge(self, edge: EdgePlan, e: int, member: int) -> OutgoingEdge:
        bounded, traffic = self._order.flow_control, self._traffic(e, member)
        return OutgoingEdge(e, edge.packet_size_limit, bounded, traffic, self._compressor_of(edge))

    def _incoming_edge(self, edge: EdgePlan, e: int, member: int, due: list[EdgeFlow]) -> IncomingEdge:
        window = ReceiveWindow(self._period_ns, edge.receive_window_multiplier)
        return IncomingEdge(e, window, self._traffic(e, member), due, self._compressor_of(edge))

    def _compressor_of(self, edge: EdgePlan) -> Lz4Compressor | None:
        if edge.compression is None:
            return None
        if self._compressor is None:
            self._compressor = Lz4Compressor()
        return self._compressor

    def _traffic(self, e: int, member: int) -> TrafficCounters:
        return TrafficCounters(self._words, self._layout.traffic[e, member])

    def _reserve(self, offset: int, size: int) -> None:
        reserve(self._fd, offset, size)

    def stats(self) -> list[EdgeStats]:
        """Return what each edge has moved so far."""
        result = []
        for e, edge in enumerate(self._plan.edges):
            if not spans(self._plan, edge):
                continue
            out = [lanes.edges[e] for lanes in self.outgoing.values() if e in lanes.edges]
            into = [found for lanes in self.incoming.values() for found in lanes.edges if found.number == e]
            result.append(
                EdgeStats(
                    self.execution,
                    e,
                    sum(x.flow.items for x in out),
                    sum(x.flow.items for x in into),
                    sum(x.flow.bytes for x in out),
                    sum(x.flow.bytes for x in into),
                    sum(x.waiting for x in into),
                )
            )
        return result

    def close(self) -> None:
        """Let go of the arena. The peers must have dropped its lanes."""
        for lanes in self.outgoing.values():
            lanes.close()
        for incoming in self.incoming.values():
            incoming.close()
        self.outgoing.clear()
        self.incoming.clear()
        self._bells.release()
        if self._slab is not None:
            self._slab.close()
        self._slabs.close()
        os.close(self._fd)
        self._words.release()
        with contextlib.suppress(BufferError):  # what is still viewed goes with the last view
            self._arena.release()
            self._mapping.close()


def carry(
    order: OpenExecution,
    fd: int,
    control: memoryview | None,
    period_ns: int,
    overflow: OverflowBuffer,
    connected: Container[str],
) -> CarriedExecution:
    """Return an execution whose rings are open, ready to be carried.

    Args:
        order, fd, control, period_ns, overflow: as for `CarriedExecution`.
        connected: uuids of the members that there is a connection to; all that take part have to be there.

    Raises:
        OSError, ValueError, RingCorruptError: it cannot be carried, and the text says why; the descriptor is closed.
    """
    if control is None:
        os.close(fd)
        raise ValueError("this link has no control segment")
    carried = CarriedExecution(order, fd, control, period_ns, overflow)
    try:
        missing = [uuid for uuid in carried.peers() if uuid not in connected]
        if missing:
            raise ConnectionError(f"there is no connection to {', '.join(missing)}")
        carried.open()
    except BaseException:
        carried.close()
        raise
    return carried
