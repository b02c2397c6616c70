"""Runs that have ended under a coordinator that is gone, as the present one tells of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from shmjet.cluster.lifecycle_messages import LastRestart, LastSnapshot
from shmjet.cluster.membership.run_messages import EndedRun, RunEnd, RunOrigin
from shmjet.cluster.protocol import Submission
from shmjet.core import JobStatus
from shmjet.execution.messages import Failure


class PastRun(msgspec.Struct, frozen=True, eq=False):
    """What is known of such a run: all that clients are told of one, but its metrics and its snapshots.

    Args:
        origin: of its record, without code.
        attempt_count: attempts that were begun.
        end: its outcome.
    """

    origin: RunOrigin
    attempt_count: int
    end: RunEnd

    @property
    def id(self) -> int:
        """Its number."""
        return self.origin.run

    @property
    def job(self) -> Submission:
        """What it was of, without code."""
        return self.origin.job

    @property
    def token(self) -> str:
        """Of the request that started it."""
        return self.origin.token

    @property
    def status(self) -> JobStatus:
        """How it ended."""
        return JobStatus(self.end.status)

    @property
    def failure(self) -> Failure | None:
        """What it failed with."""
        return self.end.failure

    @property
    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return self.end.cancelled

    @property
    def started_at(self) -> float:
        """When it was asked for, in seconds since 1970."""
        return self.origin.started_at

    @property
    def completed_at(self) -> float | None:
        """When it ended."""
        return self.end.completed_at

    @property
    def member_addresses(self) -> list[str]:
        """Where the members were that took part in its last attempt, the coordinator first."""
        return self.end.members

    @property
    def suspension(self) -> None:
        """It is not suspended."""
        return

    @property
    def waits_for(self) -> str:
        """It waits for nothing."""
        return ""

    @property
    def last_snapshot(self) -> LastSnapshot | None:
        """Not known any more."""
        return None

    @property
    def last_restart(self) -> LastRestart | None:
        """Not known any more."""
        return None


def past_runs(ended: Iterable[EndedRun], but: Collection[int]) -> list[PastRun]:
    """Return runs that have ended, as far as their origins are known.

    Args:
        ended: these.
        but: the numbers of those to leave out.
    """
    return [
        PastRun(run.origin, run.state.attempts, run.state.end)
        for run in ended
        if run.run not in but and run.origin is not None and run.state.end is not None
    ]
