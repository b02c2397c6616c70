"""The table of partitions: which members have a replica of each, and which should.

It goes from hand to hand with the view of the cluster and is changed by its coordinator alone. `epoch` is that of the
view for whose members it is made; `stamp` counts its changes within that. `docs/design/0026-partition-table.md` has
the rules. Pure: a table never changes, each step makes another one.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import msgspec

from shmjet.cluster.partitions.placement import Held, place

Version = tuple[int, int]
"""Epoch and stamp; of two tables of one cluster the greater is the newer."""

NO_TABLE: Version = (0, 0)


class Holder(NamedTuple):
    """A member, as far as partitions are concerned: its identity, and the host that it shares with others."""

    uuid: str
    host: str


class Replica(NamedTuple):
    """A replica of a partition. While it is not SYNCED it is being copied: it may lack entries and is not promoted."""

    uuid: str
    is_synced: bool


class Event(enum.Enum):
    """What can become of a replica."""

    SYNCED = "synced"
    """It has all that the primary has acknowledged, and from now on is waited for."""
    STALE = "stale"
    """It lacks a write, which is no longer waited for."""
    HANDED_OVER = "handed over"
    """The primary has sealed the partition: this replica, which has all of it, may be the primary."""
    LEAVING = "leaving"
    """The member itself wants to go, and should have no partition, whatever `Change.partition` says."""
    RESTORED = "restored"
    """The coordinator goes on with the runs on the disk of this member, `led_by`, whatever `Change.partition` says."""


class Change(msgspec.Struct, frozen=True, array_like=True):
    """What the primary of a partition reports about one of its replicas."""

    event: Event
    partition: int
    uuid: str


class PartitionTable(msgspec.Struct, frozen=True, array_like=True):
    """See the module. Members stand in the rows as their places in `members`.

    Args:
        epoch: of the view.
        stamp: from 0 in each epoch.
        members: the identities of the view's members, in its order.
        synced: for each partition the members that have all of it, the primary first.
        copying: for each partition the members that are getting it.
        wanted: for each partition the members that should have it, the primary first; see `placement`.
        leaving: the members that want to go, and should have none.
        origin: which data it is about: the identity of the member that founded the cluster.
        awaited: addresses of members whose partitions, on disk, are waited for; nothing is open then. None: no waiting.
        former: the identity of each member under which it had partitions on disk that count again; see `recovery`.
        led_by: the member that coordinated the cluster before all were away, by its identity now, until the runs on its
            disk go on; empty: it is not there, or they do.

    Example:
        >>> table = PartitionTable.first(1, 4, [Holder("a", "one"), Holder("b", "two")], backups=1)
        >>> table.owners(), table.is_safe
        ((('b', 'a'), ('b', 'a'), ('a', 'b'), ('a', 'b')), True)
    """

    epoch: int
    stamp: int
    members: tuple[str, ...]
    synced: tuple[Held, ...]
    copying: tuple[Held, ...]
    wanted: tuple[Held, ...]
    leaving: Held = ()
    origin: str = ""
    awaited: tuple[str, ...] | None = None
    former: tuple[str, ...] = ()
    led_by: str = ""

    @classmethod
    def first(cls, epoch: int, count: int, members: Sequence[Holder], backups: int) -> PartitionTable:
        """Return the table of a new cluster: there is no data yet, so all is where it should be.

        Args:
            epoch: of the view.
            count: number of partitions.
            members: of the view.
            backups: how many of each partition there should be, as far as there are members.
        """
        wanted = placed([()] * count, members, backups)
        uuids = tuple(member.uuid for member in members)
        return cls(epoch, 0, uuids, wanted, ((),) * count, wanted, origin=members[0].uuid)

    # -- what it says -------------------------------------------------------------------------------------------

    @property
    def version(self) -> Version:
        """Which of two tables of one cluster is the newer."""
        return self.epoch, self.stamp

    @property
    def count(self) -> int:
        """The number of partitions."""
        return len(self.synced)

    def primary(self, partition: int) -> str:
        """Return the member that has the primary of a partition."""
        return self.members[self.synced[partition][0]]

    def primaries(self) -> list[int]:
        """Return the place among the members of each partition's primary."""
        return [held[0] for held in self.synced]

    def replicas(self, partition: int) -> tuple[Replica, ...]:
        """Return all replicas of a partition, the primary first."""
        return tuple(
            Replica(self.members[member], is_synced)
            for held, is_synced in ((self.synced[partition], True), (self.copying[partition], False))
            for member in held
        )

    def owners(self) -> tuple[tuple[str, ...], ...]:
        """Return the members that have each partition, the primary first, without the members that are getting it."""
        return tuple(tuple(self.members[member] for member in held) for held in self.synced)

    @property
    def is_waiting(self) -> bool:
        """Whether no partition is open until members have come; see `recovery`."""
        return self.awaited is not None

    @property
    def is_safe(self) -> bool:
        """Whether every partition has all the replicas that it should have."""
        return not any(self.copying)

    @property
    def is_settled(self) -> bool:
        """Whether every partition is where it should be, with the primary that it should have."""
        return self.synced == self.wanted

    def hand_overs(self) -> list[tuple[int, str]]:
        """Return the partitions whose next primary waits for the present one to seal them, with that next one."""
        return [
            (partition, self.members[wanted[0]])
            for partition, (held, copying, wanted) in enumerate(
                zip(self.synced, self.copying, self.wanted, strict=True)
            )
            if not copying and held[0] != wanted[0]
        ]

    # -- how it goes on ----------------------------------------------------------------------------------------

    def after(self, epoch: int, members: Sequence[Holder], backups: int) -> tuple[PartitionTable, list[int]]:
        """Return the table of the next view, and the partitions whose data is lost: no member has all of it any more.

        Every replica whose member is still there stays. The first synced one becomes the primary. Then the least moves
        are planned that make all even (`placement`): a member that should get a replica is getting it from now on, and
        a member that should lose one keeps it until then. A lost partition begins anew, empty.

        Args:
            epoch: of that view.
            members: of that view.
            backups: how many of each partition there should be, as far as there are members.
        """
        places = {member.uuid: place for place, member in enumerate(members)}
        if self.is_waiting:
            wanted = placed([()] * self.count, members, backups)
            nothing = ((),) * self.count
            waits = PartitionTable(
                epoch, 0, tuple(places), wanted, nothing, wanted, origin=self.origin, awaited=self.awaited
            )
            return waits, []
        now = [places.get(uuid, -1) for uuid in self.members]
        living = {row: tuple(now[m] for m in row if now[m] >= 0) for row in {*self.synced, *self.copying}}
        held = [living[row] for row in self.synced]
        lost = [partition for partition, row in enumerate(held) if not row]
        coming = [living[row] for row in self.copying]
        there = [(*row, *other) if row and other else row for row, other in zip(held, coming, strict=True)]
        wanted = placed(there, members, backups)
        rows = list(zip(held, wanted, strict=True))
        begun = {row: begin_moves(*row) for row in set(rows)}
        synced, copying = tuple(begun[row][0] for row in rows), tuple(begun[row][1] for row in rows)
        before = dict(zip(self.members, self.former, strict=False))
        former = tuple(before.get(uuid, "") for uuid in places) if any(self.former) else ()
        return PartitionTable(
            epoch, 0, tuple(places), synced, copying, wanted, origin=self.origin, former=former, led_by=self.led_by
        ), lost

    def settled(self) -> PartitionTable:
        """Return the table when all has moved to where it should be: at once, for partitions that hold no data."""
        return msgspec.structs.replace(self, synced=self.wanted, copying=((),) * self.count)

    def changed(self, changes: Iterable[Change]) -> PartitionTable:
        """Return the table after changes, with the next stamp; this one if they change nothing.

        What does not fit, because it is about a replica that has another state by now, or that no one has, is ignored.
        """
        synced, copying, leaving, led_by = list(self.synced), list(self.copying), self.leaving, self.led_by
        places = {uuid: place for place, uuid in enumerate(self.members)}
        touched = set()
        for change in changes:
            partition, member = change.partition, places.get(change.uuid, -1)
            if change.event is Event.LEAVING and member >= 0 and member not in leaving:
                leaving = (*leaving, member)
            if change.event is Event.RESTORED and change.uuid == led_by:
                led_by = ""
            if not 0 <= partition < self.count:
                continue
            held, coming = synced[partition], copying[partition]
            match change.event:
                case Event.SYNCED if member in coming:
                    synced[partition], copying[partition] = (*held, member), _without(coming, (member,))
                case Event.STALE if member in held[1:]:
                    synced[partition] = _without(held, (member,))
                    copying[partition] = (*coming, member) if member in self.wanted[partition] else coming
                case Event.HANDED_OVER if not coming and member == self.wanted[partition][0] and member in held[1:]:
                    synced[partition] = (member, *_without(held, (member,)))
                case _:
                    continue
            touched.add(partition)
        for partition in touched:
            synced[partition] = _trimmed(synced[partition], copying[partition], self.wanted[partition])
        if not touched and leaving == self.leaving and led_by == self.led_by:
            return self
        rows = {"synced": tuple(synced), "copying": tuple(copying)}
        return msgspec.structs.replace(self, stamp=self.stamp + 1, leaving=leaving, led_by=led_by, **rows)

    def vacated(self, members: Sequence[Holder], backups: int) -> PartitionTable:
        """Return the table with moves away from the members that are leaving, as far as others stay.

        Args:
            members: of the view.
            backups: how many of each partition there should be, as far as members stay.
        """
        staying = [place for place in range(len(members)) if place not in self.leaving]
        if not staying:
            return self
        now = {place: index for index, place in enumerate(staying)}
        there = [
            tuple(now[member] for member in (*held, *coming) if member in now)
            for held, coming in zip(self.synced, self.copying, strict=True)
        ]
        rows = placed(there, [members[place] for place in staying], backups)
        wanted = tuple(tuple(staying[index] for index in row) for row in rows)
        begun = [begin_moves(*row) for row in zip(self.synced, wanted, strict=True)]
        synced, copying = tuple(row[0] for row in begun), tuple(row[1] for row in begun)
        return msgspec.structs.replace(self, synced=synced, copying=copying, wanted=wanted)

    def is_free(self, uuid: str) -> bool:
        """Say whether a member has no partition, and is getting none."""
        place = self.members.index(uuid) if uuid in self.members else -1
        return not any(place in row for rows in (self.synced, self.copying) for row in set(rows))


def begin_moves(held: Held, wanted: Held) -> tuple[Held, Held]:
    """Return who has a partition and who is getting it when moves begin; a lost partition begins empty."""
    synced = held or wanted[:1]
    copying = _without(wanted, synced)
    return _trimmed(synced, copying, wanted), copying


def _trimmed(synced: Held, copying: Held, wanted: Held) -> Held:
    """Return who has a partition after members that are not wanted have let go of it, once all others have it.

    The primary stays until it has handed over, as it may write.
    """
    if copying:
        return synced
    first = synced[:1] if synced[0] != wanted[0] else ()
    return (*first, *_without(wanted, first))


def placed(held: Sequence[Held], members: Sequence[Holder], backups: int) -> tuple[Held, ...]:
    """Return who should have each partition, with the least moves from who has it; see `placement`."""
    return place(held, [member.host for member in members], [member.uuid for member in members], backups)


def _without(row: Held, gone: Collection[int]) -> Held:
    return tuple(member for member in row if member not in gone)
