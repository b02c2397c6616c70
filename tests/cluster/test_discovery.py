"""Ways to find members: names, plug-ins, the local network; and what is said of a wrong one."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterable
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from shmjet import ConfigError, JetConfig
from shmjet.cluster.client.tls_settings import tls_settings
from shmjet.cluster.client.unsupported_settings import check_instance
from shmjet.cluster.membership import discovery, discovery_search
from shmjet.cluster.membership.advertised_address import advertised_host
from shmjet.cluster.membership.discovery import PluggedDiscovery, make_discovery
from shmjet.cluster.membership.discovery_search import DiscoverySearch


async def _found(way: discovery.Discovery) -> list[str]:
    await way.start("10.0.0.1:5701")
    try:
        return list(await way.find())
    finally:
        await way.stop()


def found(way: discovery.Discovery) -> list[str]:
    return asyncio.run(_found(way))


def test_without_a_setting_there_is_nothing_to_ask() -> None:
    way = make_discovery(None, "dev")
    assert not way.finds_more
    assert found(way) == []


def test_a_name_stands_for_all_its_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    def look_up(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        assert (host, port) == ("jet.svc", 5701)
        return [(socket.AF_INET, 1, 6, "", (ip, port)) for ip in ("10.0.0.7", "10.0.0.5")] + [
            (socket.AF_INET6, 1, 6, "", ("fd00::5", port, 0, 0))
        ]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    assert found(make_discovery("dns:jet.svc:5701", "dev")) == ["10.0.0.5:5701", "10.0.0.7:5701", "[fd00::5]:5701"]


def test_a_name_that_nobody_knows_yet_has_no_addresses() -> None:
    assert found(make_discovery("dns:no-such-host.invalid:5701", "dev")) == []


class FromAList:
    def __init__(self, argument: str) -> None:
        self.addresses = argument.split(",")
        self.calls: list[str] = []

    def start(self, address: str) -> None:
        self.calls.append(f"start {address}")

    def find(self) -> Iterable[str]:
        return self.addresses

    async def stop(self) -> None:
        self.calls.append("stop")


def test_a_plugin_is_found_by_its_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("listed", f"{__name__}:FromAList", discovery.GROUP)
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [point] if group == discovery.GROUP else [])
    assert found(make_discovery("listed:10.0.0.8:1,10.0.0.9:2", "dev")) == ["10.0.0.8:1", "10.0.0.9:2"]
    with pytest.raises(ConfigError, match=r"no way 'other'.*dns, listed, multicast"):
        make_discovery("other:x", "dev")


def test_a_plugins_start_and_stop_are_called() -> None:
    plugin = FromAList("10.0.0.8:1")
    found(PluggedDiscovery(plugin))
    assert plugin.calls == ["start 10.0.0.1:5701", "stop"]


def test_a_plugin_that_does_not_come_back_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery_search, "START_S", 0.01)
    come_back = threading.Event()

    class Stuck:
        def find(self) -> list[str]:
            come_back.wait(60)
            return ["10.0.0.9:1"]

    told: list[Iterable[str]] = []
    try:
        asyncio.run(DiscoverySearch(PluggedDiscovery(Stuck()), told.append, lambda: False).begin("10.0.0.1:5701"))
    finally:
        come_back.set()
    assert told == []


def test_a_plugin_that_finds_no_addresses_is_told_so() -> None:
    with pytest.raises(ConfigError, match="must return addresses"):
        found(PluggedDiscovery(FromAList("nonsense")))


@pytest.mark.parametrize("setting", ["dns:", "dns:host", "dns:host:port"])
def test_a_name_needs_a_port(setting: str) -> None:
    with pytest.raises(ConfigError, match="needs a name and a port"):
        make_discovery(setting, "dev")


@pytest.mark.slow
def test_members_on_the_same_network_find_each_other() -> None:
    pytest.importorskip("zeroconf", reason="zeroconf is not installed (pip install zeroconf)")

    async def meet() -> list[list[str]]:
        addresses = ["127.0.0.1:5791", "127.0.0.1:5792"]
        ways = [make_discovery("multicast", cluster) for cluster in ("one", "one", "other")]
        for way, address in zip(ways, [*addresses, "127.0.0.1:5793"], strict=True):
            await way.start(address)
        try:
            for _ in range(600):
                seen = [sorted(await way.find()) for way in ways]
                if seen[0] == seen[1] == addresses:
                    break
                await asyncio.sleep(0.1)
            return seen
        finally:
            for way in ways:
                await way.stop()

    try:
        seen = asyncio.run(meet())
    except OSError as error:
        pytest.skip(f"no multicast on this machine: {error}")
    assert seen[:2] == [["127.0.0.1:5791", "127.0.0.1:5792"]] * 2
    assert set(seen[2]) <= {"127.0.0.1:5793"}


def test_one_that_listens_everywhere_tells_an_address_that_leads_to_it() -> None:
    assert advertised_host("10.0.0.5:5701", []) is None
    host = advertised_host("0.0.0.0:5701", ["10.1.2.3:5701"])
    assert host is not None
    assert host != "0.0.0.0"
    socket.inet_aton(host)


@pytest.mark.parametrize(
    ("field", "value"), [("members", ["10.0.0.5:5701"]), ("discovery", "multicast"), ("tls", {"certificate": "c"})]
)
def test_a_member_without_an_address_has_no_network(field: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"{field} is set, but bind is not"):
        check_instance(JetConfig(**{field: value}))


def test_settings_of_tls_are_checked() -> None:
    with pytest.raises(ConfigError, match="no setting 'certs'"):
        tls_settings({"certs": "x"})
    with pytest.raises(ConfigError, match="mutual needs an authority"):
        tls_settings({"cert": "x", "mutual": "true"})
    assert tls_settings({"cert": "x", "ca": "y", "mutual": "on"}) == {
        "certificate": "x",
        "authority": "y",
        "mutual": True,
    }


def test_false_announcements_neither_pile_up_nor_hold_up_the_true_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    multicast: Any = pytest.importorskip(
        "shmjet.cluster.membership.multicast", reason="zeroconf is not installed (pip install zeroconf)"
    )
    asked: list[str] = []
    all_asked = asyncio.Event()

    class Info:
        def __init__(self, service: str, name: str, **announced: object) -> None:
            self.name, self.port = name, 5701

        async def async_request(self, zeroconf: object, timeout: float) -> bool:
            """False names answer when all have been asked, and not before."""
            asked.append(self.name)
            if len(asked) == multicast.MOST_NAMES:
                all_asked.set()
            await all_asked.wait()
            return self.name.endswith("true")

        def parsed_addresses(self) -> list[str]:
            return ["10.0.0.5"]

    class Network:
        """Hears of 10,000 services of the cluster that announces one, then of a true one and of another cluster's."""

        zeroconf = None

        def __init__(self, interfaces: list[str]) -> None:
            pass

        async def async_register_service(self, info: Info) -> None:
            cluster, _, _ = info.name.partition("-")
            for name in (*(f"{cluster}-{number}" for number in range(10_000)), f"{cluster}-true", "another"):
                Browser.handlers[0](None, multicast.SERVICE, name, multicast.ServiceStateChange.Added)

        async def async_unregister_service(self, info: Info) -> None:
            pass

        async def async_close(self) -> None:
            pass

    class Browser:
        handlers: list[Any] = []

        def __init__(self, zeroconf: object, service: str, handlers: list[Any]) -> None:
            Browser.handlers = handlers

        async def async_cancel(self) -> None:
            pass

    monkeypatch.setattr(multicast, "AsyncServiceInfo", Info)
    monkeypatch.setattr(multicast, "AsyncZeroconf", Network)
    monkeypatch.setattr(multicast, "AsyncServiceBrowser", Browser)
    assert asyncio.run(asyncio.wait_for(_found(multicast.MulticastDiscovery("dev")), 60)) == ["10.0.0.5:5701"]
    assert len(asked) == multicast.MOST_NAMES
