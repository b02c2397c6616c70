"""The member: the control plane of one host, an asyncio loop that never touches data and never runs user code.

It owns the instance's folder, the control segment, the arenas, the fork server and through it the workers; it takes
jobs from clients over a Unix socket and ends with the process that started it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import signal
import socket
import struct
import sys
import uuid
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

import msgspec

from shmjet.cluster.arenas import ArenaPool
from shmjet.cluster.executions import MasterExecution, Phase
from shmjet.cluster.folder import InstanceFolder, base_folder, sweep
from shmjet.cluster.memory_policy import prefer_nodes
from shmjet.cluster.protocol import (
    Attach,
    CancelExecution,
    Describe,
    Done,
    Execute,
    Executing,
    ExecutionChanged,
    GetJob,
    GetMetrics,
    JobReply,
    JobRow,
    JobsReply,
    ListJobs,
    Look,
    MemberReply,
    MetricsReply,
    Refused,
    Request,
    Shutdown,
    Submission,
    TakeArena,
    Visit,
    Visiting,
)
from shmjet.cluster.settings import KEPT_CODES, KEPT_RESULTS, SOCKET_NAME, MemberSettings, Started, StartFailed
from shmjet.cluster.site import MemberServices
from shmjet.cluster.watching import Watched
from shmjet.cluster.workers import Child, ForkServerProcess, Workers
from shmjet.core import JobStatus
from shmjet.execution import control
from shmjet.execution.child import name_process
from shmjet.execution.large import Large
from shmjet.execution.logs import MEMBER, send_logs
from shmjet.execution.messages import WorkerSettings
from shmjet.execution.metrics import NO_METRICS, Metrics
from shmjet.execution.stacks import offer_stacks
from shmjet.grid import Grid
from shmjet.net.loop_channel import LoopChannel

_STOP_S = 0.5

logger = logging.getLogger("shmjet.member")


@dataclass(eq=False)
class JobRecord:
    """A job with its executions, the newest last."""

    submission: Submission
    code: Large
    executions: list[MasterExecution] = field(default_factory=list)

    @property
    def status(self) -> JobStatus:
        """The status of the newest execution."""
        return self.executions[-1].status if self.executions else JobStatus.NOT_RUNNING


class Member:
    """One member.

    Args:
        settings: from the client that starts it.
        server: its fork server.
    """

    def __init__(self, settings: MemberSettings, server: ForkServerProcess) -> None:
        self.settings = settings
        self.uuid = str(uuid.uuid4())
        self.address = "local"
        base = base_folder()
        sweep(base)
        self.folder = InstanceFolder(base)
        worker_settings = WorkerSettings(
            folder=str(self.folder.path),
            worker_count=len(settings.cores),
            member_address=self.address,
            idle_min_ns=settings.idle_min_ns,
            idle_max_ns=settings.idle_max_ns,
            spin=settings.spin,
            partition_count=settings.partition_count,
            steal_margin=settings.steal_margin,
        )
        self.workers = Workers(settings.cores, worker_settings, server, self._on_report, self._on_lost)
        self._executions: dict[int, MasterExecution] = {}
        self._watched = Watched(settings, self.uuid, self.workers, self._executions)
        self._services = MemberServices(
            self.workers,
            ArenaPool(),
            self.address,
            settings.partition_count,
            settings.ring_memory,
            settings.force_rings,
            settings.steal_margin is not None,
            self._name_of,
            self._watched.note_change,
        )
        self._grid_folder = self.folder.path / "grid"
        Grid.create(self._grid_folder, settings.partition_count)
        self._jobs: dict[str, JobRecord] = {}
        self._active: set[MasterExecution] = set()
        self._ids = itertools.count(1)
        self._clients: list[LoopChannel] = []
        self._stop = asyncio.Event()
        self._closing = contextlib.ExitStack()
        self._stopped_by: list[tuple[LoopChannel, int]] = []
        self._tasks: set[asyncio.Future[None]] = set()

    # -- life ---------------------------------------------------------------------------------------------------

    async def run(self, ready: int) -> None:
        """Serve until a client asks for the end or the client that started this member is gone.

        Args:
            ready: descriptor on which to say that the member is up; closed then.
        """
        offer_stacks(self.folder.path)
        loop = asyncio.get_running_loop()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(self.folder.path / SOCKET_NAME))
        listener.listen()
        listener.setblocking(False)
        loop.add_reader(listener.fileno(), self._accept, listener)
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._stop.set)
        self.workers.start()
        try:
            client = os.pidfd_open(self.settings.client_pid)
        except ProcessLookupError:  # it died while this member was starting
            self._stop.set()
        else:
            loop.add_reader(client, self._stop.set)
            self._closing.callback(os.close, client)
            self._closing.callback(loop.remove_reader, client)
        with contextlib.suppress(BrokenPipeError):
            os.write(ready, msgspec.json.encode(Started(str(self.folder.path), self.uuid, os.getpid())))
        os.close(ready)
        await self._stop.wait()
        self._closing.close()
        loop.remove_reader(listener.fileno())
        listener.close()
        await self._close()

    async def _close(self) -> None:
        for execution in list(self._active):
            execution.cancel()
        await self.workers.close(_STOP_S)
        self._watched.close()
        for channel, request in self._stopped_by:
            channel.send(Done(request))
        self._services.arenas.close()
        self.folder.remove()
        for channel in list(self._clients):
            channel.close()

    # -- clients ------------------------------------------------------------------------------------------------

    def _accept(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        _, uid, _ = struct.unpack("3i", credentials)
        if uid not in (os.getuid(), 0):
            logger.warning("refused a client of user %d", uid)
            connection.close()
            return
        channel: LoopChannel

        def received(message: Any, fds: list[int]) -> None:
            self._serve(channel, message, fds)
            for fd in fds:
                os.close(fd)

        def closed() -> None:
            self._clients.remove(channel)

        channel = LoopChannel(connection, Request, received, closed)
        channel.open()
        self._clients.append(channel)

    def _serve(self, channel: LoopChannel, request: Any, fds: list[int]) -> None:
        """Do what a client asks for; of the descriptors that came with it those are taken out that are kept."""
        try:
            match request:
                case Execute():
                    self._execute(channel, request, fds)
                case CancelExecution():
                    execution = self._executions.get(request.execution_id)
                    if execution is not None:
                        execution.cancel()
                    channel.send(Done(request.request))
                case GetMetrics():
                    channel.send(MetricsReply(request.request, self._metrics(request.execution_id)))
                case ListJobs():
                    channel.send(JobsReply(request.request, self._rows()))
                case Describe():
                    self._start_task(self._describe(channel, request.request))
                case GetJob():
                    channel.send(self._job_reply(request))
                case Attach():
                    self._start_task(self._watched.attach(channel, request.request))
                case Look():
                    self._watched.look(channel, request.request)
                case TakeArena():
                    self._watched.send_arena(channel, request)
                case Visit():
                    self._visit(channel, request)
                case Shutdown():
                    self._stopped_by.append((channel, request.request))
                    self._stop.set()
        except Exception as error:
            logger.exception("request %s failed", type(request).__name__)
            channel.send(Refused(request.request, "ShmjetError", f"{type(error).__name__}: {error}"))

    def _execute(self, channel: LoopChannel, request: Execute, fds: list[int]) -> None:
        record, submission = self._jobs.get(request.job_id), request.submission
        if record is None and submission is not None:
            code = Large.received(submission.code, submission.code_size, fds)
            record = self._jobs[request.job_id] = JobRecord(submission, code)
            fds.clear()
        if record is None:
            channel.send(Refused(request.request, "JobNotFoundError", f"there is no job {request.job_id!r}"))
            return
        name = record.submission.name
        if name is not None:
            for execution in self._active:
                other = execution.job
                if other.name == name and other is not record.submission and not execution.status.is_terminal:
                    text = f"a job named {name!r} is running (id {other.job_id}); choose another name or cancel it"
                    channel.send(Refused(request.request, "JobAlreadyExistsError", text))
                    return

        answered = False

        def answer(execution: MasterExecution) -> None:
            nonlocal answered
            if not answered:
                answered = True
                channel.queue(Executing(request.request, execution.id))

        def changed(execution: MasterExecution) -> None:
            answer(execution)
            channel.send(
                ExecutionChanged(
                    execution.id, execution.status.value, cancelled=execution.cancelled, failure=execution.failure
                )
            )

        execution = MasterExecution(
            next(self._ids), record.submission, record.code, self._services, self._first_worker(), changed, self._over
        )
        self._executions[execution.id] = execution
        self._active.add(execution)
        record.executions.append(execution)
        execution.start()  # first, because the workers have more to do than the client
        if not request.patient:
            answer(execution)
            channel.flush()

    def _visit(self, channel: LoopChannel, request: Visit) -> None:
        """Give the asker, whose user was looked at when it connected, a socket to the processor behind a door."""

        def answer(sock: socket.socket | None) -> None:
            if sock is None:
                text = f"execution {request.execution_id} has ended; nobody is behind its door {request.door!r}"
                channel.send(Refused(request.request, "ShmjetError", text))
            else:
                channel.send(Visiting(request.request), (sock.fileno(),))
                channel.when_flushed([sock.detach()])

        execution = self._executions.get(request.execution_id)
        if execution is None:
            answer(None)
        else:
            execution.visitors.visit(execution.id, request.door, answer)

    def _first_worker(self) -> int:
        """Place a lone job from worker 0 on, further ones from the worker with the fewest tasklets."""
        if not self._active:
            return 0
        loads = [(child.block.words[control.TASKLETS], child.index) for child in self.workers.workers]
        return min(loads)[1]

    def _over(self, execution: MasterExecution) -> None:
        """Take an execution that has ended everywhere; of the ended ones the last `KEPT_RESULTS` are remembered."""
        self._active.discard(execution)
        while len(self._executions) - len(self._active) > KEPT_RESULTS:
            self._forget(next(e for e in self._executions.values() if e.phase is Phase.OVER))
        if execution.code.fds:
            large = [record for record in self._jobs.values() if record.code.fds]
            ended = [record for record in large if all(e.phase is Phase.OVER for e in record.executions)]
            if len(large) > KEPT_CODES and ended:
                for old in list(ended[0].executions):
                    self._forget(old)

    def _forget(self, execution: MasterExecution) -> None:
        del self._executions[execution.id]
        record = self._jobs[execution.job.job_id]
        record.executions.remove(execution)
        if not record.executions:
            record.code.close()
            del self._jobs[execution.job.job_id]

    def _metrics(self, execution_id: int) -> Metrics:
        execution = self._executions.get(execution_id)
        return NO_METRICS if execution is None else execution.metrics()

    def _name_of(self, execution_id: int) -> str | None:
        execution = self._executions.get(execution_id)
        return None if execution is None else execution.name

    def _rows(self) -> list[JobRow]:
        return [
            JobRow(
                job_id,
                record.submission.name,
                record.status.value,
                record.executions[-1].id if record.executions else None,
                record.submission.config,
            )
            for job_id, record in self._jobs.items()
        ]

    async def _describe(self, channel: LoopChannel, request: int) -> None:
        cores = sorted({core for core in self.settings.cores if core is not None}) or self.settings.allowed
        pids = await self.workers.pids()
        channel.send(MemberReply(request, self.uuid, self.address, os.getpid(), cores, pids))

    def _job_reply(self, request: GetJob) -> JobReply | Refused:
        record = self._jobs.get(request.job_id)
        if record is None:
            return Refused(request.request, "JobNotFoundError", f"there is no job {request.job_id!r}")
        newest = record.executions[-1] if record.executions else None
        failure = None if newest is None or newest.cancelled else newest.failure
        if failure is not None:
            failure = msgspec.structs.replace(failure, exception=None)
        return JobReply(request.request, record.submission.shape, failure)

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- children -----------------------------------------------------------------------------------------------

    def _on_report(self, child: Child, message: Any, fds: list[int]) -> None:
        execution = self._executions.get(message.execution_id)
        if execution is not None:
            execution.report(child, message, fds)

    def _on_lost(self, child: Child) -> None:
        with Grid.open(self._grid_folder) as grid:
            grid.after_worker_death()
        self._services.arenas.worker_gone(child.index)
        for execution in list(self._active):
            execution.child_lost(child)


def main(settings: dict[str, Any], ready: int, logs: int, server_pid: int, server: socket.socket) -> None:
    """Be a member until it is asked to end.

    Args:
        settings: the fields of `MemberSettings`.
        ready: descriptor on which to say that the member is up, or why not.
        logs: descriptor of the socket for log records.
        server_pid: of its fork server, a child of this process.
        server: leads to it.
    """
    name_process("shmjet-member")
    send_logs(socket.socket(fileno=logs), MEMBER, *settings["log_levels"])
    try:
        converted = msgspec.convert(settings, MemberSettings)
        prefer_nodes(converted.memory_nodes)
        if converted.note:
            logger.info(converted.note)

        async def serve() -> None:
            await Member(converted, ForkServerProcess(server_pid, server)).run(ready)

        asyncio.run(serve())
    except Exception as error:
        logger.exception("the member failed")
        with contextlib.suppress(OSError):
            os.write(ready, msgspec.json.encode(StartFailed(f"{type(error).__name__}: {error}")))
        sys.exit(1)
