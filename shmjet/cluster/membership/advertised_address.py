"""The address by which others reach a member that listens on all interfaces."""

from __future__ import annotations

import socket
from collections.abc import Iterable

from shmjet.net.addresses import split_address

ANY = ("0.0.0.0", "::", "*", "")
_NOWHERE = ("192.0.2.1", 9)
"""An address of documentation: to connect a UDP socket sends nothing, and tells the interface of the default route."""


def advertised_host(bind: str, towards: Iterable[str]) -> str | None:
    """Return the host that others should be told, None when it is the one in `bind`.

    Args:
        bind: "host:port"; a host such as 0.0.0.0 says nothing to others.
        towards: addresses of members; the interface that leads to the first that has one is chosen.
    """
    host, _ = split_address(bind)
    if host not in ANY:
        return None
    targets: list[tuple[str, int]] = []
    for address in towards:
        other, port = split_address(address)
        if other not in ("localhost", "127.0.0.1", "::1"):
            targets.append((other, port))
    for target in (*targets, _NOWHERE):
        try:
            found = socket.getaddrinfo(*target, type=socket.SOCK_DGRAM)
        except OSError:
            continue
        for family, kind, proto, _, where in found:
            with socket.socket(family, kind, proto) as probe:
                try:
                    probe.connect(where)
                except OSError:
                    continue
                return str(probe.getsockname()[0])
    return "127.0.0.1"
