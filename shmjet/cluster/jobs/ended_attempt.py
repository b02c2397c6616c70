"""What is kept of an attempt that has ended everywhere: its outcome, and the metrics that clients may still ask for.

A coordinator remembers a thousand runs that have ended. So nothing in here leads to a plan, an arena or a process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import msgspec

from shmjet.cluster.jobs.attempt_snapshots import STOPPED
from shmjet.cluster.jobs.lineage import Lineage
from shmjet.cluster.jobs.snapshot import SnapshotRequest
from shmjet.cluster.membership.views import Peer
from shmjet.cluster.merged_metrics import merge_metrics
from shmjet.core import JobStatus
from shmjet.execution.failure import without_exception
from shmjet.execution.messages import Failure
from shmjet.execution.metrics import NO_METRICS, Metrics


class EndedAttempt(msgspec.Struct, kw_only=True):
    """An attempt of which nothing is left.

    Args:
        id: of the attempt.
        status: its last one.
        failure: the first error, if there was one.
        cancelled: it was asked to end.
        may_be_followed: it has failed before anything may have been made visible.
        left_off: it has ended with a terminal snapshot.
        members: that took part; the first has coordinated it.
        metrics_of: make the last metrics of members, by their identities.
        started_at: when it was asked for, in seconds since 1970.
    """

    id: int
    status: JobStatus
    failure: Failure | None
    cancelled: bool
    may_be_followed: bool
    left_off: bool
    members: tuple[Peer, ...]
    metrics_of: dict[str, Callable[[], Metrics]]
    started_at: float

    @property
    def is_over(self) -> bool:
        """It is."""
        return True

    @property
    def snapshot_waits_for(self) -> list[str]:
        """No snapshot waits for anything."""
        return []

    def start(self) -> None:
        """Do nothing: it has ended."""

    def cancel(self) -> None:
        """Do nothing: it has ended."""

    def take_snapshot(self, request: SnapshotRequest, lineage: Lineage, done: Callable[[str | None], None]) -> None:
        """Say that it comes too late."""
        done(STOPPED)

    def forget_exception(self) -> None:
        """Keep the text of its failure only."""
        if self.failure is not None:
            self.failure = without_exception(self.failure)

    async def metrics(self) -> Metrics:
        """Return the metrics of all members, as they were at the end."""
        found = {uuid: final() for uuid, final in self.metrics_of.items()}
        return metrics_of_all(self.members, found, self.started_at)

    async def own_metrics(self) -> Metrics:
        """Return those of the coordinator's part alone."""
        final = self.metrics_of.get(self.members[0].uuid) if self.members else None
        return NO_METRICS if final is None else final()


def unbegun(run: int) -> EndedAttempt:
    """Return what stands for the attempt of a run of which none has begun here."""
    return EndedAttempt(
        id=run,
        status=JobStatus.STARTING,
        failure=None,
        cancelled=False,
        may_be_followed=False,
        left_off=False,
        members=(),
        metrics_of={},
        started_at=time.time(),
    )


def metrics_of_all(members: tuple[Peer, ...], found: Mapping[str, Metrics], started_at: float) -> Metrics:
    """Return the metrics of an attempt.

    Args:
        members: that take part.
        found: what is known of each, by its identity.
        started_at: when the attempt was asked for, in seconds since 1970.
    """
    if not members:
        return NO_METRICS
    if len(members) == 1:
        return found.get(members[0].uuid, NO_METRICS)
    return merge_metrics([(peer.address, found[peer.uuid]) for peer in members if peer.uuid in found], started_at)
