"""Where connections are made and taken: the listening socket, what is being dialled, and connections that have not
proved themselves yet.

Two members keep one connection. An old one wins over a new one; when both dial each other at the same moment,
the one of the member with the smaller uuid wins. A listener knows that its own attempt is for the same member once the
challenge has come; it lets that go, or refuses the other one as a duplicate, and both ends decide alike.

Unproved connections share a bounded number of places (`admission`). When one has to make room it is told that this
member is busy, so an honest client tries again.
"""

from __future__ import annotations

import errno
import logging
import os
import select
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from shmjet._native import clock_ns
from shmjet.ipc.rate_limited_log import RateLimitedLog
from shmjet.net.addresses import Resolved, Resolver, join_address, numeric, split_address
from shmjet.net.admission import Admission, source_of
from shmjet.net.handshake import CLIENT, HandshakeError, Identity
from shmjet.net.messages import ConnectFailed, Limits, PeerUp
from shmjet.net.peer import Peer
from shmjet.net.pending_connection import PendingConnection, Security, Stage

logger = logging.getLogger("shmjet.link")

_FAR_NS = 1 << 62
_BACKLOG = 1024
_AGAIN_NS = 50_000_000
_RESET_AGAIN_NS, _MOST_RESETS = 10_000_000, 3
"""When an address is dialled again whose process has reset a connection, each time four times as late; how often."""
_MOST_ACCEPTED = 16
_PAUSE_NS = 100_000_000
"""For so long no connections are taken when there is no descriptor for one."""
_WORD_NS = 1_000_000_000
"""The time between two lines in the log about the same trouble."""
_NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class ConnectionOwner(Protocol):
    """What the connection manager needs of its link."""

    @property
    def me(self) -> Identity:
        """Who this member is."""

    def watch(self, fd: int, mask: int, handler: Callable[[int], None]) -> None:
        """Have `handler` called with the events of a descriptor."""

    def mask(self, fd: int, mask: int) -> None:
        """Change the events that a descriptor is watched for."""

    def unwatch(self, fd: int) -> None:
        """Watch a descriptor no longer."""

    def is_fenced(self, uuid: str) -> bool:
        """Say whether nothing is to be accepted from a member."""

    def has_room_for(self, source: str) -> bool:
        """Say whether the member takes another client from a source."""

    def peer(self, uuid: str) -> Peer | None:
        """Return the connection to a member."""

    def peer_at(self, address: str) -> Peer | None:
        """Return the connection to the member that is known by an address."""

    def tell(self, event: object) -> None:
        """Tell the member something."""

    def joined(self, connection: PendingConnection, address: str) -> None:
        """Take a member that has proved itself."""

    def client(self, connection: PendingConnection) -> None:
        """Take a client that has proved itself."""


@dataclass(eq=False)
class _Attempt:
    """An address that is being dialled."""

    address: str
    host: str
    deadline_ns: int
    connection: PendingConnection | None = None
    again_ns: int = _FAR_NS
    socket_address: tuple[int, tuple[str, int]] | None = None
    resets: int = 0


