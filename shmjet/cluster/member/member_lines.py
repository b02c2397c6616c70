"""Connections between members for changes and copies of partitions, next to those of their links.

A change goes to a backup and its answer back while a client waits. By way of the links that wakes four processes more
than by a connection between the two members. So there is one: a member tells the other a secret over the links, which
have proved who is who, connects as a client does, and shows the secret; of two members the one with the smaller
identity does so. A line may break, or be silent, at any time: who gets no answer goes by the links. Connections with
TLS stay with the links. Copies have connections of their own (`copy_lines`), which are made in the same way, by the
member that sends them. Must not know what is said.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import struct
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from shmjet.cluster.membership.peer_messages import OfferLine, PeerMessage
from shmjet.cluster.membership.views import View
from shmjet.cluster.partitions.table import PartitionTable
from shmjet.cluster.protocol import Done, Refused, Reply, TakeLine
from shmjet.cluster.requests.client_connections import LocalClient
from shmjet.data.errors import ShmjetError
from shmjet.ipc.background_tasks import BackgroundTasks
from shmjet.ipc.channel import Channel, ChannelClosed
from shmjet.ipc.loop_channel import LoopChannel

_DIAL_S = 2.0
_AGAIN_S = 5.0
"""When a line is tried again."""
_TOKEN_BYTES = 16
Way = Callable[[object], None]
"""Sends a message to the member that something came from, the way that it came."""

logger = logging.getLogger("shmjet.member")


class NetworkOfLines(Protocol):
    """The member's network."""

    @property
    def view(self) -> View | None: ...
    @property
    def table(self) -> PartitionTable | None: ...
    def send(self, identity: str, message: object) -> None: ...
    async def reach(self, identities: Sequence[str]) -> None: ...


