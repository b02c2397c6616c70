"""Phi-accrual failure detection (Hayashibara and others, 2004): how surprising is a peer's silence?

The intervals between a peer's heartbeats are taken as a normal distribution; phi is minus the decimal logarithm of the
probability that the next one is still to come. A peer whose heartbeats jitter, because its host is busy, gets more
time than a punctual peer. Two bounds lie around that, because the distribution knows nothing of pauses that have not
happened yet: no peer is suspected before `acceptable_pause` has passed, and every peer is after `longest_silence`.

No clock in here: the caller says what time it is.
"""

from __future__ import annotations

import math
from collections import deque

import msgspec

HEARTBEAT_S = 0.25
"""The heartbeat interval: the link sends one to each peer, and detectors expect one, every so many seconds."""
_LEAST_DEVIATION_S = 0.05
"""Of intervals; punctual heartbeats would make the detector nervous otherwise."""
_NO_CHANCE = 1e-300


class DetectorSettings(msgspec.Struct, frozen=True):
    """How patient detectors are; all in seconds but the first two.

    Args:
        threshold: phi from which on a peer is suspected: 8 is one wrong suspicion in 10**8 intervals.
        window: how many intervals are remembered.
        heartbeat_interval: how often a peer is expected to say something.
        acceptable_pause: how long a peer may pause beyond what its intervals tell.
        longest_silence: after so long a peer is suspected, whatever its intervals were.
    """

    threshold: float = 8.0
    window: int = 100
    heartbeat_interval: float = HEARTBEAT_S
    acceptable_pause: float = 1.3
    longest_silence: float = 2.2


def detector_for(longest_silence: float) -> DetectorSettings:
    """Return the usual settings, or those of a machine that may stand still for longer."""
    usual = DetectorSettings()
    pause = max(0.5, longest_silence - usual.longest_silence + usual.acceptable_pause)
    return DetectorSettings(acceptable_pause=pause, longest_silence=longest_silence)


class FailureDetector:
    """Watches one peer.

    Args:
        settings: how patient to be.
        now: when the peer was heard for the first time, or when it was asked to speak.
    """

    def __init__(self, settings: DetectorSettings, now: float) -> None:
        self._settings = settings
        self._last = now
        self._intervals: deque[float] = deque([settings.heartbeat_interval] * 4, maxlen=settings.window)

    @property
    def last_heard(self) -> float:
        """When the peer was heard last."""
        return self._last

    def heard(self, now: float) -> None:
        """Note a sign of life.

        Signs that come sooner than heartbeats count as punctual ones: a peer that says much for a while, because
        partitions move, say, need not go on like that. A long silence counts as a pause that is acceptable.
        """
        interval = max(0.0, now - self._last)
        if interval > 0:
            usual = self._settings.heartbeat_interval
            self._intervals.append(max(usual, min(interval, self._settings.acceptable_pause)))
        self._last = max(self._last, now)

    def excuse(self, now: float) -> None:
        """Start the silence anew: it was the watcher that was away, and the peer may have spoken."""
        self._last = max(self._last, now)

    def phi(self, now: float) -> float:
        """Return how surprising the silence is; 0 right after a heartbeat."""
        silence = now - self._last - self._settings.acceptable_pause
        mean = sum(self._intervals) / len(self._intervals)
        variance = sum((interval - mean) ** 2 for interval in self._intervals) / len(self._intervals)
        deviation = max(_LEAST_DEVIATION_S, math.sqrt(variance))
        chance = 0.5 * math.erfc((silence - mean) / (deviation * math.sqrt(2)))
        return -math.log10(max(chance, _NO_CHANCE))

    def suspects(self, now: float) -> bool:
        """Say whether the peer has been silent for too long. O(window) once the silence is longer than a pause."""
        silence = now - self._last
        if silence <= self._settings.acceptable_pause:
            return False
        return silence >= self._settings.longest_silence or self.phi(now) >= self._settings.threshold
