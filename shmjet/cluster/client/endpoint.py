"""The endpoint of a cluster on the network: any of its members."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Sequence

from shmjet.cluster.client.connection import PATIENCE_S, RECONNECT_S
from shmjet.data.errors import AuthenticationError, ConfigError, MemberLostError, ShmjetError
from shmjet.net.dial import Connection as Dialled
from shmjet.net.dial import dial
from shmjet.net.messages import TlsFiles

MOST_LEARNED = 64
"""Addresses that are kept in addition to the given ones: members come and go under new addresses."""
_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 1.0

Opened = tuple[socket.socket, bytes, Callable[[], None]]


class RemoteEndpoint:
    """Any of several members, over the network.

    Args:
        addresses: where to try, in this order; `learn` adds others.
        cluster: name of their cluster; empty for any.
        secret: what they want to be proved.
        tls: None for connections in the clear.
        timeout: seconds that one address may take.
        reconnect_s: how long members are looked for when the member that it led to is gone.
    """

    patience = PATIENCE_S

    def __init__(
        self,
        addresses: Sequence[str],
        cluster: str,
        secret: bytes,
        tls: TlsFiles | None,
        timeout: float,
        reconnect_s: float = RECONNECT_S,
    ) -> None:
        self.reconnect_s = reconnect_s
        self._given = list(addresses)
        self._learned: list[str] = []
        self._cluster = cluster
        self._secret = secret
        self._tls = tls
        self._timeout = timeout
        self.address = ""
        """Of the member that it leads to now."""

    @property
    def trouble(self) -> str:
        """Nothing can be seen from here."""
        return ""

    @property
    def gone(self) -> str:
        """What to say when no member can be reached."""
        return f"no member can be reached at {', '.join(self._addresses)}"

    @property
    def _addresses(self) -> list[str]:
        return [*self._given, *self._learned]

    def learn(self, addresses: Sequence[str]) -> None:
        """Take the addresses of further members; only the last `MOST_LEARNED` are remembered."""
        fresh = [address for address in addresses if address not in self._given]
        known = [address for address in self._learned if address not in fresh]
        self._learned = [*fresh, *known][: max(MOST_LEARNED, len(fresh))]

    def connect(self) -> Opened:
        """Connect to the first that answers.

        Raises:
            AuthenticationError: a member does not accept the secret.
            ConfigError: it is of another cluster, or a file of TLS cannot be used.
            MemberLostError: none answers.
        """
        failures = []
        for address in self._addresses:
            try:
                return self._dial(address)
            except (AuthenticationError, ConfigError):
                raise
            except (OSError, ShmjetError) as error:
                why = (error.strerror or str(error)).lower() if isinstance(error, OSError) else str(error)
                failures.append(f"{address}: {why or 'no answer'}")
        hint = "does one run there (`shmjet member`), and is its port open?"
        raise MemberLostError(f"no member can be reached: {'; '.join(failures)}; {hint}")

    def connect_again(self, stopped: Callable[[], bool]) -> Opened | None:
        """Try all addresses, that of the lost member last, until one answers or it has taken too long."""
        deadline, pause = time.monotonic() + self.reconnect_s, _PAUSE_S
        lost = self.address
        while not stopped() and time.monotonic() < deadline:
            for address in sorted(self._addresses, key=lambda address: address == lost):
                if stopped():
                    return None
                try:
                    return self._dial(address)
                except (OSError, ShmjetError):
                    continue
            threading.Event().wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)
        return None

    def dial(self, address: str) -> Opened:
        """Connect to the member at an address, whichever member this leads to; raises as `net.dial.dial`."""
        opened = self._dialled(address)
        return opened.socket, opened.leftover, opened.close

    def _dial(self, address: str) -> Opened:
        opened = self._dialled(address)
        self.address = opened.address
        self.learn([opened.address])
        return opened.socket, opened.leftover, opened.close

    def _dialled(self, address: str) -> Dialled:
        return dial(address, cluster=self._cluster, secret=self._secret, tls=self._tls, timeout=self._timeout)
