"""The refusal of settings that this version knows but cannot honour."""

from __future__ import annotations

from shmjet.core import ConfigError, JetConfig, JobConfig


def _check_kind(where: str, config: object, kind: type) -> None:
    if not isinstance(config, kind):
        raise ConfigError(f"{where}: config must be a {kind.__name__}, got {config!r:.80} ({type(config).__name__})")


def check_instance(config: JetConfig) -> None:
    """Check the settings of an instance.

    Raises:
        ConfigError: they are not a `JetConfig`, or one of them needs a network that is not there.
    """
    _check_kind("new_instance()", config, JetConfig)
    if config.bind is None:
        for name in ("members", "discovery", "tls"):
            if getattr(config, name):
                raise ConfigError(
                    f"JetConfig.{name} is set, but bind is not: a member without an address has no network; "
                    "set bind to 'host:port', 'host:0' for any port"
                )


def check_job(config: JobConfig) -> None:
    """Check the settings of a job.

    Raises:
        ConfigError: they are not a `JobConfig`.
    """
    _check_kind("new_job()", config, JobConfig)
