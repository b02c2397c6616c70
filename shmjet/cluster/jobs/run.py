"""A run of a job: what clients see of it, from its start to its one outcome, through however many attempts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from shmjet.cluster.protocol import Submission
from shmjet.core import JobStatus
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


Told = Callable[[Any], None]
Attempts = Callable[["JobRun", Told, Told], Coordinator]
"""Makes the next attempt of a run, from what is to be called at each change of its status, and from what is to be
called when nothing is left of it. The number of the first is that of the run."""
Follows = Callable[["JobRun", Failure], bool]
"""Says of a run whose attempt has failed whether another one follows."""


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


class JobRun:
    """One run of a job.

    Args:
        id: unique in the cluster; the first attempt has it, too.
        request: what is run.
        attempts: makes attempts.
        on_status: called with the run at every change of its status.
        on_over: called with the run when nothing of it is left anywhere.
        follows: says whether a further attempt may follow a failed one, unless results may have been made visible.
    """

    def __init__(
        self,
        id: int,  # noqa: A002
        request: RunRequest,
        *,
        attempts: Attempts,
        on_status: Told,
        on_over: Told,
        follows: Follows = lambda *_: False,
    ) -> None:
        self.id = id
        self.job = request.job
        self.code = request.code
        self.logs = request.logs
        self.started_at = time.time()
        self.completed_at: float | None = None
        self.attempt_count = 0
        self._attempts = attempts
        self._on_status = on_status
        self._on_over = on_over
        self._follows = follows
        self._attempt: Coordinator
        self._cancelled = False
        self._goes_on = False
        self._overdue = False
        self._announcer: asyncio.TimerHandle | None = None
        self._begin()

    def _begin(self) -> None:
        self.attempt_count += 1
        self._goes_on = False
        self._attempt = self._attempts(self, self._changed, self._ended)

    # -- what clients see ---------------------------------------------------------------------------------------

    @property
    def attempt(self) -> int:
        """The number of the newest attempt."""
        return self._attempt.id

    @property
    def status(self) -> JobStatus:
        """How far it is."""
        if self._cancelled:
            return JobStatus.FAILED
        return JobStatus.STARTING if self._goes_on else self._attempt.status

    @property
    def failure(self) -> Failure | None:
        """The first error of the newest attempt, unless another attempt follows it."""
        return None if self._goes_on or self._cancelled else self._attempt.failure

    @property
    def cancelled(self) -> bool:
        """Whether it was asked to end."""
        return self._cancelled or self._attempt.cancelled

    @property
    def is_over(self) -> bool:
        """Whether nothing of it is left anywhere."""
        return self._attempt.is_over and not self._goes_on

    def metrics(self) -> Awaitable[Metrics]:
        """Return the metrics of the newest attempt, on all members."""
        return self._attempt.metrics()

    def own_metrics(self) -> Awaitable[Metrics]:
        """Return those of this member's part alone."""
        return self._attempt.own_metrics()

    def forget_exception(self) -> None:
        """Keep the text of its failure only."""
        self._attempt.forget_exception()

    # -- its life -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin with the first attempt."""
        self._announcer = asyncio.get_running_loop().call_later(ANNOUNCE_S, self._announce)
        self._attempt.start()

    def cancel(self) -> None:
        """Ask for the end; `on_status` tells when it has come."""
        if self._goes_on:  # the attempt before has come to its end, and no other begins
            self._goes_on, self._cancelled = False, True
            self._tell()
        else:
            self._attempt.cancel()

    def _announce(self) -> None:
        """Tell how far it is, unless it has ended by now: a job of a millisecond need not wake its client twice."""
        self._announcer = None
        self._overdue = True
        self._on_status(self)

    def _changed(self, attempt: Coordinator) -> None:
        failure = attempt.failure
        if attempt.status is JobStatus.FAILED and failure is not None and attempt.may_be_followed:
            self._goes_on = self._follows(self, failure)
        self._tell()

    def _tell(self) -> None:
        if self.status.is_terminal:
            self.completed_at = time.time()
            if self._announcer is not None:
                self._announcer.cancel()
                self._announcer = None
            self._on_status(self)
        elif self._overdue:
            self._on_status(self)

    def _ended(self, _: Coordinator) -> None:
        if self._goes_on:
            self._begin()
            self._attempt.start()
        else:
            self._on_over(self)
