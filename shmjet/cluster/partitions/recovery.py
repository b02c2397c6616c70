"""The table of partitions of a cluster whose members have all been away, and have kept their partitions on disk.

Each brings the table that it had last, and under which identity. The newest of them says who has what, if all members
that it names are there: a later table was put in force by one of these. Until then the cluster *waits*, and no
partition is open. A primary's partitions are taken from its disk; backups are made anew from these. Pure.
`docs/design/0030-grid-on-disk.md` has the rules.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from shmjet.cluster.partitions.placement import Held
from shmjet.cluster.partitions.table import Holder, PartitionTable, begin_moves, placed


class StoredTable(msgspec.Struct, frozen=True, array_like=True):
    """What a member brings from its disk.

    Args:
        uuid: its identity then.
        table: the last table that it has followed.
        addresses: of the members in it; empty for a member that has nothing on disk.
    """

    uuid: str
    table: PartitionTable
    addresses: tuple[str, ...]


def waiting(epoch: int, stored: StoredTable, members: Sequence[Holder], backups: int) -> PartitionTable:
    """Return the table of a cluster that is founded by a member that has stored one; nothing is open under it."""
    first = PartitionTable.first(epoch, stored.table.count, members, backups)
    awaited = _missing(stored, {stored.uuid})
    return msgspec.structs.replace(first, origin=stored.table.origin, awaited=awaited)


def _missing(stored: StoredTable, come: Collection[str]) -> tuple[str, ...]:
    """Return the addresses of the members that a table names and that have not come, by their identities then.

    A member that was leaving, and had handed everything over, may have left without another table on any disk.
    """
    table = stored.table
    named = zip(table.members, stored.addresses, strict=True)
    return tuple(
        address
        for place, (uuid, address) in enumerate(named)
        if address and uuid not in come and not (place in table.leaving and table.is_free(uuid))
    )


def recovered(
    table: PartitionTable, found: Mapping[str, StoredTable], members: Sequence[Holder], backups: int, *, all_came: bool
) -> PartitionTable:
    """Return the table that follows a table that waits, by what is known now; the same one if nothing has changed.

    Args:
        table: that waits.
        found: by identity of members in it, what they have brought.
        members: of the view.
        backups: how many of each partition there should be, as far as there are members.
        all_came: take it that no other member will come, whatever the tables say. What only others have is lost.
    """
    if not found:
        return table
    newest = max(found.values(), key=lambda stored: stored.table.version)
    now = {stored.uuid: uuid for uuid, stored in found.items() if stored.uuid in newest.table.members}
    awaited = _missing(newest, now)
    if awaited and not all_came:
        changed = msgspec.structs.replace(table, origin=newest.table.origin, awaited=awaited)
        return table if changed == table else msgspec.structs.replace(changed, stamp=table.stamp + 1)
    places = {member.uuid: place for place, member in enumerate(members)}
    here = [places[now[uuid]] if uuid in now else -1 for uuid in newest.table.members]
    there = [
        tuple(here[member] for member in (*held, *coming) if here[member] >= 0)
        for held, coming in zip(newest.table.synced, newest.table.copying, strict=True)
    ]
    primaries: list[Held] = [
        tuple(here[member] for member in held if here[member] >= 0)[:1] for held in newest.table.synced
    ]
    wanted = placed(there, members, backups)
    before = {uuid: old for old, uuid in now.items()}
    begun = [begin_moves(*row) for row in zip(primaries, wanted, strict=True)]
    return PartitionTable(
        table.epoch,
        table.stamp + 1,
        tuple(places),
        tuple(row[0] for row in begun),
        tuple(row[1] for row in begun),
        wanted,
        origin=newest.table.origin,
        former=tuple(before.get(uuid, "") for uuid in places),
        led_by=now.get(newest.table.led_by or newest.table.members[0], ""),
    )


def lost_partitions(table: PartitionTable, found: Mapping[str, StoredTable]) -> list[int]:
    """Return the partitions of which no member that is here has brought anything."""
    newest = max(found.values(), key=lambda stored: stored.table.version).table
    here = {stored.uuid for stored in found.values()}
    return [p for p, row in enumerate(newest.synced) if not any(newest.members[member] in here for member in row)]
