"""Which processor owns a partition, on an edge of one member and on one that spans several.

On a member, its own partitions are dealt to its processors first, then the foreign ones (`shmjet.core.arrangement`), so
that a local and a distributed edge into one vertex agree on the processor of every partition that the member owns.
"""

from __future__ import annotations

from array import array

from shmjet.core.arrangement import distributed_table, local_table
from shmjet.execution.layout import spans
from shmjet.execution.messages import EdgePlan, JobPlan, Seat


def owner_of(seat: Seat, partition: int, count: int) -> int:
    """Return the place of the member that owns a partition.

    Where an edge has a number of partitions of its own, nobody has given them out; they are dealt over the members.
    """
    return seat.owners[partition] if count == len(seat.owners) else partition % seat.count


def own_partitions(seat: Seat, member: int, count: int) -> list[int]:
    """Return the partitions of one member, ascending."""
    return [partition for partition in range(count) if owner_of(seat, partition, count) == member]


def table_of(plan: JobPlan, edge: EdgePlan, count: int) -> array[int]:
    """Return partition -> index into a producer's lanes of an edge, whose consumers are in ascending order.

    Args:
        plan: of this member.
        edge: one of its edges.
        count: partitions of the edge.
    """
    seat, parallelism = plan.seat, plan.vertices[edge.destination].parallelism
    if not spans(plan, edge):
        return local_table(count, own_partitions(seat, seat.index, count), parallelism)
    if edge.target >= 0:
        return local_table(count, own_partitions(seat, edge.target, count), parallelism)
    table = array("H", bytes(2 * count))
    for member in range(seat.count):
        own = own_partitions(seat, member, count)
        local = distributed_table(count, own, parallelism)
        for partition in own:
            table[partition] = member * parallelism + local[partition]
    return table
