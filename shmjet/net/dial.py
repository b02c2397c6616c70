"""A client's way to a member: connect, TLS, prove the secret, and then have a plain stream socket.

Blocking, with a time limit. With TLS a thread carries the bytes between the connection and a socket pair, so that who
uses it may treat both kinds alike (descriptors, `sendmsg`, event loops).
"""

from __future__ import annotations

import os
import select
import socket
import ssl
import threading
import time
from types import TracebackType

from shmjet.core import AuthenticationError, ConfigError, ShmjetError
from shmjet.net.addresses import split_address
from shmjet.net.handshake import CLIENT, NONCE_SIZE, Dialing, HandshakeError, Identity
from shmjet.net.messages import TlsFiles
from shmjet.net.relay import Relay
from shmjet.net.tls import client_context, peer_binding, tls_trouble
from shmjet.net.wire_socket import TlsWire

_AUTHENTICATION = ("authentication", "fenced")
_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 0.5
"""Between two attempts at a member that is busy."""


class Connection:
    """A connection to a member, made by `dial`.

    `socket` is a connected stream socket, blocking; `leftover` what came behind the handshake; `address` the member's
    own.
    """

    def __init__(self, sock: socket.socket, leftover: bytes, address: str, pump: _Pump | None = None) -> None:
        self.socket = sock
        self.leftover = leftover
        self.address = address
        self._pump = pump

    def close(self) -> None:
        """Close it; idempotent."""
        self.socket.close()
        if self._pump is not None:
            self._pump.join()

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def dial(address: str, *, cluster: str, secret: bytes, tls: TlsFiles | None = None, timeout: float = 5.0) -> Connection:
    """Connect to a member as a client. A busy member is asked again until the time is up.

    Args:
        address: "host:port".
        cluster: name of the member's cluster; empty for any.
        secret: what both have to know.
        tls: settings; None for in the clear, which has to be what the member does.
        timeout: seconds in all.

    Raises:
        AuthenticationError: one of the two secrets, or a certificate, is wrong.
        ConfigError: it is a member of another cluster, or a file of TLS cannot be used.
        ShmjetError: it is not a member, speaks another version, or refuses for another reason.
        OSError: nothing listens there, or no answer came in time.
    """
    deadline, pause = time.monotonic() + timeout, _PAUSE_S
    while True:
        try:
            return _dial(address, cluster, secret, tls, deadline)
        except _Busy as error:
            if time.monotonic() + pause >= deadline:
                raise ShmjetError(str(error)) from None
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)


class _Busy(Exception):
    """The member has no room for the connection at present."""


def _dial(address: str, cluster: str, secret: bytes, tls: TlsFiles | None, deadline: float) -> Connection:
    host, port = split_address(address)
    sock = socket.create_connection((host, port), max(0.001, deadline - time.monotonic()))
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        binding = b""
        if tls is not None:
            sock = client_context(tls).wrap_socket(sock, server_hostname=host)
            assert isinstance(sock, ssl.SSLSocket)
            binding = peer_binding(sock)
        dialing = Dialing(Identity(CLIENT, cluster, "", "", secret), os.urandom(NONCE_SIZE), binding)
        sock.sendall(dialing.start())
        while not dialing.done:
            sock.settimeout(max(0.001, deadline - time.monotonic()))
            data = sock.recv(2048)
            if not data:
                raise ConnectionResetError(f"{address} has closed the connection during the handshake")
            answer = dialing.feed(data)
            if answer:
                sock.sendall(answer)
    except HandshakeError as error:
        sock.close()
        if error.kind in _AUTHENTICATION:
            raise AuthenticationError(f"{address}: {error}") from None
        if error.kind == "cluster":
            raise ConfigError(f"{address}: {error}, and this client wants cluster {cluster!r}") from None
        if error.kind == "tls":
            raise ConfigError(f"{address}: {error}; give it ClientConfig.tls") from None
        if error.kind == "busy":
            raise _Busy(f"{address}: {error}") from None
        raise ShmjetError(f"{address}: {error}") from None
    except ssl.SSLError as error:
        sock.close()
        raise AuthenticationError(f"{address}: {tls_trouble(error)}") from error
    except BaseException:
        sock.close()
        raise
    if isinstance(sock, ssl.SSLSocket):
        sock.setblocking(False)
        ours, theirs = socket.socketpair()
        return Connection(ours, dialing.leftover, dialing.address, _Pump(sock, theirs))
    sock.settimeout(None)
    return Connection(sock, dialing.leftover, dialing.address)


class _Pump:
    """The thread that carries bytes between a TLS connection and a socket; it ends when one of the two does.

    Args:
        sock: with TLS, not blocking; both are closed by the thread.
        inner: the other socket.
    """

    def __init__(self, sock: ssl.SSLSocket, inner: socket.socket) -> None:
        inner.setblocking(False)
        self._relay = Relay(TlsWire(sock), inner)
        self._thread = threading.Thread(target=self._run, name="shmjet-tls", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        relay = self._relay
        poll = select.poll()
        try:
            while relay.advance():
                outer, inner = relay.wants()
                poll.register(relay.wire.fileno(), outer)
                poll.register(relay.inner.fileno(), inner)
                poll.poll()
        except OSError:
            pass
        finally:
            relay.close()

    def join(self) -> None:
        """Wait for its end, after its inner socket's other end has been closed."""
        self._thread.join(5)
