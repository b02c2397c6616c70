"""Which connections may stay when there are too many, so that one address cannot keep the others out.

The room is shared: when it is full, the address that has the most connections gives up its oldest. So an address with
few connections keeps them whatever another one does, and where all come from one address the newest has the most time
to prove itself. Pure counting: no sockets, no clock.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Generic, TypeVar

Connection = TypeVar("Connection")

_HOST_BITS_OF_IPV6 = 64
"""A host usually has a whole network of this many bits to itself."""


def source_of(host: str) -> str:
    """Return what stands for an address when connections are counted: of IPv6 the network, as one host has all of it.

    Example:
        >>> source_of("10.0.0.5"), source_of("2001:db8::1:5"), source_of("::ffff:10.0.0.5")
        ('10.0.0.5', '2001:db8::', '10.0.0.5')
    """
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Address(int(address) >> _HOST_BITS_OF_IPV6 << _HOST_BITS_OF_IPV6))


class Admission(Generic[Connection]):
    """The connections that are there, by their sources, each in the order in which they came."""

    def __init__(self) -> None:
        self._sources: dict[str, dict[Connection, None]] = {}
        self._source: dict[Connection, str] = {}

    def __len__(self) -> int:
        return len(self._source)

    def __iter__(self) -> Iterator[Connection]:
        """Yield them, the oldest first."""
        return iter(self._source)

    def add(self, connection: Connection, source: str) -> None:
        """Take a connection that has come from a source (`source_of`)."""
        self._source[connection] = source
        self._sources.setdefault(source, {})[connection] = None

    def discard(self, connection: Connection) -> None:
        """Forget a connection that is gone, or is no longer waiting."""
        source = self._source.pop(connection, None)
        if source is not None:
            del self._sources[source][connection]
            if not self._sources[source]:
                del self._sources[source]

    def source(self, connection: Connection) -> str:
        """Return where a connection has come from."""
        return self._source[connection]

    def full_sources(self, most: int) -> tuple[str, ...]:
        """Return the sources from which at least so many have come."""
        return tuple(source for source, connections in self._sources.items() if len(connections) >= most)

    def count_of(self, source: str) -> int:
        """Return how many have come from a source."""
        return len(self._sources.get(source, ()))

    def to_give_up(self) -> Connection | None:
        """Return the connection that has to go first: the oldest of the source with most; None without one."""
        if not self._sources:
            return None
        most = max(map(len, self._sources.values()))
        return next(c for c, source in self._source.items() if len(self._sources[source]) == most)
