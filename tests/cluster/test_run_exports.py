"""A run whose snapshot is exported: as it runs, before it does, while it is stopped, and with its end."""

from __future__ import annotations

import asyncio

import pytest

from shmjet.cluster.jobs.attempt_snapshots import STOPPED
from shmjet.cluster.jobs.run_parts import Next
from shmjet.core import JobStateError, JobStatus
from shmjet.data.errors import ShmjetError
from tests.cluster.run_story import Story, WithSnapshots, failure, looped, until


def test_a_client_that_waits_for_the_export_of_a_cancelled_run_hears_that_it_has_failed() -> None:
    async def main() -> None:
        story = Story(lineage=WithSnapshots())
        story.newest.becomes(JobStatus.RUNNING)
        export = asyncio.ensure_future(story.run.export_snapshot("last", cancel=True))
        await asyncio.sleep(0)
        (done,) = story.newest.snapshots
        story.run.cancel()
        done(STOPPED)
        with pytest.raises(JobStateError, match="is being stopped"):
            await asyncio.wait_for(export, 60)
        story.stops()
        assert (story.run.status, story.run.cancelled) == (JobStatus.FAILED, True)

    looped(main)


def test_a_run_that_an_error_is_about_to_suspend_is_exported_then_and_not_cancelled() -> None:
    async def main() -> None:
        story = Story(otherwise=Next.SUSPEND, lineage=WithSnapshots())
        story.newest.becomes(JobStatus.RUNNING)
        story.newest.becomes(JobStatus.FAILED, "no such key")
        with pytest.raises(JobStateError, match="is being stopped; cannot export"):
            await asyncio.wait_for(story.run.export_snapshot("last", cancel=True), 60)
        export = asyncio.ensure_future(story.run.export_snapshot("last"))
        await asyncio.sleep(1)
        story.newest.ends()
        with pytest.raises(JobStateError, match="was suspended before its first snapshot"):
            await export
        assert story.run.status is JobStatus.SUSPENDED

    looped(main)


@pytest.mark.parametrize(
    "how", ["starting", "restarted", "lost a worker", "lost a worker while it was saved", "paused"]
)
def test_an_export_waits_until_the_run_runs_again(how: str) -> None:
    async def main() -> None:
        story = Story(attempts=9, lineage=WithSnapshots(), pauses=(10,) * 9 if how == "paused" else ())
        if how != "starting":
            story.newest.becomes(JobStatus.RUNNING)
        if how == "restarted":
            story.run.restart(graceful=False)
        elif how == "lost a worker":
            story.newest.becomes(JobStatus.FAILED, "a worker is gone")
        elif how == "paused":
            story.fails()
        export = asyncio.ensure_future(story.run.export_snapshot("last"))
        await asyncio.sleep(1)
        if how == "lost a worker while it was saved":
            (done,) = story.newest.snapshots
            story.newest.failure = failure("a worker is gone")
            done(STOPPED)
            await asyncio.sleep(1)
            story.fails("a worker is gone")
        else:
            assert not story.newest.snapshots
        if how == "restarted":
            story.stops()
        elif how == "lost a worker":
            story.newest.ends()
        await until(story, 1 if how == "starting" else 2)
        story.newest.becomes(JobStatus.RUNNING)
        await asyncio.sleep(0)
        (done,) = story.newest.snapshots
        done("no room")
        with pytest.raises(ShmjetError, match="no room"):
            await export

    looped(main)


def test_an_export_does_not_wait_for_ever() -> None:
    async def main() -> None:
        story = Story(lineage=WithSnapshots())
        with pytest.raises(JobStateError, match="is STARTING, and has not run for 60 s; cannot export"):
            await story.run.export_snapshot("last")

    looped(main)


