"""Cluster-wide status: any member collects a report from all others.

A member that does not answer in time is left out, and named. Three things can be asked for: the pids of workers, a
status (numbers of workers and processes, executions), and a diagnostic dump, for which each member starts
another program, so that it does nothing itself while the stacks of its processes are read.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from shmjet.cluster.membership.peer_messages import AskReport, Report
from shmjet.cluster.membership.views import Peer
from shmjet.cluster.protocol import (
    ChildPids,
    Describe,
    DumpAll,
    DumpsReply,
    MemberDump,
    MemberRow,
    MembersReply,
    MemberStatus,
    StatusReply,
    StatusRequest,
)
from shmjet.data.decoders import from_msgpack
from shmjet.host.own_code import program
from shmjet.ipc.background_tasks import BackgroundTasks
from shmjet.ipc.decode_errors import UNREADABLE

WORKERS_S = STATUS_S = 1.0
DUMP_S = 30.0
"""How long others may take to answer."""

T = TypeVar("T")


class Client(Protocol):
    """Who asks."""

    def send(self, message: object) -> None:
        """Send the answer."""


class ClusterStatus:
    """Asks and answers for one member.

    Args:
        folder: the member's.
        members: gives all members, the oldest first; this one alone where there is no network.
        me: gives this one's identity.
        post: sends a message to a member.
        pids: gives the pids of this member's workers and carriers.
        look: gives this member's part of a status.
    """

    def __init__(
        self,
        folder: Path,
        members: Callable[[], Sequence[Peer]],
        me: Callable[[], str],
        post: Callable[[str, object], None],
        pids: Callable[[], Coroutine[Any, Any, ChildPids]],
        look: Callable[[], MemberStatus],
    ) -> None:
        self._folder = folder
        self._members = members
        self._me = me
        self._post = post
        self._pids = pids
        self._look = look
        self._numbers = itertools.count(1)
        self._asked: dict[int, tuple[str, asyncio.Future[bytes | None]]] = {}
        self._tasks = BackgroundTasks()
        self._dumping: asyncio.Future[bytes] | None = None
        """The dump that is being made: a process makes it, so all who ask meanwhile get the same."""

    def describe_members(self, client: Client, request: Describe) -> None:
        """Answer with the members, their workers and carriers."""
        self._tasks.start(self._describe(client, request.request))

    def report_status(self, client: Client, request: StatusRequest) -> None:
        """Answer with what all members do."""
        self._tasks.start(self._status(client, request.request))

    def dump(self, client: Client, request: DumpAll) -> None:
        """Answer with a diagnostic dump of all members."""
        self._tasks.start(self._dump(client, request.request))

    def take(self, sender: str, message: AskReport | Report) -> None:
        """Take what another member asks or answers."""
        if isinstance(message, AskReport):
            self._tasks.start(self._answer(sender, message))
            return
        _, future = self._asked.get(message.request, ("", None))
        if future is not None and not future.done():
            future.set_result(message.body)

    def member_lost(self, identity: str) -> None:
        """Take that a member is gone: it is not waited for."""
        for asked, future in self._asked.values():
            if asked == identity and not future.done():
                future.set_result(None)

    # -- for clients --------------------------------------------------------------------------------------------

    async def _describe(self, client: Client, request: int) -> None:
        told = await self._gather("workers", WORKERS_S)
        rows = []
        for peer, body in told:
            pids = _decoded(body, ChildPids) or ChildPids([], [])
            rows.append(MemberRow(peer.uuid, peer.address, peer.pid, list(peer.cores), pids.workers, pids.carriers))
        client.send(MembersReply(request, rows, self._me()))

    async def _status(self, client: Client, request: int) -> None:
        told = [(peer.address, _decoded(body, MemberStatus)) for peer, body in await self._gather("status", STATUS_S)]
        found = [status for _, status in told if status is not None]
        silent = [address for address, status in told if status is None]
        client.send(StatusReply(request, found, silent, told[0][0]))

    async def _dump(self, client: Client, request: int) -> None:
        told = await self._gather("dump", DUMP_S)
        client.send(DumpsReply(request, [MemberDump(peer.address, body) for peer, body in told]))

    async def _gather(self, kind: str, patience: float) -> list[tuple[Peer, bytes | None]]:
        """Ask all members, this one included; None for a member that does not answer."""
        peers = self._members()
        return list(zip(peers, await asyncio.gather(*(self._ask(p, kind, patience) for p in peers)), strict=True))

    async def _ask(self, peer: Peer, kind: str, patience: float) -> bytes | None:
        if peer.uuid == self._me():
            return await self._report(kind)
        number = next(self._numbers)
        future: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
        self._asked[number] = peer.uuid, future
        self._post(peer.uuid, AskReport(number, kind))
        try:
            return await asyncio.wait_for(future, patience)
        except TimeoutError:
            return None
        finally:
            del self._asked[number]

    # -- of this member -----------------------------------------------------------------------------------------

    async def _answer(self, sender: str, asked: AskReport) -> None:
        self._post(sender, Report(asked.request, await self._report(asked.kind)))

    async def _report(self, kind: str) -> bytes:
        match kind:
            case "workers":
                return msgspec.msgpack.encode(await self._pids())
            case "status":
                return msgspec.msgpack.encode(self._look())
            case "dump":
                if self._dumping is None or self._dumping.done():
                    self._dumping = asyncio.ensure_future(asyncio.to_thread(dump_of, self._folder))
                return await asyncio.shield(self._dumping)
        return b""  # of a newer version


def _decoded(body: bytes | None, kind: type[T]) -> T | None:
    """Return what a member has told; None when it has not, or not in words that are understood here."""
    if body is None:
        return None
    try:
        return from_msgpack(body, kind)
    except UNREADABLE:
        return None


def dump_of(folder: Path) -> bytes:
    """Return what `shmjet.cluster.monitor.dump` finds out about a member, as JSON; made by a program of its own.

    Args:
        folder: the member's.
    """
    code = f"from shmjet.cluster.monitor.dump import main\nmain({os.fspath(folder)!r})"
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", program(code)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=DUMP_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return msgspec.json.encode({"gone": f"cannot be looked at: {error}"})
    if done.returncode:
        return msgspec.json.encode({"gone": f"cannot be looked at: {done.stderr.decode(errors='replace').strip()}"})
    return done.stdout
