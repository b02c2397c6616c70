"""`new_client`: a cluster from anywhere, without a member of one's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shmjet.cluster.far_way import FarWay
from shmjet.cluster.homes import NoMember
from shmjet.cluster.instance import JetInstance
from shmjet.cluster.tls_settings import tls_settings
from shmjet.core import JetConfig
from shmjet.core.errors import ConfigError
from shmjet.core.secret import secret_bytes
from shmjet.net.messages import TlsFiles


@dataclass(frozen=True, kw_only=True)
class ClientConfig:
    """Settings of a client; those that are not given are taken from the environment (`SHMJET_SECRET`, ...).

    Args:
        cluster_name: of the cluster (default "dev").
        secret: what its members want to be proved; text or bytes, or `file:PATH`.
        tls: None, or a mapping of TLS settings as in `JetConfig`.
        connect_timeout: seconds that connecting to one address may take, above 0.

    Raises:
        ConfigError: a field has a wrong type or range; the text names it.

    Example:
        >>> ClientConfig(secret="hush").cluster_name
        'dev'
    """

    cluster_name: str | None = None
    secret: str | bytes | None = None
    tls: Mapping[str, Any] | None = None
    connect_timeout: float = 5.0

    def __post_init__(self) -> None:
        given = {name: getattr(self, name) for name in ("cluster_name", "secret", "tls")}
        checked = JetConfig(**{name: value for name, value in given.items() if value is not None})
        for name in given:
            object.__setattr__(self, name, getattr(checked, name))
        timeout = self.connect_timeout
        if not isinstance(timeout, int | float) or isinstance(timeout, bool) or not 0 < timeout < float("inf"):
            raise ConfigError(f"ClientConfig.connect_timeout must be a number of seconds above 0, got {timeout!r}")

    def __repr__(self) -> str:
        return f"ClientConfig(cluster_name={self.cluster_name!r}, secret=***, tls={self.tls!r})"


def new_client(addresses: Sequence[str], config: ClientConfig | None = None) -> JetInstance:
    """Connect to a cluster, with the whole interface of an instance.

    When the member that it is connected to is gone, the client goes on with another one, and executions that it waits
    for with it.

    Args:
        addresses: of one or more members, "host:port"; others of the cluster are learned.
        config: settings; by default from the environment.

    Returns:
        the instance, a context manager; its end ends nothing but the connection.

    Raises:
        ConfigError: a setting is wrong, or there is no secret.
        AuthenticationError: the members do not accept the secret, or do not know it themselves.
        MemberLostError: no member can be reached.

    Example:
        >>> jet = shmjet.new_client(["10.0.0.5:5701"], ClientConfig(secret="hush"))      # doctest: +SKIP
        >>> jet.new_job(dag).run()                                                       # doctest: +SKIP
    """
    config = ClientConfig() if config is None else config
    if not isinstance(config, ClientConfig):
        raise ConfigError(f"new_client(): config must be a ClientConfig, got {config!r:.80} ({type(config).__name__})")
    way = way_to(addresses, config)
    jet_config = JetConfig(cluster_name=config.cluster_name or "dev", members=addresses, secret=config.secret)
    return JetInstance(jet_config, NoMember(way))


def way_to(addresses: Sequence[str], config: ClientConfig) -> FarWay:
    """Return what leads to any of the members at some addresses.

    Raises:
        ConfigError: a setting is wrong, or there is no secret.
    """
    if isinstance(addresses, str) or not addresses:
        raise ConfigError(f"new_client() takes a list of addresses such as ['10.0.0.5:5701'], got {addresses!r}")
    seen = JetConfig(members=addresses)
    if config.secret is None:
        raise ConfigError(
            "a client needs the cluster's secret: pass ClientConfig(secret=...), or set SHMJET_SECRET or "
            "SHMJET_SECRET_FILE"
        )
    tls = tls_settings(config.tls)
    return FarWay(
        list(seen.members),
        config.cluster_name or "dev",
        secret_bytes(config.secret),
        None if tls is None else TlsFiles(**tls),
        config.connect_timeout,
    )
