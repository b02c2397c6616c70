"""Discovery of members beyond the given addresses: by DNS, by multicast, by plug-ins.

A setting names the way: `dns:HOST:PORT` takes all addresses of a name, as a Kubernetes headless service has them;
`multicast` (needs zeroconf) announces members on the local network and looks for others; any other word is
the name of an entry point of the group `shmjet.discovery`, and what follows its colon is handed to it.

What is found is only where to ask: who answers has to prove that it knows the secret.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import socket
import threading
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from shmjet.data.errors import ConfigError
from shmjet.net.addresses import join_address, split_address

GROUP = "shmjet.discovery"


class Discovery(Protocol):
    """A way to find members."""

    finds_more: bool
    """False: there is nothing to ask."""

    async def start(self, address: str) -> None:
        """Begin, and tell others that this member is at `address` where the way allows that."""

    async def find(self) -> Iterable[str]:
        """Return the addresses at which there may be members now; this member's own may be among them."""

    async def stop(self) -> None:
        """Take back what `start` told, and let go of everything."""


class NoDiscovery:
    """There are only the addresses that the configuration lists."""

    finds_more = False

    async def start(self, address: str) -> None:
        """Nothing to begin."""

    async def find(self) -> Iterable[str]:
        """Nothing to find."""
        return ()

    async def stop(self) -> None:
        """Nothing to end."""


class DnsDiscovery:
    """All addresses of a name, IPv4 and IPv6.

    Args:
        host: the name.
        port: on which members listen.
    """

    finds_more = True

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port

    async def start(self, address: str) -> None:
        """Nothing to begin: who is behind the name is up to the name server."""

    async def find(self) -> Iterable[str]:
        """Look the name up; a name that is not known yet has no addresses."""
        try:
            found = await _in_thread(socket.getaddrinfo, self._host, self._port, 0, socket.SOCK_STREAM)
        except OSError:
            return []
        return sorted({join_address(str(where[0]), self._port) for *_, where in found})

    async def stop(self) -> None:
        """Nothing to end."""


class PluggedDiscovery:
    """A discovery of another package, behind an entry point.

    Args:
        plugin: has `find()`, which returns addresses, and may have `start(address)` and `stop()`; each may be a
            coroutine function, else it is called in a thread, so that it may block.
    """

    finds_more = True

    def __init__(self, plugin: Any) -> None:
        self._plugin = plugin

    async def start(self, address: str) -> None:
        """Call `start`, if there is one."""
        await self._call("start", address)

    async def find(self) -> Iterable[str]:
        """Call `find` and check what it returns."""
        found = list(await self._call("find") or ())
        for address in found:
            try:
                split_address(address)
            except (ValueError, AttributeError):
                raise ConfigError(
                    f"{type(self._plugin).__name__}.find() must return addresses such as '10.0.0.5:5701', "
                    f"got {address!r}"
                ) from None
        return found

    async def stop(self) -> None:
        """Call `stop`, if there is one."""
        await self._call("stop")

    async def _call(self, name: str, *arguments: Any) -> Any:
        function: Callable[..., Any] | None = getattr(self._plugin, name, None)
        if function is None:
            return None
        if inspect.iscoroutinefunction(function):
            return await function(*arguments)
        return await _in_thread(function, *arguments)


async def _in_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a thread that the process does not wait for at its end: a server may never answer."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Any] = loop.create_future()

    def settle(result: Any, error: BaseException | None) -> None:
        if answer.done():
            return
        if error is None:
            answer.set_result(result)
        else:
            answer.set_exception(error)

    def run() -> None:
        result, failure = None, None
        try:
            result = function(*arguments)
        except Exception as error:
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop is closed: the answer is not needed any more
            loop.call_soon_threadsafe(settle, result, failure)

    threading.Thread(target=run, name="shmjet-discovery", daemon=True).start()
    return await answer


def make_discovery(setting: str | None, cluster_name: str) -> Discovery:
    """Return the way that a setting names.

    Args:
        setting: of `JetConfig.discovery`.
        cluster_name: members of other clusters are of no interest.

    Raises:
        ConfigError: it names none; the text lists those there are.

    Example:
        >>> make_discovery("dns:shmjet.default.svc:5701", "dev").finds_more
        True
    """
    if setting is None:
        return NoDiscovery()
    kind, _, rest = setting.partition(":")
    if kind == "dns":
        host, colon, port = rest.rpartition(":")
        if not host or not colon or not port.isdecimal():
            raise ConfigError(
                f"JetConfig.discovery: 'dns' needs a name and a port, as in 'dns:jet.svc:5701', got {setting!r}"
            )
        return DnsDiscovery(host, int(port))
    if kind == "multicast":
        try:
            from shmjet.cluster.membership.multicast import MulticastDiscovery
        except ImportError as error:
            raise ConfigError("JetConfig.discovery: 'multicast' needs zeroconf; pip install zeroconf") from error
        return MulticastDiscovery(cluster_name)
    from importlib.metadata import entry_points  # takes 10 ms, which every start would pay

    for point in entry_points(group=GROUP):
        if point.name == kind:
            return PluggedDiscovery(point.load()(rest))
    known = ", ".join(sorted({"dns", "multicast", *(point.name for point in entry_points(group=GROUP))}))
    raise ConfigError(f"JetConfig.discovery: there is no way {kind!r} to find members; ways: {known}")
