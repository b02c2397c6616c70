"""`new_client`: access to a cluster from anywhere, without an embedded member."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shmjet.cluster.client.backend import RemoteBackend
from shmjet.cluster.client.connection import RECONNECT_S
from shmjet.cluster.client.endpoint import RemoteEndpoint
from shmjet.cluster.client.instance import JetInstance
from shmjet.cluster.client.tls_settings import tls_settings
from shmjet.core import JetConfig
from shmjet.core.checks import check_seconds, with_known_settings
from shmjet.core.secret import secret_bytes
from shmjet.data.errors import ConfigError
from shmjet.host.standard_descriptors import fill_standard_descriptors
from shmjet.net.addresses import split_address
from shmjet.net.messages import TlsFiles

NAME_VARIABLE = "SHMJET_CLUSTER_NAME"


@with_known_settings
@dataclass(frozen=True, kw_only=True)
class ClientConfig:
    """Settings of a client; the environment provides the missing ones (`SHMJET_SECRET`, ...).

    Instead of a number of seconds a `timedelta` may be given.

    Args:
        cluster_name: that the cluster must have; None for whichever the addresses lead to.
        secret: what its members want to be proved; text or bytes, or `file:PATH`.
        tls: None, or a mapping of TLS settings as in `JetConfig`.
        connect_timeout: seconds that connecting to one address may take, above 0.
        timeout: seconds for which a member is looked for when none that the client knows can be reached any more
            (default 15); its executions, maps and lists wait for it, above 0.

    Raises:
        ConfigError: a field has a wrong type or range; the text names it.

    Example:
        >>> ClientConfig(cluster_name="orders", secret="hush")
        ClientConfig(cluster_name='orders', secret=***, tls=None)
    """

    cluster_name: str | None = None
    secret: str | bytes | None = None
    tls: Mapping[str, Any] | None = None
    connect_timeout: float = 5.0
    timeout: float = RECONNECT_S

    def __post_init__(self) -> None:
        given = {name: getattr(self, name) for name in ("cluster_name", "secret", "tls")}
        # A port that a member in the same environment is to open (`SHMJET_BIND`) is none of a client's business.
        checked = JetConfig(bind=None, **{name: value for name, value in given.items() if value is not None})
        for name in given:
            object.__setattr__(self, name, getattr(checked, name))
        if given["cluster_name"] is None and NAME_VARIABLE not in os.environ:
            object.__setattr__(self, "cluster_name", None)
        for name in ("connect_timeout", "timeout"):
            object.__setattr__(self, name, check_seconds(f"ClientConfig.{name}", getattr(self, name)))

    def __repr__(self) -> str:
        return f"ClientConfig(cluster_name={self.cluster_name!r}, secret=***, tls={self.tls!r})"


def new_client(addresses: Sequence[str], config: ClientConfig | None = None) -> JetInstance:
    """Connect to a cluster, with the whole interface of an instance.

    When the member that it is connected to is gone, the client goes on with another one, and executions that it waits
    for with it. When none is left that it knows, it looks for one for `ClientConfig.timeout` seconds.

    Args:
        addresses: of one or more members, "host:port"; others of the cluster are learned.
        config: settings; by default from the environment.

    Returns:
        the instance, a context manager; its end ends nothing but the connection.

    Raises:
        ConfigError: a setting is wrong, there is no secret, or the cluster has another name than the config says.
        AuthenticationError: the members do not accept the secret, or do not know it themselves.
        MemberLostError: no member can be reached.

    Example:
        >>> jet = shmjet.new_client(["10.0.0.5:5701"], ClientConfig(secret="hush"))      # doctest: +SKIP
        >>> jet.new_job(dag).run()                                                       # doctest: +SKIP
    """
    config = ClientConfig() if config is None else config
    if not isinstance(config, ClientConfig):
        raise ConfigError(f"new_client(): config must be a ClientConfig, got {config!r:.80} ({type(config).__name__})")
    fill_standard_descriptors()
    endpoint = endpoint_of(addresses, config)
    named: dict[str, Any] = {} if config.cluster_name is None else {"cluster_name": config.cluster_name}
    return JetInstance(JetConfig(bind=None, members=addresses, secret=config.secret, **named), RemoteBackend(endpoint))


def endpoint_of(addresses: Sequence[str], config: ClientConfig) -> RemoteEndpoint:
    """Return the endpoint of a cluster with members at some addresses.

    Raises:
        ConfigError: a setting is wrong, or there is no secret.
    """
    if isinstance(addresses, str) or not isinstance(addresses, Sequence) or not addresses:
        raise ConfigError(f"new_client() takes a list of addresses such as ['10.0.0.5:5701'], got {addresses!r}")
    for address in addresses:
        try:
            split_address(address)
        except (ValueError, AttributeError):
            raise ConfigError(f"new_client() takes addresses such as '10.0.0.5:5701', got {address!r}") from None
    if config.secret is None:
        raise ConfigError(
            "a client needs the cluster's secret: pass ClientConfig(secret=...), or set SHMJET_SECRET or "
            "SHMJET_SECRET_FILE"
        )
    tls = tls_settings(config.tls)
    return RemoteEndpoint(
        addresses,
        config.cluster_name or "",
        secret_bytes(config.secret),
        None if tls is None else TlsFiles(**tls),
        config.connect_timeout,
        config.timeout,
    )
