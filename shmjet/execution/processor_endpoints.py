"""Processor endpoints: how a program outside talks to one processor of a running execution.

A processor opens an endpoint by name. A program that knows the name and the execution asks the member for it; the
member checks the program's user, makes a pair of sockets and gives each side one. From then on the two talk alone. So
no processor listens anywhere, and all endpoints go with the execution, along with the connections that wait there.

Must not know: which programs connect, and what for.
"""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Callable

from shmjet.core import ProcessorError
from shmjet.execution.messages import EndpointOpened


class OpenEndpoint:
    """The processor's side of one endpoint: sockets of the programs that have connected, in order."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._waiting: deque[socket.socket] = deque()

    def take(self) -> socket.socket | None:
        """Return the socket of the next connection, which is the caller's then; None when none waits."""
        return self._waiting.popleft() if self._waiting else None

    def add(self, fd: int) -> None:
        """Queue a connection; its descriptor belongs to the endpoint."""
        self._waiting.append(socket.socket(fileno=fd))

    def close(self) -> None:
        """Close the connections that wait."""
        while self._waiting:
            self._waiting.popleft().close()


class OpenEndpoints:
    """The endpoints of one execution in one process.

    Args:
        execution_id: of the execution.
        say: sends a message to the member.
    """

    def __init__(self, execution_id: int, say: Callable[[object], None]) -> None:
        self._execution_id = execution_id
        self._say = say
        self._endpoints: dict[str, OpenEndpoint] = {}
        self._closed = False

    def open(self, name: str) -> OpenEndpoint:
        """Open an endpoint and tell the member.

        Raises:
            ProcessorError: an endpoint of that name is open here.
        """
        if name in self._endpoints:
            raise ProcessorError(f"two processors of one job open the same endpoint {name!r}; make a source for each")
        endpoint = self._endpoints[name] = OpenEndpoint(name)
        self._say(EndpointOpened(self._execution_id, name))
        return endpoint

    def add_connection(self, name: str, fds: list[int]) -> None:
        """Take a connection; if it comes too late, its other end sees it closed."""
        endpoint = None if self._closed else self._endpoints.get(name)
        for fd in fds:
            if endpoint is None:
                os.close(fd)
            else:
                endpoint.add(fd)

    def close(self) -> None:
        """Close all endpoints; may be called twice."""
        self._closed = True
        for endpoint in self._endpoints.values():
            endpoint.close()
