"""What a coordinator tells of jobs that ended under another one: as that had told of them, without their code."""

from __future__ import annotations

from typing import Any

import msgspec

from shmjet.cluster.jobs.run_copies import RunCopies
from shmjet.cluster.membership.run_messages import RunEnd, RunOrigin, RunState
from shmjet.cluster.protocol import (
    Execute,
    Executing,
    ExecutionChanged,
    GetJob,
    GetMetrics,
    JobReply,
    ListJobs,
    Refused,
    Submission,
)
from shmjet.core import JobStatus
from shmjet.execution.job_plan import JobShape, VertexShape
from shmjet.execution.messages import Failure
from tests.cluster.jobs_here import JobsHere

SHAPE = JobShape([VertexShape("count", 1, 1, True, False, None)], [])
FAILURE = Failure("raised", "count", 0, 0, 1, "ValueError", "it is faulty", [], None)
NEW, OLD = "00000000000000aa", "00000000000000bb"


def submission(job_id: str, name: str) -> Submission:
    return Submission(job_id, name, SHAPE, b"code", b"config", {}, [])


class Client:
    def __init__(self) -> None:
        self.told: list[Any] = []

    def queue(self, message: object) -> None:
        self.told.append(message)

    def send(self, message: object) -> None:
        self.told.append(message)

    def flush(self) -> None:
        pass


class Run:
    """A run that goes on here."""

    failure, cancelled, is_over, completed_at, suspension = None, False, False, None, None
    status = JobStatus.RUNNING

    def __init__(self, request: Any, number: int, started_at: float) -> None:
        self.id, self.job, self.started_at = number, request.job, started_at

    def start(self) -> None:
        pass


class Coordinator:
    """A member that has taken over: run 1 of job OLD has failed, and run 2 of it has ended well."""

    def __init__(self) -> None:
        self.copies = RunCopies()
        self.has_ended(1, 10.0, RunEnd("failed", False, FAILURE, 12.0, ["a:1", "b:1"]), attempts=3)
        self.has_ended(2, 20.0, RunEnd("completed", completed_at=21.0))
        self.made: list[Run] = []
        self.jobs = JobsHere(self._make, self.copies.end_of, self.copies.ended, member_for=lambda: 0.0)

    def has_ended(self, run: int, started_at: float, end: RunEnd, attempts: int = 1) -> None:
        origin = RunOrigin(run, submission(OLD, "old"), f"token {run}", None, started_at)
        self.copies.keep(run, RunState((1, run), attempts=attempts), origin)
        self.copies.keep(run, RunState((2, run), attempts=attempts, end=end))

    def _make(self, request: Any, *_: Any) -> Any:
        self.made.append(Run(request, 100 + len(self.made), 15.0 if request.token == "taken over" else 30.0))
        return self.made[-1]

    def asked(self, *requests: Any) -> list[Any]:
        client: Any = Client()
        for request in requests:
            match request:
                case ListJobs():
                    self.jobs.requests.list_jobs(client, request)
                case GetJob():
                    self.jobs.requests.describe_job(client, request)
                case GetMetrics():
                    self.jobs.requests.report_metrics(client, request)
                case Execute():
                    self.jobs.submissions.execute(client, request, [])
        return list(client.told)


def test_jobs_are_listed_in_the_order_in_which_they_began_each_with_its_newest_run() -> None:
    here = Coordinator()
    here.asked(Execute(1, NEW, submission(NEW, "new"), False))
    (reply,) = here.asked(ListJobs(2))
    rows = [(row.job_id, row.name, row.status, row.execution_id, row.config) for row in reply.jobs]
    assert rows == [(OLD, "old", "completed", 2, b"config"), (NEW, "new", "running", 100, b"config")]
    here.jobs.submissions.restore(submission(OLD, "old"), here._make, "taken over")
    (reply,) = here.asked(ListJobs(3))
    assert [(row.job_id, row.execution_id) for row in reply.jobs] == [(OLD, 2), (NEW, 100)]


def test_they_are_described_as_before() -> None:
    here = Coordinator()
    here.has_ended(3, 25.0, RunEnd("failed", False, FAILURE, 26.0))
    (described, refused) = here.asked(GetJob(1, OLD), GetJob(2, NEW))
    assert described == JobReply(1, SHAPE, FAILURE)
    assert refused.error == "JobNotFoundError"
    first = here.jobs.table.executions[0]
    assert (first.id, first.status, first.failure, first.cancelled) == (1, JobStatus.FAILED, FAILURE, False)
    assert (first.attempt_count, first.started_at, first.completed_at) == (3, 10.0, 12.0)
    assert first.member_addresses == ["a:1", "b:1"]
    (reply,) = here.asked(GetMetrics(4, 1))
    assert reply.metrics.attempts == 3


def test_one_whose_start_is_asked_for_again_is_found_by_its_token() -> None:
    here = Coordinator()
    request = Execute(1, OLD, submission(OLD, "old"), False, token="token 1")
    answers = here.asked(msgspec.structs.replace(request, age=5.0))
    assert answers == [Executing(1, 1), ExecutionChanged(1, "failed", failure=FAILURE)]
    assert not here.made


def test_one_is_executed_again_by_a_client_that_has_it_still() -> None:
    here = Coordinator()
    refused, accepted = here.asked(Execute(1, OLD, None, False), Execute(2, OLD, submission(OLD, "old"), False))
    assert isinstance(refused, Refused)
    assert (refused.error, "make the job anew" in refused.text) == ("JobNotFoundError", True)
    assert accepted == Executing(2, 100)
    assert here.made[0].job.code == b"code"
    (reply,) = here.asked(ListJobs(3))
    assert [(row.job_id, row.execution_id) for row in reply.jobs] == [(OLD, 100)]
