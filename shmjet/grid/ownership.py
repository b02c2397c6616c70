"""Which partitions of a store are open here, where the maps and lists of a cluster lie on all its members.

All environments of such a *divided* store have a record for every partition that is open: its *lineage*, a number that
the partition got when it began empty, and keeps as it moves. Each transaction on a partition looks at the record, so a
partition that has been closed changes no more, whatever other processes believe. Must not know which
member has what: the keeper of a member opens and closes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from shmjet.grid.changes import behind
from shmjet.grid.environment import Environment, Transaction
from shmjet.grid.errors import PartitionMovedError
from shmjet.grid.layout import MARK, OPEN_RECORD, PARTITION

MOVED = "the partition is not on this member, or on its way"


def admit(txn: Transaction, partitions: Iterable[bytes]) -> None:
    """Raise PartitionMovedError unless all the partitions, packed, are open."""
    for partition in partitions:
        if txn.get(OPEN_RECORD + partition) is None:
            raise PartitionMovedError(MOVED)


def lineage(txn: Transaction, partition: bytes) -> int:
    """Return the lineage of an open partition. Raises PartitionMovedError."""
    found = txn.get(OPEN_RECORD + partition)
    if found is None:
        raise PartitionMovedError(MOVED)
    number: int = MARK.unpack(found)[0]
    return number


def open_here(txn: Transaction) -> dict[int, int]:
    """Return the open partitions of an environment with their lineages."""
    return {PARTITION.unpack(key)[0]: MARK.unpack(data)[0] for key, data in behind(txn, OPEN_RECORD)}


def open_partitions(environments: Sequence[Environment], lineages: Mapping[int, int]) -> None:
    """Open partitions."""

    def work(txn: Transaction) -> None:
        for partition, number in lineages.items():
            txn.put(OPEN_RECORD + PARTITION.pack(partition), MARK.pack(number))

    if lineages:
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
