"""The settings of a member's network, and the interface through which it reports what happens."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from shmjet.cluster.folder import InstanceFolder
from shmjet.cluster.membership.events import ViewInstalled
from shmjet.cluster.membership.views import Peer
from shmjet.cluster.partitions.recovery import StoredTable
from shmjet.core.map_config import MapSettings
from shmjet.net.messages import TlsFiles


class NetworkSettings(msgspec.Struct, frozen=True):
    """What a member with a network needs to know of it; see `JetConfig`."""

    bind: str
    seeds: tuple[str, ...]
    cluster_name: str
    secret: bytes
    member_secret: bytes
    """Empty for none."""
    tls: TlsFiles | None
    partition_count: int
    flow_period_ns: int
    allow_code: bool
    longest_silence: float
    backup_count: int
    maps: MapSettings = {}


class NetworkUser(Protocol):
    """The member, as its network sees it."""

    def peer(self, identity: str, address: str) -> Peer:
        """Return how this member is described to others."""

    @property
    def folder(self) -> InstanceFolder:
        """The member's folder."""

    @property
    def stored_table(self) -> StoredTable | None:
        """What this member has on disk of the partitions of its cluster; None: nothing."""

    def link_setup(self) -> tuple[int, int, list[int]]:
        """Return size of the control segment, offset of the link's block in it, and two descriptors for the link."""

    def view_changed(self, event: ViewInstalled) -> None:
        """There is a new view."""

    def table_changed(self) -> None:
        """There is a new table of partitions."""

    def stored_runs_wanted(self, member: str) -> None:
        """The runs on disk of a member are needed here before partitions are open; `Network.has_runs_of` follows."""

    def isolated(self, lost: tuple[Peer, ...], others: tuple[Peer, ...]) -> None:
        """More than half of the other members cannot be heard."""

    def fenced(self, others: tuple[Peer, ...], why: str) -> None:
        """This member is not what it was any more: all that it took part in has failed, and its maps are gone."""

    def connected(self, identity: str) -> None:
        """There is a connection to a member, which may not be in the view yet."""

    def connection_lost(self, peer: Peer, why: str) -> None:
        """The connection to a member of the view has broken; what was under way is lost."""

    def peer_message(self, sender: str, message: Any) -> None:
        """A member of the view says something."""

    def client_accepted(self, fd: int, address: str, leftover: bytes) -> None:
        """A client that knows the secret has connected; the descriptor is ours."""
