"""A run as a chain of attempts: what clients see of it, whatever becomes of each attempt."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from shmjet.cluster.jobs.run import ANNOUNCE_S, JobRun, RunRequest, Told
from shmjet.cluster.protocol import Submission
from shmjet.core import JobStatus
from shmjet.execution.messages import Failure, JobShape
from shmjet.ipc.inline_or_memfd import InlineOrMemfd

JOB = Submission("job", None, JobShape([], []), b"", b"", {}, [])


def failure(text: str) -> Failure:
    return Failure("error", None, -1, -1, 1, "ValueError", text, [], None)


class Attempt:
    """An attempt in the test's hand."""

    def __init__(self, number: int, on_change: Told, on_over: Told) -> None:
        self.id = number
        self.status = JobStatus.STARTING
        self.failure: Failure | None = None
        self.cancelled = self.is_over = self.is_started = False
        self.may_be_followed = True
        self.on_change, self.on_over = on_change, on_over

    def start(self) -> None:
        self.is_started = True

    def cancel(self) -> None:
        self.cancelled = True

    def becomes(self, status: JobStatus, text: str | None = None) -> None:
        self.status = status
        self.failure = None if text is None else failure(text)
        self.on_change(self)

    def ends(self) -> None:
        self.is_over = True
        self.on_over(self)


class Story:
    """A run, the attempts that it makes, and what its client is told."""

    def __init__(self, *, attempts: int = 1) -> None:
        self.made: list[Attempt] = []
        self.told: list[tuple[JobStatus, str | None]] = []
        self.over = 0

        def make(run: JobRun, on_change: Told, on_over: Told) -> Any:
            self.made.append(Attempt(7 + len(self.made), on_change, on_over))
            return self.made[-1]

        def told(run: JobRun) -> None:
            self.told.append((run.status, None if run.failure is None else run.failure.text))

        def over(run: JobRun) -> None:
            self.over += 1

        self.run = JobRun(
            7,
            RunRequest(job=JOB, code=InlineOrMemfd.of(b"", 1)),
            attempts=make,
            on_status=told,
            on_over=over,
            follows=lambda run, failure: run.attempt_count < attempts,
        )
        self.run.start()


def looped(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(story())


def test_a_short_run_tells_its_client_once() -> None:
    async def main() -> None:
        story = Story()
        (attempt,) = story.made
        attempt.becomes(JobStatus.RUNNING)
        attempt.becomes(JobStatus.COMPLETED)
        assert story.told == [(JobStatus.COMPLETED, None)]
        assert not story.run.is_over
        attempt.ends()
        assert story.over == 1
        assert story.run.is_over
        assert story.run.completed_at is not None
        await asyncio.sleep(2 * ANNOUNCE_S)
        assert len(story.told) == 1

    looped(main)


def test_a_longer_run_tells_how_far_it_is() -> None:
    async def main() -> None:
        story = Story()
        async with asyncio.timeout(20):
            while not story.told:
                await asyncio.sleep(0)
        assert story.told == [(JobStatus.STARTING, None)]
        story.made[0].becomes(JobStatus.RUNNING)
        assert story.told[1:] == [(JobStatus.RUNNING, None)]

    looped(main)


def test_an_attempt_that_fails_is_followed_by_the_next_one_when_nothing_is_left_of_it() -> None:
    async def main() -> None:
        story = Story(attempts=2)
        first = story.made[0]
        first.becomes(JobStatus.RUNNING)
        first.becomes(JobStatus.FAILED, "a worker is gone")
        assert story.run.status is JobStatus.STARTING
        assert story.run.failure is None
        assert len(story.made) == 1
        first.ends()
        second = story.made[1]
        assert (first.id, second.id, story.run.id, story.run.attempt) == (7, 8, 7, 8)
        assert second.is_started
        assert not story.over
        second.becomes(JobStatus.FAILED, "another one")
        second.ends()
        assert story.told == [(JobStatus.FAILED, "another one")]
        assert story.over == 1
        assert story.run.attempt_count == 2

    looped(main)


def test_a_run_that_is_cancelled_between_two_attempts_begins_no_other() -> None:
    async def main() -> None:
        story = Story(attempts=2)
        story.made[0].becomes(JobStatus.FAILED, "a worker is gone")
        story.run.cancel()
        assert story.run.cancelled
        story.made[0].ends()
        assert story.told == [(JobStatus.FAILED, None)]
        assert len(story.made) == 1
        assert story.over == 1

    looped(main)


@pytest.mark.parametrize("why", ["visible", "cancelled"])
def test_no_attempt_follows_one_that_was_cancelled_or_may_have_made_results_visible(why: str) -> None:
    async def main() -> None:
        story = Story(attempts=2)
        (attempt,) = story.made
        attempt.may_be_followed = False
        if why == "cancelled":
            story.run.cancel()
        attempt.becomes(JobStatus.FAILED, "no room")
        attempt.ends()
        assert story.told == [(JobStatus.FAILED, "no room")]
        assert len(story.made) == 1
        assert story.over == 1

    looped(main)
