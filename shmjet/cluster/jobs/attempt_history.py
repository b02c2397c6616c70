"""What a run remembers of its attempts: how many have failed one after the other, and its last restart. No clock."""

from __future__ import annotations

import msgspec

from shmjet.cluster.lifecycle_messages import LastRestart, LastSnapshot
from shmjet.execution.messages import Failure

LASTING_S = 60.0
"""How long an attempt of a job without snapshots has lasted for the count of failed ones to begin anew after it."""


class FailedAttempts:
    """Counts the attempts of a run that have failed since its last new snapshot, or since it was resumed."""

    def __init__(self) -> None:
        self.count = 0
        self._given_up_after = 0
        """How many attempts had failed when the run was given up; 0 while it is not."""
        self._counted_from: LastSnapshot | None = None
        """The last snapshot when `count` was 0."""

    def add(self, last_snapshot: LastSnapshot | None, *, has_lasted: bool) -> None:
        """Count an attempt that has failed.

        Args:
            last_snapshot: of the run; a new one has it counted from the beginning.
            has_lasted: so does an attempt without snapshots that has lasted for `LASTING_S`.
        """
        if last_snapshot is not self._counted_from or has_lasted:
            self.count, self._counted_from = 0, last_snapshot
        self.count += 1

    def give_up(self) -> None:
        """Take that no attempt follows the failed ones."""
        if self.count > 1:
            self._given_up_after = self.count

    def forget(self) -> None:
        """Begin anew: the run is resumed."""
        self.count = self._given_up_after = 0

    def counted_in(self, failure: Failure) -> Failure:
        """Return the failure of a run with the number of attempts after which it was given up."""
        return msgspec.structs.replace(failure, attempts=self._given_up_after)


class RestartHistory:
    """Why a run was restarted last, and how long that took."""

    def __init__(self) -> None:
        self.last: LastRestart | None = None
        self.is_under_way = False
        """Whether the attempt before has failed, or was told to stop, for a restart that has not come to its end."""
        self._began_at = 0.0

    def begins(self, why: str, now: float) -> None:
        """Take that a restart begins, unless one is under way."""
        if not self.is_under_way:
            self.is_under_way, self._began_at = True, now
        self.last = LastRestart(why)

    def ends(self, now: float) -> None:
        """Take that an attempt runs, after a restart that is under way."""
        if self.last is not None and self.is_under_way:
            self.last, self.is_under_way = LastRestart(self.last.cause, now - self._began_at), False
