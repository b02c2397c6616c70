"""The maps and lists of this member, for clients and members from anywhere.

Operations on the store block for a moment, so a few threads do them; results come back on the member's loop. Bytes in,
bytes out: nothing of what they hold is unpickled here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from shmjet.cluster.jobs.table import Client
from shmjet.cluster.protocol import AwaitBackups, Done, GridCall, GridReply, Refused
from shmjet.cluster.requests.client_connections import LocalClient
from shmjet.cluster.requests.request_forwarder import MAPS_LOST
from shmjet.grid.errors import GridError
from shmjet.grid.service import GridService
from shmjet.ipc.background_tasks import BackgroundTasks

_THREADS = 2
_MOST_AT_ONCE = 2
"""Operations of one client that are performed at the same time: what it does not read piles up here."""

logger = logging.getLogger("shmjet.member")


class GridRequests:
    """See the module. The threads and the store are there from the first call on.

    Args:
        folder: of the store.
        trouble: says why this member has no part in the cluster now, as an error's class and text; None where it has.
        me: gives the member's identity.
        pass_on: has another member perform an operation.
        backed_up: returns when all backups have the changes of an environment up to a number; raises
            PartitionMovedError where that may never be. None: there are no backups.
    """

    def __init__(
        self,
        folder: Path,
        trouble: Callable[[], tuple[str, str] | None] = lambda: None,
        me: Callable[[], str] = lambda: "",
        pass_on: Callable[[str, Any, GridCall], None] | None = None,
        backed_up: Callable[[int, int], Awaitable[None]] | None = None,
    ) -> None:
        self._backed_up = backed_up
        self._folder = folder
        self._trouble = trouble
        self._me = me
        self._pass_on = pass_on
        self._service: GridService | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._tasks = BackgroundTasks()
        self._turns: WeakKeyDictionary[Client, asyncio.Semaphore] = WeakKeyDictionary()

    def perform(self, client: Client, request: GridCall) -> None:
        """Perform an operation, or have the member do so that it is for, and answer."""
        trouble = self._trouble()
        if trouble is not None:
            client.send(Refused(request.request, *trouble))
        elif request.member in ("", self._me()):
            self._tasks.start(self._in_turn(client, request))
        elif isinstance(client, LocalClient) and self._pass_on is not None:
            self._pass_on(request.member, client, request)
        else:
            client.send(Refused(request.request, "PartitionMovedError", "this is another member"))

    async def _in_turn(self, client: Client, request: GridCall) -> None:
        async with self._turns.setdefault(client, asyncio.Semaphore(_MOST_AT_ONCE)):
            await client.until_read()
            await self._perform(client, request)

    async def _perform(self, client: Client, request: GridCall) -> None:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="shmjet-grid")
        loop = asyncio.get_running_loop()
        try:
            service = self._opened()
            if request.again and request.store and request.store != service.store:
                text = f"the member that was asked is gone; {MAPS_LOST}"
                client.send(Refused(request.request, "MemberLostError", text))
                return
            body, unsettled = await loop.run_in_executor(self._threads, service.perform_and_note, request.body)
            if unsettled is not None and self._backed_up is not None:
                await self._backed_up(*unsettled)
        except GridError as error:
            client.send(Refused(request.request, type(error).__name__, str(error)))
        except Exception as error:
            logger.exception("an operation on a map or list failed")
            client.send(Refused(request.request, "GridError", f"{type(error).__name__}: {error}"))
        else:
            client.send(GridReply(request.request, body, service.store))

    def await_backups(self, client: Client, request: AwaitBackups) -> None:
        """Answer when all backups have what a process of this host has changed or read."""
        self._tasks.start(self._await_backups(client, request))

    async def _await_backups(self, client: Client, request: AwaitBackups) -> None:
        try:
            if self._backed_up is not None:
                await self._backed_up(request.environment, request.number)
        except (GridError, IndexError) as error:
            text = f"{error}; whether other members have what was changed is not known"
            client.send(Refused(request.request, "MemberLostError", text))
        else:
            client.send(Done(request.request))

    def _opened(self) -> GridService:
        if self._service is None:
            self._service = GridService(self._folder)
        return self._service

    def close(self) -> None:
        """Let go of the store."""
        if self._threads is not None:
            self._threads.shutdown()
        if self._service is not None:
            self._service.close()
