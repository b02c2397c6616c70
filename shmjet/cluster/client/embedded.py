"""`new_instance`: starts a member process, and imports the client side while the member comes up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmjet.cluster.client.launch import StartingMember
from shmjet.cluster.client.unsupported_settings import check_instance
from shmjet.core import JetConfig, ShmjetError
from shmjet.host.process_limits import lack_text

if TYPE_CHECKING:
    from shmjet.cluster.client.instance import JetInstance


def new_instance(config: JetConfig | None = None) -> JetInstance:
    """Start a member with its workers for this process.

    Args:
        config: settings; by default from the environment (`SHMJET_*`), else one worker per core.

    Returns:
        the instance, a context manager that ends it.

    Raises:
        ConfigError: a setting is wrong.
        AuthenticationError: the members that it was to join do not accept its secret.
        ShmjetError: the member could not start.

    Example:
        >>> jet = shmjet.new_instance(JetConfig(cores=2))    # doctest: +SKIP
        >>> jet.shutdown()                                   # doctest: +SKIP
    """
    config = JetConfig() if config is None else config
    check_instance(config)
    member = StartingMember(config)
    try:
        # The client's half is imported while the member starts, with what its first map or list would need.
        import shmjet.grid.routed  # noqa: F401
        from shmjet.cluster.client.backend import EmbeddedBackend
        from shmjet.cluster.client.instance import JetInstance
    except BaseException:
        member.kill()
        raise
    backend = EmbeddedBackend(member, has_network=config.bind is not None)
    try:
        return JetInstance(config, backend)
    except RuntimeError as error:
        member.kill()
        raise ShmjetError(f"this process has a member, but cannot use it: {lack_text(error)}") from error
    except BaseException:
        member.kill()
        raise
