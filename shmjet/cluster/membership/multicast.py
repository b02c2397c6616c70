"""Discovery on the local network: members announce themselves by DNS service discovery over multicast.

Needs the package zeroconf. The announcement holds a digest of the cluster's name and an address, no
secret.
"""

from __future__ import annotations

import asyncio
import hashlib
import socket
from collections.abc import Iterable

from zeroconf import ServiceStateChange, Zeroconf
from zeroconf.asyncio import AsyncServiceBrowser, AsyncServiceInfo, AsyncZeroconf

from shmjet.net.addresses import join_address, split_address

SERVICE = "_shmjet._tcp.local."
_ASK_MS = 1000
MOST_NAMES = 64
"""Announcements that are remembered: any host on the network may send any number."""


class MulticastDiscovery:
    """See the module.

    Args:
        cluster_name: only members of this cluster are found.
    """

    finds_more = True

    def __init__(self, cluster_name: str) -> None:
        self._cluster = hashlib.sha256(cluster_name.encode()).hexdigest()[:16]
        self._names: dict[str, None] = {}
        """The announced names, the latest last."""
        self._zeroconf: AsyncZeroconf | None = None
        self._browser: AsyncServiceBrowser | None = None
        self._info: AsyncServiceInfo | None = None

    async def start(self, address: str) -> None:
        """Announce this member and begin to listen."""
        host, port = split_address(address)
        found = socket.getaddrinfo(host, port, socket.AF_INET, socket.SOCK_STREAM)
        ip = str(found[0][4][0])
        name = f"{self._cluster}-{ip.replace('.', '-')}-{port}.{SERVICE}"
        self._info = AsyncServiceInfo(
            SERVICE, name, addresses=[socket.inet_aton(ip)], port=port, properties={"cluster": self._cluster}
        )
        self._zeroconf = AsyncZeroconf(interfaces=[ip])
        self._browser = AsyncServiceBrowser(self._zeroconf.zeroconf, SERVICE, handlers=[self._changed])
        await self._zeroconf.async_register_service(self._info)

    def _changed(self, zeroconf: Zeroconf, service_type: str, name: str, state_change: ServiceStateChange) -> None:
        if not name.startswith(self._cluster):
            return
        if state_change is ServiceStateChange.Removed:
            self._names.pop(name, None)
            return
        self._names.pop(name, None)
        self._names[name] = None
        if len(self._names) > MOST_NAMES:
            del self._names[next(iter(self._names))]

    async def find(self) -> Iterable[str]:
        """Return where those are that have announced themselves."""
        assert self._zeroconf is not None
        infos = [AsyncServiceInfo(SERVICE, name) for name in sorted(self._names)]
        zeroconf = self._zeroconf.zeroconf
        known = await asyncio.gather(*(info.async_request(zeroconf, _ASK_MS) for info in infos))  # one may not answer
        told = [info for info, is_known in zip(infos, known, strict=True) if is_known and info.port]
        return [join_address(host, info.port) for info in told if info.port for host in info.parsed_addresses()]

    async def stop(self) -> None:
        """Take the announcement back."""
        if self._browser is not None:
            await self._browser.async_cancel()
        if self._zeroconf is not None:
            if self._info is not None:
                await self._zeroconf.async_unregister_service(self._info)
            await self._zeroconf.async_close()
