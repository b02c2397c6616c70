"""The records of runs that members keep for each other, and the messages that bring them.

What is pickled in them (code, exceptions) stays opaque in members.
"""

from __future__ import annotations

import msgspec

from shmjet.cluster.protocol import Submission
from shmjet.execution.messages import Failure, LogSubscription

Version = tuple[int, int]
"""Of a state: the epoch of the view in which its coordinator wrote it, and a number that this coordinator counts up."""


class RunOrigin(msgspec.Struct, frozen=True, array_like=True):
    """What never changes of a run.

    Args:
        run: its number.
        job: what it runs, with its code.
        token: of the request that started it.
        logs: the client's subscription to log records.
        started_at: in seconds since 1970.
    """

    run: int
    job: Submission
    token: str
    logs: LogSubscription | None
    started_at: float


class RunEnd(msgspec.Struct, frozen=True, array_like=True):
    """The outcome of a run.

    Args:
        status: a value of `JobStatus`.
        cancelled: whether it was cancelled.
        failure: what it failed with, unless it was cancelled.
        completed_at: when it ended, in seconds since 1970.
        members: the addresses of the members that took part in its last attempt, the coordinator first.
    """

    status: str
    cancelled: bool = False
    failure: Failure | None = None
    completed_at: float = 0.0
    members: list[str] = []


class RunState(msgspec.Struct, frozen=True, array_like=True):
    """What changes of a run.

    Args:
        version: the newest counts.
        lineage: the name of its lineage; empty for none.
        attempts: begun so far.
        is_suspended: whether it waits to be resumed, or was asked for that.
        is_cancelled: whether it was asked to end.
        cause: the error that suspended it; None when a client asked for it.
        has_snapshot: whether it goes on from a snapshot.
        quorum: how many members there must be for an attempt.
        is_committing: its results are being made visible, so no further attempt may begin.
        end: its outcome; None while it has none.
    """

    version: Version
    lineage: str = ""
    attempts: int = 0
    is_suspended: bool = False
    cause: Failure | None = None
    has_snapshot: bool = False
    quorum: int = 0
    is_committing: bool = False
    is_cancelled: bool = False
    end: RunEnd | None = None


class RunRecordCopy(msgspec.Struct, frozen=True, array_like=True):
    """The record of a live run."""

    origin: RunOrigin
    state: RunState


class EndedRun(msgspec.Struct, frozen=True, array_like=True):
    """What is kept of a run that has its outcome; the origin comes without code, None where it is not known."""

    run: int
    state: RunState
    origin: RunOrigin | None = None


class KeepRun(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Coordinator to member: this is a live run."""

    copy: RunRecordCopy


class KeepRunState(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Coordinator to member: this is the state of a run that you have now; confirm `number`, if it is not 0."""

    run: int
    state: RunState
    number: int = 0


class KeepEnded(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Member to member: these runs have ended. To a new coordinator it comes before `RunsAre`."""

    runs: list[EndedRun]


class RunStateKept(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Member to coordinator: I have that state."""

    number: int


class AskRuns(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """New coordinator to member: what do you have that is newer than this, by the numbers of runs?"""

    epoch: int
    known: dict[int, Version]


class RunsAre(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Member to new coordinator: these live runs; the ended ones have come before."""

    epoch: int
    live: list[RunRecordCopy]


class AskToLeave(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Member to coordinator: I leave; have runs go on without me."""


class MayLeave(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Coordinator to member: no run has a part on you any more."""


class AskStoredRuns(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Coordinator of a cluster that begins to the last coordinator: which runs do you have on disk?"""

    number: int


class StoredRunsAre(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The answer; `records` are encoded."""

    number: int
    records: bytes


RunMessage = KeepRun | KeepRunState | KeepEnded | RunStateKept | AskRuns | RunsAre | AskToLeave | MayLeave
