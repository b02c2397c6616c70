"""A run of a job as its clients' requests see it, and what it is made from: its request, an attempt as it sees it,
and what clients have asked of it."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec

from shmjet.cluster.jobs.lineage import Lineage
from shmjet.cluster.jobs.snapshot import SnapshotRequest
from shmjet.cluster.lifecycle_messages import LastRestart, LastSnapshot, SnapshotRow
from shmjet.cluster.membership.views import Peer
from shmjet.cluster.protocol import Submission
from shmjet.core import JobStatus
from shmjet.execution.messages import Failure, LogSubscription
from shmjet.execution.metrics import Metrics
from shmjet.ipc.inline_or_memfd import InlineOrMemfd


class Coordinator(Protocol):
    """What leads an attempt."""

    @property
    def id(self) -> int: ...
    @property
    def status(self) -> JobStatus: ...
    @property
    def failure(self) -> Failure | None: ...
    @property
    def cancelled(self) -> bool: ...
    @property
    def may_be_followed(self) -> bool: ...
    @property
    def is_over(self) -> bool: ...
    @property
    def members(self) -> tuple[Peer, ...]: ...
    @property
    def left_off(self) -> bool: ...
    @property
    def snapshot_waits_for(self) -> list[str]: ...
    def start(self) -> None: ...
    def cancel(self) -> None: ...
    def take_snapshot(self, request: SnapshotRequest, lineage: Lineage, done: Callable[[str | None], None]) -> None: ...
    def metrics(self) -> Awaitable[Metrics]: ...
    def own_metrics(self) -> Awaitable[Metrics]: ...
    def forget_exception(self) -> None: ...


class Next(enum.Enum):
    """What comes after an attempt."""

    END = enum.auto()
    """The run's own end."""
    AGAIN = enum.auto()
    """Another attempt, at once or after a pause."""
    SUSPEND = enum.auto()
    """Another attempt, when the run is resumed."""


BEFORE_RUNNING = (JobStatus.STARTING, JobStatus.NOT_RUNNING)
"""The statuses of a run that has not ended while it waits for its attempt, or for its next one."""


class RunRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be run.

    Args:
        job: with its id and its shape.
        code: of the job.
        logs: the client's subscription to log records.
        token: of the request.
        age: for how many seconds it has been asked for, if another member was asked before.
    """

    job: Submission
    code: InlineOrMemfd
    logs: LogSubscription | None = None
    token: str = ""
    age: float = 0.0


class RunPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What follows an attempt that has failed, and when.

    Args:
        after_failure: says what follows it, unless results may have been made visible; called with the run.
        pause_before_next: says for how many seconds the next one waits, from how many attempts have failed since the
            last new snapshot.
        waits_for: says what an attempt after the first one has to wait for, empty when it may begin; called with the
            run, and again by its `reconsider`.
    """

    after_failure: Callable[[Any, Failure], Next] = lambda *_: Next.END
    pause_before_next: Callable[[int], float] = lambda _: 0.0
    waits_for: Callable[[Any], str] = lambda _: ""


class RunSuspension(msgspec.Struct, frozen=True, kw_only=True):
    """Why a run is suspended.

    Args:
        failure: the error that suspended it; None when a client asked for it.
    """

    failure: Failure | None = None

    @property
    def requested_by_user(self) -> bool:
        """Whether a client asked for it."""
        return self.failure is None


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What a client has asked to follow the attempt.

    Args:
        then: what follows.
        graceful: take a terminal snapshot first, if the job has a guarantee.
        name: under which that is exported.
        token: of the request for that.
        exported: gets what went wrong with it.
        cause: why it is to be suspended, if no client has asked for it.
        reason: why, in a line.
    """

    then: Next
    graceful: bool
    name: str | None = None
    token: str = ""
    exported: asyncio.Future[str | None] | None = None
    cause: Failure | None = None
    reason: str = "a client has asked for it"


class ShownRun(Protocol):
    """A run as a coordinator tells of it, whether it goes on here or has ended, also under another coordinator."""

    @property
    def id(self) -> int: ...
    @property
    def job(self) -> Submission: ...
    @property
    def status(self) -> JobStatus: ...
    @property
    def failure(self) -> Failure | None: ...
    @property
    def cancelled(self) -> bool: ...
    @property
    def attempt_count(self) -> int: ...
    @property
    def suspension(self) -> RunSuspension | None: ...
    @property
    def last_snapshot(self) -> LastSnapshot | None: ...
    @property
    def waits_for(self) -> str: ...
    @property
    def last_restart(self) -> LastRestart | None: ...
    @property
    def member_addresses(self) -> list[str]: ...
    @property
    def started_at(self) -> float: ...
    @property
    def completed_at(self) -> float | None: ...


class Running(ShownRun, Protocol):
    """One run of a job (`shmjet.cluster.jobs.run.JobRun`)."""

    awaits_record: bool

    @property
    def snapshot_waits_for(self) -> list[str]: ...
    @property
    def is_over(self) -> bool: ...
    def start(self) -> None: ...
    def go_on(self, why: str) -> None: ...
    def start_suspended(self, failure: Failure | None) -> None: ...
    def cancel(self) -> None: ...
    def suspend(self) -> None: ...
    def resume(self) -> None: ...
    def reconsider(self) -> None: ...
    def has_begun_within(self, seconds: float) -> bool: ...
    def restart(self, *, graceful: bool = True) -> None: ...
    def export_snapshot(self, name: str, *, cancel: bool = False, token: str = "") -> Awaitable[SnapshotRow]: ...
    def until_ended(self) -> Awaitable[object]: ...
    def metrics(self) -> Awaitable[Metrics]: ...
    def own_metrics(self) -> Awaitable[Metrics]: ...
    def forget_exception(self) -> None: ...


Told = Callable[[Any], None]
MakeRun = Callable[[RunRequest, Told, Told], Running]
"""Makes a run, from what is to be called at each change of its status, and from what is to be called when nothing is
left of it."""
