"""Connections from outside to processors of an attempt: the member's side
(`shmjet.execution.processor_endpoints`).
"""

from __future__ import annotations

import socket
from collections.abc import Callable

from shmjet.cluster.processes.workers import Child
from shmjet.execution.messages import EndpointConnection

Answer = Callable[[Child | None], None]
"""Called once, with the process of the processor, or None when the attempt has ended before the endpoint was open."""


def connect_endpoint(child: Child, attempt: int, name: str, sock: socket.socket) -> None:
    """Give a socket to the processor at an endpoint; if no processor is there, the other end sees end of file.

    Args:
        child: the processor's process.
        attempt: of which the processor is.
        name: of the endpoint.
        sock: is closed here.
    """
    if child.lost:
        sock.close()
    else:
        child.send(EndpointConnection(attempt, name), (sock.fileno(),))
        child.channel.when_flushed([sock.detach()])


class ProcessorEndpoints:
    """The endpoints of one attempt on this member, and the connections that wait for an endpoint to open."""

    def __init__(self) -> None:
        self._open: dict[str, Child] = {}
        self._waiting: dict[str, list[Answer]] = {}
        self._over = False

    def opened(self, name: str, child: Child) -> None:
        """Take a process' word that a processor there takes connections."""
        self._open[name] = child
        for answer in self._waiting.pop(name, ()):
            answer(child)

    def connect(self, name: str, answer: Answer) -> None:
        """Answer with the process of the processor at an endpoint, as soon as there is one."""
        if self._over:
            answer(None)
        elif name in self._open:
            answer(self._open[name])
        else:
            self._waiting.setdefault(name, []).append(answer)

    def end(self) -> None:
        """Refuse what waits, and everything from now on."""
        self._over = True
        waiting, self._waiting = self._waiting, {}
        for answers in waiting.values():
            for answer in answers:
                answer(None)
