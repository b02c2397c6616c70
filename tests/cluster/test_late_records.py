"""What a member does with records that come late, and which quorum a run has whose submission came again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shmjet.cluster.jobs.surviving_runs import SurvivingRuns
from shmjet.cluster.lifecycle_messages import RunSettings
from shmjet.cluster.membership.run_messages import (
    AskRuns,
    KeepRun,
    KeepRunState,
    RunEnd,
    RunOrigin,
    RunRecordCopy,
    RunState,
)
from shmjet.cluster.membership.views import Peer, View
from shmjet.cluster.protocol import Submission
from shmjet.core import JobStatus
from shmjet.execution.job_plan import JobShape

JOB = Submission("job", None, JobShape([], []), b"", b"", {}, [], settings=RunSettings(split_brain_protection=True))


def view_of(epoch: int, *names: str) -> View:
    peers = tuple(Peer(name, f"{name}:1", 1) for name in names)
    return View(epoch, peers, tuple(range(1, len(names) + 1)))


class FakeCluster:
    """All members are connected."""

    is_networked, trouble, member_for = True, "", 60.0

    def __init__(self, me: str, view: View) -> None:
        self.me, self.view = me, view
        self.sent: list[tuple[str, Any]] = []

    def is_connected(self, identity: str) -> bool:
        return True

    def send(self, identity: str, message: object) -> None:
        self.sent.append((identity, message))


class Run:
    """A run that has just been made."""

    id, job, logs, started_at, lineage = 7, JOB, None, 1.0, None
    attempt_count, suspension, last_snapshot = 0, None, None
    is_to_be_suspended = cancelled = False
    status = JobStatus.STARTING

    def add_status_listener(self, listener: Any) -> None:
        pass


def runs_of(cluster: FakeCluster) -> SurvivingRuns:
    return SurvivingRuns(cluster, 1.0, take_up=lambda *_: None, taken_over=lambda: None, send_files=lambda _: None)


def test_a_record_of_a_lost_coordinator_that_comes_after_the_next_one_has_asked_is_not_kept() -> None:
    async def main() -> None:
        runs = runs_of(FakeCluster("c", view_of(3, "a", "b", "c")))
        copy = RunRecordCopy(RunOrigin(1, JOB, "token", None, 1.0), RunState((3, 1)))
        late = RunRecordCopy(RunOrigin(2, JOB, "late", None, 1.0), RunState((3, 2)))
        runs.receive("a", KeepRun(copy))
        runs.receive("b", AskRuns(4, {}))  # the view without "a" has not reached this member yet
        runs.receive("a", KeepRun(late))
        runs.receive("a", KeepRunState(1, RunState((3, 3), attempts=1)))
        assert runs.copies.versions() == {1: (3, 1)}
        runs.receive("b", KeepRun(late))
        runs.receive("b", KeepRunState(1, RunState((4, 1), attempts=1)))
        assert runs.copies.versions() == {1: (4, 1), 2: (3, 2)}

    asyncio.run(main())


@pytest.mark.parametrize(("age", "quorum"), [(0.0, 2), (0.5, 3)])
def test_the_quorum_of_a_run_that_was_asked_for_before_is_of_the_cluster_at_that_time(age: float, quorum: int) -> None:
    async def main() -> None:
        old, new = view_of(3, "a", "b", "c", "d"), view_of(4, "b", "c")
        cluster = FakeCluster("b", new)
        runs = runs_of(cluster)
        runs.view_changed(old, new, has_joined=False)
        run: Any = Run()
        runs.add(run, "token", age=age)
        (copy,) = runs.copies.live()
        assert copy.state.quorum == quorum

    asyncio.run(main())


def test_a_coordinator_that_loses_touch_keeps_its_runs_and_asks_again_what_it_was_asking() -> None:
    async def main() -> None:
        old, new, next_one = view_of(3, "a", "b", "c"), view_of(4, "b", "c"), view_of(5, "b", "c")
        cluster = FakeCluster("b", new)
        runs = runs_of(cluster)
        copy = RunRecordCopy(RunOrigin(1, JOB, "token", None, 1.0), RunState((3, 1)))
        runs.receive("a", KeepRun(copy))
        runs.view_changed(old, new, has_joined=False)
        assert runs.is_taking_over
        runs.isolated()
        cluster.view = view_of(0, "b")  # what a member has that is alone
        assert not runs.is_taking_over
        assert runs.copies.live() == [copy]
        run: Any = Run()
        runs.add(run, "other")
        assert runs.copies.versions()[run.id] > (4, 0)
        runs.copies.keep(run.id, RunState((9, 9), end=RunEnd("failed")))
        cluster.sent.clear()
        cluster.view = next_one
        runs.view_changed(new, next_one, has_joined=False)
        assert runs.is_taking_over
        assert cluster.sent == [("c", AskRuns(5, {1: (3, 1), run.id: (9, 9)}))]

    asyncio.run(main())
