"""The maps and lists of this member, for clients and members from anywhere.

Operations on the store block for a moment, so a few threads do them; results come back on the member's loop. A short
one, for which no writer has to be waited for, is done at once: a thread would take longer to be woken. Bytes in, bytes
out: nothing of what they hold is unpickled here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from shmjet.cluster.protocol import AwaitBackups, Done, GridCall, GridReply, Refused
from shmjet.cluster.requests.client_connections import Client, LocalClient
from shmjet.cluster.requests.request_forwarder import MAPS_LOST
from shmjet.grid.blobs import STAGED_S
from shmjet.grid.errors import GridError, GridFullError, NotOnDiskError
from shmjet.ipc.background_tasks import BackgroundTasks

if TYPE_CHECKING:
    from shmjet.grid.service import GridService, Unsettled

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
        backed_up: gives a future that is done when all backups have the changes of an environment up to a number, or
            None if they have; PartitionMovedError where that may never be. None: there are no backups.
        address: gives that of this member, for errors; empty where there are no others.
    """

    def __init__(
        self,
        folder: Path,
        trouble: Callable[[], tuple[str, str] | None] = lambda: None,
        me: Callable[[], str] = lambda: "",
        pass_on: Callable[[str, Any, GridCall], None] | None = None,
        backed_up: Callable[[int, int], asyncio.Future[None] | None] | None = None,
        address: Callable[[], str] = lambda: "",
    ) -> None:
        self._address = address
        self._backed_up = backed_up
        self._folder = folder
        self._trouble = trouble
        self._me = me
        self._pass_on = pass_on
        self._service: GridService | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._sweeping: asyncio.TimerHandle | None = None
        self._tasks = BackgroundTasks()
        self._turns: WeakKeyDictionary[Client, asyncio.Semaphore] = WeakKeyDictionary()

    def perform(self, client: Client, request: GridCall) -> None:
        """Perform an operation, or have the member do so that it is for, and answer."""
        trouble = self._trouble()
        if trouble is not None:
            client.send(Refused(request.request, *trouble))
        elif request.member in ("", self._me()):
            if not self._performed(client, request):
                self._tasks.start(self._in_turn(client, request))
        elif isinstance(client, LocalClient) and self._pass_on is not None:
            self._pass_on(request.member, client, request)
        else:
            client.send(Refused(request.request, "PartitionMovedError", "this is another member"))

    def _performed(self, client: Client, request: GridCall) -> bool:
        """Perform an operation now if it is a short one, and say whether it was."""
        service = self._service
        if service is None or request.again:
            return False
        try:
            found = service.perform_if_short(request.body)
            if found is None:
                return False
            self._reply(client, GridReply(request.request, found[0], service.store), found[1])
        except Exception as error:
            client.send(refused(request.request, error, self._address()))
        return True

    def _reply(self, client: Client, reply: GridReply, unsettled: Unsettled | None) -> None:
        """Send an answer as soon as the backups have what it is about."""
        settled = None if unsettled is None or self._backed_up is None else self._backed_up(*unsettled)
        if settled is None:
            client.send(reply)
        else:
            settled.add_done_callback(lambda settled: self._settled(client, reply, settled))

    def _settled(self, client: Client, reply: GridReply, settled: asyncio.Future[None]) -> None:
        if settled.cancelled():
            return
        error = settled.exception()
        client.send(reply if error is None else refused(reply.request, error, self._address()))

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
            if service.has_staged and self._sweeping is None:
                self._sweeping = loop.call_later(STAGED_S, self._sweep, service)
            self._reply(client, GridReply(request.request, body, service.store), unsettled)
        except Exception as error:
            client.send(refused(request.request, error, self._address()))

    def _sweep(self, service: GridService) -> None:
        self._tasks.start(self._swept(service))

    async def _swept(self, service: GridService) -> None:
        """Delete large values of clients that have gone before their entries came; look again if there are others."""
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._threads, service.sweep_staged)
        finally:
            self._sweeping = loop.call_later(STAGED_S, self._sweep, service) if service.has_staged else None

    def await_backups(self, client: Client, request: AwaitBackups) -> None:
        """Answer when all backups have what a process of this host has changed or read."""
        try:
            settled = None if self._backed_up is None else self._backed_up(request.environment, request.number)
        except (GridError, IndexError) as error:
            client.send(_unknown(request, error))
        else:
            if settled is None:
                client.send(Done(request.request))
            else:
                settled.add_done_callback(lambda settled: self._awaited(client, request, settled))

    def _awaited(self, client: Client, request: AwaitBackups, settled: asyncio.Future[None]) -> None:
        if not settled.cancelled():
            error = settled.exception()
            client.send(Done(request.request) if error is None else _unknown(request, error))

    def _opened(self) -> GridService:
        if self._service is None:
            from shmjet.grid.service import GridService  # its decoders take as long to make as twenty modules

            self._service = GridService(self._folder)
        return self._service

    def close(self) -> None:
        """Let go of the store."""
        if self._sweeping is not None:
            self._sweeping.cancel()
        if self._threads is not None:
            self._threads.shutdown()
        if self._service is not None:
            self._service.close()


def refused(request: int, error: BaseException, address: str = "") -> Refused:
    """Return the answer to an operation that raised an error.

    Args:
        request: its number.
        error: what it raised.
        address: of the member, which is named where its memory or disk takes no more; empty: it need not be.
    """
    where = f" (on the member {address})" if address else ""
    if isinstance(error, NotOnDiskError):
        return Refused(request, type(error).__name__, f"{error}{where}", error.result or b"")
    if isinstance(error, GridFullError):
        return Refused(request, type(error).__name__, f"{error}{where}")
    if isinstance(error, GridError):
        return Refused(request, type(error).__name__, str(error))
    logger.error("an operation on a map or list failed", exc_info=error)
    return Refused(request, "GridError", f"{type(error).__name__}: {error}")


def _unknown(request: AwaitBackups, error: BaseException) -> Refused:
    text = f"{error}; whether other members have what was changed is not known"
    return Refused(request.request, "MemberLostError", text)
