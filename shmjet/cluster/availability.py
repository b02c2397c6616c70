"""Refuses settings that this version knows but cannot honour: better an error than a promise that is not kept."""

from __future__ import annotations

from shmjet.core import ConfigError, JetConfig, JobConfig, ProcessingGuarantee


def check_instance(config: JetConfig) -> None:
    """Check the settings of an instance.

    Raises:
        ConfigError: one of them needs storage on disk, or a network that is not there.
    """
    if config.storage != "memory":
        raise ConfigError(
            f"JetConfig.storage is {config.storage!r}, but in this version maps live in memory; leave it 'memory'"
        )
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
        ConfigError: one of them needs snapshots.
    """
    for name, plain in (
        ("processing_guarantee", ProcessingGuarantee.NONE),
        ("suspend_on_failure", False),
        ("initial_snapshot_name", None),
    ):
        value = getattr(config, name)
        if value != plain:
            raise ConfigError(
                f"JobConfig.{name} is {value}, but this version takes no snapshots; leave it {plain} and run the job "
                "again after a failure"
            )
