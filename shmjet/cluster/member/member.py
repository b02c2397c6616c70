"""The member: the control plane of one host, an asyncio loop that never touches data and never runs user code.

It owns the instance's folder, the control segment, the arenas, the fork server and through it the workers. It takes
jobs from clients, over a Unix socket and, with a network, over TCP; the coordinator runs them, on all members of the
view, and others pass on what they are asked. A member that a client has started ends with that client.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import random
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shmjet.cluster.folder import InstanceFolder, base_folder, lock_storage, storage_errors, sweep
from shmjet.cluster.jobs.context import MemberServices
from shmjet.cluster.jobs.job_requests import JobRequests
from shmjet.cluster.jobs.lifecycle_requests import LifecycleRequests
from shmjet.cluster.jobs.member_loss import MemberLossHandler
from shmjet.cluster.jobs.registry import ParticipantRegistry
from shmjet.cluster.jobs.run_records import RunRecords
from shmjet.cluster.jobs.service import JobService
from shmjet.cluster.jobs.snapshot_keeper import SnapshotKeeper
from shmjet.cluster.jobs.snapshot_requests import SnapshotRequests
from shmjet.cluster.jobs.stored_runs import StoredRuns
from shmjet.cluster.member.cluster_of_runs import ClusterOfRuns
from shmjet.cluster.member.cluster_status import ClusterStatus
from shmjet.cluster.member.jobs_of_storage import JobsOfStorage
from shmjet.cluster.member.member_grid import MemberGrid
from shmjet.cluster.member.monitor_requests import MonitorRequests
from shmjet.cluster.member.networked_member import NetworkedMember, describe
from shmjet.cluster.member.observables import Observables
from shmjet.cluster.member.partitions import Partitions
from shmjet.cluster.member.request_dispatcher import RequestDispatcher
from shmjet.cluster.member.request_handlers import request_handlers
from shmjet.cluster.membership.peer_messages import (
    PartLogs,
)
from shmjet.cluster.membership.views import Peer, View
from shmjet.cluster.processes.arenas import ArenaPool
from shmjet.cluster.processes.worker_silence import WorkerSilence
from shmjet.cluster.processes.workers import Child, ForkServerProcess, Workers
from shmjet.cluster.protocol import (
    Attach,
    Done,
    GoOnWithout,
    Refused,
    Shutdown,
)
from shmjet.cluster.requests.attachments import Attachments
from shmjet.cluster.requests.client_connections import Clients, ForwardedClient, LocalClient
from shmjet.cluster.requests.log_relay import LogRelay
from shmjet.cluster.requests.named_jobs import NamedJobs
from shmjet.cluster.settings import SOCKET_NAME, MemberSettings
from shmjet.execution.messages import WorkerSettings
from shmjet.host.child_process import outlive
from shmjet.host.folders import usable_folder
from shmjet.ipc.background_tasks import BackgroundTasks
from shmjet.snapshots.store import SnapshotStore

if TYPE_CHECKING:
    from shmjet.cluster.membership.network import Network
    from shmjet.cluster.membership.network_user import NetworkUser

_STOP_S = 0.5
_SETTLE_S = 2.0
"""How long a new member waits for its share of the partitions before it says that it is up."""

logger = logging.getLogger("shmjet.member")


class Member:
    """One member.

    Args:
        settings: from the client that starts it.
        server: its fork server.
        network: makes its network, for a user of it; None for one alone.
        phase: takes what it does on its way up.
    """

    def __init__(
        self,
        settings: MemberSettings,
        server: ForkServerProcess,
        network: Callable[[NetworkUser], Network] | None = None,
        phase: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.settings = settings
        self._phase = phase
        self._uuid = uuid.uuid4().hex
        self._alone: View | None = None
        self._is_networked = network is not None
        self._storage = Path(settings.storage) if settings.storage else None
        self._storage_locks: tuple[int, ...] = ()
        if self._storage is not None:
            phase(f"taking the lock of its storage {self._storage}")
            self._storage_locks = lock_storage(self._storage)
        base = base_folder()
        phase(f"removing the folders of dead members in {base}")
        sweep(base)
        phase(f"making its folder in {base}")
        self.folder = InstanceFolder(base)
        phase("reserving shared memory")
        self._tasks = BackgroundTasks()
        self._named = NamedJobs(settings.jobs)
        self._make_workers(server)
        self._networked = NetworkedMember(settings, self.folder, self.workers, self._eventfd)
        self._network = None if network is None else network(self._networked)
        with contextlib.nullcontext() if self._storage is None else storage_errors(self._storage):
            if self._storage is not None:
                usable_folder(self._storage / "snapshots")  # no job has wanted it yet
            self._make_services()
            self._make_jobs()
        self._make_requests()
        self._jobs_of_storage = JobsOfStorage(
            self._jobs,
            self._network,
            self._stored_runs,
            has_storage=self._storage is not None,
            opened=self._grid.opened,
            serve_held=self._requests.serve_held,
        )
        if self._network is not None:
            self._open_to_members(self._network)
        self._stop = asyncio.Event()
        self._closing = contextlib.ExitStack()
        self._stopped_by: list[tuple[LocalClient | ForwardedClient, int]] = []

    def _make_workers(self, server: ForkServerProcess) -> None:
        """Make the workers, what relays their logs, and who looks after them; none of them runs yet."""
        settings = self.settings
        worker_settings = WorkerSettings(
            folder=str(self.folder.path),
            worker_count=len(settings.cores),
            member_address="local",
            idle_min_ns=settings.idle_min_ns,
            idle_max_ns=settings.idle_max_ns,
            spin=settings.spin,
            partition_count=settings.partition_count,
            steal_margin=settings.steal_margin,
            is_networked=self._is_networked,
        )
        self._eventfd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK) if self._is_networked else -1
        self._logs = LogRelay(self._pass_logs_on) if self._is_networked else None
        permits = None if settings.allow_code else self._named.__contains__
        participants = ParticipantRegistry(self._logs, lambda: self._silence.watch(), permits)
        network_fds = () if self._logs is None else (self._eventfd, self._logs.writer)
        self._participants = participants
        self.workers = Workers(settings.cores, worker_settings, server, participants.report, self._on_lost, network_fds)
        self._silence = WorkerSilence(self.workers.children, lambda: not participants.is_empty, participants.name_of)

    def _make_services(self) -> None:
        """Make what jobs and clients use on this member: arenas, attachments, snapshots, maps, lists, observables."""
        settings, participants, network = self.settings, self._participants, self._network
        folder = self._storage or self.folder.path
        count = settings.partition_count
        snapshots = SnapshotStore(
            folder / "snapshots", sync=self._storage is not None, before_valid=lambda: self._grid.sync()
        )
        self._partitions = Partitions(network, count, settings.backup_count, lambda: self.uuid)
        self._monitor = MonitorRequests(
            settings,
            self.workers.control,
            lambda: self._jobs.table.executions,
            participants,
            self._partitions.counts,
        )
        keeper = None if network is None else SnapshotKeeper(snapshots, network, settings.backup_count)
        self._services = MemberServices(
            workers=self.workers,
            arenas=ArenaPool(lambda pooled: self.workers.forget_arena(pooled.id, pooled.attached)),
            address="local",
            partition_count=count,
            ring_memory=settings.ring_memory,
            force_rings=settings.force_rings,
            stealing=settings.steal_margin is not None,
            name_of=participants.name_of,
            note_change=self._monitor.note_change,
            attachments=folder / "attachments",
            snapshots=snapshots,
            snapshot_keeper=keeper,
            snapshot_copies=None if keeper is None else keeper.copies,
            link=lambda: None if self._network is None else self._network.link,
            reach=None if network is None else network.reach,
        )
        self._attachments = Attachments(self._services.attachments, network, lambda job: self._jobs.has_job(job))
        self._phase(f"making its maps and lists in {self.folder.path}")
        try:
            self._grid = MemberGrid(
                self.folder.path / "grid",
                settings,
                network,
                me=lambda: self.uuid,
                members=self._members,
                pass_on=self._pass_on,
                phase=self._phase,
            )
        except BaseException:
            self.folder.remove()
            raise
        self._observables = Observables()

    def _make_jobs(self) -> None:
        """Make what coordinates jobs; with a storage their numbers go on where the last member ended."""
        network, records = self._network, None
        if self._storage is not None:
            self._phase(f"reading the records of jobs in its storage {self._storage}")
            records = RunRecords(self._storage / "jobs")
        self._stored_runs = None if network is None else StoredRuns(network, records)
        first = 1 if network is None else (random.SystemRandom().getrandbits(30) << 32) + 1
        used = 0 if records is None else max((record.run for record in records.all()), default=0)
        self._ids = itertools.count(max(first, used + 1))
        self._jobs = JobService(
            self._services,
            self._participants,
            self._attachments,
            self._named,
            cluster=ClusterOfRuns(network, self._view, lambda: self.uuid),
            owners=self._partitions.owners,
            next_number=lambda: next(self._ids),
            allow_code=self.settings.allow_code,
            restart_pause=self.settings.restart_pause,
            observables=self._observables,
            records=records,
            scale_up_delay=self.settings.scale_up_delay,
            taken_over=lambda: self._jobs_of_storage.taken_over(),
        )

    def _make_requests(self) -> None:
        """Make what answers requests, or brings them to the coordinator, and what knows the clients."""
        self._cluster_status = ClusterStatus(
            self.folder.path,
            self._members,
            lambda: self.uuid,
            self._post,
            self.workers.pids,
            lambda: self._monitor.status(self.uuid, self.address),
        )
        handlers = request_handlers(
            self._jobs.submissions,
            JobRequests(self._jobs.table, self._jobs.watchers),
            LifecycleRequests(self._jobs.table.run),
            SnapshotRequests(
                self._jobs.table.run,
                self._services.snapshots,
                self._services.snapshot_copies,
                is_left=lambda: self._requests.has_left,
            ),
            self._participants,
            self._attachments,
            self._grid.requests,
            self._observables,
            self._partitions,
            self._cluster_status,
            self._monitor,
            attach=self._attach,
            take_line=self._grid.take_line,
            shut_down=self._shut_down,
            go_on_without=self._go_on_without,
        )
        network, allow_code = self._network, self.settings.allow_code
        self._requests = RequestDispatcher(
            handlers, network, lambda: self.uuid, self._knows_runs, allow_code=allow_code
        )
        refuse = (lambda _: None) if network is None else network.refuse_clients
        self._clients = Clients(network, self._requests.serve, self._client_gone, refuse, allow_code=allow_code)

    def _open_to_members(self, network: Network) -> None:
        """Have what other members do and say reach what it is for."""
        forwarder, stored_runs, keeper = self._requests.forwarder, self._stored_runs, self._services.snapshot_keeper
        assert forwarder is not None
        assert stored_runs is not None
        assert keeper is not None
        assert self._grid.keeper is not None
        clears = self._grid.keeper.forget, self._observables.clear
        self._networked.open(
            network,
            self._jobs,
            self._grid,
            self._requests,
            self._clients,
            MemberLossHandler(self._jobs, self._clients, forwarder, *clears),
            attachments=self._attachments,
            keeper=keeper,
            stored_runs=stored_runs,
            jobs_of_storage=self._jobs_of_storage,
            cluster_status=self._cluster_status,
            note_change=self._monitor.note_change,
        )

    def _knows_runs(self) -> bool:
        return self._jobs_of_storage.has_restored and not self._jobs.is_taking_over

    def _pass_on(self, member: str, client: LocalClient, request: Any) -> None:
        assert self._requests.forwarder is not None
        self._requests.forwarder.pass_to(member, client, request)

    # -- life ---------------------------------------------------------------------------------------------------

    async def start(self) -> bool:
        """Come up: serve clients of this host, fork the workers, join or found a cluster.

        Returns:
            False when it has been told to stop before it was up; then `close` it.

        Raises:
            OSError: the port cannot be opened.
            ShmjetError: the cluster does not take this member.
        """
        self._phase("opening its socket and forking its workers")
        loop = asyncio.get_running_loop()
        self._closing.callback(self._clients.listen(self.folder.path / SOCKET_NAME))
        for number in self.settings.stop_signals:
            loop.add_signal_handler(number, self._stop.set)
        if self._logs is not None:
            self._logs.open()
        self.workers.start()
        self._watch_starter(loop)
        if self._grid.keeper is not None:
            self._grid.keeper.start()
        if self._network is not None:
            joining = asyncio.ensure_future(self._join(self._network))
            stopped = asyncio.ensure_future(self._stop.wait())
            try:
                await asyncio.wait((joining, stopped), return_when=asyncio.FIRST_COMPLETED)
                if joining.done():
                    joining.result()
            finally:
                joining.cancel()
                stopped.cancel()
            self._services.address = self._network.address
            if self._grid.keeper is not None and not self._stop.is_set():
                await self._grid.keeper.settled(_SETTLE_S)
        if self._stop.is_set():  # it may not have joined yet
            return False
        table = None if self._network is None else self._network.table
        if table is not None and table.is_waiting:
            going_on = self._tasks.start(self._jobs_of_storage.restore_when_opened())
            if not (table.awaited and self._is_coordinator):  # this one may be the last that was missing
                await asyncio.wait((going_on,), timeout=_SETTLE_S)
        else:
            if self._storage is not None:
                self._phase(f"going on with the jobs in its storage {self._storage}")
            self._jobs_of_storage.restore()
        return not self._stop.is_set()

    @property
    def _is_coordinator(self) -> bool:
        return self._network is None or self._network.is_coordinator

    async def _join(self, network: Network) -> None:
        settings = self.settings
        self._phase(f"opening its port on {settings.bind}")
        await network.open_port()
        asked = f" {', '.join(settings.seeds)}" if settings.seeds else ""
        self._phase(f"looking for its cluster{asked}, or joining it")
        await network.join()

    def _watch_starter(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self.settings.client_pid:
            return
        try:
            client = os.pidfd_open(self.settings.client_pid)
        except ProcessLookupError:  # it died while this member was starting
            self._stop.set()
        else:
            loop.add_reader(client, self._stop.set)
            outlive()  # the thread that started this member may end from now on; its process may not
            self._closing.callback(os.close, client)
            self._closing.callback(loop.remove_reader, client)

    @property
    def uuid(self) -> str:
        """This member's identity now; before its port is open, others do not know it."""
        network = self._network
        return self._uuid if network is None or not network.has_identity else network.me.uuid

    @property
    def address(self) -> str:
        """Where others reach it."""
        return self._services.address

    async def serve(self) -> None:
        """Serve until a client asks for the end, or the client that started this member is gone."""
        await self._stop.wait()
        await self.close()

    async def close(self) -> None:
        """Leave the cluster, cancel what runs, end all processes and remove the folder."""
        self._closing.close()
        await self._jobs.leave()
        if self._grid.keeper is not None:
            await self._grid.keeper.leave()
        goes_on = len(self._members()) > 1
        if self._network is not None:
            await self._network.leave()
        self._requests.has_left = goes_on
        self._jobs.end_all(goes_on=goes_on)
        self._silence.end()
        await self.workers.close(_STOP_S)
        self._monitor.close()
        if self._network is not None:
            await self._network.stop()
            os.close(self._eventfd)
        if self._logs is not None:
            self._logs.close()
        for client, request in self._stopped_by:
            client.send(Done(request))
        self._services.arenas.close()
        if self._services.snapshot_keeper is not None:
            self._services.snapshot_keeper.stop()
        await self._grid.close()
        self.folder.remove()
        for fd in self._storage_locks:
            os.close(fd)
        self._clients.close()

    # -- clients ------------------------------------------------------------------------------------------------

    def _shut_down(self, client: LocalClient | ForwardedClient, request: Shutdown) -> None:
        if client.is_here:
            self._stopped_by.append((client, request.request))
            self._stop.set()
        else:
            text = "only a process of the same host and user can end a member"
            client.send(Refused(request.request, "AuthenticationError", text))

    def _go_on_without(self, client: LocalClient | ForwardedClient, request: GoOnWithout) -> None:
        if self._network is not None and self._network.waits_for:
            self._network.go_on_without()
            client.send(Done(request.request))
        else:
            client.send(Refused(request.request, "ShmjetError", "this cluster waits for no member"))

    def _client_gone(self, client: LocalClient | ForwardedClient) -> None:
        self._jobs.watchers.client_gone(client)
        self._observables.client_gone(client)
        self._requests.client_gone(client)

    def _attach(self, client: LocalClient, request: Attach) -> None:
        self._tasks.start(self._attach_when_forked(client, request.request))

    async def _attach_when_forked(self, client: LocalClient, request: int) -> None:
        pids = await self.workers.pids()
        try:
            self._monitor.attach(client, request, self.uuid, pids.workers, self.address)
        except OSError as error:  # there is no /proc, say, or no descriptor
            client.send(Refused(request, "ShmjetError", f"the member (pid {os.getpid()}) cannot be watched: {error}"))

    def _members(self) -> tuple[Peer, ...]:
        """All members that this one knows of, the oldest first."""
        return self._view().members

    def _post(self, identity: str, message: object) -> None:
        if self._network is not None:
            self._network.send(identity, message)

    # -- executions ---------------------------------------------------------------------------------------------

    def _view(self) -> View:
        """Return the view in force; of a member without one, a view with it alone."""
        view = None if self._network is None else self._network.view
        if view is not None:
            return view
        if self._alone is None or self._alone.coordinator.address != self.address:
            self._alone = View(0, (describe(self.settings, self.uuid, self.address),), (0,))
        return self._alone

    def _pass_logs_on(self, execution: int, records: list[bytes], dropped: int) -> None:
        """Have log records of processors here reach who has the execution run: the coordinator knows."""
        leader = self._jobs.participants.leader_of(execution)
        if leader is None:
            self._jobs.logged(execution, self.address, records, dropped)
        elif self._network is not None:
            self._network.send(leader, PartLogs(execution, records, dropped))

    def _on_lost(self, child: Child) -> None:
        self._services.arenas.worker_gone(child.index)
        self._jobs.participants.child_lost(child)
        self._grid.worker_died(child.index)
