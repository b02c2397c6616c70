"""A connection whose other end has proved nothing yet: connecting, TLS, the handshake of `shmjet.net.handshake`.

An unproved connection costs its buffer of a few kilobytes and one of a limited number of places, and has a deadline.
`advance` is called whenever its socket can go on; it never waits.
"""

from __future__ import annotations

import contextlib
import enum
import os
import select
import socket
import ssl
from collections.abc import Callable

from shmjet.net.handshake import MAGIC, NONCE_SIZE, Answering, Dialing, HandshakeError, Identity, refusal
from shmjet.net.messages import TlsFiles
from shmjet.net.tls import client_context, own_binding, peer_binding, server_context, tls_trouble
from shmjet.net.wire_socket import PlainWire, TlsWire, Wire, tune

_READ = 2048
_LINGER_NS = 1_000_000_000


class Stage(enum.Enum):
    """How far it has come."""

    CONNECTING = enum.auto()
    TLS = enum.auto()
    TALKING = enum.auto()
    PROVED = enum.auto()
    LEAVING = enum.auto()


class Security:
    """What this end shows and asks for: made once.

    Args:
        tls: settings; None for connections in the clear.
        listens: this end takes connections, too.
    """

    def __init__(self, tls: TlsFiles | None, *, listens: bool) -> None:
        self._tls = tls
        self.client = None if tls is None else client_context(tls)
        self.server: ssl.SSLContext | None = None
        self.binding = b""
        if tls is not None and listens:
            self.server = server_context(tls)
            self.binding = own_binding(tls)


