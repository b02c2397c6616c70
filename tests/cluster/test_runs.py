"""A run as a chain of attempts: what clients see of it, whatever becomes of each attempt."""

from __future__ import annotations

import asyncio

import pytest

from shmjet.cluster.jobs.run_news import ANNOUNCE_S
from shmjet.cluster.jobs.run_parts import Next
from shmjet.core import JobStateError, JobStatus
from shmjet.execution.metrics import NO_METRICS
from tests.cluster.run_story import Story, failure, looped


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
        await asyncio.sleep(2 * ANNOUNCE_S)
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


def test_a_suspended_run_waits_without_an_attempt_until_it_is_resumed() -> None:
    async def main() -> None:
        story = Story()
        story.newest.becomes(JobStatus.RUNNING)
        story.run.suspend()
        assert story.run.status is JobStatus.RUNNING
        assert not story.run.cancelled
        story.stops()
        assert story.run.status is JobStatus.SUSPENDED
        assert story.run.suspension is not None
        assert story.run.suspension.requested_by_user
        assert not story.run.is_over
        assert len(story.made) == 1
        story.run.resume()
        assert story.run.status is JobStatus.STARTING
        assert story.run.suspension is None
        assert [attempt.id for attempt in story.made] == [7, 8]
        story.newest.becomes(JobStatus.RUNNING)
        story.newest.becomes(JobStatus.COMPLETED)
        story.newest.ends()
        assert story.over == 1
        assert [new for _, new in story.statuses] == [
            JobStatus.RUNNING,
            JobStatus.SUSPENDED,
            JobStatus.STARTING,
            JobStatus.RUNNING,
            JobStatus.COMPLETED,
        ]
        assert [old for old, _ in story.statuses] == [JobStatus.STARTING, *[new for _, new in story.statuses[:-1]]]

    looped(main)


@pytest.mark.parametrize("verb", ["suspend", "restart"])
def test_what_is_asked_of_a_starting_run_waits_until_it_runs(verb: str) -> None:
    async def main() -> None:
        story = Story()
        getattr(story.run, verb)()
        assert not story.newest.cancelled
        story.newest.becomes(JobStatus.RUNNING)
        story.stops()
        if verb == "suspend":
            assert story.run.status is JobStatus.SUSPENDED
        else:
            assert len(story.made) == 2
            story.newest.becomes(JobStatus.RUNNING)
            assert not story.newest.cancelled

    looped(main)


def test_a_run_that_is_suspended_while_it_restarts_begins_no_further_attempt() -> None:
    async def main() -> None:
        story = Story()
        story.newest.becomes(JobStatus.RUNNING)
        story.run.restart()
        story.newest.becomes(JobStatus.FAILED)
        assert story.run.status is JobStatus.STARTING
        story.run.suspend()
        story.newest.ends()
        assert story.run.status is JobStatus.SUSPENDED
        assert len(story.made) == 1

    looped(main)


@pytest.mark.parametrize("graceful", [True, False])
@pytest.mark.parametrize("when", ["starting", "stopping"])
def test_a_run_that_is_being_suspended_is_not_restarted(when: str, graceful: bool) -> None:
    async def main() -> None:
        story = Story()
        if when == "stopping":
            story.newest.becomes(JobStatus.RUNNING)
        story.run.suspend()
        with pytest.raises(JobStateError, match="is being suspended; cannot restart it"):
            story.run.restart(graceful=graceful)
        if when == "starting":
            story.newest.becomes(JobStatus.RUNNING)
        story.stops()
        assert story.run.status is JobStatus.SUSPENDED
        assert len(story.made) == 1

    looped(main)


@pytest.mark.parametrize("when", ["stopping", "stopped", "suspended"])
def test_cancelling_wins_over_suspending(when: str) -> None:
    async def main() -> None:
        story = Story()
        story.newest.becomes(JobStatus.RUNNING)
        story.run.suspend()
        if when == "stopping":
            story.run.cancel()
        story.newest.becomes(JobStatus.FAILED)
        if when == "stopped":
            story.run.cancel()
        story.newest.ends()
        if when == "suspended":
            assert story.over == 0
            story.run.cancel()
        assert (story.run.status, story.run.cancelled, story.run.failure) == (JobStatus.FAILED, True, None)
        assert story.told[-1] == (JobStatus.FAILED, None)
        assert story.run.is_over
        assert story.over == 1
        assert len(story.made) == 1

    looped(main)


