"""What clients are told of a suspension."""

from __future__ import annotations

from typing import Protocol

from shmjet.cluster.jobs.run_parts import RunSuspension
from shmjet.cluster.lifecycle_messages import SuspensionCause
from shmjet.cluster.protocol import Submission
from shmjet.execution.failure import failure_text


class Suspendable(Protocol):
    """A run (`shmjet.cluster.jobs.run.JobRun`)."""

    @property
    def job(self) -> Submission: ...
    @property
    def suspension(self) -> RunSuspension | None: ...


def cause_of(run: Suspendable) -> SuspensionCause | None:
    """Return why a run is suspended; None while it is not."""
    suspension = run.suspension
    if suspension is None:
        return None
    name = repr(run.job.name) if run.job.name else run.job.job_id
    text = None if suspension.failure is None else failure_text(suspension.failure, name)
    return SuspensionCause(suspension.requested_by_user, text)
