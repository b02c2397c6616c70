"""The maps and lists of a member: the store, in memory or also on disk, and what brings them to other members."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shmjet.cluster.member.grid_requests import GridRequests
from shmjet.cluster.membership.peer_messages import KeeperMessage, OfferLine
from shmjet.cluster.membership.views import Peer
from shmjet.cluster.partitions.recovery import StoredTable
from shmjet.cluster.protocol import GridCall, Refused, TakeLine
from shmjet.cluster.requests.client_connections import LocalClient
from shmjet.cluster.settings import MemberSettings
from shmjet.grid import Grid, GridError
from shmjet.grid.store import ENVIRONMENTS_OF_A_CLUSTER

if TYPE_CHECKING:
    from shmjet.cluster.member.member_lines import MemberLines
    from shmjet.cluster.member.partition_keeper import PartitionKeeper
    from shmjet.cluster.member.partitions_on_disk import PartitionsOnDisk
    from shmjet.cluster.membership.network import Network
    from shmjet.grid.disk.store_on_disk import StoreOnDisk

logger = logging.getLogger("shmjet.member")


class MemberGrid:
    """See the module.

    Args:
        folder: where the store is made.
        settings: of the member.
        network: of the member; None for a member alone, which has all partitions.
        me: gives the member's identity.
        members: gives all members that this one knows of.
        pass_on: has another member perform an operation.
        phase: takes what is being done.
    """

    def __init__(
        self,
        folder: Path,
        settings: MemberSettings,
        network: Network | None,
        *,
        me: Callable[[], str],
        members: Callable[[], Iterable[Peer]],
        pass_on: Callable[[str, LocalClient, GridCall], None],
        phase: Callable[[str], None],
    ) -> None:
        self._folder = folder
        self._network = network
        self._disk: StoreOnDisk | None = None
        self._partitions_on_disk: PartitionsOnDisk | None = None
        is_divided = network is not None
        if settings.storage:
            self._make_on_disk(settings, Path(settings.storage) / "grid", members, phase, is_divided=is_divided)
        else:
            environments = ENVIRONMENTS_OF_A_CLUSTER if is_divided else None
            count, maps = settings.partition_count, settings.maps
            Grid.create(folder, count, environments=environments, maps=maps, is_divided=is_divided)
        self.lines: MemberLines | None = None
        """Connections to other members, next to those of the link; None for a member alone."""
        self.keeper: PartitionKeeper | None = None
        """Opens, closes, copies and removes its partitions; None for a member alone."""
        if network is not None:
            self._make_keeper(network, me)
        backed_up = None if self.keeper is None else self.keeper.backed_up
        address = (lambda: "") if network is None else (lambda: network.address)
        self.requests = GridRequests(folder, self._trouble, me, pass_on, backed_up, address)

    def _make_on_disk(
        self,
        settings: MemberSettings,
        place: Path,
        members: Callable[[], Iterable[Peer]],
        phase: Callable[[str], None],
        *,
        is_divided: bool,
    ) -> None:
        from shmjet.grid.disk.store_on_disk import StoreOnDisk  # most members need none of it

        count, pause = settings.partition_count, settings.storage_sync
        self._disk = StoreOnDisk(self._folder, place, count, settings.maps, pause, is_divided=is_divided, phase=phase)
        if is_divided:
            from shmjet.cluster.member.partitions_on_disk import PartitionsOnDisk

            self._partitions_on_disk = PartitionsOnDisk(
                place, lambda: {peer.uuid: peer.address if peer.keeps_on_disk else "" for peer in members()}
            )

    def _make_keeper(self, network: Network, me: Callable[[], str]) -> None:
        # Some 20 modules that a member without a network need not load.
        from shmjet.cluster.member.member_lines import MemberLines
        from shmjet.cluster.member.partition_keeper import PartitionKeeper
        from shmjet.grid import service as service  # clients of other hosts will need it, and its import takes a while

        settings = network.settings
        secret = settings.secret if settings.tls is None else None
        self.lines = MemberLines(network, me, settings.cluster_name, secret, self.receive, self._take_copies)
        self.keeper = PartitionKeeper(
            network, self.lines, self._folder, me, connect=self.lines.connect_for_copies, disk=self._partitions_on_disk
        )

    @property
    def stored_table(self) -> StoredTable | None:
        """What is on disk of the partitions of the cluster; None: nothing."""
        return None if self._partitions_on_disk is None else self._partitions_on_disk.found

    async def opened(self) -> None:
        """Wait until no member with partitions on its disk is waited for."""
        if self.keeper is not None:
            await self.keeper.opened()

    def _trouble(self) -> tuple[str, str] | None:
        """Return why maps and lists cannot be used here now, as an error's class and text."""
        network = self._network
        if network is None:
            return None
        if network.view is not None:
            return ("PartitionMovedError", network.waits_for) if network.waits_for else None
        return "MemberLostError" if network.is_cut_off else "PartitionMovedError", network.trouble

    def sync(self) -> None:
        """Bring what the maps and lists hold to disk, where they are on disk."""
        if self._disk is not None:
            self._disk.sync()

    def worker_died(self, index: int) -> None:
        """Remove what a worker has left in the store."""
        try:
            with Grid.open(self._folder) as grid:
                grid.after_worker_death()
        except (GridError, OSError) as error:  # its jobs must not wait for that
            logger.error("what worker %d has left in the store stays until another one is lost: %s", index, error)

    def receive(self, sender: str, message: Any, way: Callable[[object], None] | None = None) -> None:
        """Take what another member says about partitions.

        Args:
            sender: its identity.
            message: what it says.
            way: back to it, if this did not come by the link.
        """
        assert self.keeper is not None
        assert self.lines is not None
        if isinstance(message, OfferLine):
            self.lines.offered(sender, message)
        elif isinstance(message, KeeperMessage):
            self.keeper.receive(sender, message, way)

    def _take_copies(self, sender: str, sock: socket.socket) -> None:
        assert self.keeper is not None
        self.keeper.take_connection(sender, sock)

    def take_line(self, client: LocalClient, request: TakeLine) -> None:
        """Take a connection of another member that is to be a line."""
        if self.lines is None:
            client.send(Refused(request.request, "ShmjetError", "this member has no others"))
        else:
            self.lines.request(client, request)

    async def close(self) -> None:
        """Let go of the store."""
        self.requests.close()
        if self._disk is not None:
            await asyncio.to_thread(self._disk.close)
        if self.keeper is not None:
            await self.keeper.stop()
        if self.lines is not None:
            await self.lines.stop()
