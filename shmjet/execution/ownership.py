"""Which processor owns a partition, on an edge within one member and on an edge across several.

On a member, its own partitions are dealt to its processors first, then the foreign ones
(`shmjet.core.partition_assignment`), so that a local and a distributed edge into one vertex agree on the processor of
every partition that the member owns.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from shmjet.core.keys import partition_id
from shmjet.core.ownership import PartitionOwners
from shmjet.core.partition_assignment import distributed_table, local_table
from shmjet.execution.job_plan import EdgePlan, JobPlan, MemberSlot
from shmjet.execution.plan_lanes import number_on, spans


def owners_of(slot: MemberSlot) -> PartitionOwners:
    """Return the owners of partitions among the members that take part."""
    return PartitionOwners(slot.count, slot.owners)


def table_of(plan: JobPlan, edge: EdgePlan, count: int) -> array[int]:
    """Return partition -> index into a producer's lanes of an edge, whose consumers are in ascending order.

    Args:
        plan: of this member.
        edge: one of its edges.
        count: partitions of the edge.
    """
    slot, parallelism = plan.slot, plan.vertices[edge.destination].parallelism
    owners = owners_of(slot)
    if not spans(plan, edge):
        return local_table(count, owners.partitions_of(slot.index, count), parallelism)
    if edge.target >= 0:
        return local_table(count, owners.partitions_of(edge.target, count), parallelism)
    table = array("H", bytes(2 * count))
    for member in range(slot.count):
        own = owners.partitions_of(member, count)
        local = distributed_table(count, own, parallelism)
        for partition in own:
            table[partition] = member * parallelism + local[partition]
    return table


def receives(plan: JobPlan, v: int, processor: int, to_one_keys: Sequence[Any]) -> bool:
    """Say whether anything can come to a processor: not when all edges to its vertex bring everything to another one.

    Args:
        plan: of this member.
        v: index of the vertex.
        processor: of this member.
        to_one_keys: of all edges, in the plan's order.
    """
    inbound = [(edge, key) for edge, key in zip(plan.edges, to_one_keys, strict=True) if edge.destination == v]
    if not inbound or any(edge.routing != "all_to_one" for edge, _ in inbound):
        return True
    count = plan.partition_count
    for edge, key in inbound:
        lane = table_of(plan, edge, count)[partition_id(key, count)]
        first = edge.target * plan.vertices[v].parallelism if spans(plan, edge) and edge.target >= 0 else 0
        if first + lane == number_on(plan, edge, v, processor):
            return True
    return False
