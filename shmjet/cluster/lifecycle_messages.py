"""Requests and replies about the life of a run after its start: suspend, resume, restart.

They belong to `shmjet.cluster.protocol`, which has the conventions. All of them are for the coordinator, and bring no
code.
"""

from __future__ import annotations

import msgspec


class RunSettings(msgspec.Struct, frozen=True, array_like=True):
    """The settings of a job that its coordinator reads; it does not unpickle the config, workers do.

    Args:
        guarantee: value of a `ProcessingGuarantee`.
        snapshot_interval: seconds from the end of one snapshot to the start of the next.
        suspend_on_failure: suspend instead of failing.
        initial_snapshot: name of an exported snapshot to start from.
        allow_dropped_state: whether a snapshot may hold state of vertices that the job does not have.
        max_state_bytes: size of a snapshot at most, None: any.
    """

    guarantee: str = "none"
    snapshot_interval: float = 10.0
    suspend_on_failure: bool = False
    initial_snapshot: str | None = None
    allow_dropped_state: bool = False
    max_state_bytes: int | None = None


class SuspendExecution(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Suspend an execution; answered at once, `ExecutionChanged` tells when it is suspended.

    `again`: it is sent once more because an answer was lost. Then an execution that is suspended already is no error;
    the same holds for `ResumeExecution`.
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
    """Begin another attempt: after a terminal snapshot, or, if not `graceful`, from the last one; answered at once."""

    request: int
    execution_id: int
    graceful: bool = True


LifecycleRequest = SuspendExecution | ResumeExecution | RestartExecution


class SuspensionCause(msgspec.Struct, frozen=True, array_like=True):
    """Why a run is suspended.

    Args:
        requested_by_user: somebody asked for it.
        error: else what went wrong, with the traceback of the user's code; None when somebody asked for it.
    """

    requested_by_user: bool
    error: str | None = None
