"""The view in force and the presence of its members: which may change it, which stay, and whether they suffice.

A part of `membership`. No clock in here.
"""

from __future__ import annotations

from collections.abc import Iterator

from shmjet.cluster.membership.presence import Presence
from shmjet.cluster.membership.views import Peer, View


class Roster:
    """What one member asks about its view.

    Args:
        uuid: of this member.
        presence: what it knows of the others.
    """

    def __init__(self, uuid: str, presence: Presence) -> None:
        self._uuid = uuid
        self._presence = presence
        self.view: View | None = None

    @property
    def members(self) -> tuple[Peer, ...]:
        """The members of the view, the oldest first; empty where there is none."""
        return () if self.view is None else self.view.members

    @property
    def others(self) -> Iterator[Peer]:
        """All members but this one."""
        return (peer for peer in self.members if peer.uuid != self._uuid)

    def is_gone(self, peer: Peer, now: float) -> bool:
        """Say whether the cluster has to do without a member."""
        return peer.uuid != self._uuid and self._presence.is_gone(peer.uuid, now)

    def missing(self, now: float) -> tuple[Peer, ...]:
        """Return the members that are gone."""
        return tuple(peer for peer in self.members if self.is_gone(peer, now))

    def leader(self, now: float) -> Peer:
        """Return the oldest member that is not gone; only it may propose views."""
        return next(peer for peer in self.members if not self.is_gone(peer, now))

    def leads(self, now: float) -> bool:
        """Say whether that is this member."""
        return self.view is not None and self.leader(now).uuid == self._uuid

    def take_dead_at(self, address: str, but: str = "") -> None:
        """Note that the member at an address is dead.

        Args:
            address: of a listener.
            but: identity of the process that is there now; empty when none is.
        """
        for peer in self.others:
            if peer.address == address and peer.uuid != but:
                self._presence.is_dead(peer.uuid)

    def may_go_on(self, staying: list[Peer]) -> bool:
        """Say whether some may go on without the rest: they are at least half of those not known to be dead."""
        countable = [peer for peer in self.members if not self._presence.is_certainly_gone(peer.uuid)]
        return 2 * len(staying) >= len(countable)

    def staying(self, now: float) -> list[Peer]:
        """Return the members that are not gone."""
        return [peer for peer in self.members if not self.is_gone(peer, now)]

    def trusted(self, staying: list[Peer], now: float) -> list[Peer]:
        """Return the staying members, without the accused where the rest may go on without them."""
        accused = self._presence.accused(staying, now)
        trusted = [peer for peer in staying if peer.uuid == self._uuid or peer.uuid not in accused]
        return trusted if self.may_go_on(trusted) else staying