class ConnectionManager:
    """All connections of one link that are being made, and its listening socket.

    Args:
        owner: its link.
        security: what this end shows and asks for.
        limits: what unproved connections may cost.
    """

    def __init__(self, owner: ConnectionOwner, security: Security, limits: Limits) -> None:
        self._owner = owner
        self._security = security
        self._limits = limits
        self.listener: socket.socket | None = None
        self.pending: set[PendingConnection] = set()
        """Connections that have not finished their handshake."""
        self._accepted: Admission[PendingConnection] = Admission()
        """The unproved connections that this member has accepted."""
        self._listen_again_ns = _FAR_NS
        self._attempts: dict[str, _Attempt] = {}
        self._resolver: Resolver | None = None
        self._turned_away = 0
        self._next_word_ns = self._next_pause_word_ns = 0
        self._words = RateLimitedLog(logger)

    # -- taking -------------------------------------------------------------------------------------------------

    def listen(self, address: str) -> str:
        """Open a port; returns the address that was bound.

        Raises:
            OSError: it cannot be opened.
            ValueError: it is not an address.
        """
        host, port = split_address(address)
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listener = socket.socket(found[0], socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(found[4])
            listener.listen(_BACKLOG)
            listener.setblocking(False)
        except OSError:
            listener.close()
            raise
        if self.listener is not None:
            self._owner.unwatch(self.listener.fileno())
            self.listener.close()
        self.listener = listener
        self._listen_again_ns = _FAR_NS
        self._owner.watch(listener.fileno(), select.EPOLLIN, self._accept)
        return join_address(host, listener.getsockname()[1])

    def _accept(self, _: int) -> None:
        assert self.listener is not None
        now = clock_ns()
        for _ in range(_MOST_ACCEPTED):
            try:
                sock, remote = self.listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno not in _NO_DESCRIPTOR:
                    continue  # that one is gone already
                if not self._make_room(now):
                    self._pause(now, error)
                    return
                continue
            name = join_address(remote[0], remote[1])
            try:
                connection = PendingConnection(
                    sock, self._owner.me, self._security, name, now + self._limits.handshake_ns
                )
                self._watch(connection)
            except OSError as error:
                sock.close()
                logger.warning("a connection from %s could not be taken: %s", name, error)
                continue
            self._accepted.add(connection, source_of(remote[0]))
            if len(self._accepted) > self._limits.unproved:
                self._make_room(now)

    def _make_room(self, now: int) -> bool:
        """Close a connection that has proved nothing; False when there is none."""
        refused = next((s for s in self._accepted if s.stage is Stage.LEAVING), None)
        connection = self._accepted.to_give_up() if refused is None else refused
        if connection is None:
            return False
        if refused is None:
            self._turned_away += 1
            if now >= self._next_word_ns:
                self._next_word_ns = now + _WORD_NS
                logger.warning(
                    "%d connections were sent away, as %d are open that have proved nothing; the last: %s",
                    self._turned_away,
                    len(self._accepted),
                    connection.remote,
                )
                self._turned_away = 0
            connection.dismiss("busy", "too many connections here have proved nothing yet; try again")
        self._forget(connection)
        return True

    def _pause(self, now: int, error: OSError) -> None:
        """Take no connections for a moment: the listener would report the same one in a loop."""
        assert self.listener is not None
        self._owner.unwatch(self.listener.fileno())
        self._listen_again_ns = now + _PAUSE_NS
        if now >= self._next_pause_word_ns:
            self._next_pause_word_ns = now + _WORD_NS
            logger.warning(
                "connections cannot be taken: %s; raise the limit of open files (ulimit -n) of this member",
                _text(error),
            )

    def _listen_again(self) -> None:
        self._listen_again_ns = _FAR_NS
        if self.listener is not None:
            self._owner.watch(self.listener.fileno(), select.EPOLLIN, self._accept)

    def _watch(self, connection: PendingConnection) -> None:
        self.pending.add(connection)
        self._owner.watch(connection.fileno(), connection.wants, lambda _: self._advance(connection))

    # -- dialling -----------------------------------------------------------------------------------------------

    def connect(self, address: str) -> None:
        """Dial an address, unless that is being done, or there is a connection to who is known by it."""
        peer = self._owner.peer_at(address)
        if peer is not None:
            self._owner.tell(PeerUp(peer.uuid, peer.address, address))
            return
        if address in self._attempts:
            return
        if address == self._owner.me.address:
            self._owner.tell(ConnectFailed(address, "self", "this is the member's own address"))
            return
        try:
            host, port = split_address(address)
        except ValueError as error:
            self._owner.tell(ConnectFailed(address, "unreachable", str(error)))
            return
        attempt = self._attempts[address] = _Attempt(address, host, clock_ns() + self._limits.connect_ns)
        attempt.socket_address = numeric(host, port)
        if attempt.socket_address is not None:
            self._dial(attempt)
            return
        if self._resolver is None:
            self._resolver = Resolver()
            self._owner.watch(self._resolver.fileno(), select.EPOLLIN, lambda _: self._resolved())
        self._resolver.ask(address, host, port)

    def _resolved(self) -> None:
        assert self._resolver is not None
        for address, answer in self._resolver.answers():
            self._take_answer(address, answer)

    def _take_answer(self, address: str, answer: Resolved) -> None:
        attempt = self._attempts.get(address)
        if attempt is None:
            return
        if isinstance(answer, OSError):
            self._fail(attempt, "unreachable", f"there is no host {attempt.host!r}: {answer.strerror or answer}")
        else:
            attempt.socket_address = answer
            self._dial(attempt)

    def _dial(self, attempt: _Attempt) -> None:
        assert attempt.socket_address is not None
        family, target = attempt.socket_address
        attempt.again_ns = _FAR_NS
        try:
            sock = socket.socket(family, socket.SOCK_STREAM)
        except OSError as error:
            self._fail(attempt, "unreachable", _text(error))
            return
        sock.setblocking(False)
        status = sock.connect_ex(target)
        if status not in (0, errno.EINPROGRESS):
            sock.close()
            self._fail(attempt, "unreachable", os.strerror(status))
            return
        attempt.connection = PendingConnection(
            sock, self._owner.me, self._security, attempt.address, attempt.deadline_ns, attempt.host
        )
        self._watch(attempt.connection)

    def _attempt_of(self, connection: PendingConnection) -> _Attempt | None:
        return next((a for a in self._attempts.values() if a.connection is connection), None)

    def _fail(self, attempt: _Attempt, kind: str, reason: str) -> None:
        del self._attempts[attempt.address]
        self._owner.tell(ConnectFailed(attempt.address, kind, reason))

    # -- the handshake's end --------------------------------------------------------------------------------------

    def _advance(self, connection: PendingConnection) -> None:
        if connection not in self.pending:
            return
        before = connection.fileno()
        try:
            if connection.advance():
                self._proved(connection)
                return
            if connection.is_dialed:
                self._look_at_challenger(connection)
        except HandshakeError as error:
            self._failed(connection, error)
            return
        except OSError as error:
            self._broken(connection, error)
            return
        if connection in self.pending:
            assert connection.fileno() == before
            self._owner.mask(before, connection.wants)

    def _look_at_challenger(self, connection: PendingConnection) -> None:
        """Give up dialling a member that turns out to be connected, or to be this one."""
        uuid = connection.peer
        if not uuid:
            return
        if uuid == self._owner.me.uuid:
            raise HandshakeError("self", "this is the member's own address")
        peer = self._owner.peer(uuid)
        if peer is not None:
            attempt = self._attempt_of(connection)
            self._forget(connection)
            if attempt is not None:
                del self._attempts[attempt.address]
                self._owner.tell(PeerUp(uuid, peer.address, attempt.address))

    def _proved(self, connection: PendingConnection) -> None:
        if connection.dialing is not None:
            self._dialed(connection)
            return
        assert connection.answering is not None
        hello = connection.answering.hello
        is_any = hello.role == CLIENT and not hello.cluster
        if hello.cluster != self._owner.me.cluster and not is_any:
            raise HandshakeError("cluster", f"this is a member of cluster {self._owner.me.cluster!r}")
        if hello.role == CLIENT:
            if not self._owner.has_room_for(self._accepted.source(connection)):
                raise HandshakeError("busy", "this member has as many clients as it takes; try again, or another one")
            self._release(connection)
            self._owner.client(connection)
            return
        if hello.uuid == self._owner.me.uuid:
            raise HandshakeError("self", "this is the member's own address")
        if self._owner.is_fenced(hello.uuid):
            raise HandshakeError("fenced", "this member has been fenced; it has to join again under another uuid")
        if self._owner.peer(hello.uuid) is not None:
            raise HandshakeError("duplicate", "there is a connection already")
        rival = next(
            (a for a in self._attempts.values() if a.connection is not None and a.connection.peer == hello.uuid), None
        )
        if rival is not None and rival.connection is not None:
            if self._owner.me.uuid < hello.uuid and rival.connection.dialing is not None:
                raise HandshakeError("duplicate", "this member dials, too, and its connection is kept")
            self._forget(rival.connection)
            del self._attempts[rival.address]
        self._release(connection)
        self._owner.joined(connection, hello.address)
        if rival is not None:
            self._owner.tell(PeerUp(hello.uuid, hello.address, rival.address))

    def _dialed(self, connection: PendingConnection) -> None:
        dialing, attempt = connection.dialing, self._attempt_of(connection)
        assert dialing is not None
        assert attempt is not None
        if self._owner.is_fenced(dialing.peer):
            raise HandshakeError("fenced", "this member has been fenced")
        del self._attempts[attempt.address]
        self._release(connection)
        peer = self._owner.peer(dialing.peer)
        if peer is not None:
            connection.close()
            self._owner.tell(PeerUp(peer.uuid, peer.address, attempt.address))
        else:
            self._owner.joined(connection, dialing.address or attempt.address)

    def _failed(self, connection: PendingConnection, error: HandshakeError) -> None:
        attempt = self._attempt_of(connection) if connection.is_dialed else None
        if attempt is not None:
            self._forget(connection)
            if error.kind in ("duplicate", "busy"):  # the other end's own attempt is under way: look again soon
                attempt.connection = None
                attempt.again_ns = clock_ns() + _AGAIN_NS
            else:
                self._fail(attempt, error.kind, str(error))
            return
        if error.kind != "duplicate":
            self._words.warning("the connection from %s is closed: %s", connection.remote, error)
        if connection.refuse(error.kind, str(error), clock_ns()):
            self._owner.mask(connection.fileno(), select.EPOLLIN)
        else:
            self._forget(connection)

    def _broken(self, connection: PendingConnection, error: OSError) -> None:
        attempt = self._attempt_of(connection) if connection.is_dialed else None
        was_leaving = connection.stage is Stage.LEAVING
        self._forget(connection)
        if attempt is not None and isinstance(error, ConnectionResetError) and attempt.resets < _MOST_RESETS:
            # A process that ends does so until its listener is closed, too: then it is known to be gone.
            attempt.connection = None
            attempt.again_ns = clock_ns() + (_RESET_AGAIN_NS << 2 * attempt.resets)
            attempt.resets += 1
        elif attempt is not None:
            self._fail(attempt, "unreachable", _text(error))
        elif not was_leaving:
            self._words.warning("the connection from %s is closed: %s", connection.remote, _text(error))

    def _release(self, connection: PendingConnection) -> None:
        """Let go of a connection whose socket is another's from now on."""
        self.pending.discard(connection)
        self._accepted.discard(connection)
        self._owner.unwatch(connection.fileno())

    def _forget(self, connection: PendingConnection) -> None:
        self._release(connection)
        connection.close()

    # -- time ---------------------------------------------------------------------------------------------------

    def next_deadline(self) -> int:
        """Return when `tick` has to be called next."""
        times = [connection.deadline_ns for connection in self.pending]
        times += [min(attempt.again_ns, attempt.deadline_ns) for attempt in self._attempts.values()]
        return min([self._listen_again_ns, *times])

    def tick(self, now_ns: int) -> None:
        """Close what has taken too long, dial again what has to be, and listen again after a pause."""
        if now_ns >= self._listen_again_ns:
            self._listen_again()
        for attempt in list(self._attempts.values()):
            if now_ns >= attempt.deadline_ns:
                if attempt.connection is not None:
                    self._forget(attempt.connection)
                self._fail(attempt, "unreachable", "no answer in time")
            elif now_ns >= attempt.again_ns:
                self._again(attempt)
        for connection in [s for s in self.pending if now_ns >= s.deadline_ns]:
            if connection.stage is not Stage.LEAVING:
                self._words.warning(
                    "the connection from %s is closed: it has not proved itself in time", connection.remote
                )
            self._forget(connection)

    def _again(self, attempt: _Attempt) -> None:
        peer = self._owner.peer_at(attempt.address)
        if peer is None:
            self._dial(attempt)
        else:
            del self._attempts[attempt.address]
            self._owner.tell(PeerUp(peer.uuid, peer.address, attempt.address))

    def close(self) -> None:
        """Close all sockets."""
        for connection in list(self.pending):
            self._forget(connection)
        self._attempts.clear()
        if self.listener is not None:
            self._owner.unwatch(self.listener.fileno())
            self.listener.close()
            self.listener = None
        if self._resolver is not None:
            self._owner.unwatch(self._resolver.fileno())
            self._resolver.close()


def _text(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__
