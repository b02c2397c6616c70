"""A run of a job: what clients see of it, from its start to its one outcome, through however many attempts."""

from __future__ import annotations

import asyncio
import enum
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from shmjet.cluster.protocol import Submission
from shmjet.core import JobStateError, JobStatus
from shmjet.execution.messages import Failure, LogSubscription
from shmjet.execution.metrics import Metrics
from shmjet.ipc.inline_or_memfd import InlineOrMemfd

ANNOUNCE_S = 0.001
"""How long after its start a run's client is told how far it is, if it has not ended by then."""


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
    def start(self) -> None: ...
    def cancel(self) -> None: ...
    def metrics(self) -> Awaitable[Metrics]: ...
    def own_metrics(self) -> Awaitable[Metrics]: ...
    def forget_exception(self) -> None: ...


class Next(enum.Enum):
    """What comes after an attempt."""

    END = enum.auto()
    """The run's own end."""
    AGAIN = enum.auto()
    """Another attempt, at once."""
    SUSPEND = enum.auto()
    """Another attempt, when the run is resumed."""


Told = Callable[[Any], None]
Attempts = Callable[["JobRun", Told, Told], Coordinator]
"""Makes the next attempt of a run, from what is to be called at each change of its status, and from what is to be
called when nothing is left of it. The number of the first is that of the run."""
AfterFailure = Callable[["JobRun", Failure], Next]
"""Says of a run whose attempt has failed what comes next."""
StatusListener = Callable[[JobStatus, JobStatus], None]
"""Called with a run's status before a change and after it."""


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """What is to be run.

    Args:
        job: with its id and its shape.
        code: of the job.
        logs: the client's subscription to log records.
    """

    job: Submission
    code: InlineOrMemfd
    logs: LogSubscription | None = None


@dataclass(frozen=True, kw_only=True)
class RunSuspension:
    """Why a run is suspended.

    Args:
        failure: the error that suspended it; None when a client asked for it.
    """

    failure: Failure | None = None

    @property
    def requested_by_user(self) -> bool:
        """Whether a client asked for it."""
        return self.failure is None