def test_an_error_may_suspend_a_run_with_its_cause() -> None:
    async def main() -> None:
        story = Story(otherwise=Next.SUSPEND)
        story.newest.becomes(JobStatus.RUNNING)
        story.newest.becomes(JobStatus.FAILED, "the broker is away")
        story.newest.ends()
        assert story.run.status is JobStatus.SUSPENDED
        assert story.run.failure is None
        suspension = story.run.suspension
        assert suspension is not None
        assert not suspension.requested_by_user
        assert suspension.failure is not None
        assert suspension.failure.text == "the broker is away"
        story.run.resume()
        story.newest.becomes(JobStatus.RUNNING)
        story.run.suspend()
        story.stops()
        assert story.run.suspension is not None
        assert story.run.suspension.requested_by_user

    looped(main)


def test_what_does_not_go_with_the_status_is_refused() -> None:
    async def main() -> None:
        story = Story()
        with pytest.raises(JobStateError, match="is STARTING; only a suspended job can be resumed"):
            story.run.resume()
        story.newest.becomes(JobStatus.RUNNING)
        story.run.suspend()
        story.stops()
        for verb in ("suspend", "restart"):
            with pytest.raises(JobStateError, match=f"is SUSPENDED; cannot {verb} it"):
                getattr(story.run, verb)()
        story.run.resume()
        story.newest.becomes(JobStatus.RUNNING)
        story.run.cancel()
        with pytest.raises(JobStateError, match="being cancelled; cannot suspend it"):
            story.run.suspend()
        story.stops()
        with pytest.raises(JobStateError, match="is FAILED; cannot restart it"):
            story.run.restart()

    looped(main)


def test_a_listener_is_told_no_more_when_it_is_removed() -> None:
    async def main() -> None:
        story = Story()
        told: list[JobStatus] = []
        remove = story.run.add_status_listener(lambda _, new: told.append(new))
        story.newest.becomes(JobStatus.RUNNING)
        remove()
        remove()
        story.newest.becomes(JobStatus.COMPLETED)
        assert told == [JobStatus.RUNNING]

    looped(main)


@pytest.mark.parametrize("then", ["resumed", "cancelled"])
def test_a_run_that_was_suspended_when_its_member_ended_waits_with_its_cause(then: str) -> None:
    async def main() -> None:
        cause = failure("the broker is away")
        story = Story(starts=False)
        story.run.start_suspended(cause)
        assert story.run.status is JobStatus.SUSPENDED
        assert story.run.suspension is not None
        assert story.run.suspension.failure == cause
        assert not story.made
        assert (await story.run.metrics()).vertices == NO_METRICS.vertices
        if then == "cancelled":
            story.run.cancel()
            assert (story.run.status, story.run.cancelled) == (JobStatus.FAILED, True)
        else:
            story.run.resume()
            assert story.told[-1] == (JobStatus.STARTING, None)
            assert story.newest.is_started
            story.newest.becomes(JobStatus.RUNNING)
            story.newest.becomes(JobStatus.COMPLETED)
            story.newest.ends()
            assert story.told[-1] == (JobStatus.COMPLETED, None)
        assert (story.over, len(story.made), story.run.is_over) == (1, then == "resumed", True)

    looped(main)


@pytest.mark.parametrize("otherwise", [Next.END, Next.SUSPEND])
def test_no_attempt_follows_a_failed_one_that_is_still_being_stopped_when_its_run_is_cancelled(otherwise: Next) -> None:
    async def main() -> None:
        story = Story(attempts=2 if otherwise is Next.END else 1, otherwise=otherwise)
        story.newest.becomes(JobStatus.RUNNING)
        story.newest.failure = failure("a worker is gone")
        story.run.cancel()
        story.fails("a worker is gone")
        assert story.told == [(JobStatus.FAILED, "a worker is gone")]
        assert (len(story.made), story.over) == (1, 1)

    looped(main)


def test_a_run_of_a_lost_coordinator_goes_on_with_a_further_attempt() -> None:
    async def main() -> None:
        story = Story(starts=False, attempts_before=2)
        story.waits_for = "a connection"
        story.run.go_on("the coordinator is gone")
        assert (story.told[-1], story.made) == ((JobStatus.NOT_RUNNING, None), [])
        story.waits_for = ""
        story.run.reconsider()
        assert (story.run.attempt_count, story.newest.is_started) == (3, True)
        story.newest.becomes(JobStatus.RUNNING)
        story.newest.becomes(JobStatus.COMPLETED)
        story.newest.ends()
        assert (story.told[-1], story.over) == ((JobStatus.COMPLETED, None), 1)

    looped(main)
