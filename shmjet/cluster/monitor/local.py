"""Monitoring of a member of this host: its counters are copied, and nothing is written there.

The member is found by its folder and asked over its socket, by this user's processes only, for descriptors of its
control segment and of the arenas of executions, without the right to write. Nothing that belongs to another user is
opened or asked. After that it is asked again only when
a word of the segment says that executions have come or gone. So a watcher costs the member nothing while a job runs.
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from shmjet._native import RING_HEADER
from shmjet.cluster.client.connection import refusal
from shmjet.cluster.folder import running_folders
from shmjet.cluster.monitor import base
from shmjet.cluster.protocol import (
    ArenaTaken,
    Attach,
    Attached,
    CancelExecution,
    ExecutionRow,
    GetJob,
    GetMetrics,
    JobReply,
    Look,
    Looked,
    MetricsReply,
    PartitionCounts,
    Refused,
    Reply,
    TakeArena,
)
from shmjet.cluster.settings import SOCKET_NAME
from shmjet.core import JobStatus, MemberLostError
from shmjet.execution import control
from shmjet.execution.collect import Reading, worker_metrics
from shmjet.execution.layout import ArenaLayout, lay_out
from shmjet.execution.metrics import NO_METRICS, Metrics, WorkerMetrics
from shmjet.host.process_usage import used_by
from shmjet.ipc import unix_sockets
from shmjet.ipc.channel import Channel, ChannelClosed
from shmjet.ipc.decode_errors import UNREADABLE

PATIENCE_S = 5.0
_TRIES = 5


class MemoryCopy:
    """A copy of shared memory of a member, brought up to date where it is read.

    It is not mapped: a process that may write to it may truncate it, and a read past its end would then kill the
    reading process (SIGBUS). What is not read takes no memory here either.

    Args:
        fd: of the shared memory; closed with the copy.
        size: bytes.

    Raises:
        MemberLostError: there are fewer bytes.
    """

    def __init__(self, fd: int, size: int) -> None:
        self._fd = fd
        try:
            there = os.fstat(fd).st_size
            if not 0 < size <= there:
                raise MemberLostError(f"shared memory of a member has {there} bytes where it said {size}")
            self._mapping = mmap.mmap(-1, size)
        except BaseException:
            os.close(fd)
            raise
        self._room = memoryview(self._mapping)
        self.memory = self._room.toreadonly()

    def refresh(self, start: int = 0, size: int | None = None) -> None:
        """Copy bytes from there. Raises MemberLostError when there are not so many any more."""
        end = len(self.memory) if size is None else start + size
        while start < end:
            with self._room[start:end] as rest:
                count = os.preadv(self._fd, [rest], start)
            if not count:
                raise MemberLostError("shared memory of a member was cut off")
            start += count

    def refresh_headers(self, layout: ArenaLayout) -> None:
        """Copy what tells how far an execution is: its counters, and the headers of its rings."""
        self.refresh(0, layout.counters_end)
        for run in layout.rings.runs():
            for number in range(run.count):
                self.refresh(run.start + number * (RING_HEADER + run.capacity), RING_HEADER)

    def close(self) -> None:
        """Let go of it."""
        os.close(self._fd)
        self.memory.release()
        self._room.release()
        self._mapping.close()


class AttachedMember:
    """A member of this user, seen from another process (`shmjet.cluster.monitor.base`). Close it, or use it in a
    `with`.

    Args:
        folder: the member's.

    Raises:
        MemberLostError: it is gone, or does not answer within five seconds.
    """

    is_here = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._numbers = itertools.count(1)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(PATIENCE_S)
        try:
            unix_sockets.connect(sock, folder / SOCKET_NAME)
        except OSError as error:
            sock.close()
            raise MemberLostError(f"there is no member in {folder}: {error.strerror or error}") from error
        self._sock = sock
        self._channel = Channel(sock, Reply)
        self._control: MemoryCopy | None = None
        self._arenas: dict[int, MemoryCopy] = {}
        self._layouts: dict[int, ArenaLayout] = {}
        self._looked: Looked | None = None
        try:
            reply, fds = self._ask(Attach)
            assert isinstance(reply, Attached)
            self.about = reply
            self._control = MemoryCopy(fds[0], reply.control_size)
        except BaseException:
            self.close()
            raise
        self._own_block = len(self.cores) * control.BLOCK_SIZE
        self._words = control.control_words(self._control.memory, self._own_block)

    @property
    def pid(self) -> int:
        """The member's process id."""
        return self.about.pid

    @property
    def cores(self) -> list[int | None]:
        """The core of each worker, None for a worker that is not pinned."""
        cores: list[int | None] = self.about.settings["cores"]
        return cores

    @property
    def name(self) -> str:
        """The cluster's name."""
        return str(self.about.settings["cluster_name"])

    @property
    def control(self) -> memoryview:
        """The control segment as it is now, a copy."""
        assert self._control is not None
        self._control.refresh()
        return self._control.memory

    @property
    def _changes(self) -> int:
        """How often executions have come or gone."""
        assert self._control is not None
        self._control.refresh(self._own_block, control.BLOCK_SIZE)
        changes: int = self._words[control.CHANGES]
        return changes

    # -- executions -------------------------------------------------------------------------------------------------

    def executions(self) -> list[ExecutionRow]:
        """Return all executions that the member remembers, the oldest first, as of the last change."""
        return self._look().executions

    def partitions(self) -> PartitionCounts:
        """Return how many partitions it has, as of the last change."""
        return self._look().partitions

    def running(self) -> list[ExecutionRow]:
        """Return the executions that have not ended."""
        return [row for row in self.executions() if not JobStatus(row.status).is_terminal]

    def metrics(self, execution: ExecutionRow) -> Metrics:
        """Return what this member's part of an execution has done so far.

        From shared memory while it has any there, else as the member kept it.

        Raises:
            MemberLostError: the member is gone.
        """
        for _ in range(_TRIES):
            row = self._row(execution.id)
            if row is None:
                return NO_METRICS
            if row.plan is None:
                break
            reading = self._read(row)
            if reading is not None:
                return reading.metrics(row.started_at, row.completed_at)
        row = self._row(execution.id)
        return self._told(execution, part=True) if row is not None and row.leads else NO_METRICS

    def whole(self, execution: ExecutionRow) -> Metrics:
        """Return what an execution has done so far on all members: if there are others, their coordinator is asked.

        Raises:
            MemberLostError: the member is gone, or the coordinator.
        """
        row = self._row(execution.id)
        if row is None:
            return NO_METRICS
        if row.plan is not None and row.plan.slot.count == 1:
            return self.metrics(execution)
        return self._told(execution, part=False)

    def _told(self, execution: ExecutionRow, *, part: bool) -> Metrics:
        reply, _ = self._ask(lambda number: GetMetrics(number, execution.id, part))
        assert isinstance(reply, MetricsReply)
        return reply.metrics

    def workers(self) -> list[WorkerMetrics]:
        """Return what each worker has done since the member started, from shared memory."""
        return [worker_metrics(index, core, self.control) for index, core in enumerate(self.cores)]

    def usage(self) -> dict[int, tuple[float, int]]:
        """Return CPU seconds so far and resident bytes of the member and its workers, by pid."""
        pids = [self.pid, *(worker.pid for worker in self.workers() if worker.pid)]
        return {pid: used for pid in pids if (used := used_by(pid)) is not None}

    def dump(self) -> dict[str, Any]:
        """Return everything that an engineer wants to know of it."""
        from shmjet.cluster.monitor.dump import inspect  # which knows this module

        return inspect(self)

    @contextlib.contextmanager
    def arena(self, execution: ExecutionRow) -> Iterator[tuple[memoryview, ArenaLayout] | None]:
        """Give the memory of an execution and its layout; None when it has none any more.

        What is read is to be believed only if `is_current` says so afterwards.
        """
        row = self._row(execution.id)
        copy = None if row is None or row.plan is None else self._copied(row)
        yield None if row is None or copy is None else (copy.memory, self._layouts[row.id])

    @property
    def is_current(self) -> bool:
        """Whether all executions have kept their arenas since they were last looked for."""
        return self._looked is not None and self._changes == self._looked.changes

    def job(self, job_id: str) -> JobReply:
        """Return a job's DAG, and why its newest execution failed if it did.

        Raises:
            ShmjetError: the member does not know the job (any more).
            MemberLostError: the member is gone.
        """
        reply, _ = self._ask(lambda number: GetJob(number, job_id))
        assert isinstance(reply, JobReply)
        return reply

    def ask(self, make: Callable[[int], Any], timeout: float | None = None) -> Any:
        """Send a request that any client may send, and return its reply.

        Raises:
            ShmjetError: it is refused.
            MemberLostError: the member is gone, or has not answered within `timeout` seconds.
        """
        self._sock.settimeout(base.ANSWER_S if timeout is None else timeout)
        try:
            return self._ask(make)[0]
        finally:
            self._sock.settimeout(PATIENCE_S)

    def cancel(self, execution: ExecutionRow) -> None:
        """Ask the member to end an execution."""
        self._ask(lambda number: CancelExecution(number, execution.id))

    def _row(self, execution_id: int) -> ExecutionRow | None:
        return next((row for row in self._look().executions if row.id == execution_id), None)

    def _look(self) -> Looked:
        """Return what there is, asked for again when executions have come or gone, or one changes without that."""
        known = self._looked
        changing = known is not None and any(map(_may_change, known.executions))
        if known is not None and not changing and self._changes == known.changes:
            if not self.is_alive():
                raise MemberLostError(f"the member (pid {self.pid}) has ended")
            return known
        reply, _ = self._ask(Look)
        assert isinstance(reply, Looked)
        self._looked = reply
        live = {row.id for row in reply.executions if row.plan is not None}
        for gone in [key for key in self._layouts if key not in live]:
            del self._layouts[gone]
        used = {row.arena_id for row in reply.executions if row.plan is not None}
        for unused in [key for key in self._arenas if key not in used]:
            self._arenas.pop(unused).close()
        return reply

    def _copied(self, row: ExecutionRow) -> MemoryCopy | None:
        """Return what there is of an execution's arena now; None when it has none any more."""
        assert row.plan is not None
        assert row.arena_id is not None
        copy = self._arenas.get(row.arena_id)
        if copy is None:
            reply, fds = self._ask(lambda number: TakeArena(number, row.id))
            assert isinstance(reply, ArenaTaken)
            if not fds:
                return None
            copy = self._arenas[row.arena_id] = MemoryCopy(fds[0], reply.size)
        if row.id not in self._layouts:
            self._layouts[row.id] = lay_out(row.plan)
        copy.refresh_headers(self._layouts[row.id])
        return copy

    def _read(self, row: ExecutionRow) -> Reading | None:
        """Read an execution's numbers; None when its arena may have become another's meanwhile."""
        copy = self._copied(row)
        if copy is None:
            return None
        assert row.plan is not None
        reading = Reading.take(row.plan, self._layouts[row.id], copy.memory, self.control, self.cores)
        return reading if self.is_current else None

    def is_alive(self) -> bool:
        """Say whether the member runs; a killed process that was not waited for still has its pid, but does not run."""
        try:
            state = Path(f"/proc/{self.pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
        except (OSError, IndexError):
            return False
        return state not in (b"Z", b"X")

    # -- talking ----------------------------------------------------------------------------------------------------

    def _ask(self, make: Callable[[int], Any]) -> tuple[Any, list[int]]:
        """Return the answer to a request. What comes before it is news for clients, or the answer to one given up."""
        number = next(self._numbers)
        try:
            self._channel.send(make(number))
            reply, fds = self._channel.receive()
            while getattr(reply, "request", None) != number:
                for fd in fds:
                    os.close(fd)
                reply, fds = self._channel.receive()
        except (ChannelClosed, OSError) as error:
            raise MemberLostError(f"the member in {self.folder} is gone or does not answer: {error}") from error
        except UNREADABLE as error:
            raise MemberLostError(f"the member in {self.folder} is of another version: {error}") from error
        if isinstance(reply, Refused):
            raise refusal(reply)
        return reply, fds

    def close(self) -> None:
        """Let go of the member; it does not notice."""
        self._channel.close()
        if hasattr(self, "_words"):
            self._words.release()
        for copy in self._arenas.values():
            copy.close()
        self._arenas.clear()
        if self._control is not None:
            self._control.close()
            self._control = None

    def __enter__(self) -> AttachedMember:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<AttachedMember pid {self.pid} {self.name!r}>"


def _may_change(row: ExecutionRow) -> bool:
    """Say whether what is told of an execution may change while arenas do not: it starts, or takes snapshots."""
    if JobStatus(row.status).is_terminal:
        return False
    return row.status == JobStatus.STARTING.value or (row.leads and (row.plan is None or row.guarantee != "none"))


def attach_all() -> list[AttachedMember]:
    """Attach to all running members of this user, the oldest first; members that end meanwhile are left out."""
    found = []
    for folder in running_folders():
        with contextlib.suppress(MemberLostError):
            found.append(AttachedMember(folder))
    return found
