"""The requests of this member's clients that only the coordinator can answer, until they are answered.

They go to the coordinator and are remembered, as messages between members are lost when a connection breaks or the
coordinator does. Then a request that may be sent twice is sent to the present coordinator; for the rest the client is
told that the outcome is not known. `Bounced` comes from a member that does not coordinate (any more, or yet):
nothing was done, so everything is asked again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import msgspec

from shmjet.cluster.membership.peer_messages import Bounced, Forward
from shmjet.cluster.protocol import Execute, GridCall, Refused
from shmjet.cluster.requests.client_connections import LocalClient
from shmjet.cluster.retry import as_retry, as_waited, is_idempotent
from shmjet.ipc.inline_or_memfd import InlineOrMemfd

if TYPE_CHECKING:
    from shmjet.cluster.membership.network import Network

BOUNCE_S = 0.1
"""When a request that has bounced is tried again: views reach members one after the other."""
PATIENCE_S = 10.0
"""How long a request is sent again, from the first time, or from when a coordinator was lost that had it for longer.
The wait for the last answer does not count: a member may stand still for longer before it is lost."""

MAPS_LOST = "its maps and lists may be lost with it"

_encode = msgspec.msgpack.Encoder().encode


class _Asked(msgspec.Struct):
    client: LocalClient
    request: Any
    first: float
    sent: float


class RequestForwarder:
    """See the module.

    Args:
        network: leads to the coordinator.
        serve: has a request looked at again, by this member if it coordinates now.
        start: starts a task.
    """

    def __init__(
        self,
        network: Network,
        serve: Callable[[LocalClient, Any], None],
        start: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._network = network
        self._serve = serve
        self._start = start
        self._asked: dict[tuple[int, int], _Asked] = {}
        self._first: dict[tuple[int, int], float] = {}
        self._passed: dict[tuple[int, int], tuple[LocalClient, str]] = {}
        self._passed_to: dict[int, set[str]] = {}

    def take(self, client: LocalClient, request: Any, fds: list[int]) -> None:
        """Pass a request on, or say why that cannot be. Code that came as a descriptor goes on in the message."""
        view = self._network.view
        if view is None:
            client.send(Refused(request.request, "MemberLostError", self._network.trouble))
            return
        if isinstance(request, Execute) and request.submission is not None and request.submission.code_size:
            code = InlineOrMemfd.received(b"", request.submission.code_size, fds)
            submission = msgspec.structs.replace(request.submission, code=bytes(code.view()), code_size=0)
            request = msgspec.structs.replace(request, submission=submission)
        coordinator = view.coordinator.uuid
        if not self._network.is_connected(coordinator):
            self._start(self._await(client, request, coordinator))
            return
        now, key = time.monotonic(), (client.number, request.request)
        self._asked[key] = _Asked(client, request, self._first.get(key, now), now)
        self._network.send(coordinator, Forward(client.number, _encode(request), client.is_here))

    async def _await(self, client: LocalClient, request: Any, coordinator: str) -> None:
        """Wait until there is a connection to the coordinator, or another coordinator."""
        key = client.number, request.request
        begun = time.monotonic()
        first = self._first.get(key, begun)
        try:
            await self._network.reach([coordinator])
        except OSError as error:
            view, has_time = self._network.view, is_idempotent(request) and time.monotonic() - first <= PATIENCE_S
            if view is not None and view.coordinator.uuid == coordinator and not has_time:
                client.send(Refused(request.request, "MemberLostError", str(error)))
                return
            await asyncio.sleep(BOUNCE_S)
        self._serve_since(client, as_waited(request, time.monotonic() - begun), first)

    def pass_to(self, member: str, client: LocalClient, request: GridCall) -> None:
        """Pass an operation on to the member that it is for, or say that it cannot be reached."""
        view = self._network.view
        if view is None or view.find(member) is None:
            client.send(Refused(request.request, "PartitionMovedError", "the member is gone"))
        elif not self._network.is_connected(member):
            self._start(self._reach(member, client, request))
        else:
            self._passed[client.number, request.request] = client, member
            self._passed_to.setdefault(client.number, set()).add(member)
            self._network.send(member, Forward(client.number, _encode(request), client.is_here))

    async def _reach(self, member: str, client: LocalClient, request: GridCall) -> None:
        try:
            await self._network.reach([member])
        except OSError as error:
            client.send(Refused(request.request, "PartitionMovedError", str(error)))
        else:
            if not client.is_closed:
                self.pass_to(member, client, request)

    def member_lost(self, member: str, why: str) -> None:
        """Take that a member, or the connection to it, is gone: what was passed to it is asked again by its client."""
        for key, (client, asked) in list(self._passed.items()):
            if asked == member:
                del self._passed[key]
                client.send(Refused(key[1], "PartitionMovedError", why))

    def answered(self, client: int, request: int) -> None:
        """Take that a request has been answered."""
        self._asked.pop((client, request), None)
        self._passed.pop((client, request), None)

    def client_gone(self, client: int) -> set[str]:
        """Forget the requests of a client that is gone; return the members to which some were passed."""
        for key in [key for key in self._asked if key[0] == client]:
            del self._asked[key]
        for key in [key for key in self._passed if key[0] == client]:
            del self._passed[key]
        return self._passed_to.pop(client, set())

    def bounced(self, message: Bounced) -> None:
        """Take that a request was not looked at."""
        asked = self._asked.pop((message.client, message.request), None)
        if asked is None:
            return
        if time.monotonic() - asked.first > PATIENCE_S:
            text = "the members do not agree on who coordinates; nothing was done, ask again"
            asked.client.send(Refused(message.request, "MemberLostError", text))
        else:
            request = as_waited(asked.request, time.monotonic() - asked.sent + BOUNCE_S)
            self._again(asked, request, BOUNCE_S)

    def lost(self, why: str, *, is_over: bool = False) -> None:
        """Take that the connection to the coordinator has broken, or that it is gone: ask again what may be.

        Args:
            why: what has happened.
            is_over: there is no coordinator to ask, and no other member can be asked: connections to all are gone.
        """
        if is_over:
            for member in {member for _, member in self._passed.values()}:
                self.member_lost(member, why)
        lost, self._asked = self._asked, {}
        now = time.monotonic()
        for asked in lost.values():
            request = asked.request
            if now - asked.sent > PATIENCE_S:  # it was being carried out: an export takes as long as the state is large
                asked.first = now
            if is_idempotent(request) and not is_over and asked.sent - asked.first <= PATIENCE_S:
                self._again(asked, as_retry(request, now - asked.sent), 0.0)
            else:
                asked.client.send(Refused(request.request, "MemberLostError", _unknown(request, why)))

    def _again(self, asked: _Asked, request: Any, after: float) -> None:
        asyncio.get_running_loop().call_later(after, self._serve_since, asked.client, request, asked.first)

    def _serve_since(self, client: LocalClient, request: Any, first: float) -> None:
        """Have a request looked at again that came at some time."""
        key = client.number, request.request
        self._first[key] = first
        if not client.is_closed:
            self._serve(client, request)
        self._first.pop(key, None)


def _unknown(request: Any, why: str) -> str:
    if isinstance(request, GridCall):
        return f"{why}; whether the operation was carried out is not known, and {MAPS_LOST}"
    return f"{why}; whether the request ({type(request).__name__}) was carried out is not known"
