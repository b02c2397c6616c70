"""The lanes and tasklets of one execution in one process, and how a tasklet is taken out of them or fitted in.

A lane between two processors that started on the same worker is local. When one of them moves to another worker, the
lane becomes a ring, for good: its ring lies ready in the arena. Both of its ends are in this process at that moment and
nothing else runs here, so the switch is a plain assignment: the end that stays gets the ring's end, and what the deque
still holds goes with its consumer, before anything that comes by the ring.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from functools import partial

from shmjet._native import Doorbell, RingConsumer, RingProducer
from shmjet.core import Outbox, Processor, ProcessorContext
from shmjet.core.batch_order import BatchOrder
from shmjet.core.keys import PartitionCount, partition_id
from shmjet.core.source_alignment import set_alignment
from shmjet.execution.code import EdgeCode
from shmjet.execution.control import BLOCK_SIZE, link_offset
from shmjet.execution.counters import COUNTS, QUEUED_LOCALLY, ProcessorCounters
from shmjet.execution.inbound_edge import InboundEdge
from shmjet.execution.job_plan import EdgePlan, JobPlan
from shmjet.execution.layout import REMOTE_SLOT_BYTES, ArenaLayout, slab_offsets, slab_size
from shmjet.execution.messages import Deploy
from shmjet.execution.ordered_batches import OrderedBatchEdge
from shmjet.execution.ordered_inbound_edge import OrderedInboundEdge
from shmjet.execution.outbound_edge import Outbound, make_router
from shmjet.execution.ownership import table_of
from shmjet.execution.plan_lanes import (
    lane_consumers,
    lane_producers,
    member_of,
    number_on,
    processor_of,
    spans,
    starts_as_ring,
)
from shmjet.execution.routers import Router
from shmjet.execution.shared_memory import SharedMemory
from shmjet.execution.source_alignment import SharedAlignment
from shmjet.execution.tasklet import ProcessorTasklet
from shmjet.ring.lane import LaneReader, LaneWriter, LocalLane, RingLaneReader, RingLaneWriter
from shmjet.ring.ring_writer import SLOT_BYTES
from shmjet.ring.slab import IncomingSlabs, OutgoingSlab

_NO_TABLE = array("H")

Place = tuple[int, int]
"""A processor: index of its vertex in the plan, and its own."""
LaneKey = tuple[int, int, int]
"""A lane: index of its edge in the plan, producer, consumer, by their numbers on the edge (`layout.number_on`)."""


class Wiring:
    """All lanes that end in this process.

    Args:
        deploy: the execution's plan and arena.
        layout: of its arena.
        edges: their code, in the plan's order.
        here: this process' endpoint.
        shared: what this process has mapped.
        arena: of the execution, mapped.
        aligns: whether lanes that have brought a barrier wait for others.
    """

    def __init__(
        self,
        deploy: Deploy,
        layout: ArenaLayout,
        edges: list[EdgeCode],
        here: int,
        shared: SharedMemory,
        arena: memoryview,
        aligns: bool = True,
    ) -> None:
        self._aligns = aligns
        plan = self._plan = deploy.plan
        self._layout = layout
        self._edges = edges
        self._codec = shared.codec
        size, offsets = slab_size(plan), slab_offsets(plan, deploy.arena_reserved)
        self._incoming = IncomingSlabs(arena, offsets, size)
        self._outgoing: OutgoingSlab | None = None
        if offsets:
            reserve = partial(shared.reserve, deploy.arena_id)
            self._outgoing = OutgoingSlab(arena, offsets[here], size, here, reserve)
        self._arena = arena
        self._bells = Bells(plan, layout, shared.control, arena, shared.link_eventfd)
        self._local: dict[LaneKey, LocalLane] = {}
        self._tables: dict[tuple[int, int, int], array[int]] = {}
        self._counters: list[ProcessorCounters] = []
        self.present: dict[Place, ProcessorTasklet] = {}

    def add(
        self, place: Place, outbox: Outbox, processor: Processor, context: ProcessorContext, *, moved: bool = False
    ) -> ProcessorTasklet:
        """Make the tasklet of a processor with all its lanes.

        Args:
            place: which processor it is.
            outbox: the outbox that the processor knows or will know.
            processor: driven by the tasklet.
            context: of the processor.
            moved: it ran on another worker before, so that none of its lanes is local.
        """
        v, p = place
        plan, vertex = self._plan, self._plan.vertices[v]
        outbound, inbound = [], []
        for e, edge in enumerate(plan.edges):
            number = number_on(plan, edge, v, p)
            if edge.source == v:
                consumers = lane_consumers(plan, edge, number)
                writers = [self._writer((e, number, c), moved) for c in consumers]
                outbound.append(Outbound(writers, self._router(edge, self._edges[e], writers, consumers)))
            if edge.destination == v:
                readers = [self._reader((e, q, number), moved) for q in lane_producers(plan, edge, number)]
                inbound.append(_inbound_edge(edge, self._edges[e], readers, self._aligns))
        counters = ProcessorCounters(self._arena, self._layout.counters[place], vertex.inbound, vertex.outbound)
        self._counters.append(counters)
        if not vertex.inbound:
            set_alignment(context, SharedAlignment(counters, partial(self._other_sources, place)))
        tasklet = ProcessorTasklet(processor, context, outbox, inbound, outbound, counters, plan.latency)
        self.present[place] = tasklet
        return tasklet

    def _other_sources(self, place: Place) -> list[ProcessorCounters]:
        """Return the counters of all processors without inputs on this member but one, wherever they run."""
        found = [
            ProcessorCounters(self._arena, self._layout.counters[v, p], 0, vertex.outbound)
            for v, vertex in enumerate(self._plan.vertices)
            if not vertex.inbound
            for p in range(vertex.parallelism)
            if (v, p) != place
        ]
        self._counters += found
        return found

    def connect(self) -> None:
        """Let local lanes tell the tasklets at their ends when there is work or room; after all have been added."""
        for (e, p, c), lane in self._local.items():
            edge = self._plan.edges[e]
            producer = self._neighbour(edge, edge.source, p)
            lane.on_pull = producer.note_room
            lane.on_push = self._neighbour(edge, edge.destination, c).wake
            if not COUNTS:
                continue
            counters = producer.counters
            lane.publish_level(counters.words, counters.emitted_at(edge.source_ordinal) + QUEUED_LOCALLY)

    def _neighbour(self, edge: EdgePlan, v: int, number: int) -> ProcessorTasklet:
        """Return the tasklet here that an edge knows by a number."""
        processor = processor_of(self._plan, edge, v, number)
        assert processor is not None
        return self.present[v, processor]

    def remove(self, place: Place) -> None:
        """Take a tasklet out that has been packed for another worker: its neighbours here go on by rings."""
        v, p = place
        plan = self._plan
        for e, edge in enumerate(plan.edges):
            number = number_on(plan, edge, v, p)
            if edge.destination == v:
                for q in lane_producers(plan, edge, number):
                    lane = self._local.pop((e, q, number), None)
                    if lane is not None:
                        lane.publish_level(None)
                        producer = self._neighbour(edge, edge.source, q)
                        producer.relink_output(edge.source_ordinal, lane, self._ring_writer((e, q, number)))
            if edge.source == v:
                for c in lane_consumers(plan, edge, number):
                    lane = self._local.pop((e, number, c), None)
                    if lane is not None:
                        lane.publish_level(None)
                        consumer = self._neighbour(edge, edge.destination, c)
                        index = lane_producers(plan, edge, c).index(number)
                        consumer.relink_input(edge.destination_ordinal, index, self._ring_reader((e, number, c)))
        del self.present[place]

    def move_owner(self, place: Place, endpoint: int) -> None:
        """Tell the neighbours in all processes whose doorbell to ring for a processor from now on."""
        self._bells.set_owner(place, endpoint)

    def post(self, endpoints: Iterable[int]) -> None:
        """Wake other processes of the execution, as by a command."""
        self._bells.post(endpoints)

    @property
    def slab_bytes(self) -> int:
        """Bytes of batches that this process has put into its slab so far."""
        return 0 if self._outgoing is None else self._outgoing.written

    def release(self) -> IncomingSlabs:
        """Let go of the arena; return the slabs of it, parts of which may be looked at for longer."""
        for lane in self._local.values():
            lane.on_pull = lane.on_push = None
            lane.publish_level(None)
        for counters in self._counters:
            counters.release()
        self._counters.clear()
        for tasklet in self.present.values():
            tasklet.release()
        self.present.clear()
        self._local.clear()
        self._bells.release()
        if self._outgoing is not None:
            self._outgoing.close()
        return self._incoming

    # -- lanes --------------------------------------------------------------------------------------------------

    def _writer(self, key: LaneKey, moved: bool) -> LaneWriter:
        return self._ring_writer(key) if moved or self._crosses(key) else self._local_lane(key)

    def _reader(self, key: LaneKey, moved: bool) -> LaneReader:
        return self._ring_reader(key) if moved or self._crosses(key) else self._local_lane(key)

    def _crosses(self, key: LaneKey) -> bool:
        e, p, c = key
        return starts_as_ring(self._plan, self._plan.edges[e], p, c)

    def _local_lane(self, key: LaneKey) -> LocalLane:
        if key not in self._local:
            self._local[key] = LocalLane(self._plan.edges[key[0]].queue_size)
        return self._local[key]

    def _ring_writer(self, key: LaneKey) -> RingLaneWriter:
        e, _, c = key
        edge = self._plan.edges[e]
        bell = self._bells.at(edge, edge.destination, c)
        ring = RingProducer(self._arena, self._layout.rings[key], bell)
        is_remote = processor_of(self._plan, edge, edge.destination, c) is None
        slot_bytes = REMOTE_SLOT_BYTES if is_remote else SLOT_BYTES
        return RingLaneWriter(ring, self._codec, self._outgoing, slot_bytes)

    def _ring_reader(self, key: LaneKey) -> RingLaneReader:
        e, p, _ = key
        edge = self._plan.edges[e]
        bell = self._bells.at(edge, edge.source, p)
        return RingLaneReader(RingConsumer(self._arena, self._layout.rings[key], bell), self._codec, self._incoming)

    def _router(self, plan: EdgePlan, edge: EdgeCode, lanes: list[LaneWriter], consumers: list[int]) -> Router:
        count, partitioner = self._plan.partition_count, edge.partitioner
        if isinstance(partitioner, PartitionCount):
            count, partitioner = partitioner.count, None
        target = partition_id(edge.to_one_key, count) if plan.routing == "all_to_one" else 0
        return make_router(
            plan.routing,
            lanes,
            producers=self._plan.vertices[plan.source].parallelism,
            workers=self._plan.worker_count,
            key_fn=edge.key_fn,
            partitioner=partitioner,
            spreads=plan.distributed,
            table=self._table(plan, count) if plan.routing in ("partitioned", "all_to_one") else _NO_TABLE,
            target_partition=target,
            edge=edge.text,
            policy=self._plan.latency,
            tells_schemas=edge.tells_schemas,
            members=[member_of(self._plan, plan, plan.destination, consumer) for consumer in consumers],
        )

    def _table(self, edge: EdgePlan, count: int) -> array[int]:
        """Return partition -> lane of an edge; all producers of edges alike share it."""
        reach = -2 if not spans(self._plan, edge) else edge.target
        table = self._tables.get((edge.destination, count, reach))
        if table is None:
            table = self._tables[edge.destination, count, reach] = table_of(self._plan, edge, count)
        return table


def _inbound_edge(plan: EdgePlan, edge: EdgeCode, lanes: Iterable[LaneReader], aligns: bool) -> InboundEdge:
    ordinal, readers, priority = plan.destination_ordinal, list(lanes), plan.priority
    if plan.ordered:
        key = edge.order_key
        if isinstance(key, BatchOrder):
            return OrderedBatchEdge(ordinal, readers, key, priority=priority, buffered=plan.buffered, text=edge.text)
        return OrderedInboundEdge(ordinal, readers, key, priority=priority, buffered=plan.buffered, text=edge.text)
    return InboundEdge(ordinal, readers, priority=priority, buffered=plan.buffered, text=edge.text, aligns=aligns)


class Bells:
    """Doorbells of processors: that of whichever process a processor is in when the bell is rung.

    Args:
        plan, layout: of the execution.
        control: the control segment.
        arena: of the execution.
        link_eventfd: what the link sleeps on, which carries the lanes of processors on other members; -1 for none.
    """

    def __init__(
        self, plan: JobPlan, layout: ArenaLayout, control: memoryview, arena: memoryview, link_eventfd: int = -1
    ) -> None:
        self._plan = plan
        self._arena = arena
        self._owners = layout.owners
        self._link: Doorbell | None = None
        if plan.start_barrier_endpoint is not None:
            self._link = Doorbell(control, link_offset(plan.worker_count), link_eventfd)
        self._endpoints = [Doorbell(control, endpoint * BLOCK_SIZE) for endpoint in range(plan.worker_count)]
        self._endpoints += [Doorbell(arena, offset) for offset in layout.carriers]
        self._made: dict[Place, Doorbell] = {}

    def at(self, edge: EdgePlan, v: int, number: int) -> Doorbell:
        """Return the bell for a processor that an edge knows by a number; the link's when it is on another member."""
        processor = processor_of(self._plan, edge, v, number)
        if processor is not None:
            return self.of((v, processor))
        assert self._link is not None
        return self._link

    def of(self, place: Place) -> Doorbell:
        """Return the bell for a processor here."""
        if place not in self._made:
            v, p = place
            if self._plan.stealing and self._plan.vertices[v].endpoints[p] < self._plan.worker_count:
                self._made[place] = Doorbell.of_owner(self._arena, self._owners[place], self._endpoints)
            else:
                self._made[place] = self._endpoints[self._plan.vertices[v].endpoints[p]]
        return self._made[place]

    def set_owner(self, place: Place, endpoint: int) -> None:
        """Say in which process a processor is from now on."""
        bell = self.of(place)
        bell.owner = endpoint

    def post(self, endpoints: Iterable[int]) -> None:
        """Wake processes as by a command."""
        for endpoint in endpoints:
            if endpoint < len(self._endpoints):
                self._endpoints[endpoint].post()

    def release(self) -> None:
        """Let go of the memory."""
        for bell in (*self._made.values(), *self._endpoints):
            bell.close()
        if self._link is not None:
            self._link.close()
