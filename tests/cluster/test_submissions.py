"""Requests to run a job."""

from __future__ import annotations

import asyncio
from typing import Any

from shmjet.cluster.protocol import Execute, Executing, ListJobs, Submission
from shmjet.cluster.requests.named_jobs import NamedJobs
from shmjet.core import JobStatus
from shmjet.execution.job_plan import JobShape
from tests.cluster.jobs_here import JobsHere

FIRST, SECOND = "0" * 16, "1" * 16


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
    """A run that runs for ever."""

    status, failure, cancelled, suspension, started_at = JobStatus.RUNNING, None, False, None, 0.0

    def __init__(self, number: int, job: Submission) -> None:
        self.id, self.job = number, job

    def start(self) -> None:
        pass


class Clicks(NamedJobs):
    """A configuration whose jobs all have one name."""

    async def make(self, name: str, job_id: str) -> Submission:
        return Submission(job_id, "clicks", JobShape([], []), b"", b"", {}, [], named=name)


def test_a_job_of_the_configuration_that_joins_the_run_of_another_one_is_not_listed() -> None:
    runs: list[Any] = []

    def make(request: Any, *_: Any) -> Any:
        runs.append(Run(len(runs) + 1, request.job))
        return runs[-1]

    async def story() -> None:
        jobs, client = JobsHere(make, named=Clicks({})), Client()
        for number, job_id in enumerate([FIRST, SECOND]):
            jobs.submissions.execute(client, Execute(number, job_id, None, False, named="clicks", joins=True), [])
            for _ in range(3):
                await asyncio.sleep(0)
        assert len(runs) == 1
        assert Executing(1, 1, FIRST) in client.told
        jobs.requests.list_jobs(client, ListJobs(2))
        assert [row.job_id for row in client.told[-1].jobs] == [FIRST]

    asyncio.run(story())
