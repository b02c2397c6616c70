"""How a cluster of Hazelcast is reached: what a user gives as `config`. Must not import the client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any, Final, NamedTuple

from shmjet.data.errors import ConfigError

CONNECT_TIMEOUT: Final = 20.0
"""Seconds within which a client must find a member, at the start and after it has lost all, unless told otherwise."""

DEFAULT_ADDRESS: Final = "localhost:5701"


class ClusterSettings(NamedTuple):
    """How a client is made.

    Args:
        options: arguments by name of `hazelcast.HazelcastClient`.
        given: a `hazelcast.config.Config` to be used as it is; then there are no options.
    """

    options: Mapping[str, Any]
    given: Any = None

    @property
    def cluster_name(self) -> str:
        """The name of the cluster."""
        if self.given is not None:
            return str(self.given.cluster_name)
        return str(self.options.get("cluster_name") or "dev")

    @property
    def addresses(self) -> str:
        """Where members are looked for, for messages."""
        members = self.given.cluster_members if self.given is not None else self.options.get("cluster_members")
        return ", ".join(members or (DEFAULT_ADDRESS,))

    @property
    def connect_timeout(self) -> float:
        """Seconds within which a member must be found; -1: without end."""
        if self.given is not None:
            return float(self.given.cluster_connect_timeout)
        return float(self.options["cluster_connect_timeout"])


def checked_settings(where: str, config: Any) -> ClusterSettings:
    """Return how a cluster is reached.

    Members are tried for `CONNECT_TIMEOUT` seconds, and what a lost member has not answered is sent again, unless the
    options say otherwise: the client alone would try for ever, and give up at the first loss.

    Args:
        where: the function that the user has called.
        config: the address of a member or several, options by name, a `hazelcast.config.Config`, or None for a member
            on this host.

    Raises:
        ModuleNotFoundError: the client is not installed.
        TypeError: `config` is of another type. ConfigError: the client does not take an option.
    """
    if find_spec("hazelcast") is None:
        raise ModuleNotFoundError(
            f"{where} needs the package hazelcast-python-client: pip install hazelcast-python-client", name="hazelcast"
        )
    from hazelcast.config import Config

    if isinstance(config, Config):
        return ClusterSettings({}, config)
    options = {"cluster_connect_timeout": CONNECT_TIMEOUT, "redo_operation": True, **_options(where, config)}
    try:
        Config.from_dict(dict(options))
    except Exception as error:  # of several types, by the option
        raise ConfigError(f"{where}: config: {error}") from None
    return ClusterSettings(options)


def _options(where: str, config: Any) -> dict[str, Any]:
    if config is None:
        return {}
    if isinstance(config, str):
        return {"cluster_members": [config]}
    if isinstance(config, Mapping):
        return {name: value for name, value in config.items() if value is not None}
    if isinstance(config, Sequence) and config and all(isinstance(address, str) for address in config):
        return {"cluster_members": list(config)}
    raise TypeError(
        f"{where}: config must be an address, a list of addresses, a dict of options of hazelcast.HazelcastClient or a "
        f"hazelcast.config.Config, got {config!r:.80} ({type(config).__name__})"
    )