class JobRun:
    """One run of a job.

    Args:
        id: unique in the cluster; the first attempt has it, too.
        request: what is run.
        attempts: makes attempts.
        on_status: called with the run at every change of its status.
        on_over: called with the run when nothing of it is left anywhere.
        after_failure: says what follows an attempt that has failed, unless results may have been made visible.
    """

    def __init__(
        self,
        id: int,  # noqa: A002
        request: RunRequest,
        *,
        attempts: Attempts,
        on_status: Told,
        on_over: Told,
        after_failure: AfterFailure = lambda *_: Next.END,
    ) -> None:
        self.id = id
        self.job = request.job
        self.code = request.code
        self.logs = request.logs
        self.started_at = time.time()
        self.completed_at: float | None = None
        self.attempt_count = 0
        self.suspension: RunSuspension | None = None
        """Why it is suspended; None while it is not."""
        self._attempts = attempts
        self._on_status = on_status
        self._on_over = on_over
        self._after_failure = after_failure
        self._listeners: list[StatusListener] = []
        self._attempt: Coordinator
        self._wish: Next | None = None
        """What a client has asked to follow the attempt; None for nothing."""
        self._stopping_for_wish = False
        self._cancelled_between = False
        """Whether it was cancelled while there was no attempt to stop."""
        self._next = Next.END
        self._cause: Failure | None = None
        self._last = JobStatus.STARTING
        self._overdue = False
        self._announcer: asyncio.TimerHandle | None = None
        self._begin()

    def _begin(self) -> None:
        self.attempt_count += 1
        self._next = Next.END
        self._stopping_for_wish = False
        self._attempt = self._attempts(self, self._changed, self._ended)

    # -- what clients see ---------------------------------------------------------------------------------------

    @property
    def attempt(self) -> int:
        """The number of the newest attempt."""
        return self._attempt.id

    @property
    def status(self) -> JobStatus:
        """How far it is."""
        if self._cancelled_between:
            return JobStatus.FAILED
        if self.suspension is not None:
            return JobStatus.SUSPENDED
        match self._next:
            case Next.AGAIN:
                return JobStatus.STARTING
            case Next.SUSPEND:
                return JobStatus.RUNNING
        return self._attempt.status

    @property
    def failure(self) -> Failure | None:
        """The first error of the newest attempt, unless another attempt follows it."""
        return None if self._next is not Next.END or self._cancelled_between else self._attempt.failure

    @property
    def cancelled(self) -> bool:
        """Whether it was asked to end."""
        return self._cancelled_between or (self._attempt.cancelled and not self._stopping_for_wish)

    @property
    def is_over(self) -> bool:
        """Whether nothing of it is left anywhere."""
        return self._attempt.is_over and (self._next is Next.END or self._cancelled_between)

    def metrics(self) -> Awaitable[Metrics]:
        """Return the metrics of the newest attempt, on all members."""
        return self._attempt.metrics()

    def own_metrics(self) -> Awaitable[Metrics]:
        """Return those of this member's part alone."""
        return self._attempt.own_metrics()

    def forget_exception(self) -> None:
        """Keep the text of its failure only."""
        self._attempt.forget_exception()

    def add_status_listener(self, listener: StatusListener) -> Callable[[], None]:
        """Have a function called at every change of the status.

        Args:
            listener: called with the old status and the new one.

        Returns:
            what removes it.
        """
        self._listeners.append(listener)

        def remove() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return remove

    # -- its life -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin with the first attempt."""
        self._announcer = asyncio.get_running_loop().call_later(ANNOUNCE_S, self._announce)
        self._attempt.start()

    def cancel(self) -> None:
        """Ask for the end; `on_status` tells when it has come."""
        if self._next is Next.END:
            self._wish, self._stopping_for_wish = None, False
            self._attempt.cancel()
        elif not self._cancelled_between:  # the attempt has come to its end, and no other begins
            self._cancelled_between, self._wish = True, None
            suspended, self.suspension = self.suspension, None
            self._tell()
            if suspended is not None:
                self._on_over(self)

    def suspend(self) -> None:
        """Ask that the run stops until `resume`; while it is starting, this waits until it runs.

        Raises:
            JobStateError: it neither runs nor starts.
        """
        self._ask_for(Next.SUSPEND, "suspend")

    def restart(self, *, graceful: bool = True) -> None:
        """Ask that the attempt ends and another one begins; while it is starting, this waits until it runs.

        Args:
            graceful: take a terminal snapshot first, if the job has a guarantee.

        Raises:
            JobStateError: it neither runs nor starts.
        """
        self._ask_for(Next.AGAIN, "restart")

    def resume(self) -> None:
        """Begin another attempt of a suspended run.

        Raises:
            JobStateError: it is not suspended.
        """
        if self.suspension is None:
            raise JobStateError(f"{self._name} is {self.status.name}; only a suspended job can be resumed")
        self.suspension = None
        self._next = Next.AGAIN
        self._tell()
        self._go_on()

    def _ask_for(self, wish: Next, verb: str) -> None:
        if self.status not in (JobStatus.STARTING, JobStatus.RUNNING) or self._is_ending:
            state = "being cancelled" if self.cancelled and not self.status.is_terminal else self.status.name
            raise JobStateError(f"{self._name} is {state}; cannot {verb} it")
        if self._wish is not Next.SUSPEND:
            self._wish = wish
        self._grant()

    @property
    def _is_ending(self) -> bool:
        """Whether it was cancelled, or has failed and its attempt is being stopped."""
        if self._next is not Next.END:
            return False
        return self.cancelled or (self._attempt.failure is not None and not self._attempt.may_be_followed)

    @property
    def _name(self) -> str:
        return f"job {self.job.name or self.job.job_id!r}"

    def _grant(self) -> None:
        """Stop a running attempt for what a client has asked for."""
        if self._wish is not None and self._attempt.status is JobStatus.RUNNING and not self._stopping_for_wish:
            self._stopping_for_wish = True
            self._attempt.cancel()

    def _announce(self) -> None:
        """Tell how far it is, unless it has ended by now: a job of a millisecond need not wake its client twice."""
        self._announcer = None
        self._overdue = True
        self._on_status(self)

    def _changed(self, attempt: Coordinator) -> None:
        if attempt.status is JobStatus.FAILED:
            self._next = self._what_follows(attempt)
        self._tell()
        if attempt is self._attempt and attempt.status is JobStatus.RUNNING:
            self._grant()

    def _what_follows(self, attempt: Coordinator) -> Next:
        failure = attempt.failure
        if self._stopping_for_wish and attempt.cancelled and failure is None:
            assert self._wish is not None
            return self._wish
        if failure is None or not attempt.may_be_followed:
            return Next.END
        follows = self._after_failure(self, failure)
        self._cause = failure if follows is Next.SUSPEND else None
        return follows

    def _tell(self) -> None:
        status = self.status
        if status is not self._last:
            old, self._last = self._last, status
            for listener in list(self._listeners):
                listener(old, status)
        if status.is_terminal:
            self.completed_at = time.time()
            if self._announcer is not None:
                self._announcer.cancel()
                self._announcer = None
            self._on_status(self)
        elif self._overdue:
            self._on_status(self)

    def _ended(self, _: Coordinator) -> None:
        if self._cancelled_between or self._next is Next.END:
            self._on_over(self)
        elif self._next is Next.SUSPEND or self._wish is Next.SUSPEND:
            self._next, self._wish = Next.SUSPEND, None
            self.suspension, self._cause = RunSuspension(failure=self._cause), None
            self._tell()
        else:
            self._go_on()

    def _go_on(self) -> None:
        self._wish = None
        self._begin()
        self._attempt.start()