class MemberLines:
    """See the module.

    Args:
        network: of the member.
        me: gives its identity.
        cluster, secret: with which clients connect to its members; None for the secret: there are no lines.
        take: is given what comes by a line: the sender, the message, and the way back.
        take_copies: is given connections on which copies will come: the sender, and a socket that is its own then.
    """

    def __init__(
        self,
        network: NetworkOfLines,
        me: Callable[[], str],
        cluster: str,
        secret: bytes | None,
        take: Callable[[str, Any, Way], None],
        take_copies: Callable[[str, socket.socket], None] = lambda _, sock: sock.close(),
    ) -> None:
        self._network = network
        self._me = me
        self._cluster = cluster
        self._secret = secret
        self._take = take
        self._take_copies = take_copies
        self._lines: dict[str, LoopChannel] = {}
        self._unready: dict[str, LoopChannel] = {}
        """Lines whose other end has not said that it is ready."""
        self._offered: dict[bytes, tuple[str, bool]] = {}
        """By secret, who has told it, and whether it is for copies."""
        self._dialling: set[str] = set()
        self._made: dict[bytes, socket.socket] = {}
        """By secret: connections that a thread has made, and that are not used yet."""
        self._stopped = False
        self._tasks = BackgroundTasks()

    @property
    def table(self) -> PartitionTable | None:
        """The table of partitions in force."""
        return self._network.table

    async def reach(self, identities: Sequence[str]) -> None:
        """Wait until there are connections of the links to members."""
        await self._network.reach(identities)

    def send(self, identity: str, message: object) -> None:
        """Send a message to a member of the view, by the line to it if there is one."""
        line = self._lines.get(identity)
        if line is not None:
            line.send(message)
            return
        self._network.send(identity, message)
        self._want(identity)

    def _want(self, identity: str) -> None:
        if self._secret is not None and identity not in self._dialling:
            self._dialling.add(identity)
            asyncio.get_running_loop().call_later(_AGAIN_S, self._dialling.discard, identity)
            if self._me() < identity:
                self._tasks.start(self._make(identity))
            else:
                self._network.send(identity, OfferLine(b""))

    def doubt(self, identity: str) -> None:
        """Take that a member does not answer by its line: use it no more."""
        for lines in (self._lines, self._unready):
            line = lines.pop(identity, None)
            if line is not None:
                line.close()

    def view_changed(self) -> None:
        """Close the lines to members that are not in the view."""
        view = self._network.view
        for identity in [*self._lines, *self._unready]:
            if view is None or view.find(identity) is None:
                self.doubt(identity)
        self._offered = {
            token: offer for token, offer in self._offered.items() if view is not None and view.find(offer[0])
        }

    async def stop(self) -> None:
        """Close all."""
        self._stopped = True
        await self._tasks.cancel()
        for sock in self._made.values():
            sock.close()
        for identity in [*self._lines, *self._unready]:
            self.doubt(identity)

    # -- from here ----------------------------------------------------------------------------------------------

    async def connect_for_copies(self, identity: str) -> socket.socket | None:
        """Return a new connection to a member of the view, which has taken it; None where there can be none."""
        return await self._connect(identity, for_copies=True)

    async def _connect(self, identity: str, *, for_copies: bool) -> socket.socket | None:
        view = self._network.view
        peer = None if view is None or self._secret is None else view.find(identity)
        if peer is None:
            return None
        token = os.urandom(_TOKEN_BYTES)
        try:
            self._network.send(identity, OfferLine(token, for_copies))
            await asyncio.to_thread(self._dial, token, peer.address)
        except (OSError, ShmjetError, msgspec.DecodeError) as error:
            logger.debug("no line to a member: %s", error)
            return None
        sock = self._made.pop(token)
        view = self._network.view
        if view is None or view.find(identity) is None:
            sock.close()
            return None
        return sock

    async def _make(self, identity: str) -> None:
        sock = await self._connect(identity, for_copies=False)
        if sock is None:
            return
        if identity in self._lines:
            sock.close()
        else:
            self._open(identity, sock).send(OfferLine(b""))

    def _dial(self, token: bytes, address: str) -> None:
        """Make a connection that another member takes for a line. Blocks."""
        from shmjet.net.dial import dial  # which only members with a network need

        assert self._secret is not None
        connection = dial(address, cluster=self._cluster, secret=self._secret, timeout=_DIAL_S)
        sock = connection.socket
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", int(_DIAL_S), 0))
            channel = Channel(sock, Reply)
            channel.feed(connection.leftover)
            channel.send(TakeLine(1, token))
            while not isinstance(reply := channel.receive()[0], Done | Refused):
                pass
            if isinstance(reply, Refused):
                raise ChannelClosed(reply.text)
            if self._stopped:
                raise ChannelClosed("this member ends")
        except BaseException:
            sock.close()
            raise
        self._made[token] = sock

    # -- to here ------------------------------------------------------------------------------------------------

    def offered(self, sender: str, message: OfferLine) -> None:
        """Take the secret that a member will show; without one it asks for a line."""
        if not message.token:
            if sender not in self._lines:
                self._want(sender)
            return
        offer = sender, message.for_copies
        self._offered = {token: other for token, other in self._offered.items() if other != offer}
        self._offered[message.token] = offer

    def request(self, client: LocalClient, request: TakeLine) -> None:
        """Take a client's connection for a line, if it shows a secret of a member of the view."""
        identity, for_copies = self._offered.pop(request.token, ("", False))
        view = self._network.view
        if not identity or view is None or view.find(identity) is None or not isinstance(client, LocalClient):
            client.send(Refused(request.request, "AuthenticationError", "a line is for members only"))
            return
        client.send(Done(request.request))
        sock = client.give_away()
        if sock is not None and for_copies:
            self._take_copies(identity, sock)
        elif sock is not None:
            self.doubt(identity)
            self._open(identity, sock, hears_first=True)

    # -- both ---------------------------------------------------------------------------------------------------

    def _open(self, identity: str, sock: socket.socket, *, hears_first: bool = False) -> LoopChannel:
        """Return a line, which is used from now on, or when the other end has said that it is ready."""
        sock.setblocking(True)  # the channel says for each call whether it waits
        line: LoopChannel

        def received(message: Any, fds: list[int]) -> None:
            for fd in fds:
                os.close(fd)
            view = self._network.view
            if view is None or view.find(identity) is None:
                return
            if isinstance(message, OfferLine):
                if self._unready.get(identity) is line:
                    self._lines[identity] = self._unready.pop(identity)
            else:
                self._take(identity, message, line.send)

        def gone() -> None:
            for lines in (self._lines, self._unready):
                if lines.get(identity) is line:
                    del lines[identity]

        line = LoopChannel(sock, PeerMessage, received, gone)
        (self._unready if hears_first else self._lines)[identity] = line
        line.open()
        return line
