"""A run as a chain of attempts: what clients see of it, whatever becomes of each attempt."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from shmjet.cluster.jobs.attempt_snapshots import STOPPED
from shmjet.cluster.jobs.run import ANNOUNCE_S, LASTING_S, JobRun
from shmjet.cluster.jobs.run_parts import Next, RunRequest, Told
from shmjet.cluster.jobs.snapshot import SnapshotRequest
from shmjet.cluster.protocol import Submission
from shmjet.core import JobStateError, JobStatus
from shmjet.data.errors import ShmjetError
from shmjet.execution.failure import failure_text
from shmjet.execution.job_plan import JobShape
from shmjet.execution.messages import Failure
from shmjet.execution.metrics import NO_METRICS
from shmjet.ipc.inline_or_memfd import InlineOrMemfd
from tests.loops import skipping

JOB = Submission("job", None, JobShape([], []), b"", b"", {}, [])


def failure(text: str) -> Failure:
    return Failure("error", None, -1, -1, 1, "ValueError", text, [], None)


class Attempt:
    """An attempt in the test's hand."""

    def __init__(self, number: int, on_change: Told, on_over: Told) -> None:
        self.id = number
        self.status = JobStatus.STARTING
        self.failure: Failure | None = None
        self.cancelled = self.is_over = self.is_started = self.left_off = False
        self.may_be_followed = True
        self.on_change, self.on_over = on_change, on_over
        self.snapshots: list[Callable[[str | None], None]] = []

    def start(self) -> None:
        self.is_started = True

    def cancel(self) -> None:
        self.cancelled = True

    def take_snapshot(self, request: SnapshotRequest, lineage: Any, done: Callable[[str | None], None]) -> None:
        self.snapshots.append(done)

    def becomes(self, status: JobStatus, text: str | None = None) -> None:
        self.status = status
        self.failure = None if text is None else failure(text)
        self.on_change(self)

    def ends(self) -> None:
        self.is_over = True
        self.on_over(self)


class Story:
    """A run, the attempts that it makes, and what its client is told."""

    def __init__(
        self,
        *,
        attempts: int = 1,
        otherwise: Next = Next.END,
        lineage: Any = None,
        starts: bool = True,
        pauses: Sequence[float] = (),
        attempts_before: int = 0,
    ) -> None:
        self.made: list[Attempt] = []
        self.waits_for = ""
        self.told: list[tuple[JobStatus, str | None]] = []
        self.over = 0

        def make(run: JobRun, on_change: Told, on_over: Told) -> Any:
            self.made.append(Attempt(7 + len(self.made), on_change, on_over))
            return self.made[-1]

        self.statuses: list[tuple[JobStatus, JobStatus]] = []

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
            after_failure=lambda run, failure: Next.AGAIN if run.attempt_count < attempts else otherwise,
            pause_before_next=lambda failed: pauses[failed - 1] if pauses else 0.0,
            waits_for=lambda _: self.waits_for,
            attempts_before=attempts_before,
            lineage=lineage,
        )
        self.run.add_status_listener(lambda old, new: self.statuses.append((old, new)))
        if starts:
            self.run.start()

    @property
    def newest(self) -> Attempt:
        return self.made[-1]

    def fails(self, text: str = "the broker is away") -> None:
        """Have the newest attempt fail, and let go."""
        self.newest.becomes(JobStatus.FAILED, text)
        self.newest.ends()

    def stops(self) -> None:
        """Have the newest attempt stop as it was told, and let go."""
        assert self.newest.cancelled
        self.newest.becomes(JobStatus.FAILED)
        self.newest.ends()


class WithSnapshots:
    """The lineage of a job with a guarantee that has no snapshot yet."""

    takes_snapshots = True
    last = None

    async def export(self, name: str, least_s: float, token: str = "") -> bool:
        return False

    def exported(self, name: str) -> None:
        return None


def looped(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    skipping(story())


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


def now() -> float:
    """Return the seconds that have passed; pauses only take time in this loop."""
    return asyncio.get_running_loop().time()


async def until(story: Story, attempts: int) -> None:
    while len(story.made) < attempts:
        await asyncio.sleep(0.5)


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
