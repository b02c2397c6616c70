"""Writes an arena as it has to be before an execution's processes see it."""

from __future__ import annotations

import sys

from shmjet._native import ring_format
from shmjet.execution.counters import blank_block
from shmjet.execution.job_plan import JobPlan
from shmjet.execution.layout import TRAFFIC_COUNTERS, ArenaLayout
from shmjet.execution.readiness import Readiness


def format_arena(plan: JobPlan, layout: ArenaLayout, memory: memoryview) -> None:
    """Write everything that is not a ring's data, whatever an earlier execution has left there."""
    memory[: layout.counters_start] = bytes(layout.counters_start)
    for (v, p), at in layout.owners.items():
        memory[at : at + 4] = plan.vertices[v].endpoints[p].to_bytes(4, sys.byteorder)
    readiness = Readiness(memory, layout)
    readiness.reset(
        plan.participants() | ({plan.start_barrier_endpoint} if plan.start_barrier_endpoint is not None else set())
    )
    readiness.release()
    for (v, _), at in layout.counters.items():
        block = blank_block(plan.vertices[v].inbound, plan.vertices[v].outbound)
        memory[at : at + len(block)] = block
    for at in layout.traffic.values():
        memory[at : at + TRAFFIC_COUNTERS * 8] = bytes(TRAFFIC_COUNTERS * 8)
    for run in layout.rings.runs():
        ring_format(memory, run.start, run.capacity, run.queue_size, run.count)
