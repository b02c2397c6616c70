"""To which processor of a vertex an entry of its saved state belongs: the owner of its key's partition.

The partition is that of the key on the vertex's first partitioned inbound edge, so state and items of a key meet.
A vertex without such an edge has the default partitions, dealt out to its processors in turn; where all of its edges
bring everything to one processor, that one has all state. Pure.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Callable, Sequence
from typing import Any

from shmjet._native import split, split_entries
from shmjet.core import BroadcastKey, ColumnKey, PartitionError
from shmjet.core.keys import PartitionCount, canonical_bytes, partition_id
from shmjet.core.partition_assignment import distributed_table
from shmjet.core.state_placement import StatePlacement
from shmjet.execution.code import EdgeCode
from shmjet.execution.job_plan import EdgePlan, JobPlan
from shmjet.execution.ownership import owners_of
from shmjet.snapshots.chunk import SCHEME_CUSTOM, SCHEME_DEFAULT, Entry


class StatePartitions:
    """The partitions of one vertex's state.

    Args:
        plan: of this member.
        edges: the code of its edges, in the plan's order.
        v: index of the vertex.
    """

    def __init__(self, plan: JobPlan, edges: Sequence[EdgeCode], v: int) -> None:
        self.first = plan.vertices[v].parallelism * plan.slot.index
        """Global index of the first processor on this member."""
        self.count = plan.partition_count
        """How many partitions there are."""
        self.scheme = SCHEME_DEFAULT
        """How keys are brought to them, as pieces say it."""
        self.owners: array[int]
        """Partition -> global index of the processor."""
        self._partitioner: Callable[[Any, int], int] | None = None
        self._text = f"the state of vertex {plan.vertices[v].name!r}"
        inbound = _inbound(plan, edges, v)
        keyed = _keyed(plan, edges, v)
        if keyed is not None:
            self._take(keyed.partitioner)
            self.owners = global_owners(plan, v, self.count)
        elif inbound and all(edge.routing == "all_to_one" for edge, _ in inbound):
            self.owners = array("H", [_only_target(plan, *inbound[0])]) * self.count
        else:
            total = plan.vertices[v].parallelism * plan.slot.count
            self.owners = array("H", [partition % total for partition in range(self.count)])
        self.checksum = zlib.crc32(self.owners)
        """CRC-32 of `owners`: pieces of one processor's entries say with it for which owners they were made."""
        self._identity = array("H", range(self.count))
        self._processors = max(self.owners) + 1

    @classmethod
    def of_edge(cls, plan: JobPlan, code: EdgeCode, v: int) -> StatePartitions:
        """Return the partitions of one partitioned edge into a vertex."""
        return cls(plan, [code] * len(plan.edges), v)

    def _take(self, partitioner: Any) -> None:
        if isinstance(partitioner, PartitionCount):
            self.count = partitioner.count
        elif partitioner is not None:
            self._partitioner, self.scheme = partitioner, SCHEME_CUSTOM

    def split(self, entries: list[Entry]) -> list[list[Entry] | None]:
        """Return the entries of each partition, None where there are none.

        Raises:
            TypeError: a key is of a type without canonical bytes.
            PartitionError: the edge's partitioner has returned something that is not a partition.
        """
        keys = [entry[0] for entry in entries]
        if self._partitioner is None:
            return split(entries, keys, self.count, self._identity, self.count, canonical_bytes)
        return self._custom(self._partitioner, entries, keys)

    def split_by_owner(self, entries: list[Entry]) -> list[list[Entry] | None] | None:
        """Return the entries of each processor of the vertex, None where there are none; only of `SCHEME_DEFAULT`.

        Returns None if there is a broadcast key among them, or one of them is not a plain tuple.

        Raises:
            TypeError: a key is of a type without canonical bytes.
        """
        return split_entries(entries, self.count, self.owners, self._processors, canonical_bytes, BroadcastKey)

    def _custom(
        self, partitioner: Callable[[Any, int], int], entries: list[Entry], keys: list[Any]
    ) -> list[list[Entry] | None]:
        found: list[list[Entry] | None] = [None] * self.count
        for key, entry in zip(keys, entries, strict=True):
            partition = partitioner(key, self.count)
            if type(partition) is not int or not 0 <= partition < self.count:
                raise PartitionError(
                    f"{self._text}: the partitioner returned {partition!r} for key {key!r}; it must return an int from "
                    f"0 to {self.count - 1}"
                )
            there = found[partition]
            if there is None:
                found[partition] = [entry]
            else:
                there.append(entry)
        return found


def placement_of(plan: JobPlan, edges: Sequence[EdgeCode], v: int) -> StatePlacement:
    """Return what processors of a vertex are told of the partitions of their state; arguments as `StatePartitions`."""
    inbound = _inbound(plan, edges, v)
    keyed = _keyed(plan, edges, v)
    count, partitioner = plan.partition_count, None if keyed is None else keyed.partitioner
    if isinstance(partitioner, PartitionCount):
        count, partitioner = partitioner.count, None
    key_fn = None if keyed is None else keyed.key_fn
    return StatePlacement(
        count,
        key_fn.names if isinstance(key_fn, ColumnKey) else None,
        partitioner,
        is_partitioned=keyed is not None,
        is_to_one=bool(inbound) and all(edge.routing == "all_to_one" for edge, _ in inbound),
        broadcast=frozenset(edge.destination_ordinal for edge, _ in inbound if edge.routing == "broadcast"),
    )


def _inbound(plan: JobPlan, edges: Sequence[EdgeCode], v: int) -> list[tuple[EdgePlan, EdgeCode]]:
    """Return the edges into a vertex in the order of their ordinals."""
    inbound = [(edge, code) for edge, code in zip(plan.edges, edges, strict=True) if edge.destination == v]
    return sorted(inbound, key=lambda pair: pair[0].destination_ordinal)


def _keyed(plan: JobPlan, edges: Sequence[EdgeCode], v: int) -> EdgeCode | None:
    """Return the first partitioned edge; where items stay on their processor, that by which they came to lie there.

    An isolated edge joins processors of equal index, so partitions stay where they are. A partitioner of the user's own
    is not followed: the keys of the state may not be what it takes.
    """
    inbound = _inbound(plan, edges, v)
    found = next((code for edge, code in inbound if edge.routing == "partitioned"), None)
    while found is None:
        parallelism = plan.vertices[v].parallelism
        sources = (edge.source for edge, _ in inbound if edge.routing == "isolated")
        source = next((each for each in sources if plan.vertices[each].parallelism == parallelism), None)
        if source is None:
            return None
        v = source
        inbound = _inbound(plan, edges, v)
        found = next((code for edge, code in inbound if edge.routing == "partitioned"), None)
        if found is not None and not isinstance(found.partitioner, PartitionCount | None):
            return None
    return found


def global_owners(plan: JobPlan, v: int, count: int) -> array[int]:
    """Return partition -> global index of the processor that owns it on a partitioned edge into a vertex.

    Local and distributed edges agree on the processor of every partition that a member owns.
    """
    owners, parallelism = owners_of(plan.slot), plan.vertices[v].parallelism
    table = array("H", bytes(2 * count))
    for member in range(plan.slot.count):
        own = owners.partitions_of(member, count)
        local = distributed_table(count, own, parallelism)
        for partition in own:
            table[partition] = member * parallelism + local[partition]
    return table


def _only_target(plan: JobPlan, edge: EdgePlan, code: EdgeCode) -> int:
    """Return the global index of the processor to which an all-to-one edge brings everything."""
    count = plan.partition_count
    return global_owners(plan, edge.destination, count)[partition_id(code.to_one_key, count)]
