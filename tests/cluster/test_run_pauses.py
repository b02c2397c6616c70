"""The time between the attempts of a run: pauses after failures, and what an attempt waits for."""

from __future__ import annotations

import asyncio

import pytest

from shmjet.cluster.jobs.attempt_history import LASTING_S
from shmjet.cluster.jobs.run_parts import Next
from shmjet.core import JobStatus
from shmjet.execution.failure import failure_text
from tests.cluster.run_story import Story, WithSnapshots, looped, now, until


def test_the_last_attempt_tells_how_many_have_failed_before_it() -> None:
    async def main() -> None:
        for otherwise in (Next.END, Next.SUSPEND):
            story = Story(attempts=3, otherwise=otherwise, lineage=WithSnapshots())
            for _ in range(3):
                story.newest.becomes(JobStatus.FAILED, "the broker is away")
                story.newest.ends()
            suspension = story.run.suspension
            last = story.run.failure if suspension is None else suspension.failure
            assert last is not None
            assert last.attempts == 3
            text = failure_text(last, "'j'")
            assert "\nIt was attempt 3 without a new snapshot, and the last one.\n" in text
            assert text.endswith("ValueError: the broker is away")
        single = Story()
        single.newest.becomes(JobStatus.FAILED, "bad")
        assert single.run.failure is not None
        assert single.run.failure.attempts == 0

    looped(main)


def test_attempts_that_fail_one_after_the_other_are_paused_between_and_a_new_snapshot_ends_that() -> None:
    async def main() -> None:
        lineage = WithSnapshots()
        story = Story(attempts=9, lineage=lineage, pauses=(0, 10, 20))
        story.fails()
        assert (len(story.made), story.run.status) == (2, JobStatus.STARTING)
        for attempts, pause in ((3, 10), (4, 20)):
            begin = now()
            story.fails()
            assert (story.run.status, story.run.failure, story.run.is_over) == (JobStatus.NOT_RUNNING, None, False)
            await until(story, attempts)
            assert pause <= now() - begin < pause + 1
            assert story.newest.is_started
            assert story.run.status is JobStatus.STARTING
        lineage.last = object()  # type: ignore[assignment]
        story.fails()
        assert (len(story.made), story.run.status) == (5, JobStatus.STARTING)
        assert story.over == 0

    looped(main)


def test_listeners_hear_of_a_pause() -> None:
    async def main() -> None:
        story = Story(attempts=2, pauses=(10,))
        story.newest.becomes(JobStatus.RUNNING)
        story.fails()
        await until(story, 2)
        story.newest.becomes(JobStatus.RUNNING)
        assert [new for _, new in story.statuses] == [
            JobStatus.RUNNING,
            JobStatus.STARTING,
            JobStatus.NOT_RUNNING,
            JobStatus.STARTING,
            JobStatus.RUNNING,
        ]

    looped(main)


def test_a_run_is_cancelled_in_a_pause_at_once_and_nothing_of_it_is_left() -> None:
    async def main() -> None:
        story = Story(attempts=9, pauses=(10,))
        story.fails()
        story.run.cancel()
        assert (story.run.status, story.run.cancelled, story.run.failure) == (JobStatus.FAILED, True, None)
        assert (story.over, story.run.is_over, story.told[-1]) == (1, True, (JobStatus.FAILED, None))
        await asyncio.sleep(100)
        assert (len(story.made), story.over) == (1, 1)

    looped(main)


def test_a_run_is_suspended_in_a_pause_at_once_and_resumed_without_one() -> None:
    async def main() -> None:
        story = Story(attempts=9, pauses=(10,))
        story.fails()
        story.run.suspend()
        assert story.run.status is JobStatus.SUSPENDED
        assert story.run.suspension is not None
        assert story.run.suspension.requested_by_user
        await asyncio.sleep(100)
        assert len(story.made) == 1
        story.run.resume()
        assert (len(story.made), story.newest.is_started, story.run.failed_attempts) == (2, True, 0)
        story.newest.becomes(JobStatus.RUNNING)
        assert not story.newest.cancelled

    looped(main)


@pytest.mark.parametrize("when", ["before", "in"])
def test_a_run_is_restarted_without_a_pause(when: str) -> None:
    async def main() -> None:
        story = Story(attempts=9, pauses=(10, 20))
        if when == "before":
            story.run.restart()
        story.fails()
        if when == "in":
            story.run.restart()
        assert (len(story.made), story.newest.is_started, story.run.status) == (2, True, JobStatus.STARTING)
        await asyncio.sleep(100)
        story.newest.becomes(JobStatus.RUNNING)
        assert (len(story.made), story.newest.cancelled) == (2, False)

    looped(main)


def test_an_attempt_begins_when_what_it_waits_for_is_there() -> None:
    async def main() -> None:
        story = Story(attempts=9)
        story.newest.becomes(JobStatus.RUNNING)
        story.waits_for = "a third member"
        story.fails()
        assert (len(story.made), story.run.status, story.run.waits_for) == (1, JobStatus.NOT_RUNNING, "a third member")
        told = len(story.told)
        story.run.reconsider()
        assert (len(story.made), len(story.told)) == (1, told)
        story.waits_for = ""
        story.run.reconsider()
        assert (len(story.made), story.run.status, story.run.waits_for) == (2, JobStatus.STARTING, "")
        story.run.reconsider()
        assert len(story.made) == 2

    looped(main)


@pytest.mark.parametrize("then", ["cancelled", "suspended", "restarted"])
def test_what_is_asked_of_a_run_that_waits_is_done_at_once(then: str) -> None:
    async def main() -> None:
        story = Story(attempts=9)
        story.waits_for = "a third member"
        story.fails()
        if then == "cancelled":
            story.run.cancel()
            assert (story.run.status, story.over) == (JobStatus.FAILED, 1)
        elif then == "suspended":
            story.run.suspend()
            assert story.run.status is JobStatus.SUSPENDED
            story.run.resume()
            assert story.run.status is JobStatus.NOT_RUNNING
        else:
            story.run.restart()
            assert story.run.status is JobStatus.NOT_RUNNING
        story.waits_for = ""
        story.run.reconsider()
        assert len(story.made) == (1 if then == "cancelled" else 2)

    looped(main)


def test_an_attempt_without_snapshots_that_has_lasted_was_not_in_vain() -> None:
    async def main() -> None:
        story = Story(attempts=9)
        for attempts in range(2, 5):
            await asyncio.sleep(LASTING_S)
            story.fails()
            assert (len(story.made), story.run.failed_attempts) == (attempts, 1)
        story.fails()
        assert story.run.failed_attempts == 2

    looped(main)
