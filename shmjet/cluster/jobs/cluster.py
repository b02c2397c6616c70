"""The cluster, as far as its runs are concerned."""

from __future__ import annotations

from typing import Protocol

from shmjet.cluster.membership.views import Peer, View

SKEW_S = 1.0
"""How much older a request may be than it says: it does not count for how long it was under way."""


class Cluster(Protocol):
    """Who is in it, and who can be reached (`shmjet.cluster.member.cluster_of_runs`)."""

    @property
    def is_networked(self) -> bool:
        """Whether there may be other members."""

    @property
    def view(self) -> View:
        """The view in force; of a member without one, a view with it alone."""

    @property
    def me(self) -> str:
        """This member's identity."""

    @property
    def trouble(self) -> str:
        """Why there is no view in force; empty when there is one."""

    @property
    def member_for(self) -> float:
        """For how many seconds this has been a member of its cluster."""

    def is_connected(self, identity: str) -> bool:
        """Say whether there is a connection to another member."""

    def send(self, identity: str, message: object) -> None:
        """Send a message to another member; it is lost when there is no connection."""


def others(cluster: Cluster) -> list[Peer]:
    """Return all members but this one, the oldest first."""
    return [peer for peer in cluster.view.members if peer.uuid != cluster.me]


def why_no_attempt(cluster: Cluster) -> str:
    """Say what keeps an attempt from beginning on all members; empty when nothing does.

    A connection breaks before the view changes: an attempt that began then would wait for a member that is lost.
    """
    if cluster.trouble:
        return f"the cluster: {cluster.trouble}"
    away = [peer.address for peer in others(cluster) if not cluster.is_connected(peer.uuid)]
    return f"a connection to {', '.join(away)}, or for the cluster to go on without it" if away else ""
