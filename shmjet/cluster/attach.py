"""Watching a running member from outside: its counters are read where they are, and nothing is written there.

The member is found by its folder and asked over its socket, by this user's processes only, for descriptors of its
control segment and of the arenas of executions, without the right to write. After that it is asked again only when
a word of the segment says that executions have come or gone. So a watcher costs the member nothing while a job runs.
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from shmjet.cluster.folder import running_folders
from shmjet.cluster.process_usage import used_by
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
    Refused,
    Reply,
    TakeArena,
)
from shmjet.cluster.settings import SOCKET_NAME
from shmjet.core import JobStatus, MemberLostError, ShmjetError
from shmjet.execution import control
from shmjet.execution.channel import Channel, ChannelClosed
from shmjet.execution.collect import Reading, worker_metrics
from shmjet.execution.layout import ArenaLayout, lay_out
from shmjet.execution.metrics import NO_METRICS, Metrics, WorkerMetrics

_PATIENCE_S = 5.0
_TRIES = 5


@dataclass(eq=False)
class _Mapped:
    """Shared memory of a member, mapped without the right to write."""

    mapping: mmap.mmap
    memory: memoryview

    @classmethod
    def of(cls, fd: int, size: int) -> _Mapped:
        try:
            mapping = mmap.mmap(fd, size, prot=mmap.PROT_READ)
        finally:
            os.close(fd)
        return cls(mapping, memoryview(mapping))

    def close(self) -> None:
        self.memory.release()
        self.mapping.close()


class AttachedMember:
    """A member of this user, seen from another process (`shmjet.cluster.seen`). Close it, or use it in a `with`.

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
        sock.settimeout(_PATIENCE_S)
        try:
            sock.connect(str(folder / SOCKET_NAME))
        except OSError as error:
            sock.close()
            raise MemberLostError(f"there is no member in {folder}: {error.strerror or error}") from error
        self._channel = Channel(sock, Reply)
        self._control: _Mapped | None = None
        self._arenas: dict[int, _Mapped] = {}
        self._layouts: dict[int, ArenaLayout] = {}
        self._looked: Looked | None = None
        try:
            reply, fds = self._ask(Attach)
            assert isinstance(reply, Attached)
            self.about = reply
            self._control = _Mapped.of(fds[0], reply.control_size)
        except BaseException:
            self.close()
            raise
        start = len(self.cores) * control.BLOCK_SIZE
        self._words = control.control_words(self._control.memory, start)

    @property
    def pid(self) -> int:
        """The member's process id."""
        return self.about.pid

    @property
    def cores(self) -> list[int | None]:
        """The core of each worker, None for one that is not pinned."""
        cores: list[int | None] = self.about.settings["cores"]
        return cores

    @property
    def name(self) -> str:
        """The cluster's name."""
        return str(self.about.settings["cluster_name"])

    @property
    def control(self) -> memoryview:
        """The control segment, which cannot be written to."""
        assert self._control is not None
        return self._control.memory

    # -- executions -------------------------------------------------------------------------------------------------

    def executions(self) -> list[ExecutionRow]:
        """Return all executions that the member remembers, the oldest first, as of the last change."""
        return self._look().executions

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
        if row.plan is not None and row.plan.seat.count == 1:
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
        from shmjet.cluster.inspection import inspect  # which knows this module

        return inspect(self)

    @contextlib.contextmanager
    def arena(self, execution: ExecutionRow) -> Iterator[tuple[memoryview, ArenaLayout] | None]:
        """Give the memory of an execution and its layout; None when it has none any more.

        What is read is to be believed only if `is_current` says so afterwards.
        """
        row = self._row(execution.id)
        mapped = None if row is None or row.plan is None else self._mapped(row)
        yield None if row is None or mapped is None else (mapped.memory, self._layouts[row.id])

    @property
    def is_current(self) -> bool:
        """Whether all executions have kept their arenas since they were last looked for."""
        return self._looked is not None and self._words[control.CHANGES] == self._looked.changes

    def job(self, job_id: str) -> JobReply:
        """Return a job's DAG, and why its newest execution failed if it did.

        Raises:
            ShmjetError: the member does not know the job (any more).
            MemberLostError: the member is gone.
        """
        reply, _ = self._ask(lambda number: GetJob(number, job_id))
        assert isinstance(reply, JobReply)
        return reply

    def cancel(self, execution: ExecutionRow) -> None:
        """Ask the member to end an execution."""
        self._ask(lambda number: CancelExecution(number, execution.id))

    def _row(self, execution_id: int) -> ExecutionRow | None:
        return next((row for row in self._look().executions if row.id == execution_id), None)

    def _look(self) -> Looked:
        """Return what there is, asked for again when executions have come or gone, or one has not started."""
        known = self._looked
        starting = known is not None and any(row.status == JobStatus.STARTING.value for row in known.executions)
        if known is not None and not starting and self._words[control.CHANGES] == known.changes:
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

    def _mapped(self, row: ExecutionRow) -> _Mapped | None:
        assert row.plan is not None
        assert row.arena_id is not None
        mapped = self._arenas.get(row.arena_id)
        if mapped is None:
            reply, fds = self._ask(lambda number: TakeArena(number, row.id))
            assert isinstance(reply, ArenaTaken)
            if not fds:
                return None
            mapped = self._arenas[row.arena_id] = _Mapped.of(fds[0], reply.size)
        if row.id not in self._layouts:
            self._layouts[row.id] = lay_out(row.plan)
        return mapped

    def _read(self, row: ExecutionRow) -> Reading | None:
        """Read an execution's numbers; None when its arena may have become another's meanwhile."""
        mapped = self._mapped(row)
        if mapped is None:
            return None
        assert row.plan is not None
        reading = Reading.take(row.plan, self._layouts[row.id], mapped.memory, self.control, self.cores)
        return reading if self.is_current else None

    def is_alive(self) -> bool:
        """Say whether the member runs; one that was killed and not waited for does not, though it has its pid still."""
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
        except msgspec.DecodeError as error:
            raise MemberLostError(f"the member in {self.folder} is of another version: {error}") from error
        if isinstance(reply, Refused):
            raise ShmjetError(reply.text)
        return reply, fds

    def close(self) -> None:
        """Let go of the member; it does not notice."""
        self._channel.close()
        if hasattr(self, "_words"):
            self._words.release()
        for mapped in self._arenas.values():
            mapped.close()
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


def attach_all() -> list[AttachedMember]:
    """Attach to all running members of this user, the oldest first; those that end meanwhile are left out."""
    found = []
    for folder in running_folders():
        with contextlib.suppress(MemberLostError):
            found.append(AttachedMember(folder))
    return found
