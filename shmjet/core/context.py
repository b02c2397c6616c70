"""What processors and their suppliers are told about where they run.

Plain descriptions, made by the engine and by `shmjet.testing`; nothing here knows processes or stores. What a
processor may want of a higher floor (the maps and lists) is a `Protocol` that the higher floor fulfils.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from shmjet.core.job import JobConfig, ProcessingGuarantee
from shmjet.data.errors import ProcessorError

if TYPE_CHECKING:
    import logging
    import socket

    from shmjet.core.latency_policy import LatencyPolicy
    from shmjet.core.ownership import PartitionOwners


class DataGrid(Protocol):
    """The maps and lists of a member, as processors see them."""

    def get_map(self, name: str) -> Any:
        """Return the map of that name; it is made when it is first written to."""

    def get_list(self, name: str) -> Any:
        """Return the list of that name; it is made when it is first written to."""


class ProcessorEndpoint(Protocol):
    """Where connections from outside the execution arrive, each with a connected stream socket."""

    def take(self) -> socket.socket | None:
        """Return the socket of the next connection, which is the caller's then; None when none waits."""


def _no_endpoint(name: str) -> ProcessorEndpoint:
    """Refuse to open an endpoint: there is no member that could pass connections on.

    Raises:
        ProcessorError: always, here.
    """
    raise ProcessorError(f"endpoint {name!r} cannot be opened: there is no member here that could pass connections on")


def _never() -> bool:
    """Say that the job is not cancelled: where there is no engine."""
    return False


def _logger() -> logging.Logger:
    import logging  # which a client that describes its first job does not wait for

    return logging.getLogger("shmjet")


@dataclass(frozen=True, kw_only=True)
class _VertexContext:
    """What everything that belongs to one vertex of one execution may know.

    Args:
        vertex_name: the vertex' name.
        logger: for messages of user code; they reach the member's log.
        local_parallelism: processors of the vertex on this member.
        total_parallelism: processors of the vertex on all members.
        member_index: this member's place among the execution's members, from 0.
        member_count: members that take part.
        job_id: the job's id in text form.
        job_config: the job's settings.
        partition_count: number of partitions of edges and maps.
        attached_files: id -> path, as given with `JobConfig.attach_file`, readable here.
        grid: the member's maps and lists, None where there are none.
    """

    vertex_name: str = ""
    logger: logging.Logger = field(default_factory=_logger)
    local_parallelism: int = 1
    total_parallelism: int = 1
    member_index: int = 0
    member_count: int = 1
    job_id: str = ""
    job_config: JobConfig = field(default_factory=JobConfig)
    partition_count: int = 271
    attached_files: Mapping[str, Path] = field(default_factory=dict)
    grid: DataGrid | None = None
    _owners: ClassVar[PartitionOwners | None] = None
    """What the engine has handed in, see `shmjet.core.ownership`. It is not a setting, so it is not a field."""
    _find_placement: ClassVar[Any] = None
    """What the engine has handed in, see `shmjet.core.state_placement`."""
    _latency: ClassVar[LatencyPolicy | None] = None
    """What the engine has set, see `shmjet.core.latency_policy`."""
    _wake_up: ClassVar[Any] = None
    """What the engine has set, see `shmjet.core.wake_up`."""
    _alignment: ClassVar[Any] = None
    """What the engine has set, see `shmjet.core.source_alignment`."""
    _service_keep: ClassVar[Any] = None
    """What the engine has handed in, see `shmjet.core.kept_services`."""

    @property
    def processing_guarantee(self) -> ProcessingGuarantee:
        """The job's processing guarantee."""
        return self.job_config.processing_guarantee

    @property
    def snapshotting_enabled(self) -> bool:
        """Whether snapshots of the job are taken by themselves: it has a guarantee. Others are saved when exported."""
        return self.processing_guarantee is not ProcessingGuarantee.NONE

    def attached_file(self, id: str) -> Path:  # noqa: A002
        """Return the path at which a file attached to the job can be read.

        Args:
            id: as given to `JobConfig.attach_file`; by default the file's name.

        Raises:
            ProcessorError: nothing is attached under that id; the text lists the ids.
        """
        try:
            return self.attached_files[id]
        except KeyError:
            known = ", ".join(map(repr, self.attached_files)) or "nothing"
            raise ProcessorError(
                f"vertex {self.vertex_name!r}: no file {id!r} is attached to the job; attached: {known}"
            ) from None


class MetaSupplierContext(_VertexContext):
    """Passed to `ProcessorMetaSupplier.init`, once per execution, on the coordinator.

    Has the fields of `ProcessorContext` but for those of a single processor.
    """


class SupplierContext(_VertexContext):
    """Passed to `ProcessorSupplier.init`, in every process that hosts processors of the vertex.

    Has the fields of `ProcessorContext` but for those of a single processor.
    """


@dataclass(frozen=True, kw_only=True)
class ProcessorContext(_VertexContext):
    """Passed to `Processor.init`.

    Args:
        vertex_name: the vertex' name.
        logger: for messages of user code; they reach the member's log.
        local_parallelism: processors of the vertex on this member.
        total_parallelism: processors of the vertex on all members.
        member_index: this member's place among the execution's members, from 0.
        member_count: members that take part.
        job_id: the job's id in text form.
        job_config: the job's settings.
        partition_count: number of partitions of edges and maps.
        attached_files: id -> path, as given with `JobConfig.attach_file`, readable here.
        grid: the member's maps and lists, None where there are none.
        local_index: the processor's place among those of its vertex on this member, from 0.
        global_index: its place among those on all members: `member_index * local_parallelism + local_index`.
        receives: False where all edges to the vertex bring everything to another processor (`all_to_one`), so that one
            with a result for the whole stream has none.
        cancelled: says whether the execution is being cancelled; `is_cancelled` calls it.
        execution_id: the number of the attempt, 0 where there is no engine. Each restart of a job has one of its own.
        open_endpoint: opens an endpoint by name, at which programs outside may connect to this processor (see
            `shmjet.cluster.client.endpoint_connection`). The name must be unique in the execution.

    Example:
        >>> context = ProcessorContext(vertex_name="numbers", local_index=1, global_index=1, local_parallelism=2)
        >>> context.local_index, context.is_cancelled
        (1, False)
    """

    local_index: int = 0
    global_index: int = 0
    receives: bool = True
    execution_id: int = 0
    cancelled: Callable[[], bool] = _never
    open_endpoint: Callable[[str], ProcessorEndpoint] = _no_endpoint

    @property
    def is_cancelled(self) -> bool:
        """True once the execution is being cancelled; a non-cooperative processor should look at it often."""
        return self.cancelled()
