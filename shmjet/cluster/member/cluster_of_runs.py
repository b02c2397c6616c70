"""The cluster of a member as its jobs see it: who is in it, and who can be reached."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from shmjet.cluster.membership.views import View

if TYPE_CHECKING:
    from shmjet.cluster.membership.network import Network


class ClusterOfRuns:
    """See the module, and `shmjet.cluster.jobs.cluster.Cluster`.

    Args:
        network: of the member; None for a member alone.
        view: gives the view in force; of a member without one, a view with it alone.
        me: gives the member's identity.
    """

    def __init__(self, network: Network | None, view: Callable[[], View], me: Callable[[], str]) -> None:
        self._network = network
        self._view = view
        self._me = me

    @property
    def is_networked(self) -> bool:
        """Whether there may be other members."""
        return self._network is not None

    @property
    def view(self) -> View:
        """The view in force."""
        return self._view()

    @property
    def me(self) -> str:
        """This member's identity."""
        return self._me()

    @property
    def trouble(self) -> str:
        """Why there is no view in force; empty when there is one."""
        return "" if self._network is None or self._network.view is not None else self._network.trouble

    @property
    def member_for(self) -> float:
        """For how many seconds this has been a member of its cluster."""
        return math.inf if self._network is None else self._network.member_for()

    def is_connected(self, identity: str) -> bool:
        """Say whether there is a connection to another member."""
        return self._network is not None and self._network.is_connected(identity)

    def send(self, identity: str, message: object) -> None:
        """Send a message to another member; it is lost when there is no connection."""
        if self._network is not None:
            self._network.send(identity, message)
