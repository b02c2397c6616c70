"""Services go from attempt to attempt of a job within a worker, and each is closed once."""

from __future__ import annotations

import pytest

from shmjet.execution.control import WORDS
from shmjet.execution.interrupts import Interrupts
from shmjet.execution.kept_services import LONGEST_NS, KeptServices


class Clock:
    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def kept(clock: Clock) -> KeptServices:
    return KeptServices(Interrupts(memoryview(bytearray(WORDS * 8)).cast("q")), clock)


def test_an_attempt_that_was_not_stopped_from_outside_keeps_nothing(kept: KeptServices) -> None:
    assert not kept.begin("job", 1).keep("place", "service", pytest.fail)


def test_the_next_attempt_of_the_same_job_takes_what_was_left(kept: KeptServices) -> None:
    closed: list[str] = []
    first = kept.begin("job", 1)
    first.keeps = True
    assert first.keep("place", "service", closed.append)
    kept.end(first, is_followed=True)
    assert kept.begin("another job", 2).take("place") is None
    second = kept.begin("job", 3)
    assert second.take("other place") is None
    assert second.take("place") == "service"
    assert second.take("place") is None
    second.close_unclaimed()
    kept.end(second, is_followed=False)
    kept.close()
    assert closed == []


def test_what_is_left_is_closed_when_no_attempt_follows(kept: KeptServices) -> None:
    closed: list[str] = []
    services = kept.begin("job", 1)
    services.keeps = True
    services.keep("a", "one", closed.append)
    services.keep("b", "two", closed.append)
    kept.end(services, is_followed=False)
    assert sorted(closed) == ["one", "two"]


def test_what_the_next_attempt_does_not_take_is_closed_when_it_has_started(kept: KeptServices) -> None:
    closed: list[str] = []
    first = kept.begin("job", 1)
    first.keeps = True
    first.keep("place", "service", closed.append)
    kept.end(first, is_followed=True)
    second = kept.begin("job", 2)
    assert closed == []
    second.close_unclaimed()
    assert closed == ["service"]


def test_an_attempt_that_is_stopped_before_it_has_started_leaves_what_it_found(kept: KeptServices) -> None:
    closed: list[str] = []
    first = kept.begin("job", 1)
    first.keeps = True
    first.keep("place", "service", closed.append)
    kept.end(first, is_followed=True)
    kept.end(kept.begin("job", 2), is_followed=True)
    assert kept.begin("job", 3).take("place") == "service"
    assert closed == []


def test_services_do_not_wait_for_ever_for_an_attempt_that_does_not_come(kept: KeptServices, clock: Clock) -> None:
    closed: list[str] = []
    services = kept.begin("job", 1)
    services.keeps = True
    services.keep("place", "service", closed.append)
    kept.end(services, is_followed=True)
    clock.now = LONGEST_NS - 1
    kept.close_overdue()
    assert closed == []
    clock.now += 1
    kept.close_overdue()
    assert closed == ["service"]
    assert kept.begin("job", 2).take("place") is None


def test_a_close_that_fails_keeps_no_other_from_being_closed(
    kept: KeptServices, caplog: pytest.LogCaptureFixture
) -> None:
    closed: list[str] = []

    def fail(_: str) -> None:
        raise SystemExit("no")

    services = kept.begin("job", 1)
    services.keeps = True
    services.keep("a", "one", closed.append)
    services.keep("b", "two", fail)
    services.keep("c", "three", closed.append)
    kept.end(services, is_followed=False)
    assert sorted(closed) == ["one", "three"]
    assert "the service str" in caplog.text
