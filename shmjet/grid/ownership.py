"""Which partitions of a store are open here, where the maps and lists of a cluster lie on all its members.

All environments of such a *divided* store have a record for every partition that is open: its *lineage*, a number that
the partition got when it began empty, and keeps as it moves; on how many other members it has a backup; and the number
of the last change here that these have to be told (`change_log`). Each transaction on a partition looks at the record,
so a partition that has been closed changes no more, whatever other processes believe. Must not know which
member has what: the keeper of a member opens and closes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from shmjet.grid.environment import Environment, Transaction, behind
from shmjet.grid.errors import PartitionMovedError
from shmjet.grid.layout import OPEN, OPEN_RECORD, PARTITION

MOVED = "the partition is not on this member, or on its way"


class Opening(NamedTuple):
    """What an environment knows of an open partition.

    Args:
        lineage: see the module.
        backups: members that have to be told of each change before it counts.
        last: number of the last change here that they have to be told.
    """

    lineage: int
    backups: int = 0
    last: int = 0


def admit(txn: Transaction, partitions: Iterable[bytes]) -> None:
    """Raise PartitionMovedError unless all the partitions, packed, are open."""
    for partition in partitions:
        if txn.get(OPEN_RECORD + partition) is None:
            raise PartitionMovedError(MOVED)


def lineage(txn: Transaction, partition: bytes) -> int:
    """Return the lineage of an open partition. Raises PartitionMovedError."""
    found = opening(txn, partition)
    if found is None:
        raise PartitionMovedError(MOVED)
    return found.lineage


def opening(txn: Transaction, partition: bytes) -> Opening | None:
    """Return what is known of a partition, packed; None where it is not open."""
    found = txn.get(OPEN_RECORD + partition)
    return None if found is None else Opening(*OPEN.unpack(found))


def open_here(txn: Transaction) -> dict[int, int]:
    """Return the open partitions of an environment with their lineages."""
    return {PARTITION.unpack(key)[0]: OPEN.unpack(data)[0] for key, data in behind(txn, OPEN_RECORD)}


def open_partitions(
    environments: Sequence[Environment], lineages: Mapping[int, int], backups: Mapping[int, int] | None = None
) -> None:
    """Open partitions.

    Args:
        environments: of the store.
        lineages: by partition.
        backups: by partition; none where it is not named.
    """
    counts = backups or {}

    def work(txn: Transaction) -> None:
        for partition, number in lineages.items():
            packed = PARTITION.pack(partition)
            found = opening(txn, packed) or Opening(number)
            txn.put(OPEN_RECORD + packed, OPEN.pack(number, counts.get(partition, 0), found.last))

    if lineages:
        for env in environments:
            env.write(work, "the partitions that are here")


def count_backups(environments: Sequence[Environment], backups: Mapping[int, int]) -> None:
    """Note how many backups partitions have now; closed partitions stay closed."""

    def work(txn: Transaction) -> None:
        for partition, count in backups.items():
            packed = PARTITION.pack(partition)
            found = opening(txn, packed)
            if found is not None:
                txn.put(OPEN_RECORD + packed, OPEN.pack(found.lineage, count, found.last))

    if backups:
        for env in environments:
            env.write(work, "the partitions that are here")


def close_partitions(environments: Sequence[Environment], partitions: Collection[int]) -> None:
    """Close partitions. When this returns, nothing of them changes any more."""

    def work(txn: Transaction) -> None:
        for partition in partitions:
            txn.delete(OPEN_RECORD + PARTITION.pack(partition))

    if partitions:
        for env in environments:
            env.write(work, "the partitions that are here")
