"""Where connections are made and taken: the listening socket, what is being dialled, and strangers until they have
proved themselves.

Two members keep one connection. One that is there wins over a new one; when both dial each other at the same moment,
the one of the member with the smaller uuid wins. A listener knows that its own attempt is for the same member once the
challenge has come; it lets that go, or refuses the other one as a duplicate, and both ends decide alike.

Strangers share a bounded number of places (`admission`). One that has to make room is told that this member is busy,
so an honest one tries again.
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
_MOST_ACCEPTED = 16
_PAUSE_NS = 100_000_000
"""For so long no connections are taken when there is no descriptor for one."""
_WORD_NS = 1_000_000_000
"""The time between two lines in the log about the same trouble."""
_NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class GateOwner(Protocol):
    """What the gate needs of its link."""

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

    def joined(self, stranger: PendingConnection, address: str) -> None:
        """Take a member that has proved itself."""

    def client(self, stranger: PendingConnection) -> None:
        """Take a client that has proved itself."""


@dataclass(eq=False)
class _Attempt:
    """An address that is being dialled."""

    address: str
    host: str
    deadline_ns: int
    stranger: PendingConnection | None = None
    again_ns: int = _FAR_NS
    socket_address: tuple[int, tuple[str, int]] | None = None


class ConnectionManager:
    """The gate of one link.

    Args:
        owner: its link.
        security: what this end shows and asks for.
        limits: what strangers may cost.
    """

    def __init__(self, owner: GateOwner, security: Security, limits: Limits) -> None:
        self._owner = owner
        self._security = security
        self._limits = limits
        self._listener: socket.socket | None = None
        self._strangers: set[PendingConnection] = set()
        self._accepted: Admission[PendingConnection] = Admission()
        """The strangers that have dialled this member."""
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
            ValueError: it is no address.
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
        if self._listener is not None:
            self._owner.unwatch(self._listener.fileno())
            self._listener.close()
        self._listener = listener
        self._listen_again_ns = _FAR_NS
        self._owner.watch(listener.fileno(), select.EPOLLIN, self._accept)
        return join_address(host, listener.getsockname()[1])

    def _accept(self, _: int) -> None:
        assert self._listener is not None
        now = clock_ns()
        for _ in range(_MOST_ACCEPTED):
            try:
                sock, remote = self._listener.accept()
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
                stranger = PendingConnection(
                    sock, self._owner.me, self._security, name, now + self._limits.handshake_ns
                )
                self._watch(stranger)
            except OSError as error:
                sock.close()
                logger.warning("a connection from %s could not be taken: %s", name, error)
                continue
            self._accepted.add(stranger, source_of(remote[0]))
            if len(self._accepted) > self._limits.unproved:
                self._make_room(now)

    def _make_room(self, now: int) -> bool:
        """Send away one that has proved nothing; False when there is none."""
        refused = next((s for s in self._accepted if s.stage is Stage.LEAVING), None)
        stranger = self._accepted.to_give_up() if refused is None else refused
        if stranger is None:
            return False
        if refused is None:
            self._turned_away += 1
            if now >= self._next_word_ns:
                self._next_word_ns = now + _WORD_NS
                logger.warning(
                    "%d connections were sent away, as %d are open that have proved nothing; the last: %s",
                    self._turned_away,
                    len(self._accepted),
                    stranger.remote,
                )
                self._turned_away = 0
            stranger.dismiss("busy", "too many connections here have proved nothing yet; try again")
        self._forget(stranger)
        return True

    def _pause(self, now: int, error: OSError) -> None:
        """Take no connections for a moment: the listener would report the same one again and again."""
        assert self._listener is not None
        self._owner.unwatch(self._listener.fileno())
        self._listen_again_ns = now + _PAUSE_NS
        if now >= self._next_pause_word_ns:
            self._next_pause_word_ns = now + _WORD_NS
            logger.warning(
                "connections cannot be taken: %s; raise the limit of open files (ulimit -n) of this member",
                _text(error),
            )

    def _listen_again(self) -> None:
        self._listen_again_ns = _FAR_NS
        if self._listener is not None:
            self._owner.watch(self._listener.fileno(), select.EPOLLIN, self._accept)

    def _watch(self, stranger: PendingConnection) -> None:
        self._strangers.add(stranger)
        self._owner.watch(stranger.fileno(), stranger.wants, lambda _: self._advance(stranger))

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
        attempt.stranger = PendingConnection(
            sock, self._owner.me, self._security, attempt.address, attempt.deadline_ns, attempt.host
        )
        self._watch(attempt.stranger)

    def _attempt_of(self, stranger: PendingConnection) -> _Attempt | None:
        return next((a for a in self._attempts.values() if a.stranger is stranger), None)

    def _fail(self, attempt: _Attempt, kind: str, reason: str) -> None:
        del self._attempts[attempt.address]
        self._owner.tell(ConnectFailed(attempt.address, kind, reason))

    # -- the handshake's end --------------------------------------------------------------------------------------

    def _advance(self, stranger: PendingConnection) -> None:
        if stranger not in self._strangers:
            return
        before = stranger.fileno()
        try:
            if stranger.advance():
                self._proved(stranger)
                return
            if stranger.is_dialed:
                self._look_at_challenger(stranger)
        except HandshakeError as error:
            self._failed(stranger, error)
            return
        except OSError as error:
            self._broken(stranger, error)
            return
        if stranger in self._strangers:
            assert stranger.fileno() == before
            self._owner.mask(before, stranger.wants)

    def _look_at_challenger(self, stranger: PendingConnection) -> None:
        """Give up dialling one who turns out to be connected, or to be this member."""
        uuid = stranger.peer
        if not uuid:
            return
        if uuid == self._owner.me.uuid:
            raise HandshakeError("self", "this is the member's own address")
        peer = self._owner.peer(uuid)
        if peer is not None:
            attempt = self._attempt_of(stranger)
            self._forget(stranger)
            if attempt is not None:
                del self._attempts[attempt.address]
                self._owner.tell(PeerUp(uuid, peer.address, attempt.address))

    def _proved(self, stranger: PendingConnection) -> None:
        if stranger.dialing is not None:
            self._dialed(stranger)
            return
        assert stranger.answering is not None
        hello = stranger.answering.hello
        is_any = hello.role == CLIENT and not hello.cluster
        if hello.cluster != self._owner.me.cluster and not is_any:
            raise HandshakeError("cluster", f"this is a member of cluster {self._owner.me.cluster!r}")
        if hello.role == CLIENT:
            if not self._owner.has_room_for(self._accepted.source(stranger)):
                raise HandshakeError("busy", "this member has as many clients as it takes; try again, or another one")
            self._release(stranger)
            self._owner.client(stranger)
            return
        if hello.uuid == self._owner.me.uuid:
            raise HandshakeError("self", "this is the member's own address")
        if self._owner.is_fenced(hello.uuid):
            raise HandshakeError("fenced", "this member has been fenced; it has to join again under another uuid")
        if self._owner.peer(hello.uuid) is not None:
            raise HandshakeError("duplicate", "there is a connection already")
        rival = next(
            (a for a in self._attempts.values() if a.stranger is not None and a.stranger.peer == hello.uuid), None
        )
        if rival is not None and rival.stranger is not None:
            if self._owner.me.uuid < hello.uuid and rival.stranger.dialing is not None:
                raise HandshakeError("duplicate", "this member dials, too, and its connection is kept")
            self._forget(rival.stranger)
            del self._attempts[rival.address]
        self._release(stranger)
        self._owner.joined(stranger, hello.address)
        if rival is not None:
            self._owner.tell(PeerUp(hello.uuid, hello.address, rival.address))

    def _dialed(self, stranger: PendingConnection) -> None:
        dialing, attempt = stranger.dialing, self._attempt_of(stranger)
        assert dialing is not None
        assert attempt is not None
        if self._owner.is_fenced(dialing.peer):
            raise HandshakeError("fenced", "this member has been fenced")
        del self._attempts[attempt.address]
        self._release(stranger)
        peer = self._owner.peer(dialing.peer)
        if peer is not None:
            stranger.close()
            self._owner.tell(PeerUp(peer.uuid, peer.address, attempt.address))
        else:
            self._owner.joined(stranger, dialing.address or attempt.address)

    def _failed(self, stranger: PendingConnection, error: HandshakeError) -> None:
        attempt = self._attempt_of(stranger) if stranger.is_dialed else None
        if attempt is not None:
            self._forget(stranger)
            if error.kind in ("duplicate", "busy"):  # the other end's own attempt is under way: look again soon
                attempt.stranger = None
                attempt.again_ns = clock_ns() + _AGAIN_NS
            else:
                self._fail(attempt, error.kind, str(error))
            return
        if error.kind != "duplicate":
            self._words.warning("the connection from %s is closed: %s", stranger.remote, error)
        if stranger.refuse(error.kind, str(error), clock_ns()):
            self._owner.mask(stranger.fileno(), select.EPOLLIN)
        else:
            self._forget(stranger)

    def _broken(self, stranger: PendingConnection, error: OSError) -> None:
        attempt = self._attempt_of(stranger) if stranger.is_dialed else None
        was_leaving = stranger.stage is Stage.LEAVING
        self._forget(stranger)
        if attempt is not None:
            self._fail(attempt, "unreachable", _text(error))
        elif not was_leaving:
            self._words.warning("the connection from %s is closed: %s", stranger.remote, _text(error))

    def _release(self, stranger: PendingConnection) -> None:
        """Let go of a stranger whose socket is another's from now on."""
        self._strangers.discard(stranger)
        self._accepted.discard(stranger)
        self._owner.unwatch(stranger.fileno())

    def _forget(self, stranger: PendingConnection) -> None:
        self._release(stranger)
        stranger.close()

    # -- time ---------------------------------------------------------------------------------------------------

    def next_deadline(self) -> int:
        """Return when `tick` has to be called next."""
        times = [stranger.deadline_ns for stranger in self._strangers]
        times += [min(attempt.again_ns, attempt.deadline_ns) for attempt in self._attempts.values()]
        return min([self._listen_again_ns, *times])

    def tick(self, now_ns: int) -> None:
        """Close what has taken too long, dial again what has to be, and listen again after a pause."""
        if now_ns >= self._listen_again_ns:
            self._listen_again()
        for attempt in list(self._attempts.values()):
            if now_ns >= attempt.deadline_ns:
                if attempt.stranger is not None:
                    self._forget(attempt.stranger)
                self._fail(attempt, "unreachable", "no answer in time")
            elif now_ns >= attempt.again_ns:
                self._again(attempt)
        for stranger in [s for s in self._strangers if now_ns >= s.deadline_ns]:
            if stranger.stage is not Stage.LEAVING:
                self._words.warning(
                    "the connection from %s is closed: it has not proved itself in time", stranger.remote
                )
            self._forget(stranger)

    def _again(self, attempt: _Attempt) -> None:
        peer = self._owner.peer_at(attempt.address)
        if peer is None:
            self._dial(attempt)
        else:
            del self._attempts[attempt.address]
            self._owner.tell(PeerUp(peer.uuid, peer.address, attempt.address))

    def close(self) -> None:
        """Close all sockets."""
        for stranger in list(self._strangers):
            self._forget(stranger)
        self._attempts.clear()
        if self._listener is not None:
            self._owner.unwatch(self._listener.fileno())
            self._listener.close()
            self._listener = None
        if self._resolver is not None:
            self._owner.unwatch(self._resolver.fileno())
            self._resolver.close()


def _text(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__
