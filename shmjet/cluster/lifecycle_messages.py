"""Requests and replies about the life of a run after its start: suspend, resume, restart, export, snapshots.

They belong to `shmjet.cluster.protocol`, which has the conventions. All of them are for the coordinator, and bring no
code.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

LONGEST_TOKEN = 64
"""Characters of the token of a request, by which it is recognised when it comes again; clients send 16."""


class RunSettings(msgspec.Struct, frozen=True, array_like=True):
    """The settings of a job that its coordinator reads; it does not unpickle the config, workers do.

    Args:
        guarantee: value of a `ProcessingGuarantee`.
        snapshot_interval: seconds from the end of one snapshot to the start of the next.
        suspend_on_failure: suspend instead of failing.
        initial_snapshot: name of an exported snapshot to start from.
        allow_dropped_state: whether a snapshot may hold state of vertices that the job does not have.
        max_state_bytes: size of a snapshot at most, None: any.
        observables: names of the observables that it writes to; their observers are told when it ends.
        latency_target: seconds that items should be under way at most; None: by its sources.
        auto_scaling: restart when members are lost, and when others join.
        split_brain_protection: begin attempts only where more than half of the members are.
    """

    guarantee: str = "none"
    snapshot_interval: float = 10.0
    suspend_on_failure: bool = False
    initial_snapshot: str | None = None
    allow_dropped_state: bool = False
    max_state_bytes: int | None = None
    observables: list[str] = []
    latency_target: float | None = None
    auto_scaling: bool = True
    split_brain_protection: bool = False

    @property
    def has_guarantee(self) -> bool:
        """Whether the job takes snapshots."""
        return self.guarantee != "none"


class SuspendExecution(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Suspend an execution; answered at once, `ExecutionChanged` tells when it is suspended.

    `again`: it is sent once more because an answer was lost. Then it is not an error that the execution is suspended
    already; the same holds for `ResumeExecution`.
    """

    request: int
    execution_id: int
    again: bool = False


class ResumeExecution(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Go on with a suspended execution; answered at once."""

    request: int
    execution_id: int
    again: bool = False


class RestartExecution(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Begin another attempt: after a terminal snapshot, or, if not `graceful`, from the last one; answered at once.

    It may come again when an answer was lost; `age` says then how many seconds ago it was sent first. An attempt that
    has begun since, for whatever reason, is what was asked for.
    """

    request: int
    execution_id: int
    graceful: bool = True
    age: float = 0.0


class ExportSnapshot(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Take a snapshot under a name; answered when it is valid. With `cancel` the execution ends with it.

    `again`: it is sent once more because an answer was lost. Then `token`, which is the same, tells whether it is being
    carried out, or is done already: the snapshot has it.
    """

    request: int
    execution_id: int
    name: str
    cancel: bool = False
    token: Annotated[str, msgspec.Meta(max_length=LONGEST_TOKEN)] = ""
    again: bool = False


class ListSnapshots(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Ask for all exported snapshots."""

    request: int


class DestroySnapshot(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Remove an exported snapshot; if it is not there, that is not an error."""

    request: int
    name: str


LifecycleRequest = (
    SuspendExecution | ResumeExecution | RestartExecution | ExportSnapshot | ListSnapshots | DestroySnapshot
)


class SuspensionCause(msgspec.Struct, frozen=True, array_like=True):
    """Why a run is suspended.

    Args:
        requested_by_user: a client asked for it.
        error: else what went wrong, with the traceback of the user's code; None when a client asked for it.
    """

    requested_by_user: bool
    error: str | None = None


class VertexState(msgspec.Struct, frozen=True, array_like=True):
    """What a snapshot holds of one vertex: entries, and their bytes."""

    keys: int
    size: int


class SnapshotRow(msgspec.Struct, frozen=True, array_like=True):
    """An exported snapshot; `created` in seconds since 1970, `size` in bytes, `vertices` by name."""

    name: str
    job_name: str | None
    created: float
    size: int
    keys: int
    vertices: dict[str, VertexState]


class SnapshotReply(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The answer to `ExportSnapshot`."""

    request: int
    snapshot: SnapshotRow


class SnapshotsReply(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The answer to `ListSnapshots`, the oldest first."""

    request: int
    snapshots: list[SnapshotRow]


class LastRestart(msgspec.Struct, frozen=True, array_like=True):
    """The last restart of a run.

    Args:
        cause: why, in a line.
        seconds: from the failure, or the order to stop, until it ran again; None while it does not.
    """

    cause: str
    seconds: float | None = None


class LastSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """The last valid snapshot of a run.

    Args:
        id: counts from 1 within the run.
        started_at: seconds since 1970.
        seconds: from the order to the end of phase one.
        size: bytes.
        keys: entries.
        vertices: what it holds of each vertex.
    """

    id: int
    started_at: float
    seconds: float
    size: int
    keys: int
    vertices: dict[str, VertexState]
