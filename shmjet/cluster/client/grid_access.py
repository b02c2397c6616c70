"""An instance's access to its maps and lists: in its own member's folder, or over the connection to a cluster."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shmjet.cluster.protocol import DescribePartitions, GridCall, GridReply, PartitionsReply
from shmjet.data.errors import ShmjetError
from shmjet.grid import Grid
from shmjet.grid.routed import RoutedGrid
from shmjet.grid.routes import Owners

Ask = Callable[[Callable[[int], Any]], Any]
"""Sends a request, made from its number, and returns the reply."""


class GridAccess:
    """See the module. Nothing is opened before the first map or list is wanted.

    Args:
        folder: of the store; None where it may be another host's.
        ask: leads to the member.
    """

    def __init__(self, folder: Path | None, ask: Ask) -> None:
        self._folder = folder
        self._ask = ask
        self._lock = threading.Lock()
        self._grid: Grid | RoutedGrid | None = None
        self._closed = False

    def open(self) -> Grid | RoutedGrid:
        """Return the maps and lists.

        Raises:
            ShmjetError: the instance has been shut down.
        """
        self._check_open()
        with self._lock:
            if self._grid is None:
                self._grid = RoutedGrid(self) if self._folder is None else Grid.open(self._folder)
            return self._grid

    def ask(self, member: str, body: bytes) -> bytes:
        """See `shmjet.grid.routes.Carrier`."""
        self._check_open()
        reply = self._ask(lambda number: GridCall(number, body, 0, False, member))
        assert isinstance(reply, GridReply)
        return reply.body

    def owners(self) -> Owners:
        """See `shmjet.grid.routes.Carrier`."""
        self._check_open()
        reply = self._ask(DescribePartitions)
        assert isinstance(reply, PartitionsReply)
        return Owners(tuple(reply.members), tuple(row[0] for row in reply.replicas), reply.me)

    def _check_open(self) -> None:
        if self._closed:
            raise ShmjetError("this instance has been shut down; its maps and lists are gone")

    def forget(self) -> None:
        """Take that the maps may be another member's now."""
        if isinstance(self._grid, RoutedGrid):
            self._grid.forget()

    def end_listeners(self) -> None:
        """End the listeners of maps."""
        if self._grid is not None:
            self._grid.end_listeners()

    def refuse(self) -> None:
        """Take that the instance is being shut down."""
        self._closed = True

    def close(self) -> None:
        """Let go of what is open."""
        if self._grid is not None:
            self._grid.close()
