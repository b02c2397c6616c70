"""The requests to run a job: the answer to each, and the run that begins or why none does.

Knows nothing of how a run is coordinated: it makes runs through a function, and hears of their changes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import msgspec

from shmjet.cluster.jobs.cluster import SKEW_S
from shmjet.cluster.jobs.run_parts import MakeRun, Running, RunRequest
from shmjet.cluster.jobs.run_watchers import RunWatchers
from shmjet.cluster.jobs.table import JobRecord, JobTable
from shmjet.cluster.protocol import Execute, Executing, Refused, Submission
from shmjet.cluster.requests.client_connections import Client
from shmjet.cluster.requests.code_policy import NO_CODE
from shmjet.cluster.requests.named_jobs import NamedJobs
from shmjet.core import JobStatus
from shmjet.data.errors import ShmjetError
from shmjet.execution.messages import LogSubscription
from shmjet.ipc.background_tasks import BackgroundTasks

_JOB_ID = re.compile("[0-9a-f]{16}")


class Submissions:
    """See the module.

    Args:
        table: gets the jobs and their runs.
        watchers: get the client that has a job run.
        make: makes runs.
        named: the jobs of the member's own configuration.
        member_for: says for how many seconds this has been a member of its cluster.
        has_files: says whether the files attached to a job are here.
        allow_code: whether clients may bring code.
    """

    def __init__(
        self,
        table: JobTable,
        watchers: RunWatchers,
        make: MakeRun,
        named: NamedJobs,
        member_for: Callable[[], float] = lambda: math.inf,
        has_files: Callable[[Submission], bool] = lambda _: True,
        *,
        allow_code: bool = True,
    ) -> None:
        self._table = table
        self._watchers = watchers
        self._make = make
        self._named = named
        self._member_for = member_for
        self._has_files = has_files
        self._allow_code = allow_code
        self._tasks = BackgroundTasks()

    def execute(self, client: Client, request: Execute, fds: list[int]) -> None:
        """Run a job.

        Args:
            client: that asks for it.
            request: its request.
            fds: descriptors that came with the request; a descriptor that is kept is removed from them.
        """
        if (request.age > 0 or self._table.has_begun_for(request.token)) and not self._is_news(client, request):
            return
        record = self._table.record_of(request.job_id)
        if record is None and request.named is not None:
            self._make_named(client, request, request.named)
            return
        submission = request.submission if record is None else record.submission
        if submission is None:
            client.send(Refused(request.request, "JobNotFoundError", self._unknown(request.job_id)))
            return
        refusal = self._cannot_run(record, submission)
        if refusal is None and request.joins and (found := self._table.runs_named(submission.name)):
            self._join(client, request, found[0])
            self._table.drop_unused(request.job_id)
            return
        refusal = refusal or self._conflict(record, submission)
        if refusal is not None:
            client.send(Refused(request.request, *refusal))
            self._table.drop_unused(request.job_id)
            return
        if record is None:  # not before it is certain that it runs: a job that never ran is not listed
            record = self._table.add_job(request.job_id, msgspec.structs.replace(submission, named=None), fds)
        self._begin(client, request, record)

    def restore(
        self, submission: Submission, make: MakeRun, token: str = "", logs: LogSubscription | None = None
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
        record = self._table.record_of(submission.job_id) or self._table.add_job(submission.job_id, submission)
        try:
            wanted = RunRequest(job=record.submission, code=record.code, logs=logs, token=token)
            execution = make(wanted, self._watchers.tell, self._table.over)
        except ShmjetError:
            self._table.drop_unused(submission.job_id)
            raise
        self._table.add(record, execution, token)
        return execution

    # -- whether a run begins -----------------------------------------------------------------------------------

    def _is_news(self, client: Client, request: Execute) -> bool:
        """Say whether a request that comes again has certainly not been carried out; answer it if not.

        No attempt begins before all members of the view have the record of its run. So what this member was not told
        by the lost coordinator, nor by a member of its view, has not begun, if this was a member when the request was
        sent first.
        """
        known = self._table.started_by(request.token)
        if known is not None:
            if self._table.run(known) is not None:
                self._watchers.watch(client, known, logs=request.logs is not None)
            client.queue(Executing(request.request, known))
            client.send(self._table.news(known))
        elif request.age + SKEW_S >= self._member_for():
            text = (
                "all members that may have been asked to run it were lost; the outcome of the job is unknown; "
                "it is not running now"
            )
            client.send(Refused(request.request, "MemberLostError", text))
        else:
            return True
        return False

    def _unknown(self, job_id: str) -> str:
        """Return the text for a job of which neither the request nor the table has the code."""
        if any(run.job.job_id == job_id for run in self._table.past()):
            return f"the code of job {job_id!r} has gone with the member that coordinated it: make the job anew"
        return f"there is no job {job_id!r}"

    def _cannot_run(self, record: JobRecord | None, submission: Submission) -> tuple[str, str] | None:
        """Return why a job cannot run here at all, as an error's class and text."""
        if submission.attachments and not self._has_files(submission):
            text = f"the files attached to {_called(submission)} went to a member that was lost: make the job anew"
            return "JobNotFoundError", text
        if record is None and not self._allow_code:
            return "AuthenticationError", NO_CODE
        return None

    def _conflict(self, record: JobRecord | None, submission: Submission) -> tuple[str, str] | None:
        """Return why a job may have no further run now, as an error's class and text."""
        for other in self._table.runs_named(submission.name):
            if other.job is not submission:
                state = "running" if other.suspension is None else "suspended"
                which = f"a job named {other.job.name!r} is {state} (id {other.job.job_id})"
                return "JobAlreadyExistsError", f"{which}; choose another name or cancel it"
        if record is not None and record.submission.settings.has_guarantee and not record.has_ended:
            is_suspended = any(execution.suspension is not None for execution in record.executions)
            state = "is suspended" if is_suspended else "runs already"
            text = f"{_called(submission)} {state}, and a job with a processing_guarantee runs once at a time"
            return "JobAlreadyExistsError", text
        return None

    def _join(self, client: Client, request: Execute, run: Running) -> None:
        """Answer with a run of another job of the same name, which the client has asked to join."""
        self._watchers.watch(client, run.id, logs=request.logs is not None)
        client.queue(Executing(request.request, run.id, run.job.job_id))
        client.send(self._table.news(run.id))

    # -- jobs of the configuration ------------------------------------------------------------------------------

    def _make_named(self, client: Client, request: Execute, name: str) -> None:
        if _JOB_ID.fullmatch(request.job_id) is None:  # it becomes an argument of a process
            text = f"a job's id has 16 hexadecimal digits, got {request.job_id[:40]!r}"
            client.send(Refused(request.request, "ShmjetError", text))
        else:
            self._tasks.start(self._made_named(client, request, name))

    async def _made_named(self, client: Client, request: Execute, name: str) -> None:
        """Have a job of the configuration made, and run it."""
        try:
            submission = await self._named.make(name, request.job_id)
        except ShmjetError as error:
            client.send(Refused(request.request, type(error).__name__, str(error)))
            return
        except OSError as error:
            client.send(Refused(request.request, "ShmjetError", f"job {name!r} cannot be made: {error}"))
            return
        if not self._table.knows(request.job_id):
            self._table.add_job(request.job_id, submission)
        self.execute(client, msgspec.structs.replace(request, named=None), [])

    # -- a new run ----------------------------------------------------------------------------------------------

    def _begin(self, client: Client, request: Execute, record: JobRecord) -> None:
        """Make a run, start it, and tell the client its number with the first news of it, or at once."""
        is_answered = False

        def answer(run: Running) -> None:
            nonlocal is_answered
            if not is_answered:
                is_answered = True
                client.queue(Executing(request.request, run.id))

        def changed(run: Running) -> None:
            if not _is_early(run):
                answer(run)
                self._watchers.tell(run)

        wanted = RunRequest(
            job=record.submission, code=record.code, logs=request.logs, token=request.token, age=request.age
        )
        try:
            run = self._make(wanted, changed, self._table.over)
        except ShmjetError as error:
            client.send(Refused(request.request, type(error).__name__, str(error)))
            self._table.drop_unused(request.job_id)
            return
        self._watchers.watch(client, run.id, logs=request.logs is not None)
        self._table.add(record, run, request.token)
        run.start()  # first, because the workers have more to do than the client
        if not request.patient and not _is_early(run):
            answer(run)
            client.flush()


def _is_early(run: Running) -> bool:
    """Say whether the next coordinator would not know a run: then its client is to ask again."""
    return bool(run.job.attachments) and run.awaits_record and run.status is JobStatus.STARTING


def _called(job: Submission) -> str:
    return f"job {job.name!r}" if job.name else f"job {job.job_id}"
