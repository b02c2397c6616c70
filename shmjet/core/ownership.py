"""Who owns a partition: a table from partitions to the places of members. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shmjet.core.context import MetaSupplierContext, ProcessorContext


class PartitionOwners:
    """The owners of all partitions, as an attempt to run a job has found them: they do not change while it runs.

    Args:
        members: how many there are; their places are 0 to `members - 1`.
        places: of the owner of each partition. Where there are none, partitions are dealt out to the members in turn.

    Example:
        >>> owners = PartitionOwners(2, [0, 1, 1, 0])
        >>> owners.owner_of(2, 4), owners.partitions_of(0, 4)
        (1, [0, 3])
        >>> owners.owner_of(2, 5)        # another number of partitions: not assigned
        0
    """

    def __init__(self, members: int, places: Sequence[int]) -> None:
        self.members = members
        self.places = places

    def owner_of(self, partition: int, count: int) -> int:
        """Return the place of the member that owns a partition.

        Args:
            partition: from 0.
            count: how many partitions there are. If it is not the table's number, as on an edge with a number of its
                own, they are dealt out to the members in turn.
        """
        return self.places[partition] if count == len(self.places) else partition % self.members

    def partitions_of(self, member: int, count: int) -> list[int]:
        """Return the partitions of one member, ascending.

        Args:
            member: its place.
            count: how many partitions there are, see `owner_of`.
        """
        if count == len(self.places):
            return [partition for partition, place in enumerate(self.places) if place == member]
        return list(range(member, count, self.members))

    def share_of(self, context: ProcessorContext, count: int) -> list[int]:
        """Return the partitions of one processor, ascending: a member deals its own in turn to its processors.

        Args:
            context: of the processor.
            count: how many partitions there are, see `owner_of`.
        """
        return self.partitions_of(context.member_index, count)[context.local_index :: context.local_parallelism]


@lru_cache(maxsize=64)
def dealt(count: int, members: int) -> PartitionOwners:
    """Return owners of partitions that are dealt out to the members in turn; for a member alone there is no table.

    Example:
        >>> dealt(5, 2).places
        [0, 1, 0, 1, 0]
    """
    return PartitionOwners(members, [partition % members for partition in range(count)] if members > 1 else [])


def owners_in(context: ProcessorContext | MetaSupplierContext) -> PartitionOwners:
    """Return the owners that the engine has handed in with a context; without an engine they are dealt out in turn."""
    owners = context._owners
    return dealt(context.partition_count, context.member_count) if owners is None else owners


def hand_in(context: ProcessorContext | MetaSupplierContext, owners: PartitionOwners) -> None:
    """Have a context tell the owners of partitions. The engine does, before other code has the context."""
    object.__setattr__(context, "_owners", owners)
