"""Requests of processes that monitor this member: they get shared memory, so that they can look without asking again.

They read the control segment and the arenas of executions themselves, without the right to write
(`shmjet.cluster.monitor.local`). Only processes of this host can: descriptors do not go over the network.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from shmjet._version import version
from shmjet.cluster.jobs.participant import Participant
from shmjet.cluster.jobs.registry import ParticipantRegistry
from shmjet.cluster.jobs.run_parts import ShownRun
from shmjet.cluster.jobs.suspension import cause_of
from shmjet.cluster.protocol import (
    ArenaTaken,
    Attached,
    ExecutionRow,
    Look,
    Looked,
    MemberStatus,
    PartitionCounts,
    Refused,
    Submission,
    TakeArena,
)
from shmjet.cluster.requests.client_connections import LocalClient
from shmjet.cluster.settings import MemberSettings
from shmjet.core import JobStatus
from shmjet.execution import control
from shmjet.execution.collect import worker_metrics
from shmjet.execution.messages import Failure
from shmjet.host.process_usage import used_by
from shmjet.ring.arena import Arena


class Watched(Protocol):
    """A run, or this member's part of a run that another member coordinates."""

    @property
    def job(self) -> Submission: ...
    @property
    def status(self) -> JobStatus: ...
    @property
    def failure(self) -> Failure | None: ...
    @property
    def cancelled(self) -> bool: ...
    @property
    def started_at(self) -> float: ...
    @property
    def completed_at(self) -> float | None: ...


class MonitorRequests:
    """See the module.

    Args:
        settings: of the member.
        segment: its control segment.
        led: gives the runs that this member coordinates, the oldest first.
        participants: its parts in runs.
        partitions: counts the partitions that it has.
    """

    def __init__(
        self,
        settings: MemberSettings,
        segment: Arena,
        led: Callable[[], Sequence[ShownRun]],
        participants: ParticipantRegistry,
        partitions: Callable[[], PartitionCounts],
    ) -> None:
        self._partitions = partitions
        self._settings = settings
        self._segment = segment
        self._led = led
        self._participants = participants
        self._started_at = time.time()
        self._words = control.control_words(segment.memory, len(settings.cores) * control.BLOCK_SIZE)
        self._words[control.PID] = os.getpid()
        self._is_closed = False

    def note_change(self) -> None:
        """Note that an execution has got its arena, or gives it back, or that partitions have moved."""
        if not self._is_closed:
            self._words[control.CHANGES] += 1

    def list_executions(self, client: LocalClient, request: Look) -> None:
        """Answer with the executions of this member."""
        if self._is_closed:
            client.send(Refused(request.request, "MemberLostError", "the member is ending"))
            return
        client.send(Looked(request.request, self._words[control.CHANGES], self._rows(), self._partitions()))

    def attach(self, client: LocalClient, request: int, uuid: str, workers: Sequence[int], address: str) -> None:
        """Describe this member to a monitoring process, and hand out the control segment, to be read only."""
        reply = Attached(
            request,
            version(),
            uuid,
            os.getpid(),
            self._settings.client_pid,
            self._started_at,
            msgspec.to_builtins(self._settings),
            list(workers),
            self._segment.size,
            address,
        )
        client.send_with(reply, [_read_only(self._segment.fd)])

    def status(self, uuid: str, address: str) -> MemberStatus:
        """Return this member's part of the cluster-wide status."""
        cores = self._settings.cores
        workers = [worker_metrics(i, core, self._segment.memory) for i, core in enumerate(cores)]
        pids = [os.getpid(), *(worker.pid for worker in workers if worker.pid is not None)]
        return MemberStatus(
            uuid,
            address,
            os.getpid(),
            version(),
            self._settings.client_pid,
            self._started_at,
            msgspec.to_builtins(self._settings),
            [msgspec.structs.replace(worker, member=address) for worker in workers],
            {pid: used for pid in pids if (used := used_by(pid)) is not None},
            [msgspec.structs.replace(row, plan=None, arena_id=None) for row in self._rows()],
            self._partitions(),
        )

    def _rows(self) -> list[ExecutionRow]:
        participants = self._participants
        led = [_led_row(run, participants.part_of(run.id)) for run in self._led()]
        return [*led, *(_row(part.run, part, part, leads=False) for part in participants.led_elsewhere)]

    def send_arena(self, client: LocalClient, request: TakeArena) -> None:
        """Hand out the arena of an execution, to be read only."""
        found = self._participants.part_of(request.execution_id)
        pooled = None if found is None else found.arena
        if pooled is None:
            client.send(ArenaTaken(request.request, 0))
        else:
            client.send_with(ArenaTaken(request.request, pooled.arena.reserved), [_read_only(pooled.arena.fd)])

    def close(self) -> None:
        """Let go of the control segment; who looks at this member from now on hears that it ends."""
        self._is_closed = True
        self._words.release()


def _led_row(run: ShownRun, part: Participant | None) -> ExecutionRow:
    return msgspec.structs.replace(
        _row(run.id, run, part, leads=True),
        attempts=run.attempt_count,
        guarantee=run.job.settings.guarantee,
        cause=cause_of(run),
        snapshot=run.last_snapshot,
        waits_for=run.waits_for,
        members=run.member_addresses,
        restart=run.last_restart,
    )


def _row(number: int, seen: Watched, part: Participant | None, *, leads: bool) -> ExecutionRow:
    failure = seen.failure
    arena = None if part is None else part.arena
    return ExecutionRow(
        number,
        seen.job.job_id,
        seen.job.name,
        seen.status.value,
        seen.cancelled,
        seen.started_at,
        seen.completed_at,
        None if failure is None else f"{failure.type_name}: {failure.text}".split("\n", 1)[0],
        None if part is None else part.plan,
        None if arena is None else arena.id,
        leads,
    )


def _read_only(fd: int) -> int:
    """Open what is behind a descriptor once more, without the right to write."""
    return os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
