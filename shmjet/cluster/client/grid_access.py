"""An instance's access to its maps and lists: in its own member's folder, and over the connection to a cluster.

What lies on the member that this process has started is read and written in that member's store, as by its workers. The
process goes on when that member is killed: then other members have what was there, and what is in the store counts no
more. So it is looked whether the member runs, after each operation in the store.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shmjet.cluster.client.connection import refusal
from shmjet.cluster.client.direct_lines import Dial, DirectLines, LineLost
from shmjet.cluster.protocol import (
    AwaitBackups,
    Describe,
    DescribePartitions,
    GridCall,
    GridReply,
    PartitionsReply,
    Refused,
)
from shmjet.data.errors import MemberLostError, ShmjetError
from shmjet.grid.errors import PartitionMovedError

if TYPE_CHECKING:
    from shmjet.grid import Grid
    from shmjet.grid.routed import RoutedGrid
    from shmjet.grid.routes import Owners

_REQUESTS = 4
"""Requests of one call that are under way at the same time, to different environments and members."""

_MOST_LOST = 2
"""Members that may be lost while one question is asked."""

Ask = Callable[[Callable[[int], Any]], Any]
"""Sends a request, made from its number, and returns the reply."""


class GridAccess:
    """See the module. Nothing is opened, and no code of maps loaded, before the first map or list is wanted.

    Args:
        folder: of the store; None where it may be another host's.
        ask: leads to the member.
        check: raises MemberLostError if the member that has the store is gone.
        dial: connects to any member; None where all goes over the connection of `ask`.
    """

    def __init__(self, folder: Path | None, ask: Ask, check: Callable[[], None], dial: Dial | None = None) -> None:
        self._lines = None if dial is None else DirectLines(dial, self._addresses)
        self._folder = folder
        self._ask = ask
        self._check = check
        self._lock = threading.Lock()
        self._grid: Grid | RoutedGrid | None = None
        self._routed: RoutedGrid | None = None
        self._here: Grid | None = None
        self._closed = False

    def open(self) -> Grid | RoutedGrid:
        """Return the maps and lists.

        Raises:
            ShmjetError: the instance has been shut down.
        """
        self._check_open()
        with self._lock:
            if self._grid is None:
                self._grid = self._opened()
            return self._grid

    def _opened(self) -> Grid | RoutedGrid:
        from shmjet.grid import Grid
        from shmjet.grid.routed import RoutedGrid

        if self._folder is None:
            self._routed = RoutedGrid(self, requests=_REQUESTS)
            return self._routed
        grid = Grid.open(self._folder)
        if not grid.opened.is_divided:
            return grid
        self._here = grid
        self._routed = RoutedGrid(self, grid.opened, self._await_backups, self._check_usable, _REQUESTS)
        return self._routed

    def ask(self, member: str, body: bytes) -> bytes:
        """See `shmjet.grid.routes.Carrier`."""
        self._check_open()

        def make(number: int) -> GridCall:
            return GridCall(number, body, 0, False, member)

        reply = None
        if member and self._lines is not None:
            try:
                reply = self._lines.ask(member, make)
            except LineLost as error:  # asked again, under its number, wherever the partition is then
                raise PartitionMovedError("the connection to the member was lost") from error
            if isinstance(reply, Refused):  # a member that is cut off is asked no more: the others may have gone on
                raise PartitionMovedError(reply.text) if reply.error == "MemberLostError" else refusal(reply)
        if reply is None:
            reply = self._ask(make) if member else self._ask_any(make)
        assert isinstance(reply, GridReply)
        return reply.body

    def _ask_any(self, make: Callable[[int], GridCall]) -> Any:
        """Ask whichever member there is what any of them knows; once more where it is lost before it answers."""
        for _ in range(_MOST_LOST):
            with contextlib.suppress(MemberLostError):
                return self._ask(make)
        return self._ask(make)

    def _addresses(self) -> dict[str, str]:
        return {member.uuid: member.address for member in self._ask(Describe).members}

    def owners(self) -> Owners:
        """See `shmjet.grid.routes.Carrier`."""
        from shmjet.grid.routes import Owners

        self._check_open()
        reply = self._ask(DescribePartitions)
        assert isinstance(reply, PartitionsReply)
        return Owners(tuple(reply.members), tuple(row[0] for row in reply.replicas), reply.me)

    def _await_backups(self, environment: int, number: int) -> None:
        self._check_open()
        self._ask(lambda request: AwaitBackups(request, environment, number))

    def _check_usable(self) -> None:
        self._check_open()
        self._check()

    def _check_open(self) -> None:
        if self._closed:
            raise ShmjetError("this instance has been shut down; its maps and lists are gone")

    def forget(self) -> None:
        """Take that the maps may be another member's now."""
        if self._routed is not None:
            self._routed.forget()

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
        if self._lines is not None:
            self._lines.close()
        if self._here is not None:
            self._here.close()
