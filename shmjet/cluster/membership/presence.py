"""The presence of a view's members as one member sees it: heard, silent, dead, gone with a goodbye, or accused.

A part of `membership`; knows nothing of how views change. No clock in here.
"""

from __future__ import annotations

from collections.abc import Iterable

from shmjet.cluster.membership.failure_detector import DetectorSettings, FailureDetector
from shmjet.cluster.membership.views import Peer


class Presence:
    """What is known of the other members of a view.

    Args:
        detector: how patient to be with them.
        complaint_grace: seconds for which a member must not hear another before the younger of the two has to go.
    """

    def __init__(self, detector: DetectorSettings, complaint_grace: float) -> None:
        self._settings = detector
        self._grace = complaint_grace
        self._detectors: dict[str, FailureDetector] = {}
        self._dead: set[str] = set()
        self._left: set[str] = set()
        self._complaints: dict[tuple[str, str], float] = {}

    def follow(self, others: Iterable[Peer], now: float) -> None:
        """Take the other members of a new view; what is known of staying members is kept, but for complaints."""
        uuids = {peer.uuid for peer in others}
        self._detectors = {
            uuid: self._detectors.get(uuid) or FailureDetector(self._settings, now) for uuid in sorted(uuids)
        }
        self._dead &= uuids
        self._left &= uuids
        self._complaints.clear()

    def excuse_all(self, now: float) -> None:
        """Start every silence anew: we were away, so we cannot know who spoke."""
        for detector in self._detectors.values():
            detector.excuse(now)
        self._complaints.clear()

    def heard(self, uuid: str, now: float) -> None:
        """Note a sign of life."""
        if uuid in self._detectors:
            self._detectors[uuid].heard(now)
            self._dead.discard(uuid)

    def complains(self, uuid: str, of: Iterable[str], now: float) -> None:
        """Note which members a member does not hear; the members that it no longer names it hears again."""
        told = {(uuid, accused) for accused in of}
        for pair in [pair for pair in self._complaints if pair[0] == uuid and pair not in told]:
            del self._complaints[pair]
        for pair in told:
            self._complaints.setdefault(pair, now)

    def is_dead(self, uuid: str) -> None:
        """Note that a member's process is known to have ended."""
        self._dead.add(uuid)

    def has_left(self, uuid: str) -> None:
        """Note a goodbye."""
        self._left.add(uuid)

    def said_goodbye(self, uuid: str) -> bool:
        """Say whether a member has."""
        return uuid in self._left

    def is_certainly_gone(self, uuid: str) -> bool:
        """Say whether a member is known to be dead or to have left; it does not count in a vote."""
        return uuid in self._dead or uuid in self._left

    def is_silent(self, uuid: str, now: float) -> bool:
        """Say whether a member is dead or has not been heard for too long."""
        return uuid in self._dead or self._detectors[uuid].suspects(now)

    def is_gone(self, uuid: str, now: float) -> bool:
        """Say whether the cluster has to do without a member."""
        return uuid in self._left or self.is_silent(uuid, now)

    def accused(self, staying: Iterable[Peer], now: float) -> set[str]:
        """Return the members that have to go because they and an older one do not hear each other for a while.

        Args:
            staying: the members that are not gone, the oldest first; not to hear a member that is gone is right.
            now: seconds.
        """
        order = {peer.uuid: place for place, peer in enumerate(staying)}
        return {
            max(pair, key=lambda uuid: order[uuid])
            for pair, since in self._complaints.items()
            if now - since >= self._grace and pair[0] in order and pair[1] in order
        }
