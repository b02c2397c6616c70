"""Who wants to see which processor of an execution: the member's part in opening doors (`shmjet.execution.doors`)."""

from __future__ import annotations

import socket
from collections.abc import Callable

from shmjet.cluster.workers import Child
from shmjet.execution.messages import Visitor

Answer = Callable[[Child | None], None]
"""Called once, with the process behind the door, or None when the execution has ended before the door opened."""


def lead_in(child: Child, execution_id: int, door: str, sock: socket.socket) -> None:
    """Give a visitor's socket to the processor behind a door; its other end sees the end of it if nobody is there."""
    if child.lost:
        sock.close()
    else:
        child.send(Visitor(execution_id, door), (sock.fileno(),))
        child.channel.when_flushed([sock.detach()])


class Visitors:
    """The doors of one execution, and who waits for one that is not open yet."""

    def __init__(self) -> None:
        self._behind: dict[str, Child] = {}
        self._waiting: dict[str, list[Answer]] = {}
        self._over = False

    def opened(self, door: str, child: Child) -> None:
        """Take a process' word that a processor there takes visitors."""
        self._behind[door] = child
        for answer in self._waiting.pop(door, ()):
            answer(child)

    def visit(self, door: str, answer: Answer) -> None:
        """Answer with the process in which the processor behind a door is, as soon as there is one."""
        if self._over:
            answer(None)
        elif door in self._behind:
            answer(self._behind[door])
        else:
            self._waiting.setdefault(door, []).append(answer)

    def end(self) -> None:
        """Send away who waits; nobody is let in any more."""
        self._over = True
        waiting, self._waiting = self._waiting, {}
        for answers in waiting.values():
            for answer in answers:
                answer(None)
