"""Requests about a run that are asked again because the coordinator, or the way to it, was lost: what is done twice."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shmjet.cluster.jobs.lifecycle_requests import LifecycleRequests
from shmjet.cluster.lifecycle_messages import RestartExecution
from shmjet.cluster.protocol import Done, Refused
from shmjet.cluster.retry import as_retry
from shmjet.core import JobStatus
from tests.cluster.test_runs import Story, looped

AGE_S = 10.0


class Client:
    def __init__(self) -> None:
        self.told: list[Any] = []

    def send(self, message: object) -> None:
        self.told.append(message)


def restarted(story: Story, *, again: bool) -> Any:
    """Return the answer to a request for a restart, which was sent first some seconds ago or now."""
    client: Any = Client()
    run: Any = story.run
    request = RestartExecution(1, 7)
    LifecycleRequests(lambda _: run).restart(client, as_retry(request, AGE_S) if again else request)
    (answer,) = client.told
    return answer


def taken_over() -> Story:
    """Return a run with which another coordinator goes on now."""
    story = Story(starts=False, attempts_before=1)
    story.run.go_on("the coordinator is gone")
    return story


@pytest.mark.parametrize("when", ["waiting", "starting", "running"])
def test_the_loss_of_the_coordinator_is_the_restart_that_was_asked_for(when: str) -> None:
    async def main() -> None:
        story = Story(starts=False, attempts_before=1)
        story.waits_for = "a connection" if when == "waiting" else ""
        story.run.go_on("the coordinator is gone")
        if when == "running":
            story.newest.becomes(JobStatus.RUNNING)
        assert restarted(story, again=True) == Done(1)
        story.waits_for = ""
        story.run.reconsider()
        if when != "running":
            story.newest.becomes(JobStatus.RUNNING)
        assert (len(story.made), story.newest.cancelled, story.run.attempt_count) == (1, False, 2)

    looped(main)


def test_a_restart_that_is_asked_of_the_next_coordinator_first_is_done_there() -> None:
    async def main() -> None:
        story = taken_over()
        story.newest.becomes(JobStatus.RUNNING)
        assert restarted(story, again=False) == Done(1)
        story.stops()
        assert story.run.attempt_count == 3

    looped(main)


@pytest.mark.parametrize("when", ["before it was asked", "while it stops", "after"])
def test_a_coordinator_to_which_the_way_was_lost_restarts_once(when: str) -> None:
    async def main() -> None:
        story = Story()
        story.newest.becomes(JobStatus.RUNNING)
        await asyncio.sleep(2 * AGE_S)
        assert restarted(story, again=when == "before it was asked") == Done(1)
        if when == "while it stops":
            assert restarted(story, again=True) == Done(1)
        story.stops()
        story.newest.becomes(JobStatus.RUNNING)
        if when == "after":
            assert restarted(story, again=True) == Done(1)
        assert (len(story.made), story.newest.cancelled) == (2, False)

    looped(main)


def test_a_run_that_was_suspended_for_the_loss_is_not_restarted() -> None:
    async def main() -> None:
        story = Story(starts=False, attempts_before=1)
        story.run.start_suspended(None)
        refused = restarted(story, again=True)
        assert isinstance(refused, Refused)
        assert refused.error == "JobStateError"
        assert story.made == []

    looped(main)
