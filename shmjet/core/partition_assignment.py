"""Which processor of a vertex owns which partition, and which processors an isolated edge joins.

Pure arithmetic. The rule is Jet's up to 4.2 (its PartitionArrangement and PartitionAlignmentTest): a local edge deals
out the member's own partitions first and the foreign ones after them, so that an own partition has the same processor
on local and on distributed edges, and state kept by one edge's key is found by the other's.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

NOT_HERE = 0xFFFF
"""Stands in a distributed table for a partition whose processor is on another member."""


def local_table(partition_count: int, own: Sequence[int], parallelism: int) -> array[int]:
    """Return partition -> local processor index for a local partitioned edge.

    Args:
        partition_count: number of partitions.
        own: partitions that this member owns, in any order.
        parallelism: processors of the destination vertex on this member.

    Returns:
        16-bit unsigned integers, one per partition. O(partition_count log partition_count).

    Example:
        >>> local_table(6, [1, 4, 5], 2).tolist()        # own 1 4 5, then foreign 0 2 3, dealt 0 1 0 1 0 1
        [1, 0, 0, 1, 1, 0]
    """
    mine = _own_ascending(partition_count, own)
    foreign = sorted(set(range(partition_count)).difference(mine))
    return _deal(partition_count, mine + foreign, parallelism)


def distributed_table(partition_count: int, own: Sequence[int], parallelism: int) -> array[int]:
    """Return partition -> local processor index for a distributed partitioned edge, `NOT_HERE` where it is foreign.

    Example:
        >>> table = distributed_table(6, [1, 4, 5], 2)
        >>> [p if p != NOT_HERE else None for p in table]
        [None, 0, None, None, 1, 0]
    """
    return _deal(partition_count, _own_ascending(partition_count, own), parallelism)


def isolated_consumers(producer: int, producers: int, consumers: int) -> list[int]:
    """Return the consumers that a producer feeds over an isolated edge, ascending.

    Where the counts are equal, that is the consumer of the same index; else every consumer has exactly one producer
    or every producer exactly one consumer.

    Example:
        >>> isolated_consumers(1, 2, 5), isolated_consumers(3, 5, 2)
        ([1, 3], [1])
    """
    return [i for i in range(consumers) if i % producers == producer % consumers]


def _own_ascending(partition_count: int, own: Sequence[int]) -> list[int]:
    mine = sorted(set(own))
    if mine and not (mine[0] >= 0 and mine[-1] < partition_count):
        raise ValueError(f"own partitions must lie in 0..{partition_count - 1}, got {mine[0]}..{mine[-1]}")
    return mine


def _deal(partition_count: int, order: list[int], parallelism: int) -> array[int]:
    if not 1 <= parallelism < NOT_HERE:
        raise ValueError(f"parallelism must be from 1 to {NOT_HERE - 1}, got {parallelism}")
    table = array("H", [NOT_HERE]) * partition_count
    for place, partition in enumerate(order):
        table[partition] = place % parallelism
    return table
