"""A member as its network sees it: how others know it, and what follows when members come, go or say something.

See `shmjet.cluster.membership.network_user.NetworkUser`. A member alone has none of it.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from shmjet.cluster.folder import InstanceFolder
from shmjet.cluster.jobs.member_loss import MemberLossHandler
from shmjet.cluster.jobs.service import JobService
from shmjet.cluster.jobs.snapshot_keeper import SnapshotKeeper
from shmjet.cluster.jobs.stored_runs import StoredRuns, StoredRunsMessage
from shmjet.cluster.member.cluster_status import ClusterStatus
from shmjet.cluster.member.jobs_of_storage import JobsOfStorage
from shmjet.cluster.member.member_grid import MemberGrid
from shmjet.cluster.member.request_dispatcher import RequestDispatcher
from shmjet.cluster.membership.events import ViewInstalled
from shmjet.cluster.membership.peer_messages import (
    AskFile,
    AskReport,
    AskSnapshots,
    Backward,
    Bounced,
    ClientGone,
    FilePiece,
    ForgetSnapshots,
    Forward,
    KeeperMessage,
    KeepSnapshot,
    Report,
    SnapshotFiles,
    SnapshotKept,
    SyncMaps,
)
from shmjet.cluster.membership.views import Peer
from shmjet.cluster.partitions.recovery import StoredTable
from shmjet.cluster.processes.workers import Workers
from shmjet.cluster.protocol import MembersAre
from shmjet.cluster.requests.attachments import Attachments
from shmjet.cluster.requests.client_connections import Clients
from shmjet.cluster.settings import MemberSettings
from shmjet.execution import control

if TYPE_CHECKING:
    from shmjet.cluster.membership.network import Network

logger = logging.getLogger("shmjet.member")


class NetworkedMember:
    """See the module.

    Args:
        settings: of the member.
        folder: its folder.
        workers: its workers.
        eventfd: wakes its link.
    """

    def __init__(self, settings: MemberSettings, folder: InstanceFolder, workers: Workers, eventfd: int) -> None:
        self.folder = folder
        self._settings = settings
        self._workers = workers
        self._eventfd = eventfd

    def open(
        self,
        network: Network,
        jobs: JobService,
        grid: MemberGrid,
        requests: RequestDispatcher,
        clients: Clients,
        loss: MemberLossHandler,
        *,
        attachments: Attachments,
        keeper: SnapshotKeeper,
        stored_runs: StoredRuns,
        jobs_of_storage: JobsOfStorage,
        cluster_status: ClusterStatus,
        note_change: Callable[[], None],
    ) -> None:
        """Take what of the member hears of its network, before the network is there.

        Args:
            network: of the member.
            jobs: of the member.
            grid: its maps and lists.
            requests: has requests answered.
            clients: of the member.
            loss: fails what a lost member had a part in.
            attachments: the files attached to jobs.
            keeper: of copies of snapshots.
            stored_runs: on the disks of members.
            jobs_of_storage: goes on with these.
            cluster_status: collects reports about members.
            note_change: called when a process that monitors the member is to look.
        """
        assert requests.forwarder is not None
        assert grid.keeper is not None
        assert grid.lines is not None
        self._network = network
        self._jobs = jobs
        self._grid = grid
        self._partitions = grid.keeper
        self._lines = grid.lines
        self._requests = requests
        self._forwarder = requests.forwarder
        self._clients = clients
        self._loss = loss
        self._attachments = attachments
        self._keeper = keeper
        self._stored_runs = stored_runs
        self._jobs_of_storage = jobs_of_storage
        self._cluster_status = cluster_status
        self._note_change = note_change

    # -- how others know it -------------------------------------------------------------------------------------

    def peer(self, identity: str, address: str) -> Peer:
        """See `NetworkUser`."""
        return describe(self._settings, identity, address)

    @property
    def stored_table(self) -> StoredTable | None:
        """See `NetworkUser`."""
        return self._grid.stored_table

    def link_setup(self) -> tuple[int, int, list[int]]:
        """See `NetworkUser`."""
        segment = self._workers.control
        return segment.size, control.link_offset(len(self._settings.cores)), [segment.fd, self._eventfd]

    # -- members that come and go -------------------------------------------------------------------------------

    def view_changed(self, event: ViewInstalled) -> None:
        """See `NetworkUser`."""
        me = self._network.me.uuid
        for peer in (*event.lost, *event.left):
            self._forwarder.member_lost(peer.uuid, f"member {peer.address} is gone")
            self._cluster_status.member_lost(peer.uuid)
            self._partitions.connection_lost(peer.uuid)
        self._loss.view_changed(event, me)
        for peer in (*event.lost, *event.left):
            self._gives_no_answer(peer, f"member {peer.address} is gone")
        self._jobs.view_changed(event.old, event.view, has_joined=bool(event.joined))
        if event.view.coordinator.uuid == me:
            self._jobs.look_after_snapshots()
        self._lines.view_changed()
        self._partitions.look()

    def table_changed(self) -> None:
        """See `NetworkUser`."""
        waits_for = self._network.waits_for
        if waits_for != self._requests.waits_for:
            self._requests.waits_for = waits_for
            logger.warning("%s", waits_for or "maps and lists are there, as they were on disk")
        self._partitions.look()
        self._note_change()
        self._jobs_of_storage.table_changed()

    def connection_lost(self, peer: Peer, why: str) -> None:
        """See `NetworkUser`."""
        text = f"the connection to member {peer.address} was lost ({why})"
        self._forwarder.member_lost(peer.uuid, text)
        self._partitions.connection_lost(peer.uuid)
        self._loss.connection_lost(peer, why, self._network.view)
        self._gives_no_answer(peer, text)

    def stored_runs_wanted(self, member: str) -> None:
        """See `NetworkUser`."""
        self._jobs_of_storage.wanted(member)

    def _gives_no_answer(self, peer: Peer, why: str) -> None:
        """Have no question wait for a member."""
        self._keeper.member_gone(peer.uuid, why)
        self._stored_runs.member_gone(peer.uuid, why)

    def connected(self, identity: str) -> None:
        """See `NetworkUser`."""
        self._jobs.connected(identity)

    def isolated(self, lost: tuple[Peer, ...], others: tuple[Peer, ...]) -> None:
        """See `NetworkUser`."""
        self._loss.isolated(lost, others, self._network.address)
        for peer in others:
            self._gives_no_answer(peer, f"this member has lost touch with {peer.address}")
        self._partitions.look()

    def fenced(self, others: tuple[Peer, ...], why: str) -> None:
        """See `NetworkUser`."""
        self._loss.fenced(others, why, self._network.address)
        self._jobs_of_storage.fenced()
        for peer in others:
            self._gives_no_answer(peer, f"this member was removed, because {why}")

    # -- what comes over the network ----------------------------------------------------------------------------

    def peer_message(self, sender: str, message: Any) -> None:
        """See `NetworkUser`."""
        match message:
            case Forward():
                self._clients.take(sender, message)
            case Backward():
                self._forwarder.answered(message.client, message.request)
                self._clients.backward(message)
            case Bounced():
                self._forwarder.bounced(message)
            case ClientGone():
                self._clients.forwarded_gone(sender, message)
            case (
                AskFile()
                | FilePiece()
                | KeepSnapshot()
                | SnapshotKept()
                | SyncMaps()
                | AskSnapshots()
                | SnapshotFiles()
                | ForgetSnapshots()
            ):
                self._keeper.receive(sender, message)
            case AskReport() | Report():
                self._cluster_status.take(sender, message)
            case _ if isinstance(message, StoredRunsMessage):
                self._stored_runs.receive(sender, message)
            case _ if isinstance(message, KeeperMessage):
                self._grid.receive(sender, message)
            case _ if not self._attachments.take(message):
                self._jobs.receive(sender, message, self._network.view, self._network.me)

    def client_accepted(self, fd: int, address: str, leftover: bytes) -> None:
        """See `NetworkUser`."""
        logger.debug("client %s", address)
        client = self._clients.add(socket.socket(fileno=fd), leftover, address, is_here=False)
        view = self._network.view
        client.send(MembersAre([self._network.address] if view is None else [peer.address for peer in view.members]))


def describe(settings: MemberSettings, identity: str, address: str) -> Peer:
    """Return how the member of this process is described to others."""
    cores = sorted({core for core in settings.cores if core is not None}) or settings.allowed
    return Peer(identity, address, os.getpid(), tuple(cores), len(settings.cores), bool(settings.storage))
