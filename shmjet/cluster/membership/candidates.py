"""Candidates: processes that ask to join, the answers to them, and the choice of who is in the next view.

A part of `membership`; no clock in here.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from shmjet.cluster.membership.roster import Roster
from shmjet.cluster.membership.views import Fenced, Install, JoinRefused, JoinRequest, Peer, Redirect, View
from shmjet.cluster.partitions.table import PartitionTable
from shmjet.core.map_config import MapSettings, difference


class Candidate(msgspec.Struct):
    """A process that asks: what it has seen, since when it may be in views (0: not yet), and when it asked last."""

    peer: Peer
    epoch: int
    since: int
    at: float


class Candidates:
    """Who has asked, and when."""

    def __init__(self) -> None:
        self._found: dict[str, Candidate] = {}

    def add(self, request: JoinRequest, now: float) -> None:
        """Take a request; the process that asked from that address before is gone."""
        peer = request.peer
        for uuid in [u for u, c in self._found.items() if c.peer.address == peer.address and u != peer.uuid]:
            del self._found[uuid]
        before = self._found.get(peer.uuid)
        since = request.since or (0 if before is None else before.since)
        self._found[peer.uuid] = Candidate(peer, request.epoch, since, now)

    def excuse_all(self, now: float) -> None:
        """Take that we were away, so that we cannot know who has asked."""
        for candidate in self._found.values():
            candidate.at = now

    def drop_silent(self, now: float, patience: float) -> None:
        """Forget candidates that have not asked for so many seconds."""
        self._found = {uuid: c for uuid, c in self._found.items() if now - c.at < patience}

    def drop_members(self, view: View) -> None:
        """Forget candidates that are in a view now."""
        self._found = {uuid: c for uuid, c in self._found.items() if view.find(uuid) is None}

    def outside(self, view: View) -> list[Candidate]:
        """Return the candidates that are not in a view, in the order in which they asked first."""
        return [c for uuid, c in self._found.items() if view.find(uuid) is None]

    def addresses(self) -> Iterator[str]:
        """Yield where they are."""
        return (candidate.peer.address for candidate in self._found.values())


def answer_to(
    request: JoinRequest,
    me: Peer,
    partition_count: int,
    roster: Roster,
    table: PartitionTable | None,
    now: float,
    *,
    allow_code: bool = True,
    backup_count: int = 0,
    maps: MapSettings | None = None,
) -> Install | Fenced | JoinRefused | Redirect | None:
    """Return a member's answer to a candidate; None where it is for this member to take it in.

    Args:
        request: what it says.
        me: this member, which is in a view.
        partition_count: of the cluster.
        roster: this member's view.
        table: of partitions, in force with that view.
        now: seconds.
        allow_code: whether the members of the cluster take code from clients.
        backup_count: how many backups partitions have in the cluster.
        maps: settings of maps in the cluster; None: they are not compared.
    """
    peer, view = request.peer, roster.view
    assert view is not None
    if request.partition_count != partition_count:
        text = (
            f"the cluster of {me.address} has partition_count {partition_count}, and {peer.address} has "
            f"{request.partition_count}: give all members the same"
        )
        return JoinRefused(me, text)
    if request.allow_code != allow_code:
        # Who may bring code to one member may act as that member, so one would open all.
        text = (
            f"the cluster of {me.address} has allow_code {allow_code}, and {peer.address} has {request.allow_code}: "
            "give all members the same"
        )
        return JoinRefused(me, text)
    if request.backup_count != backup_count:
        text = (
            f"the cluster of {me.address} keeps {backup_count} backups of each partition, and {peer.address} "
            f"{request.backup_count}: give all members the same backup_count, and the same in the settings of maps"
        )
        return JoinRefused(me, text)
    found = None if maps is None or request.maps is None else difference(maps, request.maps)
    if found is not None:  # a map has to lie where all look for it, and to be limited or noted wherever it lies
        text = (
            f"the cluster of {me.address} has {found.field} {found.ours!r} for maps {found.name!r}, and "
            f"{peer.address} has {found.theirs!r}: give all members the same settings of maps"
        )
        return JoinRefused(me, text)
    if request.origin and table is not None and request.origin != table.origin:
        text = (
            f"the cluster of {me.address} has other maps and lists than those in the storage of {peer.address}: give "
            "that member another folder as storage, or start the cluster with a member that has these maps and lists"
        )
        return JoinRefused(me, text)
    if view.find(peer.uuid) is not None:
        return Install(me.uuid, view, table)
    if 0 < request.since <= view.epoch:
        # It had accepted a view that never reached it: others may have had it in theirs, and lost it since.
        return Fenced(me.uuid, peer.uuid, view.epoch)
    return None if roster.leads(now) else Redirect(me, roster.leader(now).address)
