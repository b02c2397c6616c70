"""For how long what is in a member's store counts without the member having said so again.

A member that stands still is dropped by the others, and they go on with its partitions; but it learns that only when it
moves again. So nothing that is read here is given out unless the member has turned within a time that is shorter than
any after which the others drop it. It notes its turns in shared memory, for the processes that use its store directly.
After it has stood still it waits: what has happened meanwhile is waiting for it, too.
"""

from __future__ import annotations

from shmjet.grid.commit_counters import TURNED
from shmjet.grid.times import now

LEASE_NS = 700_000_000
"""The link speaks for its member for as long, and the others are silent for longer before they drop it."""
RENEW_S = 0.15


def holds(words: memoryview) -> bool:
    """Say whether a member has turned lately, by the numbers of its store's first environment."""
    return bool(now() - words[TURNED] < LEASE_NS)


class Lease:
    """The side of the member.

    Args:
        words: numbers of the store's first environment.
    """

    def __init__(self, words: memoryview) -> None:
        self._words = words
        self._last = now()
        self._still_until = 0

    def renew(self, moment: int, *, is_member: bool) -> None:
        """Note a turn of the member.

        Args:
            moment: `times.now`.
            is_member: whether the others count on it, as far as it knows.
        """
        if moment - self._last >= LEASE_NS:
            self._still_until = moment + LEASE_NS
        self._last = moment
        if is_member and moment >= self._still_until:
            self._words[TURNED] = moment
