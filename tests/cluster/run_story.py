"""A run whose attempts are in the hand of a test, in a loop whose time passes at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from shmjet.cluster.jobs.run import JobRun
from shmjet.cluster.jobs.run_parts import Next, RunPolicy, RunRequest, Told
from shmjet.cluster.jobs.snapshot import SnapshotRequest
from shmjet.cluster.protocol import Submission
from shmjet.core import JobStatus
from shmjet.execution.job_plan import JobShape
from shmjet.execution.messages import Failure
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
        self.waits_for = self.cannot_begin = self.cannot_follow = ""
        """What the next attempt waits for, and the errors that keep it from beginning or following."""
        self.told: list[tuple[JobStatus, str | None]] = []
        self.over = 0

        def make(run: JobRun, on_change: Told, on_over: Told) -> Any:
            if self.cannot_begin:
                raise RuntimeError(self.cannot_begin)
            self.made.append(Attempt(7 + len(self.made), on_change, on_over))
            return self.made[-1]

        def after_failure(run: JobRun, failure: Failure) -> Next:
            if self.cannot_follow:
                raise RuntimeError(self.cannot_follow)
            return Next.AGAIN if run.attempt_count < attempts else otherwise

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
            policy=RunPolicy(
                after_failure=after_failure,
                pause_before_next=lambda failed: pauses[failed - 1] if pauses else 0.0,
                waits_for=lambda _: self.waits_for,
            ),
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


def now() -> float:
    """Return the seconds that have passed; pauses only take time in this loop."""
    return asyncio.get_running_loop().time()


async def until(story: Story, attempts: int) -> None:
    while len(story.made) < attempts:
        await asyncio.sleep(0.5)
