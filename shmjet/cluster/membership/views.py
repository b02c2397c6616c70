"""The types of membership: members, views, and the messages about them.

Plain data, sent as msgpack by msgspec. Every message carries who says it; those about an existing view carry its epoch,
so that a receiver can tell what is out of date.
"""

from __future__ import annotations

import msgspec

from shmjet.cluster.partitions.recovery import StoredTable
from shmjet.cluster.partitions.table import NO_TABLE, Change, PartitionTable, Version


class Peer(msgspec.Struct, frozen=True, array_like=True):
    """One member as others know it.

    `uuid` is its identity: new at every start, and whenever it has to join again. `address` is where it listens, and
    stays. `cores` are the core numbers of its workers; `worker_count` how many of these there are; `keeps_on_disk` says
    whether it has a storage.
    """

    uuid: str
    address: str
    pid: int
    cores: tuple[int, ...] = ()
    worker_count: int = 1
    keeps_on_disk: bool = False


class View(msgspec.Struct, frozen=True, array_like=True):
    """Who is in the cluster; `members` in the order in which they joined, so that the first coordinates.

    `since` says of each the first epoch that it has promised to be in, under its identity: no view before it has it,
    and a view that lacks it and is not older has lost it for good.
    """

    epoch: int
    members: tuple[Peer, ...]
    since: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.since) != len(self.members):
            raise ValueError(f"a view of {len(self.members)} members has {len(self.since)} epochs of joining")

    @property
    def coordinator(self) -> Peer:
        """The oldest member."""
        return self.members[0]

    @property
    def uuids(self) -> tuple[str, ...]:
        """The identities of the members, the oldest first."""
        return tuple(peer.uuid for peer in self.members)

    def find(self, uuid: str) -> Peer | None:
        """Return the member with this identity, or None."""
        return next((peer for peer in self.members if peer.uuid == uuid), None)

    def since_of(self, uuid: str) -> int:
        """Return since when a member may be in views; 0 for a member that is not in this view."""
        return next((since for peer, since in zip(self.members, self.since, strict=True) if peer.uuid == uuid), 0)

    def lost_by(self, before: View) -> list[Peer]:
        """Return those members that an earlier view has lost: they are not in it, and could have been."""
        known = before.uuids
        return [
            peer
            for peer, since in zip(self.members, self.since, strict=True)
            if since <= before.epoch and peer.uuid not in known
        ]


class JoinRequest(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """I want to be a member. `partition_count`, `allow_code`, `backup_count` and `maps` have to be the cluster's."""

    peer: Peer
    partition_count: int
    epoch: int
    """The newest that it has seen: the view that takes it in has to be newer."""
    since: int
    """The first that it has promised to be in under this identity; 0 for none yet."""
    allow_code: bool = True
    backup_count: int = 0
    origin: str = ""
    """Which data it has on disk, see `PartitionTable.origin`; empty: none that has to count."""
    maps: dict[str, dict[str, int | str | None]] | None = None
    """Its settings of maps, see `core.map_config`; None: a member of the last version does not say."""


class Redirect(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Not here: ask the coordinator."""

    sender: Peer
    coordinator: str


class Waiting(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """I am no member either, and look for others myself."""

    sender: Peer


class JoinRefused(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """You cannot join: your settings are not those of the cluster."""

    sender: Peer
    text: str


class Heartbeat(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """I am there, in this view, and cannot hear these."""

    sender: str
    epoch: int
    suspects: tuple[str, ...]
    stamp: int = 0
    """Of the table in force."""


class Propose(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """From the coordinator, or the member that takes over from a lost coordinator: shall this be the next view?"""

    sender: str
    view: View
    table: Version = NO_TABLE
    """The newest table that the sender has accepted."""


class Accept(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Yes: I have promised to accept nothing older from now on."""

    sender: str
    epoch: int
    newest: Version = NO_TABLE
    """The newest table that may be in force, as far as the sender knows."""
    table: PartitionTable | None = None
    """The one in force at the sender, where it is newer than what the proposer knows of."""


class Reject(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """No: I have promised, or am in, `epoch` already."""

    sender: str
    epoch: int


class Install(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """All who are in it have accepted: this is the view now, with its table of partitions."""

    sender: str
    view: View
    table: PartitionTable | None = None


class Leave(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """I am going; tell me when I may."""

    sender: str


class Fenced(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """You are not in my view, and nothing that you say as a member is accepted: join again, under a new identity."""

    sender: str
    receiver: str
    epoch: int


class Probe(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Coordinator to an address that should be a member's and is not: this is the cluster here."""

    sender: Peer
    epoch: int
    size: int
    """Of its view; 0 from an isolated member that asks whether there is a cluster that it could join."""


class Disband(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Coordinator to its members: ours was the smaller part of a cluster that was split; join the other."""

    sender: str
    epoch: int
    address: str


class ReplicaReport(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Member to coordinator: changes of replicas of partitions whose primary I have.

    `number` grows with each report of a member.
    """

    sender: str
    epoch: int
    number: int
    changes: tuple[Change, ...]


class StoredReport(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Member to the coordinator of a cluster that waits: this is what I have on disk."""

    sender: str
    epoch: int
    stored: StoredTable


class ProposeTable(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """From the coordinator of the view in force: shall this be its table of partitions?"""

    sender: str
    table: PartitionTable


class AcceptTable(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Yes: the proposer of the next view will hear of it from me."""

    sender: str
    epoch: int
    stamp: int


class InstallTable(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """All members of the view have accepted: this is its table now."""

    sender: str
    table: PartitionTable


MembershipMessage = (
    JoinRequest
    | Redirect
    | Waiting
    | JoinRefused
    | Heartbeat
    | Propose
    | Accept
    | Reject
    | Install
    | Leave
    | Fenced
    | Probe
    | Disband
    | ReplicaReport
    | StoredReport
    | ProposeTable
    | AcceptTable
    | InstallTable
)
