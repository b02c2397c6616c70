"""When a silent peer is suspected, and when not."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet.cluster.membership.failure_detector import DetectorSettings, FailureDetector, detector_for

SETTINGS = DetectorSettings()
EVERY = SETTINGS.heartbeat_interval


def beating(count: int = 200, jitter: float = 0.0) -> tuple[FailureDetector, float]:
    """Return a detector that has heard heartbeats for a while, and the time of the last one."""
    chance, now = random.Random(1), 0.0
    detector = FailureDetector(SETTINGS, now)
    for _ in range(count):
        now += EVERY + chance.uniform(0, jitter)
        assert not detector.suspects(now)
        detector.heard(now)
    return detector, now


@pytest.mark.parametrize("jitter", [0.0, 0.02, 0.2, 0.6])
def test_a_pause_of_a_second_is_forgiven_and_a_dead_peer_is_found_in_time(jitter: float) -> None:
    detector, last = beating(jitter=jitter)
    assert not detector.suspects(last + EVERY + 1.0)
    assert detector.suspects(last + SETTINGS.longest_silence)


def test_phi_grows_with_the_silence() -> None:
    detector, last = beating(jitter=0.05)
    phis = [detector.phi(last + at / 10) for at in range(30)]
    assert phis == sorted(phis)
    assert phis[0] < 0.1 < SETTINGS.threshold < phis[-1]


def test_a_peer_that_jitters_gets_more_time() -> None:
    def until_suspected(jitter: float) -> float:
        detector, last = beating(jitter=jitter)
        return next(at / 100 for at in range(1000) if detector.suspects(last + at / 100))

    assert until_suspected(0.0) < until_suspected(0.5) <= SETTINGS.longest_silence


def test_a_watcher_that_was_away_gives_everybody_another_chance() -> None:
    detector, last = beating()
    assert detector.suspects(last + 10)
    detector.excuse(last + 10)
    assert not detector.suspects(last + 11)


@given(st.lists(st.floats(0.0, 1.2), min_size=1, max_size=300))
def test_whatever_the_rhythm_the_bounds_hold(gaps: list[float]) -> None:
    now = 0.0
    detector = FailureDetector(SETTINGS, now)
    for gap in gaps:
        now += gap
        assert not detector.suspects(now)
        detector.heard(now)
    assert detector.suspects(now + SETTINGS.longest_silence + 1e-6)


def test_a_machine_that_stands_still_for_long_has_another_patience() -> None:
    assert detector_for(SETTINGS.longest_silence) == SETTINGS
    detector = FailureDetector(detector_for(10.0), 0.0)
    for beat in range(100):
        detector.heard(beat / 4)
    last = detector.last_heard
    assert not detector.suspects(last + 9.0)
    assert detector.suspects(last + 10.0)


def test_a_burst_of_messages_makes_nobody_impatient() -> None:
    punctual, busy = (FailureDetector(DetectorSettings(), 0.0) for _ in range(2))
    for number in range(1, 401):
        busy.heard(number * 0.025)
        if number % 10 == 0:
            punctual.heard(number * 0.025)
    assert [busy.suspects(10.0 + silence) for silence in (1.6, 1.7, 2.3)] == [False, False, True]
    assert punctual.phi(11.7) == busy.phi(11.7)
