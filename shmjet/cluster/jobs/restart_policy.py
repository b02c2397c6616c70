"""What follows an attempt that has failed: another one, soon or later, the suspension of the run, or its end. Pure."""

from __future__ import annotations

from shmjet.cluster.jobs.run_parts import Next
from shmjet.cluster.lifecycle_messages import RunSettings
from shmjet.execution.failure import MEMBER_LOST, is_loss
from shmjet.execution.messages import Failure

MOST_ATTEMPTS = 10
"""Attempts without a new snapshot after which a run is not restarted any more."""
DAMAGED = "DamagedSnapshotError"
"""The type of an error that says that a snapshot cannot be restored."""


def next_after(failure: Failure, settings: RunSettings, failed_attempts: int) -> Next:
    """Say what follows an attempt that has failed.

    A lost member, or connection to one, restarts a job with `auto_scaling`, from its last snapshot or from the start.
    Without `auto_scaling` it suspends a job with a guarantee, and fails one without.

    Args:
        failure: why it has failed.
        settings: of the job.
        failed_attempts: how many have failed since the last new snapshot, this one included.
    """
    if failure.kind == MEMBER_LOST and not failure.restartable:
        is_restarted = settings.auto_scaling
        is_suspended = settings.suspend_on_failure or (settings.has_guarantee and not settings.auto_scaling)
    else:
        loss = is_loss(failure) or failure.type_name == DAMAGED
        is_restarted = failure.restartable or (loss and settings.has_guarantee)
        is_suspended = settings.suspend_on_failure
    if is_restarted and failed_attempts < MOST_ATTEMPTS:
        return Next.AGAIN
    return Next.SUSPEND if is_suspended else Next.END


def next_after_losing_all(settings: RunSettings, *, has_begun_before: bool) -> Next:
    """Say what follows when all snapshots of a run are lost: it does not begin anew by itself.

    Args:
        settings: of the job.
        has_begun_before: whether it may have made something visible: it has taken a snapshot, or another coordinator
            has begun it. Otherwise it cannot begin from the exported snapshot that it names.
    """
    return Next.SUSPEND if has_begun_before or settings.suspend_on_failure else Next.END


def pause_before_next(failed_attempts: int, unit: float) -> float:
    """Say for how many seconds a run waits before its next attempt.

    There is none after a first failure: a job that has lost a worker goes on at once. Further pauses without a new
    snapshot double, so that what an attempt needs may be away for a while: `MOST_ATTEMPTS` take 255 units.

    Args:
        failed_attempts: how many have failed since the last new snapshot.
        unit: the first pause.
    """
    return 0.0 if failed_attempts < 2 else unit * 2 ** (failed_attempts - 2)
