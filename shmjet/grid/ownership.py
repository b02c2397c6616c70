"""Which partitions of a store are open here, where the maps and lists of a cluster lie on all its members.

All environments of such a *divided* store have a record for every partition that is open: its *lineage*, a number that
the partition got when it began empty, and keeps as it moves; on how many other members it has a backup; and the number
of the last change here that these have to be told (`change_log`). Each transaction on a partition looks at the record,
so a partition that has been closed changes no more, whatever other processes believe. Must not know which
member has what: the keeper of a member opens and closes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from shmjet.data.decoders import msgpack_decoder
from shmjet.grid.commit_counters import BACKED_UP
from shmjet.grid.environment import Environment, Transaction, behind
from shmjet.grid.errors import PartitionMovedError
from shmjet.grid.layout import CHANGE_RECORD, INDEX, OPEN, OPEN_RECORD, PARTITION

_decode_record = msgpack_decoder(list[tuple[int, msgspec.Raw]]).decode

_COPIED = 0x80
MOVED = "the partition is not on this member, or on its way"


class Opening(NamedTuple):
    """What an environment knows of an open partition.

    Args:
        lineage: see the module.
        backups: members that have to be told of each change before it counts.
        last: number of the last change here that they have to be told.
        is_copied: whether a copy is being made, which is told of each change later.
    """

    lineage: int
    backups: int = 0
    last: int = 0
    is_copied: bool = False

    @property
    def is_noted(self) -> bool:
        """Whether changes go to the log."""
        return self.backups > 0 or self.is_copied

    def pack(self) -> bytes:
        """Return it as it is stored."""
        return OPEN.pack(self.lineage, self.backups | (_COPIED if self.is_copied else 0), self.last)


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
    if found is None:
        return None
    number, backups, last = OPEN.unpack(found)
    return Opening(number, backups & ~_COPIED, last, backups & _COPIED != 0)


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

    keys = [(partition, OPEN_RECORD + PARTITION.pack(partition)) for partition in sorted(lineages)]

    def work(txn: Transaction, env: Environment) -> None:
        unsettled = _changed_since(txn, env.announced[BACKED_UP])  # before it was closed
        records = []
        for partition, key in keys:
            found = txn.get(key)
            last = unsettled.get(partition, 0) if found is None else OPEN.unpack(found)[2]
            records.append((key, OPEN.pack(lineages[partition], counts.get(partition, 0), last)))
        _put_all(txn, records)

    if lineages:
        for env in environments:
            env.write(partial(work, env=env), "the partitions that are here")


def _changed_since(txn: Transaction, number: int) -> dict[int, int]:
    """Return the partitions that the log of changes is about behind a number, each with its last record there."""
    found: dict[int, int] = {}
    with txn.cursor() as cursor:
        if cursor.set_range(CHANGE_RECORD + INDEX.pack(number + 1)):
            for key, data in cursor.iternext():
                if not key.startswith(CHANGE_RECORD):
                    break
                (at,) = INDEX.unpack(key[len(CHANGE_RECORD) :])
                found |= {partition: at for partition, _ in _decode_record(data)}
    return found


def count_backups(environments: Sequence[Environment], backups: Mapping[int, int]) -> None:
    """Note how many backups partitions have now; closed partitions stay closed."""

    keys = [(OPEN_RECORD + PARTITION.pack(partition), backups[partition]) for partition in sorted(backups)]

    def work(txn: Transaction) -> None:
        records = []
        for key, count in keys:
            found = txn.get(key)
            if found is not None:
                lineage, before, last = OPEN.unpack(found)
                records.append((key, OPEN.pack(lineage, count | (before & _COPIED), last)))
        _put_all(txn, records)

    if backups:
        for env in environments:
            env.write(work, "the partitions that are here")


def note_copies(txn: Transaction, partitions: Iterable[int], *, are_copied: bool) -> None:
    """Note whether partitions, as far as they are open, are being copied."""
    records = []
    for partition in sorted(partitions):
        key = OPEN_RECORD + PARTITION.pack(partition)
        found = txn.get(key)
        if found is not None:
            lineage, backups, last = OPEN.unpack(found)
            records.append((key, OPEN.pack(lineage, backups & ~_COPIED | (_COPIED if are_copied else 0), last)))
    _put_all(txn, records)


def _put_all(txn: Transaction, records: list[tuple[bytes, bytes]]) -> None:
    """Store sorted records."""
    with txn.cursor() as cursor:
        cursor.putmulti(records)


def close_partitions(environments: Sequence[Environment], partitions: Collection[int]) -> None:
    """Close partitions. When this returns, nothing of them changes any more."""

    def work(txn: Transaction) -> None:
        for partition in partitions:
            txn.delete(OPEN_RECORD + PARTITION.pack(partition))

    if partitions:
        for env in environments:
            env.write(work, "the partitions that are here")
