"""The executions of which something is on this member: those that it leads, and its parts of those that others lead."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

from shmjet.cluster.clients import LocalClient
from shmjet.cluster.executions import MasterExecution
from shmjet.cluster.log_relay import LogRelay
from shmjet.cluster.protocol import Refused, Visit, VisitHere, Visiting
from shmjet.cluster.visitors import lead_in
from shmjet.cluster.workers import Child, Workers
from shmjet.execution import control


class Parts:
    """All of them, by their numbers; what processes report goes to the one that it is about.

    Args:
        logs: brings records of the processes' loggers, None where nobody elsewhere may want them.
        on_begin: called when one begins.
    """

    def __init__(self, logs: LogRelay | None, on_begin: Callable[[], None] = lambda: None) -> None:
        self._on_begin = on_begin
        self._logs = logs
        self._parts: dict[int, MasterExecution] = {}

    def add(self, part: MasterExecution) -> None:
        """Take one that begins."""
        self._parts[part.id] = part
        self._on_begin()

    @property
    def is_empty(self) -> bool:
        """Whether there is none."""
        return not self._parts

    def drop(self, execution: int) -> None:
        """Take that nothing is left of one."""
        if self._logs is not None:
            self._logs.drain()
            self._logs.ended(execution)
        self._parts.pop(execution, None)

    def name_of(self, execution: int) -> str | None:
        """Return how the job of an execution is called in messages; None when it is unknown."""
        part = self._parts.get(execution)
        return None if part is None else part.name

    def has_job(self, job_id: str) -> bool:
        """Say whether one of them is of a job."""
        return any(part.job.job_id == job_id for part in self._parts.values())

    def first_worker(self, workers: Workers) -> int:
        """Place a lone job from worker 0 on, further ones from the worker with the fewest tasklets."""
        if not self._parts:
            return 0
        return min((child.block.words[control.TASKLETS], child.index) for child in workers.workers)[1]

    def report(self, child: Child, message: Any, fds: list[int]) -> None:
        """Take what a process reports."""
        if self._logs is not None:
            self._logs.drain()  # what it has logged has been sent before it reports
        part = self._parts.get(message.execution_id)
        if part is not None:
            part.report(child, message, fds)

    def child_lost(self, child: Child) -> None:
        """Take the death of a process."""
        for part in list(self._parts.values()):
            part.child_lost(child)

    def visit(self, client: LocalClient, request: Visit | VisitHere) -> None:
        """Give the asker, whose user was looked at when it connected, a socket to the processor behind a door."""

        def answer(child: Child | None) -> None:
            if child is None:
                text = f"execution {request.execution_id} has ended; nobody is behind its door {request.door!r}"
                client.send(Refused(request.request, "ShmjetError", text))
            elif isinstance(request, VisitHere):
                client.send(Visiting(request.request))
                theirs = client.give_away()
                if theirs is not None:
                    lead_in(child, request.execution_id, request.door, theirs)
            else:
                ours, theirs = socket.socketpair()
                lead_in(child, request.execution_id, request.door, theirs)
                client.send_with(Visiting(request.request), [ours.detach()])

        part = self._parts.get(request.execution_id)
        if part is None:
            answer(None)
        else:
            part.visitors.visit(request.door, answer)
