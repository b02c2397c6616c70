"""How requests to stop a run and let it go on are answered."""

from __future__ import annotations

from typing import Any

import pytest

from shmjet.cluster.jobs.lifecycle_requests import LifecycleRequests
from shmjet.cluster.lifecycle_messages import RestartExecution, ResumeExecution, SuspendExecution
from shmjet.cluster.protocol import Done, Refused
from shmjet.cluster.retry import as_retry, is_idempotent
from shmjet.core import JobStateError, JobStatus


class Run:
    """A run that knows one thing: whether it is suspended."""

    def __init__(self, status: JobStatus = JobStatus.RUNNING, began_ago: float = 60.0) -> None:
        self.status = status
        self.began_ago = began_ago
        self.restarts: list[bool] = []

    def suspend(self) -> None:
        self._check(JobStatus.RUNNING)
        self.status = JobStatus.SUSPENDED

    def resume(self) -> None:
        self._check(JobStatus.SUSPENDED)
        self.status = JobStatus.RUNNING

    def has_begun_within(self, seconds: float) -> bool:
        return self.began_ago < seconds

    def restart(self, *, graceful: bool = True) -> None:
        self._check(JobStatus.RUNNING)
        self.restarts.append(graceful)

    def _check(self, wanted: JobStatus) -> None:
        if self.status is not wanted:
            raise JobStateError(f"it is {self.status.name}")


class Client:
    def __init__(self) -> None:
        self.told: list[Any] = []

    def send(self, message: object) -> None:
        self.told.append(message)


def asked(run: Run | None, *requests: Any) -> list[Any]:
    """Return the answers to requests about run 7."""
    client: Any = Client()
    known: Any = {7: run}
    lifecycle = LifecycleRequests(lambda number: known.get(number))
    handlers = {
        SuspendExecution: lifecycle.suspend,
        ResumeExecution: lifecycle.resume,
        RestartExecution: lifecycle.restart,
    }
    for request in requests:
        handlers[type(request)](client, request)  # type: ignore[operator]
    return list(client.told)


def test_a_run_is_suspended_resumed_and_restarted() -> None:
    run = Run()
    answers = asked(run, SuspendExecution(1, 7), ResumeExecution(2, 7), RestartExecution(3, 7, False))
    assert answers == [Done(1), Done(2), Done(3)]
    assert run.restarts == [False]


@pytest.mark.parametrize("request_type", [SuspendExecution, ResumeExecution, RestartExecution])
def test_what_does_not_fit_the_status_is_refused(request_type: type) -> None:
    run = Run(JobStatus.COMPLETED)
    assert asked(run, request_type(1, 7)) == [Refused(1, "JobStateError", "it is COMPLETED")]
    (answer,) = asked(None, request_type(1, 7))
    assert answer.error == "JobStateError"
    assert "does not know it any more" in answer.text


@pytest.mark.parametrize(
    ("request_sent", "status"),
    [(SuspendExecution(1, 7), JobStatus.RUNNING), (ResumeExecution(1, 7), JobStatus.SUSPENDED)],
)
def test_what_is_asked_again_because_the_answer_was_lost_is_done(request_sent: Any, status: JobStatus) -> None:
    assert is_idempotent(request_sent)
    run = Run(status)
    assert asked(run, request_sent, as_retry(request_sent, 1.0)) == [Done(1), Done(1)]
    (refused,) = asked(Run(JobStatus.FAILED), as_retry(request_sent, 1.0))
    assert isinstance(refused, Refused)


@pytest.mark.parametrize("began_ago", [2.0, 7.0])
def test_a_restart_that_is_asked_for_again_is_done_when_an_attempt_has_begun_since(began_ago: float) -> None:
    request = RestartExecution(1, 7, False)
    assert is_idempotent(request)
    run = Run(began_ago=began_ago)
    assert asked(run, as_retry(as_retry(request, 3.0), 2.0)) == [Done(1)]
    assert run.restarts == ([] if began_ago < 5.0 else [False])
    run.restart(graceful=True)
    assert asked(run, request) == [Done(1)], "the first time it is done whenever the attempt has begun"
    assert run.restarts[-2:] == [True, False]


def test_a_restart_that_is_asked_for_again_is_refused_where_it_would_be_refused_the_first_time() -> None:
    (refused,) = asked(Run(JobStatus.SUSPENDED), as_retry(RestartExecution(1, 7), 3.0))
    assert refused == Refused(1, "JobStateError", "it is SUSPENDED")
