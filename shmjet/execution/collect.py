"""Metrics of an execution, read out of its arena by the process that has the arena mapped (the member).

A `Reading` is a copy of the bytes that tell them. It costs a few microseconds, so that a job of a millisecond does not
pay for metrics that no one may ever ask for; the metrics are made from the copy on request. A `FinalReading` is what a
member keeps of an execution that has ended, and is a quarter as large: a member remembers a thousand of them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from time import perf_counter_ns

import msgspec

from shmjet._native import ring_totals
from shmjet.data.decoders import from_msgpack
from shmjet.execution import control
from shmjet.execution import counters as words
from shmjet.execution.control import control_words
from shmjet.execution.counters import ProcessorCounters
from shmjet.execution.job_plan import EdgePlan, JobPlan, VertexPlan
from shmjet.execution.layout import HEADER_SIZE, TRAFFIC_COUNTERS, ArenaLayout, lay_out
from shmjet.execution.metrics import (
    EdgeMetrics,
    InboundTime,
    Metrics,
    ProcessorMetrics,
    SourcePartitions,
    TrafficMetrics,
    VertexMetrics,
    WorkerMetrics,
)
from shmjet.execution.plan_lanes import lane_pairs, lane_producers, number_on, spans
from shmjet.execution.tasklet_state import State


class Reading(msgspec.Struct, frozen=True):
    """What is known of an execution at one moment.

    Args:
        plan: of the execution.
        layout: of its arena.
        arena: its bytes from the end of the header to the rings.
        queued: items in the rings of each edge.
        written: bytes ever written into the rings of each edge.
        control: bytes of the workers' blocks in the control segment.
        cores: of the workers.
        taken_ns: when that was, by `perf_counter_ns`.
    """

    plan: JobPlan
    layout: ArenaLayout
    arena: bytes
    queued: Sequence[int]
    written: Sequence[int]
    control: bytes
    cores: Sequence[int | None]
    taken_ns: int

    @classmethod
    def take(
        cls,
        plan: JobPlan,
        layout: ArenaLayout,
        arena: memoryview,
        control_memory: memoryview,
        cores: Sequence[int | None],
    ) -> Reading:
        """Copy what there is now."""
        queued, written = [0] * len(plan.edges), [0] * len(plan.edges)
        for run in layout.rings.runs():
            items, size = ring_totals(arena, run.start, run.capacity, run.count)
            queued[run.edge] += items
            written[run.edge] += size
        blocks = bytes(control_memory[: len(cores) * control.BLOCK_SIZE])
        counted = bytes(arena[HEADER_SIZE : layout.counters_end])
        return cls(plan, layout, counted, queued, written, blocks, cores, perf_counter_ns())

    def final(self, started_at: float, completed_at: float | None) -> FinalReading:
        """Return what is to be kept after the end; the arguments are those of `metrics`."""
        plan = msgspec.msgpack.encode(self.plan)
        return FinalReading(
            plan=plan,
            arena=self.arena,
            queued=tuple(self.queued),
            written=tuple(self.written),
            control=self.control,
            cores=self.cores,
            taken_ns=self.taken_ns,
            started_at=started_at,
            completed_at=completed_at,
        )

    def metrics(self, started_at: float, completed_at: float | None) -> Metrics:
        """Return the metrics.

        Args:
            started_at: when the execution was asked for, in seconds since 1970.
            completed_at: when its last tasklet ended; None while it runs.
        """
        memory = memoryview(bytes(HEADER_SIZE) + self.arena)
        return Metrics(
            vertices=_vertex_metrics(self.plan, self.layout, memory, self.taken_ns),
            edges=[self._edge(e, edge, memory) for e, edge in enumerate(self.plan.edges)],
            workers=[worker_metrics(i, core, self.control) for i, core in enumerate(self.cores)],
            execution_start_time=started_at,
            execution_completion_time=completed_at,
            taken_ns=self.taken_ns,
        )

    def _edge(self, e: int, edge: EdgePlan, memory: memoryview) -> EdgeMetrics:
        source, destination = self.plan.vertices[edge.source], self.plan.vertices[edge.destination]
        emitted = received = waited = 0
        queued = self.queued[e]
        for p in range(source.parallelism):
            block = _counters(self.layout, memory, edge.source, p, source)
            at = block.emitted_at(edge.source_ordinal)
            emitted += block.words[at + words.EMITTED_ITEMS]
            queued += block.words[at + words.QUEUED_LOCALLY]
            waited += block.waited_ns(edge.source_ordinal, self.taken_ns)
            block.release()
        for p in range(destination.parallelism):
            block = _counters(self.layout, memory, edge.destination, p, destination)
            received += block.words[block.received_at(edge.destination_ordinal)]
            block.release()
        return EdgeMetrics(
            source=source.name,
            source_ordinal=edge.source_ordinal,
            destination=destination.name,
            destination_ordinal=edge.destination_ordinal,
            emitted_count=emitted,
            received_count=received,
            queues_size=queued,
            queues_capacity=len(lane_pairs(self.plan, edge)) * edge.queue_size,
            ring_bytes=self.written[e],
            waited_ns=waited,
            traffic=self._traffic(e, memory),
        )

    def _traffic(self, e: int, memory: memoryview) -> list[TrafficMetrics]:
        slot, found = self.plan.slot, []
        for (edge, place), at in self.layout.traffic.items():
            if edge == e:
                count = memory[at : at + 8 * TRAFFIC_COUNTERS].cast("q")
                sums = [count[i] for i in (words.ITEMS_OUT, words.BYTES_OUT, words.ITEMS_IN, words.BYTES_IN)]
                found.append(TrafficMetrics(slot.addresses[slot.index], slot.addresses[place], *sums))
                count.release()
        return found


class FinalReading(msgspec.Struct, frozen=True, kw_only=True):
    """The `Reading` of an execution that has ended; `plan` is encoded, and its layout is computed again on request."""

    plan: bytes
    arena: bytes
    queued: tuple[int, ...]
    written: tuple[int, ...]
    control: bytes
    cores: Sequence[int | None]
    taken_ns: int
    started_at: float
    completed_at: float | None

    def metrics(self) -> Metrics:
        """Return the metrics as they were at the end."""
        plan = from_msgpack(self.plan, JobPlan)
        reading = Reading(
            plan, lay_out(plan), self.arena, self.queued, self.written, self.control, self.cores, self.taken_ns
        )
        return reading.metrics(self.started_at, self.completed_at)


def _vertex_metrics(plan: JobPlan, layout: ArenaLayout, memory: memoryview, taken_ns: int) -> dict[str, VertexMetrics]:
    result = {}
    now = time.time() - (perf_counter_ns() - taken_ns) / 1e9
    slot = plan.slot
    member = slot.addresses[slot.index] if slot.count > 1 else ""
    for v, vertex in enumerate(plan.vertices):
        first = slot.index * vertex.parallelism
        processors = []
        inbound = sorted((e for e in plan.edges if e.destination == v), key=lambda e: e.destination_ordinal)
        for p in range(vertex.parallelism):
            block = _counters(layout, memory, v, p, vertex)
            at = block.words
            owner = layout.owners[v, p]
            changed = at[words.TIME_CHANGED_NS]
            processors.append(
                ProcessorMetrics(
                    index=first + p,
                    worker=int.from_bytes(memory[owner : owner + 4], sys.byteorder),
                    received_count=at[words.RECEIVED],
                    received_batches=at[words.RECEIVED_BATCHES],
                    emitted_count=at[words.EMITTED],
                    calls=at[words.CALLS],
                    slow_calls=at[words.SLOW_CALLS],
                    busy_ns=at[words.BUSY_NS],
                    top_observed_wm=block.watermark(words.TOP_OBSERVED_WATERMARK),
                    coalesced_wm=block.watermark(words.COALESCED_WATERMARK),
                    last_forwarded_wm=block.watermark(words.LAST_FORWARDED_WATERMARK),
                    blocked_count=at[words.BLOCKED],
                    work_done=at[words.WORK_DONE],
                    work_total=at[words.WORK_TOTAL],
                    work_unit=words.WORK_UNITS[at[words.WORK_UNIT]],
                    state=State(at[words.STATE]).name.lower(),
                    received_by_ordinal=[at[block.received_at(i)] for i in range(vertex.inbound)],
                    received_batches_by_ordinal=[
                        at[block.received_at(i) + words.RECEIVED_LISTS] for i in range(vertex.inbound)
                    ],
                    emitted_by_ordinal=[at[block.emitted_at(i) + words.EMITTED_ITEMS] for i in range(vertex.outbound)],
                    member=member,
                    late_events_dropped=at[words.LATE_EVENTS_DROPPED],
                    failed_items_skipped=at[words.FAILED_ITEMS_SKIPPED],
                    is_idle=at[words.FORWARDED_IDLE] != 0,
                    wm_changed_at=now - (taken_ns - changed) / 1e9 if changed else None,
                    time_by_ordinal=[_inbound_time(plan, edge, block, p) for edge in inbound],
                    partitions=_partitions(block),
                )
            )
            block.release()
        result[vertex.name] = VertexMetrics(vertex.name, processors)
    return result


def _inbound_time(plan: JobPlan, edge: EdgePlan, block: ProcessorCounters, p: int) -> InboundTime:
    """Return how far time has come on an inbound edge of processor `p` of this member."""
    at = block.received_at(edge.destination_ordinal)
    lane, state = block.words[at + words.SLOWEST_LANE], block.words[at + words.EDGE_STATE]
    producers = lane_producers(plan, edge, number_on(plan, edge, edge.destination, p))
    producer = producers[lane] if 0 <= lane < len(producers) else -1
    if producer >= 0 and not spans(plan, edge):
        producer += plan.slot.index * plan.vertices[edge.source].parallelism
    return InboundTime(
        coalesced_wm=block.watermark(at + words.EDGE_COALESCED_WATERMARK),
        slowest_producer=producer,
        slowest_wm=block.watermark(at + words.SLOWEST_LANE_WATERMARK),
        is_idle=state == words.EDGE_IDLE,
        is_done=state == words.EDGE_DONE,
    )


def _partitions(block: ProcessorCounters) -> SourcePartitions | None:
    at = block.words
    if not at[words.SOURCE_PARTITIONS]:
        return None
    return SourcePartitions(
        count=at[words.SOURCE_PARTITIONS],
        idle=at[words.IDLE_PARTITIONS],
        slowest=at[words.SLOWEST_PARTITION],
        slowest_wm=block.watermark(words.SLOWEST_PARTITION_WATERMARK),
        slowest_events=at[words.SLOWEST_PARTITION_EVENTS],
    )


def _counters(layout: ArenaLayout, memory: memoryview, v: int, p: int, vertex: VertexPlan) -> ProcessorCounters:
    return ProcessorCounters(memory, layout.counters[v, p], vertex.inbound, vertex.outbound)


def worker_metrics(index: int, core: int | None, memory: bytes | memoryview) -> WorkerMetrics:
    """Return what a worker has done so far.

    Args:
        index: of the worker.
        core: that it is pinned to.
        memory: the control segment.
    """
    at = control_words(memoryview(memory), index * control.BLOCK_SIZE)
    busy, idle = at[control.BUSY_NS], at[control.IDLE_NS]
    return WorkerMetrics(
        index=index,
        pid=at[control.PID] or None,
        core=core,
        busy=busy / (busy + idle) if busy + idle else 0.0,
        busy_ns=busy,
        idle_ns=idle,
        tasklets=at[control.TASKLETS],
        rounds=at[control.ROUNDS],
        sleeps=at[control.SLEEPS],
        stolen=at[control.STOLEN],
        slab_bytes=at[control.SLAB_BYTES],
    )
