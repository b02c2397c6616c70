"""Who wants to see which processor of an execution: the member's part in opening doors (`shmjet.execution.doors`)."""

from __future__ import annotations

import socket
from collections.abc import Callable

from shmjet.cluster.workers import Child
from shmjet.execution.messages import Visitor

Answer = Callable[[socket.socket | None], None]
"""Called once, with a socket that is the callee's then, or None when the execution has ended before the door opened."""


class Visitors:
    """The doors of one execution, and who waits for one that is not open yet."""

    def __init__(self) -> None:
        self._behind: dict[str, Child] = {}
        self._waiting: dict[str, list[Answer]] = {}
        self._over = False

    def opened(self, execution_id: int, door: str, child: Child) -> None:
        """Take a process' word that a processor there takes visitors."""
        self._behind[door] = child
        for answer in self._waiting.pop(door, ()):
            self._lead(execution_id, door, answer)

    def visit(self, execution_id: int, door: str, answer: Answer) -> None:
        """Answer with a socket to the processor behind a door, as soon as there is one."""
        if self._over:
            answer(None)
        elif door in self._behind:
            self._lead(execution_id, door, answer)
        else:
            self._waiting.setdefault(door, []).append(answer)

    def end(self) -> None:
        """Send away who waits; nobody is let in any more."""
        self._over = True
        waiting, self._waiting = self._waiting, {}
        for answers in waiting.values():
            for answer in answers:
                answer(None)

    def _lead(self, execution_id: int, door: str, answer: Answer) -> None:
        child = self._behind[door]
        ours, theirs = socket.socketpair()
        if child.lost:
            theirs.close()
        else:
            child.send(Visitor(execution_id, door), (theirs.fileno(),))
            child.channel.when_flushed([theirs.detach()])
        answer(ours)
