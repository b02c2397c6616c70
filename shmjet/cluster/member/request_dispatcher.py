"""The way of a client's request to its answer: from this member's handler, now or later, or from the coordinator.

Which handler that is, says the table in `request_handlers`.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from shmjet.cluster.member.request_handlers import RequestHandler, Scope
from shmjet.cluster.membership.peer_messages import ClientGone
from shmjet.cluster.protocol import Execute, GoOnWithout, Refused
from shmjet.cluster.requests.client_connections import ForwardedClient, LocalClient
from shmjet.cluster.requests.code_policy import NO_CODE, carries_code
from shmjet.cluster.requests.request_forwarder import RequestForwarder
from shmjet.cluster.retry import as_waited
from shmjet.ipc.background_tasks import BackgroundTasks

if TYPE_CHECKING:
    from shmjet.cluster.membership.network import Network

logger = logging.getLogger("shmjet.member")


class RequestDispatcher:
    """See the module.

    Args:
        handlers: by types of requests.
        network: of the member; None for a member alone.
        me: gives the member's identity.
        knows_runs: says whether this member, which coordinates, knows what runs there are.
        allow_code: whether clients of other hosts may bring code.
    """

    def __init__(
        self,
        handlers: Mapping[type, RequestHandler],
        network: Network | None,
        me: Callable[[], str],
        knows_runs: Callable[[], bool],
        *,
        allow_code: bool,
    ) -> None:
        self._handlers = handlers
        self._network = network
        self._me = me
        self._knows_runs = knows_runs
        self._allow_code = allow_code
        self._tasks = BackgroundTasks()
        self.forwarder = None if network is None else RequestForwarder(network, self.serve, self._tasks.start)
        """Passes requests on to other members; None for a member alone."""
        self._held: list[tuple[LocalClient | ForwardedClient, Any, list[int], float]] = []
        """Requests for the coordinator, which this member is, until it knows what runs there are; and since when."""
        self.waits_for = ""
        """Why jobs cannot be run yet; empty: they can."""
        self.has_left = False
        """Whether this member has left its cluster, which goes on with its runs."""

    def serve(self, client: LocalClient | ForwardedClient, request: Any, fds: list[int] | None = None) -> None:
        """Have a client's request answered; its handler removes the descriptors that it keeps from `fds`."""
        if isinstance(request, Execute) and request.logs is not None and isinstance(client, LocalClient):
            home = self._me() if client.is_here else ""
            request = msgspec.structs.replace(request, logs=msgspec.structs.replace(request.logs, home=home))
        fds = [] if fds is None else fds
        try:
            if not self._allow_code and not client.is_here and carries_code(request):
                client.send(Refused(request.request, "AuthenticationError", NO_CODE))
                return
            handler = self._handlers[type(request)]
            if handler.scope is Scope.COORDINATOR:
                self._coordinate(client, request, fds, handler)
            elif handler.scope is Scope.HOST and not (isinstance(client, LocalClient) and client.is_here):
                text = "only a process of the same host can watch a member"
                client.send(Refused(request.request, "ShmjetError", text))
            else:
                handler(client, request, fds)
        except Exception as error:
            logger.exception("request %s failed", type(request).__name__)
            client.send(Refused(request.request, "ShmjetError", f"{type(error).__name__}: {error}"))

    def _coordinate(
        self, client: LocalClient | ForwardedClient, request: Any, fds: list[int], handler: RequestHandler
    ) -> None:
        """Have a request answered that is for the coordinator."""
        if self.has_left:
            return  # the client asks another member when this one closes the connection
        if self._network is not None and not self._network.is_coordinator:
            self._forward(client, request, fds)
        elif self.waits_for and not isinstance(request, GoOnWithout):
            client.send(Refused(request.request, "ShmjetError", self.waits_for))
        elif not self.waits_for and not self._knows_runs():
            self._held.append((client, request, list(fds), time.monotonic()))
            fds.clear()
        else:
            handler(client, request, fds)

    def _forward(self, client: LocalClient | ForwardedClient, request: Any, fds: list[int]) -> None:
        if isinstance(client, ForwardedClient):  # the member that forwarded it saw another coordinator
            client.bounce(request.request)
        else:
            assert self.forwarder is not None
            self.forwarder.take(client, request, fds)

    def serve_held(self) -> None:
        """Have requests answered that came before this member knew what runs there are."""
        held, self._held = self._held, []
        for client, request, fds, since in held:
            self.serve(client, as_waited(request, time.monotonic() - since), fds)
            for fd in fds:
                os.close(fd)

    def client_gone(self, client: LocalClient | ForwardedClient) -> None:
        """Tell the members that have requests of a client that it is gone."""
        if self._network is not None and isinstance(client, LocalClient):
            assert self.forwarder is not None
            told = self.forwarder.client_gone(client.number)
            view = self._network.view
            if view is not None and not self._network.is_coordinator:
                told.add(view.coordinator.uuid)
            for uuid in told:
                self._network.send(uuid, ClientGone(client.number))
