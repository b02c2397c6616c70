"""The jobs and runs that a coordinator remembers: all that have not ended, and the last of the others.

Must not know how a run is coordinated, nor how requests about jobs are answered (`submissions`, `job_requests`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from shmjet.cluster.jobs.past_runs import PastRun, past_runs
from shmjet.cluster.jobs.run_parts import Running, ShownRun
from shmjet.cluster.jobs.run_watchers import RunWatchers, news_of
from shmjet.cluster.membership.run_messages import EndedRun, RunEnd
from shmjet.cluster.protocol import ExecutionChanged, Submission
from shmjet.cluster.settings import KEPT_CODES, KEPT_EXCEPTIONS, KEPT_RESULTS, LARGE_CODE
from shmjet.core import JobStatus
from shmjet.execution.failure import member_lost
from shmjet.execution.messages import Failure
from shmjet.ipc.inline_or_memfd import InlineOrMemfd


class JobRecord(msgspec.Struct, eq=False):
    """A job with its executions, the newest last."""

    submission: Submission
    code: InlineOrMemfd
    executions: list[Running] = msgspec.field(default_factory=list)

    @property
    def has_ended(self) -> bool:
        """Whether none of its executions goes on."""
        return all(execution.status.is_terminal for execution in self.executions)


class JobTable:
    """See the module.

    Args:
        watchers: forget the clients of a run that is not remembered any more.
        outcome_of: gives the outcome of a run that another member has coordinated; None where it is not known.
        ended: gives the runs that have ended, under whichever coordinator.
    """

    def __init__(
        self,
        watchers: RunWatchers,
        outcome_of: Callable[[int], RunEnd | None] = lambda _: None,
        ended: Callable[[], Iterable[EndedRun]] = tuple,
    ) -> None:
        self._watchers = watchers
        self._outcome_of = outcome_of
        self._ended = ended
        self._tokens: dict[str, int] = {}
        """The executions by the tokens of the requests that asked for them."""
        self._token_of: dict[int, str] = {}
        self._jobs: dict[str, JobRecord] = {}
        self._large: dict[str, JobRecord] = {}
        """Those with code in a file, or with attached files."""
        self._executions: dict[int, Running] = {}
        self._active: set[Running] = set()
        self._gone: dict[int, Failure] = {}

    # -- what is remembered -------------------------------------------------------------------------------------

    @property
    def jobs(self) -> Iterable[tuple[str, JobRecord]]:
        """All jobs of which there is the code, by their ids."""
        return self._jobs.items()

    @property
    def executions(self) -> list[ShownRun]:
        """All executions that are remembered, the oldest first, with past ones of other coordinators."""
        own, past = self._executions.values(), self.past()
        return sorted((*past, *own), key=lambda run: run.started_at) if past else list(own)

    def past(self) -> list[PastRun]:
        """Return the executions that have ended under other coordinators."""
        return past_runs(self._ended(), self._executions)

    @property
    def active(self) -> list[Running]:
        """The executions of which something is left."""
        return list(self._active)

    def run(self, number: int) -> Running | None:
        """Return the execution of a number, None if none is remembered."""
        return self._executions.get(number)

    def started_by(self, token: str) -> int | None:
        """Return the number of the execution that was begun for the request with a token, under any coordinator."""
        if not token:
            return None
        known = self._tokens.get(token)
        return known if known is not None else next((run.id for run in self.past() if run.token == token), None)

    def has_begun_for(self, token: str) -> bool:
        """Say whether an execution has begun here for the request with a token."""
        return token in self._tokens

    def knows(self, job_id: str) -> bool:
        """Say whether a job can be executed again without being sent again."""
        return job_id in self._jobs

    def record_of(self, job_id: str) -> JobRecord | None:
        """Return a job with its executions, None if its code is not here."""
        return self._jobs.get(job_id)

    def runs_named(self, name: str | None) -> list[Running]:
        """Return the runs of jobs of a name that have not ended, the newest first."""
        if name is None:
            return []
        found = [run for run in self._active if run.job.name == name and not run.status.is_terminal]
        return sorted(found, key=lambda run: run.started_at, reverse=True)

    def news(self, number: int) -> ExecutionChanged:
        """Return how an execution stands, as its client is told of it."""
        execution = self._executions.get(number)
        if execution is not None:
            return news_of(execution)
        end = self._outcome_of(number)
        if end is not None:
            return ExecutionChanged(number, end.status, cancelled=end.cancelled, failure=end.failure)
        text = "the cluster does not know it any more: the member that coordinated it is gone"
        failure = self._gone.get(number) or member_lost(text, member="")
        return ExecutionChanged(number, JobStatus.FAILED.value, failure=failure)

    # -- what comes and goes ------------------------------------------------------------------------------------

    def add_job(self, job_id: str, submission: Submission, fds: list[int] | None = None) -> JobRecord:
        """Remember a job.

        Args:
            job_id: its id.
            submission: with its code.
            fds: descriptors that came with it; a descriptor that is kept is removed from them.
        """
        record = _recorded(submission, [] if fds is None else fds)
        self._jobs[job_id] = record
        if record.code.fds or submission.attachments:
            self._large[job_id] = record
        return record

    def drop_unused(self, job_id: str) -> None:
        """Forget a job that has never run: such a job is not listed."""
        record = self._jobs.get(job_id)
        if record is not None and not record.executions:
            self._drop(job_id)

    def add(self, record: JobRecord, execution: Running, token: str = "") -> None:
        """Remember an execution of a job, and the token of the request for it."""
        if token:
            self._tokens[token] = execution.id
            self._token_of[execution.id] = token
        self._executions[execution.id] = execution
        self._active.add(execution)
        record.executions.append(execution)

    def over(self, execution: Running) -> None:
        """Take an execution that has ended everywhere; of the ended ones the last `KEPT_RESULTS` are remembered."""
        self._active.discard(execution)
        if _exception_size(execution):
            self._forget_exceptions()
        while len(self._executions) - len(self._active) > KEPT_RESULTS:
            self._forget(next(e for e in self._executions.values() if e.is_over))
        if len(self._large) > KEPT_CODES:
            ended = [record for record in self._large.values() if all(e.is_over for e in record.executions)]
            for old in list(ended[0].executions) if ended else ():
                self._forget(old)

    def _forget_exceptions(self) -> None:
        """Keep the newest exceptions of what has ended, up to `KEPT_EXCEPTIONS` bytes; of the others the texts."""
        size = sum(map(_exception_size, self._executions.values()))
        for execution in self._executions.values():
            if size <= KEPT_EXCEPTIONS:
                return
            if execution.is_over:
                size -= _exception_size(execution)
                execution.forget_exception()

    def _forget(self, execution: Running) -> None:
        del self._executions[execution.id]
        self._tokens.pop(self._token_of.pop(execution.id, ""), None)
        self._watchers.forget(execution.id)
        record = self._jobs[execution.job.job_id]
        record.executions.remove(execution)
        if not record.executions:
            self._drop(execution.job.job_id)

    def _drop(self, job_id: str) -> None:
        self._large.pop(job_id, None)
        self._jobs.pop(job_id).code.close()

    def note_gone(self, execution: int, failure: Failure) -> None:
        """Record the outcome of an execution whose coordinator was lost."""
        self._gone[execution] = failure
        self._limit_gone()

    def forget_all(self, failure: Failure) -> None:
        """Forget everything, for this member no longer coordinates; later questions are answered with the reason."""
        for record in self._jobs.values():
            record.code.close()
        for execution in self._executions.values():
            self._gone.setdefault(execution.id, execution.failure or failure)
        self._limit_gone()
        self._jobs.clear()
        self._large.clear()
        self._tokens.clear()
        self._token_of.clear()
        self._executions.clear()
        self._active.clear()
        self._watchers.tell_nobody()

    def _limit_gone(self) -> None:
        while len(self._gone) > KEPT_RESULTS:
            del self._gone[next(iter(self._gone))]


def _recorded(submission: Submission, fds: list[int]) -> JobRecord:
    """Return the record of a new job; large code lies in a file, also when it came in the message."""
    if submission.code_size:
        code = InlineOrMemfd.received(submission.code, submission.code_size, fds)
        fds.remove(code.fd)
    else:
        code = InlineOrMemfd.of(submission.code, LARGE_CODE)
        submission = msgspec.structs.replace(submission, code=code.inline, code_size=code.size)
    return JobRecord(submission, code)


def _exception_size(execution: Running) -> int:
    failure = execution.failure
    return len(failure.exception) if failure is not None and failure.exception is not None else 0
