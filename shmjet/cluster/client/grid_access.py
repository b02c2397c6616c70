"""An instance's access to its maps and lists: in its own member's folder, or over the connection to a cluster."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shmjet.cluster.protocol import GridCall, GridReply
from shmjet.data.errors import ShmjetError
from shmjet.grid import Grid
from shmjet.grid.remote import RemoteGrid

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
        self._grid: Grid | RemoteGrid | None = None
        self._store = 0
        """The store that answered last."""
        self._closed = False

    def open(self) -> Grid | RemoteGrid:
        """Return the maps and lists.

        Raises:
            ShmjetError: the instance has been shut down.
        """
        self._check_open()
        with self._lock:
            if self._grid is None:
                self._grid = RemoteGrid(self._call) if self._folder is None else Grid.open(self._folder)
            return self._grid

    def _call(self, body: bytes) -> bytes:
        self._check_open()
        known = self._store
        reply = self._ask(lambda number: GridCall(number, body, known))
        assert isinstance(reply, GridReply)
        self._store = reply.store
        return reply.body

    def _check_open(self) -> None:
        if self._closed:
            raise ShmjetError("this instance has been shut down; its maps and lists are gone")

    def forget(self) -> None:
        """Take that the maps may be another member's now."""
        if isinstance(self._grid, RemoteGrid):
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
