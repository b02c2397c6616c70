"""The jobs that a coordinator knows, and the answers to clients' requests about them.

Knows nothing of how a run is coordinated: it makes runs through a function, and hears of their changes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol

import msgspec

from shmjet.cluster.jobs.cluster import SKEW_S
from shmjet.cluster.jobs.past_runs import PastRun, past_runs
from shmjet.cluster.jobs.run_parts import RunRequest, RunSuspension
from shmjet.cluster.jobs.suspension import cause_of
from shmjet.cluster.lifecycle_messages import LastRestart, LastSnapshot, SnapshotRow
from shmjet.cluster.membership.run_messages import EndedRun, RunEnd
from shmjet.cluster.merged_metrics import with_life
from shmjet.cluster.protocol import (
    CancelExecution,
    Done,
    Execute,
    Executing,
    ExecutionChanged,
    GetJob,
    GetMetrics,
    JobReply,
    JobRow,
    JobsReply,
    ListJobs,
    Logged,
    MetricsReply,
    Refused,
    Submission,
    Watch,
)
from shmjet.cluster.requests.code_policy import NO_CODE
from shmjet.cluster.requests.named_jobs import NamedJobs
from shmjet.cluster.settings import KEPT_CODES, KEPT_EXCEPTIONS, KEPT_RESULTS, LARGE_CODE
from shmjet.core import JobStatus
from shmjet.data.errors import ShmjetError
from shmjet.execution.failure import member_lost
from shmjet.execution.messages import Failure, LogSubscription
from shmjet.execution.metrics import NO_METRICS, Metrics
from shmjet.ipc.background_tasks import BackgroundTasks
from shmjet.ipc.inline_or_memfd import InlineOrMemfd

_JOB_ID = re.compile("[0-9a-f]{16}")


class Client(Protocol):
    """A client of this member, or of another member that forwards its requests."""

    def queue(self, message: object) -> None:
        """Have a message sent with the next one."""

    def send(self, message: object) -> None:
        """Send a message and all that is queued."""

    def flush(self) -> None:
        """Send all that is queued."""

    def send_if_read(self, message: object) -> None:
        """Send a message unless the client has too much unread."""

    async def until_read(self) -> None:
        """Wait until the client has read most of what it was sent, or is gone."""


class Running(Protocol):
    """One run of a job (`shmjet.cluster.jobs.run.JobRun`)."""

    awaits_record: bool

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
    def snapshot_waits_for(self) -> list[str]: ...
    @property
    def waits_for(self) -> str: ...
    @property
    def last_restart(self) -> LastRestart | None: ...
    @property
    def member_addresses(self) -> list[str]: ...
    @property
    def is_over(self) -> bool: ...
    @property
    def started_at(self) -> float: ...
    @property
    def completed_at(self) -> float | None: ...
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
Make = Callable[[RunRequest, Told, Told], Running]
"""Makes a run, from what is to be called at each change of its status, and from what is to be called when nothing is
left of it."""


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
    """All jobs, and who watches them.

    Args:
        make: makes executions.
        named: the jobs of the member's own configuration.
        member_for: says for how many seconds this has been a member of its cluster.
        outcome_of: gives the outcome of a run that another member has coordinated; None where it is not known.
        ended: gives the runs that have ended, under whichever coordinator.
        has_files: says whether the files attached to a job are here.
        allow_code: whether clients may bring code.
    """

    def __init__(
        self,
        make: Make,
        named: NamedJobs,
        member_for: Callable[[], float] = lambda: math.inf,
        outcome_of: Callable[[int], RunEnd | None] = lambda _: None,
        ended: Callable[[], Iterable[EndedRun]] = tuple,
        has_files: Callable[[Submission], bool] = lambda _: True,
        *,
        allow_code: bool = True,
    ) -> None:
        self._make = make
        self._named = named
        self._member_for = member_for
        self._outcome_of = outcome_of
        self._ended = ended
        self._has_files = has_files
        self._allow_code = allow_code
        self._tokens: dict[str, int] = {}
        """The executions by the tokens of the requests that asked for them."""
        self._token_of: dict[int, str] = {}
        self._jobs: dict[str, JobRecord] = {}
        self._large: dict[str, JobRecord] = {}
        """Those with code in a file, or with attached files."""
        self._executions: dict[int, Running] = {}
        self._active: set[Running] = set()
        self._watchers: dict[int, set[Client]] = {}
        self._readers: dict[int, set[Client]] = {}
        """Who wants the log records of an execution."""
        self._gone: dict[int, Failure] = {}
        self._tasks = BackgroundTasks()

    @property
    def executions(self) -> list[Running | PastRun]:
        """All executions that are remembered, the oldest first, with past ones of other coordinators."""
        own, past = self._executions.values(), self._past()
        return sorted((*past, *own), key=lambda run: run.started_at) if past else list(own)

    def _past(self) -> list[PastRun]:
        """Return the executions that have ended under other coordinators."""
        return past_runs(self._ended(), self._executions)

    @property
    def active(self) -> list[Running]:
        """The executions of which something is left."""
        return list(self._active)

    def run(self, number: int) -> Running | None:
        """Return the execution of a number, None if none is remembered."""
        return self._executions.get(number)

    def knows(self, job_id: str) -> bool:
        """Say whether a job can be executed again without being sent again."""
        return job_id in self._jobs

    def client_gone(self, client: Client) -> None:
        """Tell a client nothing any more; what it has started goes on."""
        for told in (*self._watchers.values(), *self._readers.values()):
            told.discard(client)

    def tell_nobody(self) -> None:
        """Tell clients nothing any more: they ask another member."""
        self._watchers.clear()
        self._readers.clear()

    def logged(self, execution: int, member: str, records: list[bytes], dropped: int) -> None:
        """Pass log records of an execution's processors on to who has it executed."""
        for client in self._readers.get(execution, ()):
            client.send_if_read(Logged(execution, member, records, dropped))

    def forget_all(self, failure: Failure) -> None:
        """Forget everything, for this member no longer coordinates; later questions are answered with the reason."""
        for record in self._jobs.values():
            record.code.close()
        for execution in self._executions.values():
            self._gone.setdefault(execution.id, execution.failure or failure)
        while len(self._gone) > KEPT_RESULTS:
            del self._gone[next(iter(self._gone))]
        self._jobs.clear()
        self._large.clear()
        self._tokens.clear()
        self._token_of.clear()
        self._executions.clear()
        self._active.clear()
        self._watchers.clear()
        self._readers.clear()

    def note_gone(self, execution: int, failure: Failure) -> None:
        """Record the outcome of an execution whose coordinator was lost."""
        self._gone[execution] = failure
        while len(self._gone) > KEPT_RESULTS:
            del self._gone[next(iter(self._gone))]

    # -- running ------------------------------------------------------------------------------------------------

    def execute(self, client: Client, request: Execute, fds: list[int]) -> None:
        """Run a job.

        Args:
            client: that asks for it.
            request: its request.
            fds: descriptors that came with the request; the table removes the ones it keeps.
        """
        if (request.age > 0 or request.token in self._tokens) and not self._is_news(client, request):
            return
        record = self._jobs.get(request.job_id)
        if record is None and request.named is not None:
            if _JOB_ID.fullmatch(request.job_id) is None:  # it becomes an argument of a process
                text = f"a job's id has 16 hexadecimal digits, got {request.job_id[:40]!r}"
                client.send(Refused(request.request, "ShmjetError", text))
                return
            self._tasks.start(self._make_named(client, request, request.named))
            return
        submission = request.submission if record is None else record.submission
        if submission is None:
            is_past = any(run.job.job_id == request.job_id for run in self._past())
            gone = "the code of job {!r} has gone with the member that coordinated it: make the job anew"
            text = (gone if is_past else "there is no job {!r}").format(request.job_id)
            client.send(Refused(request.request, "JobNotFoundError", text))
            return
        if submission.attachments and not self._has_files(submission):
            text = f"the files attached to {_called(submission)} went to a member that was lost: make the job anew"
            client.send(Refused(request.request, "JobNotFoundError", text))
            return
        if record is None and not self._allow_code:
            client.send(Refused(request.request, "AuthenticationError", NO_CODE))
            return
        if request.joins and (found := self._runs_named(submission.name)):
            joined = found[0]
            self._watch(client, joined.id, logs=request.logs is not None)
            client.queue(Executing(request.request, joined.id, joined.job.job_id))
            client.send(self._news(joined.id))
            return
        if (other := self._namesake(submission)) is not None:
            state = "running" if other.suspension is None else "suspended"
            which = f"a job named {other.job.name!r} is {state} (id {other.job.job_id})"
            text = f"{which}; choose another name or cancel it"
            client.send(Refused(request.request, "JobAlreadyExistsError", text))
            if record is not None and not record.executions:
                self._drop(request.job_id)
            return
        if record is not None and record.submission.settings.has_guarantee and not record.has_ended:
            is_suspended = any(execution.suspension is not None for execution in record.executions)
            state = "is suspended" if is_suspended else "runs already"
            text = f"{_called(submission)} {state}, and a job with a processing_guarantee runs once at a time"
            client.send(Refused(request.request, "JobAlreadyExistsError", text))
            return
        if record is None:  # not before it is certain that it runs: a job that never ran is not listed
            record = _recorded(msgspec.structs.replace(submission, named=None), fds)
            self._remember(request.job_id, record)
        answered, number = False, request.request

        def answer(execution: Running) -> None:
            nonlocal answered
            if not answered:
                answered = True
                client.queue(Executing(number, execution.id))

        def is_early(execution: Running) -> bool:
            """Say whether the next coordinator would not know it: then its client is to ask again."""
            has_files = bool(execution.job.attachments)
            return has_files and execution.awaits_record and execution.status is JobStatus.STARTING

        def changed(execution: Running) -> None:
            if is_early(execution):
                return
            answer(execution)
            self._tell(execution)

        wanted = RunRequest(
            job=record.submission, code=record.code, logs=request.logs, token=request.token, age=request.age
        )
        try:
            execution = self._make(wanted, changed, self._over)
        except ShmjetError as error:
            client.send(Refused(request.request, type(error).__name__, str(error)))
            if not record.executions:
                self._drop(request.job_id)
            return
        self._note_token(request.token, execution)
        self._watchers[execution.id] = {client}
        if request.logs is not None:
            self._readers[execution.id] = {client}
        self._add(record, execution)
        execution.start()  # first, because the workers have more to do than the client
        if not request.patient and not is_early(execution):
            answer(execution)
            client.flush()

    def restore(
        self, submission: Submission, make: Make, token: str = "", logs: LogSubscription | None = None
    ) -> Running:
        """Take a run that goes on after its coordinator was started again, or is lost; it is not started here.

        Args:
            submission: of its job, with the code in it.
            make: makes the run.
            token: of the request that started it.
            logs: the subscription of the client that started it.

        Raises:
            ShmjetError: it cannot be made.
        """
        record = self._jobs.get(submission.job_id)
        if record is None:
            record = _recorded(submission, [])
            self._remember(submission.job_id, record)
        try:
            wanted = RunRequest(job=record.submission, code=record.code, logs=logs, token=token)
            execution = make(wanted, self._tell, self._over)
        except ShmjetError:
            if not record.executions:
                self._drop(submission.job_id)
            raise
        self._note_token(token, execution)
        self._add(record, execution)
        return execution

    def _note_token(self, token: str, execution: Running) -> None:
        if token:
            self._tokens[token] = execution.id
            self._token_of[execution.id] = token

    def _add(self, record: JobRecord, execution: Running) -> None:
        self._executions[execution.id] = execution
        self._active.add(execution)
        record.executions.append(execution)

    def _tell(self, execution: Running) -> None:
        """Tell all clients that watch an execution how it is."""
        news = _news_of(execution)
        for watcher in list(self._watchers.get(execution.id, ())):
            watcher.send(news)

    def _is_news(self, client: Client, request: Execute) -> bool:
        """Say whether a request that comes again has certainly not been carried out; answer it if not.

        No attempt begins before all members of the view have the record of its run. So what this member was not told
        by the lost coordinator, nor by a member of its view, has not begun, if this was a member when the request was
        sent first.
        """
        known = self._tokens.get(request.token)
        if known is None and request.token:
            known = next((run.id for run in self._past() if run.token == request.token), None)
        if known is not None:
            if known in self._executions:
                self._watch(client, known, logs=request.logs is not None)
            client.queue(Executing(request.request, known))
            client.send(self._news(known))
        elif request.age + SKEW_S >= self._member_for():
            text = (
                "all members that may have been asked to run it were lost; the outcome of the job is unknown; "
                "it is not running now"
            )
            client.send(Refused(request.request, "MemberLostError", text))
        else:
            return True
        return False

    def cancel(self, client: Client, request: CancelExecution) -> None:
        """Cancel an execution."""
        execution = self._executions.get(request.execution_id)
        if execution is not None:
            execution.cancel()
        client.send(Done(request.request))

    async def _make_named(self, client: Client, request: Execute, name: str) -> None:
        """Have a job of the configuration made, and run it."""
        try:
            submission = await self._named.make(name, request.job_id)
        except ShmjetError as error:
            client.send(Refused(request.request, type(error).__name__, str(error)))
            return
        except OSError as error:
            client.send(Refused(request.request, "ShmjetError", f"job {name!r} cannot be made: {error}"))
            return
        if request.job_id not in self._jobs:
            self._remember(request.job_id, _recorded(submission, []))
        self.execute(client, msgspec.structs.replace(request, named=None), [])

    def _namesake(self, submission: Submission) -> Running | None:
        """Return a run of another job of that name that has not ended."""
        found = self._runs_named(submission.name)
        return next((run for run in found if run.job is not submission), None)

    def _runs_named(self, name: str | None) -> list[Running]:
        """Return the runs of jobs of a name that have not ended, the newest first."""
        if name is None:
            return []
        found = [run for run in self._active if run.job.name == name and not run.status.is_terminal]
        return sorted(found, key=lambda run: run.started_at, reverse=True)

    def _over(self, execution: Running) -> None:
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
        self._watchers.pop(execution.id, None)
        self._readers.pop(execution.id, None)
        record = self._jobs[execution.job.job_id]
        record.executions.remove(execution)
        if not record.executions:
            self._drop(execution.job.job_id)

    def _remember(self, job_id: str, record: JobRecord) -> None:
        self._jobs[job_id] = record
        if record.code.fds or record.submission.attachments:
            self._large[job_id] = record

    def _drop(self, job_id: str) -> None:
        self._large.pop(job_id, None)
        self._jobs.pop(job_id).code.close()

    # -- answers ------------------------------------------------------------------------------------------------

    def watch(self, client: Client, request: Watch) -> None:
        """Tell a client how executions stand, and from now on each change."""
        for number in request.executions:
            client.queue(self._news(number))
            if number in self._executions:
                self._watch(client, number, logs=request.logs)
        client.send(Done(request.request))

    def _watch(self, client: Client, number: int, *, logs: bool) -> None:
        self._watchers.setdefault(number, set()).add(client)
        if logs:
            self._readers.setdefault(number, set()).add(client)

    def _news(self, number: int) -> ExecutionChanged:
        execution = self._executions.get(number)
        if execution is not None:
            return _news_of(execution)
        end = self._outcome_of(number)
        if end is not None:
            return ExecutionChanged(number, end.status, cancelled=end.cancelled, failure=end.failure)
        text = "the cluster does not know it any more: the member that coordinated it is gone"
        failure = self._gone.get(number) or member_lost(text, member="")
        return ExecutionChanged(number, JobStatus.FAILED.value, failure=failure)

    def describe_job(self, client: Client, request: GetJob) -> None:
        """Answer with a job's DAG and its newest failure."""
        record = self._jobs.get(request.job_id)
        newest = next((run for run in reversed(self.executions) if run.job.job_id == request.job_id), None)
        job = newest.job if newest is not None else None if record is None else record.submission
        if job is None:
            client.send(Refused(request.request, "JobNotFoundError", f"there is no job {request.job_id!r}"))
            return
        failure = None if newest is None or newest.cancelled else newest.failure
        if failure is not None:
            failure = msgspec.structs.replace(failure, exception=None)
        client.send(JobReply(request.request, job.shape, failure))

    def report_metrics(self, client: Client, request: GetMetrics) -> None:
        """Answer with an execution's metrics."""
        execution = self._executions.get(request.execution_id)
        if execution is None:
            past = next((run for run in self._past() if run.id == request.execution_id), None)
            metrics = NO_METRICS if past is None else with_life(NO_METRICS, past.attempt_count, None)
            client.send(MetricsReply(request.request, metrics))
            return

        async def tell(metrics: Awaitable[Metrics]) -> None:
            waits_for = execution.snapshot_waits_for
            found = with_life(
                await metrics,
                execution.attempt_count,
                execution.last_snapshot,
                waits_for,
                attempt_waits_for=execution.waits_for,
                restart=execution.last_restart,
            )
            client.send(MetricsReply(request.request, found))

        self._tasks.start(tell(execution.own_metrics() if request.part else execution.metrics()))

    def list_jobs(self, client: Client, request: ListJobs) -> None:
        """Answer with all jobs, the oldest first."""
        newest = {run.job.job_id: run for run in self.executions}
        rows = [
            JobRow(job_id, run.job.name, run.status.value, run.id, run.job.config) for job_id, run in newest.items()
        ]
        for job_id, record in self._jobs.items():
            if job_id not in newest:
                job = record.submission
                rows.append(JobRow(job_id, job.name, JobStatus.NOT_RUNNING.value, None, job.config))
        client.send(JobsReply(request.request, rows))


def _recorded(submission: Submission, fds: list[int]) -> JobRecord:
    """Return the record of a new job; large code lies in a file, also when it came in the message."""
    if submission.code_size:
        code = InlineOrMemfd.received(submission.code, submission.code_size, fds)
        fds.remove(code.fd)
    else:
        code = InlineOrMemfd.of(submission.code, LARGE_CODE)
        submission = msgspec.structs.replace(submission, code=code.inline, code_size=code.size)
    return JobRecord(submission, code)


def _called(job: Submission) -> str:
    return f"job {job.name!r}" if job.name else f"job {job.job_id}"


def _exception_size(execution: Running) -> int:
    failure = execution.failure
    return len(failure.exception) if failure is not None and failure.exception is not None else 0


def _news_of(execution: Running) -> ExecutionChanged:
    status = execution.status.value
    cause = cause_of(execution)
    return ExecutionChanged(execution.id, status, cancelled=execution.cancelled, failure=execution.failure, cause=cause)
