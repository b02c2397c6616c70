"""How the command line reaches a running cluster: from an address, a file with settings and the environment."""

from __future__ import annotations

from pathlib import Path

from shmjet.cli.outcome import CommandError
from shmjet.cluster.client.instance import JetInstance
from shmjet.cluster.client.remote import ClientConfig, endpoint_of, new_client
from shmjet.cluster.monitor.remote import RemoteMonitor
from shmjet.core import JetConfig
from shmjet.net.addresses import split_address

_ANY = "dev"
"""The name that a cluster has by default: who says no other one takes the cluster that the address leads to."""


def connect(address: str | None, config: Path | None) -> JetInstance:
    """Return a client of the cluster at an address, with settings from a file and the environment.

    Raises:
        CommandError: there is no address.
        ShmjetError: the cluster cannot be reached.
    """
    return new_client(*_client_settings(address, config))


def remote_monitor(address: str | None, config: Path | None) -> RemoteMonitor:
    """Return the cluster at an address, to look at.

    Raises:
        CommandError: there is no address.
        ShmjetError: the cluster cannot be reached.
    """
    return RemoteMonitor(endpoint_of(*_client_settings(address, config)))


def _client_settings(address: str | None, config: Path | None) -> tuple[list[str], ClientConfig]:
    addresses = [part.strip() for part in (address or "").split(",") if part.strip()]
    found = JetConfig() if config is None else JetConfig.from_toml(config)
    if not addresses:
        addresses = [*found.members] or ([found.bind] if found.bind else [])
    if not addresses:
        raise CommandError("which cluster? pass --address HOST:PORT or set SHMJET_ADDRESS")
    for part in addresses:
        try:
            split_address(part)
        except ValueError:
            raise CommandError(f"--address must be HOST:PORT such as 10.0.0.5:5701, got {part!r}") from None
    name = None if found.cluster_name == _ANY else found.cluster_name
    return addresses, ClientConfig(cluster_name=name, secret=found.secret, tls=found.tls)
