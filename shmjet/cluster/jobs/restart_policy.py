"""What follows an attempt that has failed: another one, the suspension of the run, or its end. Pure."""

from __future__ import annotations

from shmjet.cluster.jobs.run import Next
from shmjet.cluster.lifecycle_messages import RunSettings
from shmjet.execution.failure import is_loss
from shmjet.execution.messages import Failure

MOST_ATTEMPTS = 10
"""Attempts without a new snapshot after which a run is not restarted any more."""
DAMAGED = "DamagedSnapshotError"
"""The type of an error that says that a snapshot cannot be restored."""


def next_after(failure: Failure, settings: RunSettings, failed_attempts: int) -> Next:
    """Say what follows an attempt that has failed.

    Args:
        failure: why it has failed.
        settings: of the job.
        failed_attempts: how many have failed since the last new snapshot, this one included.
    """
    loss = is_loss(failure) or failure.type_name == DAMAGED
    if (failure.restartable or (loss and settings.has_guarantee)) and failed_attempts < MOST_ATTEMPTS:
        return Next.AGAIN
    return Next.SUSPEND if settings.suspend_on_failure else Next.END
