"""What follows an attempt that has failed."""

from __future__ import annotations

import msgspec
import pytest

from shmjet.cluster.jobs.restart_policy import (
    DAMAGED,
    MOST_ATTEMPTS,
    next_after,
    next_after_losing_all,
    pause_before_next,
)
from shmjet.cluster.jobs.run_parts import Next
from shmjet.cluster.lifecycle_messages import RunSettings
from shmjet.data.errors import RestartableError
from shmjet.execution.failure import make_failure, member_failed, member_lost, worker_lost
from shmjet.execution.messages import Failure
from shmjet.snapshots.manifest import DamagedSnapshotError

LOST = worker_lost(worker=0, pid=7, signal=9, status=-9, vertices=["map"], carrier=False)
MEMBER = member_lost("member a was lost", member="a")
DAMAGE = member_failed(DamagedSnapshotError("torn"))
ASKED = make_failure(RestartableError("the broker is away"), vertex="map", processor_index=0, worker=0)
ERROR = make_failure(ValueError("bad"), vertex="map", processor_index=0, worker=0)


class OwnRestart(RestartableError):
    pass


OWN = make_failure(OwnRestart("mine"), vertex="map", processor_index=0, worker=0)


@pytest.mark.parametrize("guarantee", ["none", "at_least_once", "exactly_once"])
@pytest.mark.parametrize("suspends", [False, True])
def test_losses_restart_a_job_with_a_guarantee_and_a_request_restarts_any(guarantee: str, suspends: bool) -> None:
    settings = RunSettings(guarantee=guarantee, suspend_on_failure=suspends)
    otherwise = Next.SUSPEND if suspends else Next.END
    for failure in (LOST, DAMAGE):
        assert next_after(failure, settings, 1) is (otherwise if guarantee == "none" else Next.AGAIN)
    for failure in (ASKED, OWN):
        assert next_after(failure, settings, 1) is Next.AGAIN
    assert next_after(ERROR, settings, 1) is otherwise


@pytest.mark.parametrize("guarantee", ["none", "at_least_once", "exactly_once"])
@pytest.mark.parametrize("suspends", [False, True])
def test_a_lost_member_restarts_what_scales_suspends_what_can_go_on_and_fails_the_rest(
    guarantee: str, suspends: bool
) -> None:
    scales = RunSettings(guarantee=guarantee, suspend_on_failure=suspends)
    assert next_after(MEMBER, scales, 1) is Next.AGAIN
    assert next_after(MEMBER, scales, MOST_ATTEMPTS) is (Next.SUSPEND if suspends else Next.END)
    stays = msgspec.structs.replace(scales, auto_scaling=False)
    assert next_after(MEMBER, stays, 1) is (Next.END if guarantee == "none" and not suspends else Next.SUSPEND)
    for failure in (LOST, ASKED, ERROR):  # which no other members would have helped
        assert next_after(failure, stays, 1) is next_after(failure, scales, 1)


def test_ten_attempts_in_a_row_are_enough() -> None:
    settings = RunSettings(guarantee="exactly_once")
    assert next_after(LOST, settings, MOST_ATTEMPTS - 1) is Next.AGAIN
    assert next_after(LOST, settings, MOST_ATTEMPTS) is Next.END
    assert next_after(LOST, msgspec.structs.replace(settings, suspend_on_failure=True), MOST_ATTEMPTS) is Next.SUSPEND


def test_pauses_double_and_ten_attempts_take_some_ten_seconds() -> None:
    pauses = [pause_before_next(failed, 0.04) for failed in range(1, MOST_ATTEMPTS)]
    assert pauses == pytest.approx([0, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12])
    assert sum(pauses) == pytest.approx(10.2)
    assert pause_before_next(MOST_ATTEMPTS - 1, 0.0) == 0


def test_damage_is_known_by_the_name_of_its_error() -> None:
    assert DamagedSnapshotError.__name__ == DAMAGED
    assert isinstance(DAMAGE, Failure)


def test_a_run_that_has_begun_before_is_suspended_when_all_its_snapshots_are_lost() -> None:
    """A new coordinator has taken no snapshot of it yet, but the lost one may have."""
    settings = RunSettings(guarantee="exactly_once")
    assert next_after_losing_all(settings, has_begun_before=True) is Next.SUSPEND
    assert next_after_losing_all(settings, has_begun_before=False) is Next.END
    assert next_after_losing_all(RunSettings(suspend_on_failure=True), has_begun_before=False) is Next.SUSPEND
