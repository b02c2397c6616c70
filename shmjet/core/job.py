"""How a job is to be run: its settings, its guarantee, and the states it goes through.

A description that travels with the DAG. It must not know how jobs are run.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from shmjet.core.checks import (
    MOST_PARTITIONS,
    check_at_least,
    check_name,
    check_seconds,
    check_snapshot_name,
    with_known_settings,
)
from shmjet.data.errors import ConfigError, PartitionCountError


class ProcessingGuarantee(enum.Enum):
    """What a fault may do to the items that were under way.

    Example:
        >>> JobConfig(processing_guarantee=ProcessingGuarantee.AT_LEAST_ONCE).processing_guarantee.value
        'at_least_once'
    """

    NONE = "none"
    """No snapshots are taken. After a fault the job fails, but after the loss of a member it begins anew."""

    AT_LEAST_ONCE = "at_least_once"
    """Nothing is lost; some items may be processed again."""

    EXACTLY_ONCE = "exactly_once"
    """State reflects every item exactly once."""


class JobStatus(enum.Enum):
    """Where a job is in its life.

    Example:
        >>> JobStatus.RUNNING.is_terminal, JobStatus.FAILED.is_terminal
        (False, True)
    """

    NOT_RUNNING = "not_running"
    """Not executed yet, or in a pause before another attempt."""

    STARTING = "starting"
    """Processors are being made and initialised."""

    RUNNING = "running"
    """Items flow."""

    SUSPENDED = "suspended"
    """Stopped for now; it goes on where it was when it is resumed."""

    SUSPENDED_EXPORTING_SNAPSHOT = "suspended_exporting_snapshot"
    """Stopped for now, and its state is being exported."""

    COMPLETING = "completing"
    """The processors have ended well, and meta-suppliers make the results visible (`commit`); no longer cancellable."""

    FAILED = "failed"
    """Ended with an error, or cancelled."""

    COMPLETED = "completed"
    """Ended well."""

    @property
    def is_terminal(self) -> bool:
        """True when the job has ended and will not run again by itself."""
        return self in (JobStatus.FAILED, JobStatus.COMPLETED)


@with_known_settings
@dataclass
class JobConfig:
    """Settings of one job; not frozen, and checked whenever a field is set.

    Instead of a number of seconds a `timedelta` may be given.

    Args:
        name: what the job is called; no two jobs that have not ended may share a name.
        processing_guarantee: see `ProcessingGuarantee`. A job with one takes snapshots, is restarted from the last one
            when a process of it is lost, and runs once at a time.
        snapshot_interval: seconds from the end of one snapshot to the start of the next.
        auto_scaling: restart the job on the rest when a member is lost, and on all when members have joined
            (`JetConfig.scale_up_delay`). A job with a guarantee goes on from its last snapshot, one without begins
            anew. False: the loss suspends a job with a guarantee, and fails one without; joins change nothing.
        suspend_on_failure: suspend the job instead of failing it; `Job.suspension_cause` says why.
        split_brain_protection: begin only where there are more than half as many members as at the submission, or
            after the largest join since; until then the job is NOT_RUNNING. False: of a cluster that is cut into
            halves both run the job, until they meet.
        initial_snapshot_name: an exported snapshot to start from.
        allow_dropped_state: start although the snapshot has state of stages that the job does not have; that state is
            dropped.
        max_state_bytes: bytes that one snapshot of the job may take, None: any; a larger one fails, and the one before
            it stays valid.
        latency_target: seconds that items should be under way at most; the engine works in larger pieces where it may.
            None: 0.005 for a job with an endless source, else 0.1; what is below or above these counts like them.
        memory_limit: bytes that the items of one sort (`sort`, `sort_batches`) may take in memory on one member; the
            rest goes to files. None: half of what host and control group leave. It limits nothing else: groups, joins,
            tables, `distinct` and states take what they need.
        spill_folder: an existing folder of each member for these files, and for results that `collect()` reads; it
            should lie on a disk. None: that of `tempfile`, which heeds TMPDIR.
        intermediate_partitions: partition count of those of a pipeline's intermediate streams that are joined with no
            stream of a known count; 1 to 65535, None: planned.

    Raises:
        ConfigError: a field has a wrong type or range; the text names it. That of `intermediate_partitions` is a
            `PlanError` too.

    Example:
        >>> config = JobConfig(name="primes")
        >>> config.name = ""
        Traceback (most recent call last):
        ...
        shmjet.data.errors.ConfigError: JobConfig.name must be a non-empty text or None, got ''
    """

    name: str | None = None
    processing_guarantee: ProcessingGuarantee = ProcessingGuarantee.NONE
    snapshot_interval: float = 10.0
    auto_scaling: bool = True
    suspend_on_failure: bool = False
    split_brain_protection: bool = False
    initial_snapshot_name: str | None = None
    allow_dropped_state: bool = False
    max_state_bytes: int | None = None
    latency_target: float | None = None
    memory_limit: int | None = None
    spill_folder: str | None = None
    intermediate_partitions: int | None = None
    modules: tuple[ModuleType, ...] = field(default=(), init=False)
    """Modules whose code travels with the job by value; add with `add_module`. Empty after pickling."""
    module_names: tuple[str, ...] = field(default=(), init=False)
    """The names of these modules; they do travel."""
    attached_files: dict[str, Path] = field(default_factory=dict, init=False)
    """id -> absolute path on the client; add with `attach_file`."""

    def __setattr__(self, name: str, value: Any) -> None:
        check = _CHECKS.get(name)
        if check is None:
            known = ", ".join(sorted(_CHECKS.keys() - _ADDED))
            raise ConfigError(f"JobConfig has no field {name!r}; fields: {known}")
        object.__setattr__(self, name, check(f"JobConfig.{name}", value))

    def add_module(self, module: ModuleType) -> JobConfig:
        """Let the code of a module travel with the job, so that it need not be installed where the job runs.

        Args:
            module: an imported module; for a package its own `__init__` only, submodules are added one by one.

        Returns:
            this config.

        Raises:
            ConfigError: it is not a module.
        """
        if not isinstance(module, ModuleType):
            raise ConfigError(f"add_module() takes an imported module, got {module!r} ({type(module).__name__})")
        if module.__name__ not in self.module_names:
            self.modules = (*self.modules, module)
            self.module_names = (*self.module_names, module.__name__)
        return self

    def attach_file(self, path: str | Path, id: str | None = None) -> JobConfig:  # noqa: A002
        """Attach a file that processors find again with `context.attached_file(id)`.

        Args:
            path: an existing file on the client.
            id: how processors ask for it; by default the file's name.

        Returns:
            this config.

        Raises:
            ConfigError: there is no such file, or the id is taken by another one.
        """
        file = Path(path).expanduser().resolve()
        if not file.is_file():
            raise ConfigError(f"attach_file(): {str(path)!r} is not a file (looked at {file})")
        key = file.name if id is None else id
        check_name("attach_file(): id", key)
        if self.attached_files.get(key, file) != file:
            raise ConfigError(f"attach_file(): id {key!r} is taken by {self.attached_files[key]}; pass another id=")
        self.attached_files[key] = file
        return self

    def __copy__(self) -> JobConfig:
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__, attached_files=dict(self.attached_files))
        return twin

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "modules": ()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


def _boolean(where: str, value: Any) -> Any:
    if not isinstance(value, bool):
        raise ConfigError(f"{where} must be True or False, got {value!r}")
    return value


def _text(where: str, value: Any) -> Any:
    if value is not None and (not isinstance(value, str) or not value):
        raise ConfigError(f"{where} must be a non-empty text or None, got {value!r}")
    return None if value is None else check_name(where, value)


def _snapshot_name(where: str, value: Any) -> Any:
    return None if value is None else check_snapshot_name(where, value)


def _path(where: str, value: Any) -> Any:
    return _text(where, os.fspath(value) if isinstance(value, os.PathLike) else value)


def _guarantee(where: str, value: Any) -> Any:
    if not isinstance(value, ProcessingGuarantee):
        known = ", ".join(str(g) for g in ProcessingGuarantee)
        raise ConfigError(f"{where} must be one of {known}, got {value!r}")
    return value


def _seconds_or_none(where: str, value: Any) -> Any:
    return None if value is None else check_seconds(where, value)


def _bytes(where: str, value: Any) -> Any:
    return None if value is None else check_at_least(where, value, 1)


def _partition_count(where: str, value: Any) -> Any:
    if value is None:
        return None
    check_at_least(where, value, 1, PartitionCountError)
    if value > MOST_PARTITIONS:
        raise PartitionCountError(f"{where} must be at most {MOST_PARTITIONS}, got {value}")
    return value


def _unchecked(where: str, value: Any) -> Any:
    return value


_ADDED = ("modules", "module_names", "attached_files")

_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "name": _text,
    "processing_guarantee": _guarantee,
    "snapshot_interval": check_seconds,
    "auto_scaling": _boolean,
    "suspend_on_failure": _boolean,
    "split_brain_protection": _boolean,
    "initial_snapshot_name": _snapshot_name,
    "allow_dropped_state": _boolean,
    "max_state_bytes": _bytes,
    "latency_target": _seconds_or_none,
    "memory_limit": _bytes,
    "spill_folder": _path,
    "intermediate_partitions": _partition_count,
    **dict.fromkeys(_ADDED, _unchecked),
}
"""What checks each field, and returns its value. Every job sets them all, so this is one look-up a field."""
