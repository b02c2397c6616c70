"""The clients of a member, its own and those of members that forward requests, and the way of answers to them.

A client talks to whichever member it has reached. What only the coordinator can answer goes to it between members
(`Forward`, `Backward`; see `request_forwarder`).
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from shmjet.cluster.membership.peer_messages import Backward, Bounced, ClientGone, Forward
from shmjet.cluster.observable_messages import ReadObservable
from shmjet.cluster.protocol import Execute, GridCall, Request, Watch
from shmjet.cluster.requests.post import Post
from shmjet.data.decoders import msgpack_decoder
from shmjet.ipc import unix_sockets
from shmjet.ipc.channel import LONGEST
from shmjet.ipc.decode_errors import UNREADABLE
from shmjet.ipc.fair_turns import Turns
from shmjet.ipc.loop_channel import LoopChannel
from shmjet.net.admission import Admission, source_of
from shmjet.net.messages import RefuseClients

logger = logging.getLogger("shmjet.member")

_MOST_UNREAD = 64
"""Messages of log records that wait for a client at most; further ones are dropped."""

LONGEST_REQUEST = 1 << 30
"""Bytes of a remote client's request at most: as many as can be forwarded to another member."""
LONGEST_PLAIN_REQUEST = 1 << 22
"""The same where clients bring no code: what they write comes in pages of a megabyte, and
what is decoded may take many times the memory of its bytes."""
MOST_CLIENTS = 1024
"""Remote clients that a member takes at most, where it may open enough files."""
MOST_UNANSWERED, ALL_UNANSWERED = 64, 512
"""Unanswered requests of one client, and of all remote clients, before no more are taken."""
_SHARE = 4
"""The fraction (1/n) of the files that a member may open that remote clients may take."""
PAUSE_S = 0.1
"""How long no clients of this host are taken when there is no descriptor for one."""

_encode = msgspec.msgpack.Encoder().encode


class Client(Protocol):
    """A client of this member, or of another member that forwards its requests."""

    def queue(self, message: object) -> None:
        """Have a message sent with the next one."""

    def send(self, message: object) -> None:
        """Send a message and all that is queued."""

    def flush(self) -> None:
        """Send all that is queued."""

    def send_if_read(self, message: object) -> None:
        """Send a message unless the client has too much unread."""

    async def until_read(self) -> None:
        """Wait until the client has read most of what it was sent, or is gone."""


class LocalClient:
    """A client that is connected to this member.

    Args:
        number: by which other members know it.
        sock: connected to it.
        received: called with the client, each request and its descriptors; it removes the descriptors that it keeps.
        closed: called once with the client when it is gone.
        leftover: what has been read from the socket already.
        is_here: whether it is a process of this host and user. The socket does not tell: with TLS that of a client from
            outside the host leads to the link.
        longest: bytes of a request at most.
        turns: in which it is served.
        most: says how many of its requests may be unanswered before no more are taken.
    """

    def __init__(
        self,
        number: int,
        sock: socket.socket,
        received: Callable[[LocalClient, Any, list[int]], None],
        closed: Callable[[LocalClient], None],
        leftover: bytes = b"",
        *,
        is_here: bool,
        longest: int = LONGEST,
        turns: Turns | None = None,
        most: Callable[[], int] = lambda: MOST_UNANSWERED,
    ) -> None:
        self._unanswered = 0
        self._most = most
        self.number = number
        self.is_here = is_here
        self.is_closed = False

        self.listens = False
        """Whether it takes news: a client that only looks, or talks to a processor, reads one answer per question."""

        def message(request: Any, fds: list[int]) -> None:
            self.listens = self.listens or isinstance(request, Execute | Watch | GridCall | ReadObservable)
            self._unanswered += 1
            if self._unanswered >= self._most():
                self._channel.hold(True)
            received(self, request, fds)
            for fd in fds:
                os.close(fd)

        def gone() -> None:
            self.is_closed = True
            closed(self)

        self._channel = LoopChannel(sock, Request, message, gone, longest=longest, turns=turns or Turns())
        self._channel.open(leftover)

    def queue(self, message: object) -> None:
        """Have a message sent with the next one."""
        self._channel.queue(message)
        self._note(message)

    def send(self, message: object) -> None:
        """Send a message and all that is queued."""
        self._channel.send(message)
        self._note(message)

    def _note(self, message: object) -> None:
        if getattr(message, "request", 0):
            self.answered()

    def answered(self) -> None:
        """Take that one of its requests has been answered."""
        self._unanswered = max(0, self._unanswered - 1)
        if self._unanswered < self._most():
            self._channel.hold(False)

    def send_if_read(self, message: object) -> None:
        """Send a message unless the client has too much unread: then it is lost."""
        if self._channel.backlog < _MOST_UNREAD:
            self._channel.send(message)

    def send_with(self, message: object, fds: Sequence[int]) -> None:
        """Send a message with descriptors, which are closed then. Only to a client on this host."""
        self._channel.send(message, fds)
        self._channel.when_flushed(fds)
        self._note(message)

    def flush(self) -> None:
        """Send all that is queued."""
        self._channel.flush()

    async def until_read(self) -> None:
        """Wait until the client has read most of what it was sent, or is gone."""
        await self._channel.until_read()

    def give_away(self) -> socket.socket | None:
        """Return the connection, which is the caller's then, for this client is gone; None if it is broken."""
        return self._channel.give_away()

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()


