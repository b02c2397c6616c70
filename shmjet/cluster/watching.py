"""The member's side of being watched: who it is, which executions there are, and their memory, to be read only.

It hands out descriptors that the kernel lets nobody write through, and counts changes in a word of the control
segment, so that watchers ask again only when there is something new (`shmjet.cluster.attach` is their side).
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

import msgspec

from shmjet.cluster.channels import LoopChannel
from shmjet.cluster.executions import MasterExecution
from shmjet.cluster.protocol import ArenaTaken, Attached, ExecutionRow, Looked, TakeArena
from shmjet.cluster.settings import MemberSettings
from shmjet.cluster.workers import Workers
from shmjet.execution import control


class Watched:
    """What a member shows.

    Args:
        settings, uuid: of the member.
        workers: its workers, with the control segment.
        executions: those that it remembers, by number.
    """

    def __init__(
        self, settings: MemberSettings, uuid: str, workers: Workers, executions: Mapping[int, MasterExecution]
    ) -> None:
        self._settings = settings
        self._uuid = uuid
        self._workers = workers
        self._executions = executions
        self._started_at = time.time()
        self._words = control.control_words(workers.control.memory, len(settings.cores) * control.BLOCK_SIZE)
        self._words[control.PID] = os.getpid()

    def note_change(self) -> None:
        """Let watchers know that an execution has got its arena, or is about to give it back."""
        self._words[control.CHANGES] += 1

    async def attach(self, channel: LoopChannel, request: int) -> None:
        """Say who this is, and hand out the control segment."""
        pids = await self._workers.pids()
        reply = Attached(
            request,
            _version(),
            self._uuid,
            os.getpid(),
            self._settings.client_pid,
            self._started_at,
            msgspec.to_builtins(self._settings),
            pids,
            self._workers.control.size,
        )
        fd = _read_only(self._workers.control.fd)
        channel.send(reply, [fd])
        channel.when_flushed([fd])

    def look(self, channel: LoopChannel, request: int) -> None:
        """Say which executions there are."""
        rows = [_row(execution) for execution in self._executions.values()]
        channel.send(Looked(request, self._words[control.CHANGES], rows))

    def send_arena(self, channel: LoopChannel, request: TakeArena) -> None:
        """Hand out the arena of an execution, if it has one."""
        execution = self._executions.get(request.execution_id)
        pooled = None if execution is None else execution.arena
        if pooled is None:
            channel.send(ArenaTaken(request.request, 0))
            return
        fd = _read_only(pooled.arena.fd)
        channel.send(ArenaTaken(request.request, pooled.arena.reserved), [fd])
        channel.when_flushed([fd])

    def close(self) -> None:
        """Let go of the control segment."""
        self._words.release()


def _row(execution: MasterExecution) -> ExecutionRow:
    arena, failure = execution.arena, execution.failure
    return ExecutionRow(
        execution.id,
        execution.job.job_id,
        execution.job.name,
        execution.status.value,
        execution.cancelled,
        execution.started_at,
        execution.completed_at,
        None if failure is None else f"{failure.type_name}: {failure.text}".split("\n", 1)[0],
        execution.plan,
        None if arena is None else arena.id,
    )


def _version() -> str:
    from importlib import metadata  # takes long, and few ask

    try:
        return metadata.version("shmjet")
    except metadata.PackageNotFoundError:  # run from a source tree
        return "unknown"


def _read_only(fd: int) -> int:
    """Open what is behind a descriptor once more, without the right to write."""
    return os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
