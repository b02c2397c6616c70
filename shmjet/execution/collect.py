"""Reads the metrics of an execution out of its arena; runs in whoever has the arena mapped (the member)."""

from __future__ import annotations

import sys

from shmjet._native import RING_HEADER, ring_items
from shmjet.execution import control
from shmjet.execution import counters as words
from shmjet.execution.control import WorkerControl
from shmjet.execution.counters import ProcessorCounters
from shmjet.execution.layout import ArenaLayout
from shmjet.execution.messages import JobPlan
from shmjet.execution.metrics import EdgeMetrics, ProcessorMetrics, VertexMetrics, WorkerMetrics


def vertex_metrics(plan: JobPlan, layout: ArenaLayout, memory: memoryview) -> dict[str, VertexMetrics]:
    """Return the metrics of all vertices, as they are at this moment."""
    result = {}
    for v, vertex in enumerate(plan.vertices):
        processors = []
        for p in range(vertex.parallelism):
            block = ProcessorCounters(memory, layout.counters[v, p], vertex.inbound, vertex.outbound)
            at = block.words
            owner = layout.owners[v, p]
            processors.append(
                ProcessorMetrics(
                    index=p,
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
                )
            )
            block.release()
        result[vertex.name] = VertexMetrics(vertex.name, processors)
    return result


def edge_metrics(plan: JobPlan, layout: ArenaLayout, memory: memoryview) -> list[EdgeMetrics]:
    """Return the metrics of all edges, as they are at this moment."""
    waiting = [0] * len(plan.edges)
    rings = [0] * len(plan.edges)
    for (e, _, _), offset in layout.rings.items():
        header = memory[offset : offset + RING_HEADER]
        waiting[e] += ring_items(header)
        header.release()
        rings[e] += 1
    result = []
    for e, edge in enumerate(plan.edges):
        source, destination = plan.vertices[edge.source], plan.vertices[edge.destination]
        emitted = received = 0
        for p in range(source.parallelism):
            block = ProcessorCounters(memory, layout.counters[edge.source, p], source.inbound, source.outbound)
            emitted += block.words[block.emitted_at(edge.source_ordinal)]
            block.release()
        for p in range(destination.parallelism):
            at = layout.counters[edge.destination, p]
            block = ProcessorCounters(memory, at, destination.inbound, destination.outbound)
            received += block.words[block.received_at(edge.destination_ordinal)]
            block.release()
        result.append(
            EdgeMetrics(
                source=source.name,
                source_ordinal=edge.source_ordinal,
                destination=destination.name,
                destination_ordinal=edge.destination_ordinal,
                emitted_count=emitted,
                received_count=received,
                queues_size=waiting[e],
                queues_capacity=rings[e] * edge.queue_size,
            )
        )
    return result


def worker_metrics(index: int, core: int | None, block: WorkerControl) -> WorkerMetrics:
    """Return the metrics of one worker."""
    at = block.words
    busy, idle = at[control.BUSY_NS], at[control.IDLE_NS]
    return WorkerMetrics(
        index=index,
        pid=at[control.PID],
        core=core,
        busy=busy / (busy + idle) if busy + idle else 0.0,
        busy_ns=busy,
        idle_ns=idle,
        tasklets=at[control.TASKLETS],
    )
