"""Who listens to a job's status hears each change once, in order, whatever others do."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from shmjet.cluster.client.status_listeners import StatusListeners, passed
from shmjet.core import JobStatus

NOT_RUNNING, STARTING, RUNNING = JobStatus.NOT_RUNNING, JobStatus.STARTING, JobStatus.RUNNING
SUSPENDED, COMPLETING = JobStatus.SUSPENDED, JobStatus.COMPLETING
COMPLETED, FAILED = JobStatus.COMPLETED, JobStatus.FAILED

Change = tuple[JobStatus, JobStatus]


class Later:
    """Calls what it is given when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def __call__(self, function: Callable[[], None]) -> None:
        self.waiting.append(function)

    def pass_by(self) -> None:
        while self.waiting:
            self.waiting.pop(0)()


def test_changes_come_one_after_the_other_through_suspensions() -> None:
    later, heard = Later(), list[Change]()
    listeners = StatusListeners(later)
    listeners.add(lambda old, new: heard.append((old, new)))
    life = [STARTING, RUNNING, SUSPENDED, STARTING, RUNNING, COMPLETED]
    for status in life:
        listeners.take(status)
    assert heard == []
    assert len(later.waiting) == 1
    later.pass_by()
    assert heard == list(zip([NOT_RUNNING, *life], life, strict=False))


def test_a_status_that_comes_twice_is_no_change() -> None:
    later, heard = Later(), list[Change]()
    listeners = StatusListeners(later)
    listeners.take(STARTING)
    listeners.add(lambda old, new: heard.append((old, new)))
    for status in (STARTING, RUNNING, RUNNING):
        listeners.take(status)
    later.pass_by()
    assert heard == [(STARTING, RUNNING)]


def test_a_listener_that_raises_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    later, heard = Later(), list[Change]()
    listeners = StatusListeners(later)

    def broken(old: JobStatus, new: JobStatus) -> None:
        raise ValueError("no such thing")

    listeners.add(broken)
    listeners.add(lambda old, new: heard.append((old, new)))
    with caplog.at_level(logging.ERROR, "shmjet.client"):
        listeners.take(STARTING)
        listeners.take(RUNNING)
        later.pass_by()
    assert heard == [(NOT_RUNNING, STARTING), (STARTING, RUNNING)]
    assert caplog.text.count("no such thing") >= 2


def test_a_listener_that_was_removed_hears_nothing_more_not_even_what_was_on_its_way() -> None:
    later, heard = Later(), list[Change]()
    listeners = StatusListeners(later)

    def listener(old: JobStatus, new: JobStatus) -> None:
        heard.append((old, new))

    remove = listeners.add(listener)
    listeners.add(listener)
    listeners.take(STARTING)
    remove()
    remove()
    later.pass_by()
    assert heard == [(NOT_RUNNING, STARTING)], "the same function was added twice, and removed once"


def test_a_listener_may_remove_itself_and_have_others_told() -> None:
    later, heard = Later(), list[Change]()
    listeners = StatusListeners(later)

    def once(old: JobStatus, new: JobStatus) -> None:
        remove()
        listeners.take(RUNNING)
        heard.append((old, new))

    remove = listeners.add(once)
    listeners.take(STARTING)
    later.pass_by()
    assert heard == [(NOT_RUNNING, STARTING)]


@pytest.mark.parametrize(
    ("old", "new", "through"),
    [
        (NOT_RUNNING, COMPLETED, [STARTING, RUNNING, COMPLETED]),
        (STARTING, COMPLETED, [RUNNING, COMPLETED]),
        (COMPLETED, RUNNING, [STARTING, RUNNING]),
        (SUSPENDED, RUNNING, [STARTING, RUNNING]),
        (COMPLETING, COMPLETED, [COMPLETED]),
        (NOT_RUNNING, FAILED, [FAILED]),
        (RUNNING, SUSPENDED, [SUSPENDED]),
        (RUNNING, RUNNING, []),
    ],
)
def test_what_lasted_too_short_to_be_reported_is_filled_in(
    old: JobStatus, new: JobStatus, through: list[JobStatus]
) -> None:
    assert passed(old, new) == through
