"""Those who watch a member from outside: what they are handed, so that they can look without asking again.

They read the control segment and the arenas of executions themselves, without the right to write
(`shmjet.cluster.attach`). Only processes of this host can: descriptors do not go over the network.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import msgspec

from shmjet.cluster.arenas import PooledArena
from shmjet.cluster.clients import LocalClient
from shmjet.cluster.protocol import ArenaTaken, Attached, ExecutionRow, Look, Looked, TakeArena
from shmjet.cluster.run import Run
from shmjet.cluster.settings import MemberSettings
from shmjet.execution import control
from shmjet.execution.messages import JobPlan
from shmjet.ring.arena import Arena


class Watched(Run, Protocol):
    """An execution, or this member's part of one."""

    @property
    def started_at(self) -> float: ...
    @property
    def completed_at(self) -> float | None: ...
    @property
    def plan(self) -> JobPlan | None: ...
    @property
    def arena(self) -> PooledArena | None: ...


class Watching:
    """See the module.

    Args:
        settings: of the member.
        segment: its control segment.
        executions: gives those that there are, the oldest first.
    """

    def __init__(self, settings: MemberSettings, segment: Arena, executions: Callable[[], Iterable[Watched]]) -> None:
        self._settings = settings
        self._segment = segment
        self._executions = executions
        self._started_at = time.time()
        self._words = control.control_words(segment.memory, len(settings.cores) * control.BLOCK_SIZE)
        self._words[control.PID] = os.getpid()

    def note_change(self) -> None:
        """Note that an execution has got its arena, or gives it back."""
        self._words[control.CHANGES] += 1

    def serve(self, client: LocalClient, request: Any) -> bool:
        """Answer a request of a watcher; False when it is about something else."""
        match request:
            case Look():
                client.send(Looked(request.request, self._words[control.CHANGES], self._rows()))
            case TakeArena():
                self._send_arena(client, request)
            case _:
                return False
        return True

    def attach(self, client: LocalClient, request: int, uuid: str, workers: Sequence[int]) -> None:
        """Say who this is to somebody who wants to watch, and hand out the control segment, to be read only."""
        reply = Attached(
            request,
            _version(),
            uuid,
            os.getpid(),
            self._settings.client_pid,
            self._started_at,
            msgspec.to_builtins(self._settings),
            list(workers),
            self._segment.size,
        )
        client.send_with(reply, [_read_only(self._segment.fd)])

    def _rows(self) -> list[ExecutionRow]:
        rows = []
        for execution in self._executions():
            arena, failure = execution.arena, execution.failure
            error = None if failure is None else f"{failure.type_name}: {failure.text}".split("\n", 1)[0]
            rows.append(
                ExecutionRow(
                    execution.id,
                    execution.job.job_id,
                    execution.job.name,
                    execution.status.value,
                    execution.cancelled,
                    execution.started_at,
                    execution.completed_at,
                    error,
                    execution.plan,
                    None if arena is None else arena.id,
                )
            )
        return rows

    def _send_arena(self, client: LocalClient, request: TakeArena) -> None:
        found = next((e for e in self._executions() if e.id == request.execution_id), None)
        pooled = None if found is None else found.arena
        if pooled is None:
            client.send(ArenaTaken(request.request, 0))
        else:
            client.send_with(ArenaTaken(request.request, pooled.arena.reserved), [_read_only(pooled.arena.fd)])

    def close(self) -> None:
        """Let go of the control segment."""
        self._words.release()


def _version() -> str:
    from importlib import metadata  # takes long, and few ask

    try:
        return metadata.version("shmjet")
    except metadata.PackageNotFoundError:  # run from a source tree
        return "unknown"


def _read_only(fd: int) -> int:
    """Open what is behind a descriptor once more, without the right to write."""
    return os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
