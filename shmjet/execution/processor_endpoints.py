"""Doors: how a program outside talks to one processor of a running execution.

A processor opens a door by name. A program that knows the name and the execution asks the member for it; the member
checks the program's user, makes a pair of sockets and gives each side one. From then on the two talk alone. So no
processor listens anywhere, and with the execution all its doors and what waits before them are gone.

Must not know: who comes, and what for.
"""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Callable

from shmjet.core import ProcessorError
from shmjet.execution.messages import DoorOpened


class OpenDoor:
    """The inner side of one door: sockets of the programs that have connected, in order."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._waiting: deque[socket.socket] = deque()

    def take(self) -> socket.socket | None:
        """Return the socket of the next connection, which is the caller's then; None when none waits."""
        return self._waiting.popleft() if self._waiting else None

    def add(self, fd: int) -> None:
        """Queue a connection; its descriptor belongs to the door."""
        self._waiting.append(socket.socket(fileno=fd))

    def close(self) -> None:
        """Close the connections that wait."""
        while self._waiting:
            self._waiting.popleft().close()


class ExecutionDoors:
    """The doors of one execution in one process.

    Args:
        execution_id: of the execution.
        say: sends a message to the member.
    """

    def __init__(self, execution_id: int, say: Callable[[object], None]) -> None:
        self._execution_id = execution_id
        self._say = say
        self._doors: dict[str, OpenDoor] = {}
        self._closed = False

    def open(self, name: str) -> OpenDoor:
        """Open a door and tell the member.

        Raises:
            ProcessorError: a door of that name is open here.
        """
        if name in self._doors:
            raise ProcessorError(
                f"two processors of one job wait behind the same door {name!r}; make a source for each"
            )
        door = self._doors[name] = OpenDoor(name)
        self._say(DoorOpened(self._execution_id, name))
        return door

    def let_in(self, name: str, fds: list[int]) -> None:
        """Take a connection; if it comes too late, its other end sees it closed."""
        door = None if self._closed else self._doors.get(name)
        for fd in fds:
            if door is None:
                os.close(fd)
            else:
                door.add(fd)

    def close(self) -> None:
        """Close all doors; may be called twice."""
        self._closed = True
        for door in self._doors.values():
            door.close()
