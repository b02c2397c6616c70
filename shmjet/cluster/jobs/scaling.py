"""What a run does when members join and go: whether an attempt of it may begin, and when a join restarts it.

Jet's rules, as `docs/design/0033-jobs-outlive-members.md` has them. What follows a lost member, `restart_policy` says.
Pure: views and time go in.
"""

from __future__ import annotations

from collections.abc import Collection

from shmjet.cluster.lifecycle_messages import RunSettings

RETRY_S = 2.0
"""How long after it was due a join is looked at again, when the run could not be restarted."""


class Scaling:
    """One run.

    Args:
        settings: of its job.
        size: of the cluster at its submission.
        delay: seconds from the last join to the restart.
        quorum: that it had with another coordinator; 0 for a new run.
    """

    def __init__(self, settings: RunSettings, size: int, delay: float, quorum: int = 0) -> None:
        self._settings = settings
        self._delay = delay
        self._members: frozenset[str] = frozenset()
        self._due_at: float | None = None
        self.quorum = quorum
        """How many members there must be for an attempt; 0 for any number."""
        if settings.split_brain_protection and not quorum:
            self.quorum = _quorum_of(size)

    @property
    def due_at(self) -> float | None:
        """When a join is to be looked at; None when there is none."""
        return self._due_at

    def begins(self, members: Collection[str]) -> None:
        """Take that an attempt begins on these members."""
        self._members = frozenset(members)

    def has_part_on(self, member: str) -> bool:
        """Say whether the newest attempt is, or was, on a member too."""
        return member in self._members

    def members_joined(self, members: Collection[str], now: float) -> None:
        """Take that members have joined.

        Args:
            members: all that there are now.
            now: in seconds.
        """
        if self._settings.split_brain_protection:
            self.quorum = max(self.quorum, _quorum_of(len(members)))
        if self._settings.auto_scaling:
            self._due_at = now + self._delay

    def take_due(self, members: Collection[str], now: float, *, is_running: bool) -> bool:
        """Say whether the run is to be restarted now, because members have joined.

        Args:
            members: all that there are now.
            now: in seconds.
            is_running: whether an attempt runs; otherwise this is looked at again `RETRY_S` later.
        """
        if self._due_at is None or now < self._due_at:
            return False
        self._due_at = None
        if not self._members or self._members == frozenset(members):
            return False
        if not is_running:
            self._due_at = now + RETRY_S
            return False
        return True

    def lacks_quorum(self, members: Collection[str]) -> str:
        """Say what an attempt waits for where there are too few members; empty where there are enough."""
        if len(members) >= self.quorum:
            return ""
        return (
            f"{self.quorum} members, which split_brain_protection asks for; the cluster has {len(members)} on this side"
        )


def _quorum_of(size: int) -> int:
    """Return how many of so many members are more than half."""
    return size // 2 + 1