class ForwardedClient:
    """A client of another member.

    Args:
        post: to the other member.
        member: its identity.
        number: of the client there.
        is_here: it is a process of that member's host and user.
    """

    def __init__(self, post: Post, member: str, number: int, *, is_here: bool) -> None:
        self._post = post
        self._member = member
        self._number = number
        self.is_here = is_here
        self._queued: list[object] = []

    def queue(self, message: object) -> None:
        """Have a message sent with the next one."""
        self._queued.append(message)

    def send(self, message: object) -> None:
        """Send a message and all that is queued."""
        self._queued.append(message)
        self.flush()

    def send_if_read(self, message: object) -> None:
        """Send a message that its own member drops when the client has too much unread."""
        self._post.send(self._member, Backward(self._number, _encode(message), 0, may_drop=True))

    def flush(self) -> None:
        """Send all that is queued."""
        queued, self._queued = self._queued, []
        for message in queued:
            request = getattr(message, "request", 0)
            self._post.send(self._member, Backward(self._number, _encode(message), request))

    async def until_read(self) -> None:
        """Go on at once: only its own member knows what it has read."""

    def bounce(self, request: int) -> None:
        """Say that this member does not coordinate, and has not looked at a request."""
        self._post.send(self._member, Bounced(self._number, request))


def most_clients() -> int:
    """Return how many remote clients a member with this process's limits takes."""
    return max(1, min(MOST_CLIENTS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // _SHARE))


class Clients:
    """All clients of this member, and those of others as far as they ask this one.

    Args:
        post: to other members.
        serve: called with a client, a request and its descriptors.
        gone: called with a client that is gone.
        refuse: called with the further remote clients to refuse, whenever that changes.
        allow_code: whether clients may bring code, so that their requests may be long.
        most: remote clients at most, of which one address may have half; None: as many as fit.
    """

    def __init__(
        self,
        post: Post | None,
        serve: Callable[[LocalClient | ForwardedClient, Any, list[int]], None],
        gone: Callable[[LocalClient | ForwardedClient], None],
        refuse: Callable[[RefuseClients], None] = lambda _: None,
        *,
        allow_code: bool = True,
        most: int | None = None,
    ) -> None:
        self._refuse = refuse
        self._longest = LONGEST_REQUEST if allow_code else LONGEST_PLAIN_REQUEST
        self._most = most_clients() if most is None else most
        self._remote: Admission[LocalClient] = Admission()
        self._refused = RefuseClients(False)
        self._turns = Turns()
        self._post = post
        self._serve = serve
        self._gone = gone
        self._local: dict[int, LocalClient] = {}
        self._forwarded: dict[tuple[str, int], ForwardedClient] = {}
        self._decode = msgpack_decoder(Request).decode
        self._count = 0

    def listen(self, path: Path) -> Callable[[], None]:
        """Take connections of this host, at a path; returns what ends that. Needs the running loop."""
        loop = asyncio.get_running_loop()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        unix_sockets.bind(listener, path)
        listener.listen()
        listener.setblocking(False)
        loop.add_reader(listener.fileno(), self._accept, listener)

        def end() -> None:
            loop.remove_reader(listener.fileno())
            listener.close()

        return end

    def _accept(self, listener: socket.socket) -> None:
        """Take a connection, if it is of this user or root."""
        try:
            connection, _ = listener.accept()
        except BlockingIOError:
            return
        except OSError as error:
            logger.warning("a client of this host cannot be taken: %s", error)
            loop = asyncio.get_running_loop()
            loop.remove_reader(listener.fileno())  # it would stay ready, and the loop would spin
            loop.call_later(PAUSE_S, self._accept_again, listener)
            return
        if not unix_sockets.may_ask(connection):
            logger.warning("refused a client of user %d", unix_sockets.peer_user(connection))
            connection.close()
            return
        self.add(connection, is_here=True)

    def _accept_again(self, listener: socket.socket) -> None:
        if listener.fileno() >= 0:
            asyncio.get_running_loop().add_reader(listener.fileno(), self._accept, listener)

    def add(self, connection: socket.socket, leftover: bytes = b"", address: str = "", *, is_here: bool) -> LocalClient:
        """Take a connection whose other end may ask for anything, or if it is not here for what strangers may.

        Args:
            connection: to the client.
            leftover: what has been read from it already.
            address: the client's, "host:port", when it is not here.
            is_here: it is a process of this host and user.
        """
        self._count += 1
        client = LocalClient(
            self._count,
            connection,
            self._serve,
            self._closed,
            leftover,
            is_here=is_here,
            longest=LONGEST if is_here else self._longest,
            turns=self._turns,
            most=self.most_unanswered,
        )
        self._local[self._count] = client
        if not is_here:
            self._remote.add(client, source_of(address.rpartition(":")[0].strip("[]")))
            self._look_at_room()
        return client

    def _closed(self, client: LocalClient) -> None:
        self._local.pop(client.number, None)
        if not client.is_here:
            self._remote.discard(client)
            self._look_at_room()
        self._gone(client)

    def most_unanswered(self) -> int:
        """Return how many requests of one client may be unanswered: fewer where there are many clients."""
        return max(1, min(MOST_UNANSWERED, ALL_UNANSWERED // max(1, len(self._remote))))

    def _look_at_room(self) -> None:
        """Report when there is no room for remote clients of all or of some addresses, and when there is again."""
        refused = RefuseClients(len(self._remote) >= self._most, self._remote.full_sources(max(1, self._most // 2)))
        if refused != self._refused:
            self._refused = refused
            self._refuse(refused)
            if refused.all_sources or refused.sources:
                who = "all addresses" if refused.all_sources else ", ".join(refused.sources)
                logger.warning("%d remote clients are connected: further clients of %s wait", len(self._remote), who)

    def tell_remote(self, message: object) -> None:
        """Send a message to those clients of this member that came over the network."""
        for client in list(self._local.values()):
            if not client.is_here:
                client.send(message)

    def tell_all(self, message: object) -> None:
        """Send news to all clients of this member that have jobs or maps."""
        for client in list(self._local.values()):
            if client.listens:
                client.send(message)

    def close(self) -> None:
        """Close all connections."""
        for client in list(self._local.values()):
            client.close()
        self._local.clear()

    # -- for others, and by others ------------------------------------------------------------------------------

    def backward(self, message: Backward) -> None:
        """Take what the coordinator says to a client of ours."""
        client = self._local.get(message.client)
        if client is not None:
            (client.send_if_read if message.may_drop else client.send)(msgspec.Raw(message.body))
            if message.request:
                client.answered()

    def take(self, sender: str, message: Forward) -> None:
        """Take a request that another member passes on."""
        assert self._post is not None
        key = sender, message.client
        client = self._forwarded.get(key)
        if client is None:
            client = self._forwarded[key] = ForwardedClient(self._post, sender, message.client, is_here=message.is_here)
        self._turns.add(lambda: self._serve_forwarded(key, client, message.body))

    def _serve_forwarded(self, key: tuple[str, int], client: ForwardedClient, body: bytes) -> None:
        if self._forwarded.get(key) is not client:  # it has gone meanwhile
            return
        try:
            request = self._decode(body)
        except UNREADABLE as error:
            logger.error("a request that %s passed on cannot be read: %s", key[0], error)
            return
        self._serve(client, request, [])

    def forwarded_gone(self, sender: str, message: ClientGone | None = None) -> None:
        """Take that a client of another member is gone, or all of them with their member."""
        for key in [k for k in self._forwarded if k[0] == sender and (message is None or k[1] == message.client)]:
            self._gone(self._forwarded.pop(key))