def test_cancelling_with_an_export_waits_for_the_end_of_the_run() -> None:
    async def main() -> None:
        story = Story(lineage=WithSnapshots())
        story.newest.becomes(JobStatus.RUNNING)
        export = asyncio.ensure_future(story.run.export_snapshot("last", cancel=True))
        await asyncio.sleep(0)
        (done,) = story.newest.snapshots
        done(None)
        await asyncio.sleep(1)
        assert not export.done()
        story.newest.left_off = True
        story.newest.becomes(JobStatus.FAILED)
        with pytest.raises(ShmjetError, match="was removed as soon as it was there"):  # by this test's lineage
            await export
        assert story.run.status is JobStatus.FAILED

    looped(main)


def test_cancelling_with_an_export_waits_until_the_run_has_started() -> None:
    async def main() -> None:
        story = Story(attempts=2, lineage=WithSnapshots())
        export = asyncio.ensure_future(story.run.export_snapshot("last", cancel=True))
        await asyncio.sleep(0)
        story.newest.becomes(JobStatus.FAILED, "a worker is gone")
        story.newest.ends()
        assert not story.newest.snapshots
        story.newest.becomes(JobStatus.RUNNING)
        (done,) = story.newest.snapshots
        assert not export.done()
        done("no room")
        with pytest.raises(ShmjetError, match=r"no snapshot 'last' .*: no room"):
            await asyncio.wait_for(export, 60)
        assert story.run.status is JobStatus.RUNNING

    looped(main)


@pytest.mark.parametrize("ends", ["runs again", "is cancelled"])
def test_cancelling_with_an_export_waits_for_the_end_of_a_restart(ends: str) -> None:
    async def main() -> None:
        story = Story(lineage=WithSnapshots())
        story.newest.becomes(JobStatus.RUNNING)
        story.run.restart(graceful=False, reason="members have joined the cluster")
        export = asyncio.ensure_future(story.run.export_snapshot("last", cancel=True))
        await asyncio.sleep(0)
        assert not export.done()
        if ends == "is cancelled":
            story.run.cancel()
            story.stops()
            with pytest.raises(JobStateError, match="cannot export a snapshot of it"):
                await asyncio.wait_for(export, 60)
            return
        story.stops()
        await until(story, 2)
        await asyncio.sleep(0)
        story.newest.becomes(JobStatus.RUNNING)
        (done,) = story.newest.snapshots
        done("no room")
        with pytest.raises(ShmjetError, match=r"no snapshot 'last' .*: no room"):
            await asyncio.wait_for(export, 60)

    looped(main)


@pytest.mark.parametrize("how", ["cancelled", "cancelled between", "failed", "suspended"])
def test_a_client_that_waits_to_cancel_with_an_export_hears_when_nothing_comes_of_it(how: str) -> None:
    async def main() -> None:
        again = how == "cancelled between"
        story = Story(attempts=1 + again, otherwise=Next.SUSPEND if how == "suspended" else Next.END)
        story.run.lineage = WithSnapshots()  # type: ignore[assignment]
        if again:
            story.newest.becomes(JobStatus.RUNNING)
            story.run.restart(graceful=False)
            story.newest.becomes(JobStatus.FAILED)
        export = asyncio.ensure_future(story.run.export_snapshot("last", cancel=True))
        await asyncio.sleep(0)
        if how.startswith("cancelled"):
            story.run.cancel()
        else:
            story.newest.becomes(JobStatus.FAILED, "no such key")
            story.newest.ends()
        with pytest.raises(JobStateError, match="has ended, or is being stopped"):
            await asyncio.wait_for(export, 60)

    looped(main)


def test_a_cancellation_with_an_export_waits_for_the_end_of_a_pause() -> None:
    async def main() -> None:
        story = Story(attempts=9, lineage=WithSnapshots(), pauses=(10,))
        story.fails()
        export = asyncio.ensure_future(story.run.export_snapshot("last", cancel=True))
        await until(story, 2)
        story.newest.becomes(JobStatus.RUNNING)
        (done,) = story.newest.snapshots
        done("no room")
        with pytest.raises(ShmjetError, match="no room"):
            await export

    looped(main)
