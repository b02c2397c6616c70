"""Refuses settings that this version knows but cannot honour: better an error than a promise that is not kept."""

from __future__ import annotations

from shmjet.core import ConfigError, JetConfig, JobConfig, ProcessingGuarantee


def check_instance(config: JetConfig) -> None:
    """Check the settings of an instance.

    Raises:
        ConfigError: one of them needs a network or storage on disk.
    """
    for name, plain in (("bind", None), ("members", ()), ("discovery", None), ("tls", None), ("storage", "memory")):
        value = getattr(config, name)
        if value != plain and not (plain == () and not value):
            raise ConfigError(
                f"JetConfig.{name} is {value!r}, but in this version an instance is one member in memory, without a "
                f"network; leave it {plain!r}"
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
