"""The member's workers and carriers: forked through the fork server, watched, replaced when they die.

A death is noticed by the end of the process' channel; the fork server tells the signal a moment later.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import resource
import select
import signal
import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from shmjet.cluster.processes.fork_server_silence import ServerSilence
from shmjet.cluster.protocol import ChildPids
from shmjet.execution.control import BLOCK_SIZE, WorkerControl, control_size
from shmjet.execution.failure import worker_lost
from shmjet.execution.messages import Broken, Exited, Failure, Forget, Fork, Forked, Hello, Report, Stop, WorkerSettings
from shmjet.host.patience import has_ended, is_stopped
from shmjet.ipc.background_tasks import BackgroundTasks
from shmjet.ipc.loop_channel import LoopChannel
from shmjet.ring.arena import Arena

_STATUS_WAIT_S = 0.25
_LATE_STATUS_S = 1.0
_END_S = 1.0
_AGAIN_S = 0.1
_PIDS_S = 10.0
_LOOK_S = 1.0

logger = logging.getLogger("shmjet.member")


@dataclass(eq=False)
class Child:
    """A worker or carrier process.

    `index` is its endpoint in plans. `killed_because` says why the member killed it, if it did, and
    `last_words` why it has exited, if it could tell. `end` says how it ended where there is no status.
    """

    index: int
    core: int | None
    block: WorkerControl
    channel: LoopChannel
    is_carrier: bool
    pid: int = 0
    status: int | None = None
    up: bool = False
    lost: bool = False
    stopping: bool = False
    killed_because: str | None = None
    last_words: str | None = None
    end: str | None = None
    forked: asyncio.Event = field(default_factory=asyncio.Event)
    exited: asyncio.Event = field(default_factory=asyncio.Event)

    def send(self, message: object, fds: Sequence[int] = ()) -> None:
        """Queue a message and wake the process for it."""
        if not self.lost:
            self.channel.send(message, fds)
            self.block.doorbell.post()

    def loss_of(self, vertices: list[str]) -> Failure:
        """Describe the death of the process.

        Args:
            vertices: of which it ran processors.
        """
        status = self.status
        if status is None and self.killed_because is not None:
            status = -signal.SIGKILL
        return worker_lost(
            worker=self.index,
            pid=self.pid,
            signal=-status if status is not None and status < 0 else 0,
            status=status,
            vertices=vertices,
            carrier=self.is_carrier,
            because=self.killed_because,
            last_words=self.last_words,
            end=self.end,
        )


class ForkServerProcess:
    """The fork server as its member sees it: a child process, and a socket to it."""

    def __init__(self, pid: int, sock: socket.socket) -> None:
        self.pid = pid
        self.socket = sock

    async def end(self, grace_s: float) -> None:
        """Wait for its end, which follows that of the socket, and kill it when it takes longer than `grace_s`."""
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        fd = os.pidfd_open(self.pid)
        try:
            loop.add_reader(fd, ended.set)
            await asyncio.wait_for(ended.wait(), grace_s)
        except TimeoutError:  # it does not come back from something, or is stopped
            os.kill(self.pid, signal.SIGKILL)
        finally:
            loop.remove_reader(fd)
            os.close(fd)
        os.waitpid(self.pid, 0)


class Workers:
    """All children of a member.

    Args:
        cores: the core of each worker; None for a worker that is not pinned.
        settings: passed to every child.
        server: forks them.
        on_report: called with (child, message, descriptors) for what children report.
        on_lost: called with the child when a process has died unasked, once its status is known or overdue.
        network_fds: what wakes the member's link process and what takes log records for clients elsewhere, for all
            children; empty where there is no network.
    """

    def __init__(
        self,
        cores: Sequence[int | None],
        settings: WorkerSettings,
        server: ForkServerProcess,
        on_report: Callable[[Child, Any, list[int]], None],
        on_lost: Callable[[Child], None],
        network_fds: Sequence[int] = (),
    ) -> None:
        self._network_fds = list(network_fds)
        self._settings = msgspec.msgpack.encode(settings)
        self._on_report = on_report
        self._on_lost = on_lost
        self.cores = tuple(cores)
        self._tokens = itertools.count(1)
        self._by_token: dict[int, Child] = {}
        self._by_pid: dict[int, Child] = {}
        self._closing = False
        self._losses = BackgroundTasks(
            lambda error: logger.error("the loss of a worker could not be dealt with", exc_info=error)
        )
        self.control = Arena.create(control_size(len(cores)), label="control")
        self._server = server
        self._server_channel = LoopChannel(server.socket, Forked | Exited, self._on_server, self._on_server_closed)
        self._silence = ServerSilence(server.pid, lambda: len(self._by_token), self._not_forked)
        self.workers: list[Child] = []

    def start(self) -> None:
        """Fork all workers; needs the running event loop."""
        self._server_channel.open()
        self.workers = [self._fork_worker(index) for index in range(len(self.cores))]

    def _fork_worker(self, index: int) -> Child:
        block = WorkerControl(self.control.memory, index * BLOCK_SIZE)
        block.reset()
        return self._fork(index, self.cores[index], block, (), 0, 0)

    def fork_carrier(self, index: int, arena: Arena, block_offset: int) -> Child:
        """Fork a carrier whose control block lies in an execution's arena; it is not pinned."""
        block = WorkerControl(arena.memory, block_offset)
        return self._fork(index, None, block, (arena.fd,), arena.size, block_offset, is_carrier=True)

    def _fork(
        self,
        index: int,
        core: int | None,
        block: WorkerControl,
        fds: Sequence[int],
        arena_size: int,
        offset: int,
        is_carrier: bool = False,
    ) -> Child:
        own: list[int] = []
        try:
            for fd in fds:
                own.append(os.dup(fd))
            ours, theirs = socket.socketpair()
        except OSError as error:
            for fd in own:
                os.close(fd)
            raise _no_descriptor(error, "carrier" if is_carrier else f"worker {index}") from error
        child: Child

        def report(message: Any, fds: list[int]) -> None:
            if isinstance(message, Hello):
                child.up = True
            elif isinstance(message, Broken):
                child.last_words = message.text
            else:
                self._on_report(child, message, fds)

        def closed() -> None:
            self._channel_closed(child)

        child = Child(index, core, block, LoopChannel(ours, Report, report, closed, block.doorbell.post), is_carrier)
        token = next(self._tokens)
        self._by_token[token] = child
        request = Fork(token, index, core, self.control.size, self._settings, arena_size, offset)
        self._server_channel.send(request, [theirs.fileno(), self.control.fd, *own, *self._network_fds])
        self._server_channel.when_flushed([theirs.detach(), *own])
        child.channel.open()
        self._silence.watch()
        return child

    # -- what the fork server says ------------------------------------------------------------------------------

    def _on_server(self, message: Any, _: list[int]) -> None:
        if isinstance(message, Forked):
            child = self._by_token.pop(message.token)
            child.pid = message.pid
            self._by_pid[message.pid] = child
            child.forked.set()
            self._silence.reset()
        elif isinstance(message, Exited):
            gone = self._by_pid.pop(message.pid, None)
            if gone is not None:
                gone.status = message.status
                gone.exited.set()

    def _on_server_closed(self) -> None:
        if not self._closing:
            logger.critical("the fork server is gone; this member cannot go on")
            os._exit(1)

    def children(self) -> list[Child]:
        """Return all processes that have been forked and have not ended."""
        return list(self._by_pid.values())

    async def pids(self) -> ChildPids:
        """Return the pids of all workers and carriers.

        Those of new workers are waited for, as long as the fork server tells them within `_PIDS_S`.
        """
        forked = asyncio.gather(*(child.forked.wait() for child in self.workers))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(forked, _PIDS_S)
        carriers = [child.pid for child in self._by_pid.values() if child.is_carrier and child.pid > 0]
        return ChildPids([child.pid for child in self.workers if child.pid > 0], carriers)

    async def ended(self, child: Child) -> None:
        """Wait for the end of a process, from the fork server or from the kernel."""
        while child.pid and not child.exited.is_set() and not has_ended(child.pid):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(child.exited.wait(), _LOOK_S)

    # -- deaths -------------------------------------------------------------------------------------------------

    def _channel_closed(self, child: Child) -> None:
        if child.lost:
            return
        child.lost = True
        child.forked.set()  # if it could not be forked, no caller needs to wait for it
        child.channel.close()
        if not child.stopping and not self._closing:
            self._losses.start(self._report_loss(child))

    async def _report_loss(self, child: Child) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(child.exited.wait(), _STATUS_WAIT_S)
        if child.status is None and child.pid:
            if not _lives(child.pid):  # the fork server is late
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(child.exited.wait(), _LATE_STATUS_S)
            elif child.killed_because is None:
                child.killed_because = (
                    "it has closed its socket to the member, as code that closes all descriptors does"
                )
            self.kill(child)
        if child.status is None and not (child.end or child.killed_because) and is_stopped(self._server.pid):
            child.end = f"has ended; its fork server (pid {self._server.pid}) is stopped (SIGSTOP) and cannot tell how"
        if not child.is_carrier and child.up:
            self._replace(child)
        self._on_lost(child)
        while not child.is_carrier and self.workers[child.index] is child and not self._closing:
            await asyncio.sleep(_AGAIN_S)  # do not retry at once a worker that died as it started or cannot be forked
            if not self._silence.is_long:
                self._replace(child)
            self._on_lost(child)  # for the jobs that were given it meanwhile

    def _replace(self, child: Child) -> None:
        try:
            self.workers[child.index] = self._fork_worker(child.index)
        except OSError as error:
            logger.error("worker %d is not replaced yet: %s", child.index, error)

    def _not_forked(self, why: str) -> None:
        """Take that the fork server is too late with the forks it was asked for: give them up."""
        for child in list(self._by_token.values()):
            child.end = f"could not be started: {why}"
            self._channel_closed(child)

    def kill(self, child: Child) -> None:
        """Kill a child for good."""
        if child.pid and child.status is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGKILL)

    def interrupt(self, child: Child) -> None:
        """Signal a child to leave the user code that its control block names."""
        if child.pid and child.status is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGUSR1)

    def stop_carriers(self, carriers: Iterable[Child]) -> None:
        """Let the carriers of an execution that has ended go."""
        for child in carriers:
            if not child.lost:
                child.stopping = True
                child.send(Stop())

    def forget_arena(self, arena: int, attached: Iterable[int]) -> None:
        """Let the workers at these endpoints unmap an arena that will not be used again."""
        for endpoint in attached:
            self.workers[endpoint].send(Forget(arena))

    async def close(self, grace_s: float) -> None:
        """Stop all children, kill the children that are still there after `grace_s`, and end the fork server."""
        self._closing = True
        self._silence.end()
        children = [*self._by_pid.values(), *self._by_token.values()]
        for child in children:
            child.stopping = True
            child.send(Stop())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(*(child.exited.wait() for child in children)), grace_s)
        for child in children:
            self.kill(child)
        self._server_channel.close()
        await self._server.end(_END_S)
        for child in children:
            child.channel.close()
            child.block.release()


def _lives(pid: int) -> bool:
    """Whether a process has not ended, even if no process has waited for it."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        poller = select.poll()
        poller.register(fd, select.POLLIN)
        return not poller.poll(0)
    finally:
        os.close(fd)


def _no_descriptor(error: OSError, what: str) -> OSError:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return OSError(
        error.errno,
        f"no {what} can be started: {error.strerror}; the member (pid {os.getpid()}) needs a descriptor for each of "
        f"its processes and may have {limit} (RLIMIT_NOFILE); raise that (`ulimit -n`), or give vertices whose "
        "processors are not cooperative a lower local_parallelism",
    )