class PendingConnection:
    """One unproved connection.

    Args:
        sock: connected, or, with `host`, about to connect; owned by the object.
        me: this end.
        security: of this end.
        remote: the other end, for messages.
        deadline_ns: when it has to have proved itself.
        host: the name that was dialled; None for a connection that was accepted.
    """

    def __init__(
        self,
        sock: socket.socket,
        me: Identity,
        security: Security,
        remote: str,
        deadline_ns: int,
        host: str | None = None,
    ) -> None:
        tune(sock)
        self._socket = sock
        self._me = me
        self._security = security
        self._host = host
        self._out = b""
        self.remote = remote
        self.deadline_ns = deadline_ns
        self.wants = select.EPOLLIN
        """The events that it waits for."""
        self.dialing: Dialing | None = None
        self.answering: Answering | None = None
        self._steps: dict[Stage, Callable[[], bool]] = {
            Stage.CONNECTING: self._connected,
            Stage.TLS: self._secured,
            Stage.TALKING: self._talked,
            Stage.LEAVING: self._left,
        }
        if host is None:
            self.stage = Stage.TLS if security.server is not None else Stage.TALKING
            if security.server is None:
                self._talk()
        else:
            self.stage = Stage.CONNECTING
            self.wants = select.EPOLLOUT

    @property
    def peer(self) -> str:
        """The other end's uuid, as far as it has said; to be believed in stage PROVED only."""
        if self.dialing is not None:
            return self.dialing.peer
        return self.answering.hello.uuid if self.answering is not None and self.answering.proved else ""

    @property
    def is_dialed(self) -> bool:
        """Whether this end has dialled."""
        return self._host is not None

    def fileno(self) -> int:
        """Return the socket's descriptor."""
        return self._socket.fileno()

    def advance(self) -> bool:
        """Go on as far as it can without waiting; True when it is PROVED.

        Raises:
            HandshakeError: it has failed, and `refuse` may tell the other end why.
            OSError: the connection is broken.
        """
        while self.stage is not Stage.PROVED and self._steps[self.stage]():
            pass
        return self.stage is Stage.PROVED

    # -- stages -------------------------------------------------------------------------------------------------

    def _connected(self) -> bool:
        error = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            raise OSError(error, os.strerror(error))
        try:
            self._socket.getpeername()
        except OSError:
            return False  # not yet
        self.wants = select.EPOLLIN
        if self._security.client is not None:
            self.stage = Stage.TLS
            self._wrap(self._security.client, self._host)
        else:
            self._talk()
        return True

    def _wrap(self, context: ssl.SSLContext, host: str | None) -> None:
        self._socket = context.wrap_socket(
            self._socket, server_side=host is None, do_handshake_on_connect=False, server_hostname=host
        )

    def _began(self, server: ssl.SSLContext) -> bool:
        """Look how a dialer begins, and begin TLS; False when nothing has come yet."""
        try:
            head = self._socket.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return False
        if head == MAGIC[:1]:  # no record of TLS begins so: it is told in the clear, as it could read nothing else
            self.stage = Stage.TALKING
            raise HandshakeError("tls", "this member takes connections with TLS only, and the dialer has no tls")
        self._wrap(server, None)
        return True

    def _secured(self) -> bool:
        if not isinstance(self._socket, ssl.SSLSocket):
            assert self._security.server is not None
            if not self._began(self._security.server):
                return False
        assert isinstance(self._socket, ssl.SSLSocket)
        try:
            self._socket.do_handshake()
        except ssl.SSLWantReadError:
            self.wants = select.EPOLLIN
            return False
        except ssl.SSLWantWriteError:
            self.wants = select.EPOLLOUT
            return False
        except ssl.SSLError as error:
            raise HandshakeError("authentication", tls_trouble(error)) from None
        self.wants = select.EPOLLIN
        self._talk()
        return True

    def _talk(self) -> None:
        self.stage = Stage.TALKING
        nonce = os.urandom(NONCE_SIZE)
        if self._host is None:
            self.answering = Answering(self._me, nonce, self._security.binding)
            return
        binding = peer_binding(self._socket) if isinstance(self._socket, ssl.SSLSocket) else b""
        self.dialing = Dialing(self._me, nonce, binding)
        self._say(self.dialing.start())

    def _talked(self) -> bool:
        if self._out:
            self._say(b"")
        data = self._read()
        if data is None:
            return False
        if not data:
            raise ConnectionResetError("the other end has closed the connection during the handshake")
        if self.dialing is not None:
            self._say(self.dialing.feed(data))
            proved = self.dialing.done
        else:
            assert self.answering is not None
            self._say(self.answering.feed(data))
            proved = self.answering.proved
        if proved:
            self.stage = Stage.PROVED
        return not proved

    def _left(self) -> bool:
        if self._out:
            self._say(b"")
        data = self._read()
        if data is not None and not data:
            raise ConnectionResetError("refused")
        return data is not None

    # -- bytes --------------------------------------------------------------------------------------------------

    def _read(self) -> bytes | None:
        """Return what has come, b"" at the end of the stream, None when there is nothing now."""
        try:
            return self._socket.recv(_READ)
        except (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None
        except ssl.SSLEOFError:
            return b""
        except ssl.SSLError as error:  # with TLS 1.3 it is here that a refused certificate shows
            raise HandshakeError("authentication", tls_trouble(error)) from None

    def _say(self, data: bytes) -> None:
        self._out += data
        try:
            while self._out:
                self._out = self._out[self._socket.send(self._out) :]
        except (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            self.wants = select.EPOLLIN | select.EPOLLOUT
        else:
            self.wants = select.EPOLLIN

    # -- ends ---------------------------------------------------------------------------------------------------

    def accept(self) -> tuple[Wire, bytes]:
        """Welcome a proved dialer; returns the connection, and what has come behind the handshake.

        Raises:
            OSError: the connection is broken, or the other end does not read.
        """
        if self.answering is not None:
            self._say(self.answering.welcome())
            leftover = self.answering.leftover
        else:
            assert self.dialing is not None
            leftover = self.dialing.leftover
        if self._out:
            raise ConnectionResetError("the other end does not read what the handshake says")
        if isinstance(self._socket, ssl.SSLSocket):
            return TlsWire(self._socket), leftover
        return PlainWire(self._socket), leftover

    def refuse(self, kind: str, reason: str, now_ns: int) -> bool:
        """Tell the dialer why not, and linger so that it is read; False when there is no use in it."""
        if self._host is not None or self.stage in (Stage.TLS, Stage.LEAVING):
            return False
        answering = self.answering
        data = refusal(kind, reason) if answering is None else answering.refuse(kind, reason)
        try:
            self._say(data)
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            return False
        self.stage = Stage.LEAVING
        self.deadline_ns = min(self.deadline_ns, now_ns + _LINGER_NS)
        return True

    def dismiss(self, kind: str, reason: str) -> None:
        """Tell the dialer why it has to go, as far as that can be done at once; it is to be closed then."""
        with contextlib.suppress(OSError, HandshakeError):
            self._read()  # what lies unread would have the answer thrown away when the socket is closed
            self.refuse(kind, reason, 0)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
