"""An attempt over one member or many: orders in Jet's order, and an end in every story."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import pytest

from shmjet.cluster.jobs.attempt import Attempt
from shmjet.cluster.jobs.part import Part
from shmjet.cluster.jobs.phase import Phase
from shmjet.cluster.membership.peer_messages import (
    CancelPart,
    CommitPart,
    FinishPart,
    PartCommitted,
    PartEnded,
    PartFailed,
    PartFinished,
    PartProbed,
    PartReady,
    StartPart,
)
from shmjet.cluster.requests.post import JobPost
from shmjet.core import JobStatus
from shmjet.execution.messages import Cancel, Commit, Failure, Finish, Probed, Start
from shmjet.execution.metrics import NO_METRICS
from tests.examples import drawn

ID = 7
READY, ENDED, COMMITS = PartReady(ID), PartEnded(ID), PartEnded(ID, True)
COMMITTED, FINISHED = PartCommitted(ID), PartFinished(ID, NO_METRICS)


def failure(text: str) -> Failure:
    return Failure("error", None, -1, -1, 1, "ValueError", text, [], None)


def failed(text: str) -> PartFailed:
    return PartFailed(ID, failure(text))


def told(attempt: Attempt) -> list[tuple[str, str]]:
    return [(member, type(order).__name__.removesuffix("Part")) for member, order in attempt.take_orders()]


def asked(*members: str) -> Attempt:
    attempt = Attempt(ID, members)
    assert attempt.ask(members)
    return attempt


def running(*members: str) -> Attempt:
    attempt = asked(*members)
    for member in members:
        attempt.report(member, READY)
    assert told(attempt) == [(member, "Start") for member in members]
    return attempt


# -- the coordinator's side ---------------------------------------------------------------------------------------


def test_nobody_starts_before_all_are_ready() -> None:
    attempt = asked("a", "b")
    attempt.report("b", READY)
    assert told(attempt) == []
    assert attempt.status is JobStatus.STARTING
    attempt.report("a", READY)
    assert told(attempt) == [("a", "Start"), ("b", "Start")]
    assert attempt.status is JobStatus.RUNNING


def test_the_results_are_committed_once_when_all_have_ended() -> None:
    attempt = running("a", "b")
    attempt.report("a", COMMITS)
    assert told(attempt) == []
    assert not attempt.may_be_visible
    attempt.report("b", ENDED)
    assert told(attempt) == [("a", "Commit")]
    assert attempt.may_be_visible
    attempt.report("a", COMMITTED)
    assert told(attempt) == [("a", "Finish"), ("b", "Finish")]
    assert attempt.status is JobStatus.COMPLETED
    attempt.report("a", FINISHED)
    attempt.report("b", FINISHED)
    assert attempt.phase is Phase.OVER


def test_all_that_commit_have_to_before_the_job_counts_as_completed() -> None:
    attempt = running("a", "b", "c")
    for member in "abc":
        attempt.report(member, ENDED if member == "b" else COMMITS)
    assert told(attempt) == [("a", "Commit"), ("c", "Commit")]
    attempt.report("c", COMMITTED)
    assert told(attempt) == []
    assert attempt.status is JobStatus.COMPLETING
    attempt.cancel()
    assert not attempt.cancelled
    attempt.report("a", COMMITTED)
    assert told(attempt) == [("a", "Finish"), ("b", "Finish"), ("c", "Finish")]


@pytest.mark.parametrize("when", ["before", "while", "after"])
def test_a_member_that_is_lost_with_what_it_had_to_commit_fails_the_job(when: str) -> None:
    attempt = running("a", "b")
    attempt.report("b", COMMITS)
    if when != "before":
        attempt.report("a", ENDED)
    if when == "after":
        attempt.report("b", COMMITTED)
    assert attempt.lost(["b"], failure("b is gone")) is (when != "after")
    attempt.report("a", ENDED)
    assert attempt.status is (JobStatus.COMPLETED if when == "after" else JobStatus.FAILED)


def test_the_first_error_cancels_all_and_is_the_one_that_counts() -> None:
    attempt = running("a", "b", "c")
    attempt.report("b", failed("first"))
    assert told(attempt) == [("a", "Cancel"), ("b", "Cancel"), ("c", "Cancel")]
    attempt.report("c", failed("second"))
    for member in "abc":
        attempt.report(member, ENDED)
    assert attempt.error == "first"
    assert attempt.status is JobStatus.FAILED
    assert told(attempt) == [("a", "Finish"), ("b", "Finish"), ("c", "Finish")]


def test_an_error_while_committing_fails_the_job() -> None:
    attempt = running("a", "b")
    attempt.report("a", COMMITS)
    attempt.report("b", ENDED)
    attempt.report("a", failed("no room"))
    assert attempt.error == "no room"
    assert told(attempt)[-2:] == [("a", "Finish"), ("b", "Finish")]


@pytest.mark.parametrize("ready", [0, 1, 2])
def test_a_member_that_is_lost_ends_the_attempt(ready: int) -> None:
    attempt = asked("a", "b")
    for member in ["b", "a"][:ready]:
        attempt.report(member, READY)
    attempt.take_orders()
    assert attempt.lost(["b", "stranger"], failure("b is gone"))
    assert told(attempt) == [("a", "Cancel")]
    attempt.report("a", ENDED)
    attempt.report("a", FINISHED)
    assert attempt.phase is Phase.OVER
    assert attempt.error == "b is gone"


def test_a_member_that_goes_when_it_has_nothing_left_to_do_is_no_error() -> None:
    attempt = running("a", "b")
    attempt.report("b", ENDED)
    assert not attempt.lost(["b"], failure("b is gone"))
    attempt.report("a", ENDED)
    assert attempt.status is JobStatus.COMPLETED


def test_strangers_are_ignored() -> None:
    attempt = running("a", "b")
    attempt.report("x", failed("none of our business"))
    attempt.report("x", ENDED)
    assert attempt.status is JobStatus.RUNNING
    assert not attempt.lost(["x"], failure("who?"))


def test_a_member_that_has_never_heard_of_it_is_not_waited_for() -> None:
    attempt = Attempt(ID, ["a", "b"])
    assert attempt.ask(["a"])
    attempt.cancel()
    assert told(attempt) == [("a", "Cancel")]
    assert not attempt.ask(["a", "b"])
    attempt.report("a", ENDED)
    assert told(attempt) == [("a", "Finish")]
    attempt.report("a", FINISHED)
    assert attempt.phase is Phase.OVER


# -- a member's side ----------------------------------------------------------------------------------------------


def commands(part: Part) -> list[tuple[int, str]]:
    taken, part.commands = part.commands, []
    return [(endpoint, type(command).__name__) for endpoint, command in taken]


def reports(part: Part) -> list[Any]:
    taken, part.reports = part.reports, []
    return taken


def started(*endpoints: int) -> Part:
    part = Part(ID)
    part.prepare(endpoints, linked=True)
    part.ready(*endpoints)
    assert reports(part) == [READY]
    part.start()
    assert commands(part) == [(endpoint, "Start") for endpoint in endpoints]
    return part


def test_a_part_is_ready_when_all_its_processes_and_its_link_are() -> None:
    part = Part(ID)
    part.prepare([0, 1], linked=False)
    part.ready(0)
    part.ready(1)
    assert reports(part) == []
    part.link_opened()
    assert reports(part) == [READY]
    part.ready(1)
    assert reports(part) == []


def test_a_process_that_ends_before_anybody_was_told_to_start_was_ready() -> None:
    part = Part(ID)
    part.prepare([0], linked=True)
    part.ended(0, adopted=0, finished=False, commits=False)
    assert reports(part) == [READY, ENDED]
    part.start()
    assert commands(part) == []
    part.finish(None)
    assert commands(part) == [(0, "Finish")]
    part.finished(0)
    assert part.phase is Phase.OVER
    assert part.status is JobStatus.COMPLETED


def test_the_first_error_of_a_part_stops_its_other_processes() -> None:
    part = started(0, 1, 2)
    part.failed(1, failure("first"))
    assert commands(part) == [(0, "Cancel"), (1, "Cancel"), (2, "Cancel")]
    part.failed(0, failure("second"))
    assert reports(part) == [failed("first"), failed("second")]
    for endpoint in (0, 1, 2):
        part.ended(endpoint, adopted=0, finished=True, commits=True)
    assert reports(part) == [ENDED]
    assert part.failure == failure("first")


def test_a_tasklet_that_is_handed_over_keeps_the_part_from_its_end() -> None:
    part = started(0)
    part.adopts(1, is_new=True)
    part.ended(0, adopted=0, finished=True, commits=False)
    part.ended(1, adopted=0, finished=True, commits=False)  # said before the tasklet came
    assert reports(part) == []
    part.ended(1, adopted=1, finished=True, commits=False)
    assert reports(part) == [ENDED]


def test_a_tasklet_that_is_handed_over_while_the_part_stops_is_stopped_as_well() -> None:
    part = started(0)
    part.cancel()
    assert commands(part) == [(0, "Cancel")]
    part.adopts(1, is_new=True)
    assert commands(part) == [(1, "Cancel")]


def test_a_process_that_dies_is_an_error_only_while_it_is_needed() -> None:
    part = started(0, 1)
    part.ended(0, adopted=0, finished=False, commits=False)
    assert not part.needs(0)
    part.lost(0, None)
    assert reports(part) == []
    assert part.needs(1)
    part.lost(1, failure("worker 1 is gone"))
    assert reports(part) == [failed("worker 1 is gone"), ENDED]
    part.finish("worker 1 is gone")
    assert part.phase is Phase.OVER


def test_a_process_with_something_to_commit_is_needed_until_it_has() -> None:
    part = started(0)
    part.ended(0, adopted=0, finished=False, commits=True)
    assert reports(part) == [COMMITS]
    assert part.needs(0)
    part.commit()
    assert commands(part) == [(0, "Commit")]
    part.committed(0)
    assert reports(part) == [COMMITTED]
    assert not part.needs(0)


def test_a_process_that_only_answered_the_probe_commits_with_the_others() -> None:
    part = Part(ID)
    part.probe(1)
    part.probed(1, Probed(ID, {}, [], True))
    assert reports(part) == [PartProbed(ID, Probed(ID, {}, [], True))]
    part.prepare([0], linked=True)
    part.ended(0, adopted=0, finished=True, commits=False)
    assert reports(part) == [READY, COMMITS]
    part.commit()
    assert commands(part) == [(1, "Commit")]


@pytest.mark.parametrize("ended", [False, True])
def test_a_part_without_a_coordinator_lets_go_by_itself(ended: bool) -> None:
    part = started(0)
    if ended:
        part.ended(0, adopted=0, finished=False, commits=True)
    part.orphan("a is gone")
    if not ended:
        assert commands(part) == [(0, "Cancel")]
        part.ended(0, adopted=0, finished=False, commits=False)
    assert commands(part) == [(0, "Finish")]
    part.finished(0)
    assert part.phase is Phase.OVER
    assert part.status is JobStatus.FAILED


def test_a_part_that_is_stopped_before_it_has_begun_ends_at_once() -> None:
    part = Part(ID)
    part.cancel()
    assert reports(part) == [ENDED]
    part.finish("the job was cancelled")
    assert part.phase is Phase.OVER


# -- both, with everything that may happen ------------------------------------------------------------------------


class Process:
    """Does what it is told, takes its time, fails or dies now and then, and hears nothing while it is dead."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.told: deque[Any] = deque()
        self.commits = chance.random() < 0.2
        self.state = "making"

    def step(self, part: Part, at: int, *, may_run: bool) -> None:
        if self.state == "dead":
            return
        command = self.told.popleft() if self.told and self.chance.random() < 0.7 else None
        match command:
            case Start() if self.state == "ready":
                assert may_run, "started before all were ready"
                self.state = "running"
            case Cancel() if self.state in ("making", "ready", "running", "failed"):
                self.end(part, at)
                return
            case Commit():
                assert self.state == "ended"
                if self.chance.random() < 0.1:
                    part.failed(at, failure("commit"))
                else:
                    part.committed(at)
            case Finish():
                assert self.state == "ended", "told to finish before it had ended"
                self.state = "finished"
                part.finished(at)
        if self.state == "making" and self.chance.random() < 0.3:
            self.state = "ready"
            part.ready(at)
        elif self.state == "running" and self.chance.random() < 0.2:
            self.end(part, at)
        elif self.state in ("making", "ready", "running") and self.chance.random() < 0.01:
            self.state = "failed"
            part.failed(at, failure("error"))
        elif self.chance.random() < 0.002:
            self.state = "dead"
            part.lost(at, failure("lost") if part.needs(at) else None)

    def end(self, part: Part, at: int) -> None:
        self.state = "ended"
        part.ended(at, adopted=0, finished=False, commits=self.commits)


class Story:
    """One attempt, from its first order to its end, on members that may be lost."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.chance = chance = random.Random(seed)
        self.names = [f"m{i}" for i in range(chance.randint(1, 5))]
        self.attempt = asked(*self.names)
        self.parts = {name: Part(ID) for name in self.names}
        self.processes = {name: [Process(chance) for _ in range(chance.randint(1, 3))] for name in self.names}
        self.orders: dict[str, deque[Any]] = {name: deque() for name in self.names}
        self.reports: dict[str, deque[Any]] = {name: deque() for name in self.names}
        self.gone: set[str] = set()
        self.first: str | None = None

    def tell(self) -> JobStatus:
        """Let it go on to its end, and return the outcome."""
        for name in self.names:
            self.parts[name].prepare(range(len(self.processes[name])), linked=True)
        for _ in range(20_000):
            self.step()
            if self.attempt.phase is Phase.OVER:
                break
        assert self.attempt.phase is Phase.OVER, f"seed {self.seed}: still {self.attempt.phase}"
        for name in self.names:
            assert name in self.gone or self.parts[name].phase is Phase.OVER, f"seed {self.seed}: {name} has not let go"
        if self.attempt.status is JobStatus.COMPLETED:
            assert self.first is None, f"seed {self.seed}: completed in spite of {self.first}"
        elif not self.attempt.cancelled:
            assert self.attempt.error == self.first, f"seed {self.seed}"
        return self.attempt.status

    def step(self) -> None:
        name = self.chance.choice([name for name in self.names if name not in self.gone])
        part = self.parts[name]
        if self.orders[name] and self.chance.random() < 0.5:
            self.order(part, self.orders[name].popleft())
        else:
            processes = self.processes[name]
            at = self.chance.randrange(len(processes))
            may_run = self.attempt.phase is not Phase.PREPARING
            processes[at].step(part, at, may_run=may_run)
        self.pass_on(name)
        if self.reports[name] and self.chance.random() < 0.5:
            report = self.reports[name].popleft()
            if isinstance(report, PartFailed) and self.attempt.phase not in (Phase.FINISHING, Phase.OVER):
                self.first = self.first or report.failure.text
            self.attempt.report(name, report)
        if self.chance.random() < 0.0005 and name != self.names[0]:
            self.gone.add(name)
            if self.attempt.lost([name], failure(f"{name} is gone")) and self.attempt.failure is not None:
                self.first = self.first or f"{name} is gone"
        if self.chance.random() < 0.0005:
            self.attempt.cancel()
        for receiver, order in self.attempt.take_orders():
            assert receiver not in self.gone
            self.orders[receiver].append(order)

    def order(self, part: Part, order: Any) -> None:
        match order:
            case StartPart():
                part.start()
            case CancelPart():
                part.cancel()
            case CommitPart():
                states = [p.state for name in self.names if name not in self.gone for p in self.processes[name]]
                assert {"ended", "finished", "dead"}.issuperset(states), f"seed {self.seed}: commits while {states}"
                part.commit()
            case FinishPart():
                part.finish(order.error)

    def pass_on(self, name: str) -> None:
        part = self.parts[name]
        taken, part.commands = part.commands, []
        for at, command in taken:
            self.processes[name][at].told.append(command)
        said, part.reports = part.reports, []
        self.reports[name] += said
        entered, part.entered = part.entered, []
        if Phase.OVER in entered:
            self.reports[name].append(FINISHED)


@pytest.mark.parametrize("first", range(0, drawn(600), 100))
def test_whatever_fails_whenever_it_ends_everywhere(first: int) -> None:
    outcomes = [Story(seed).tell() for seed in range(first, first + 100)]
    assert set(outcomes) == {JobStatus.COMPLETED, JobStatus.FAILED}


# -- the post -----------------------------------------------------------------------------------------------------


def test_the_post_keeps_order_also_when_an_answer_is_sent_meanwhile() -> None:
    taken: list[object] = []

    class Others:
        def __init__(self) -> None:
            self.sent: list[tuple[str, object]] = []

        def send(self, identity: str, message: object) -> None:
            self.sent.append((identity, message))

        async def send_files(self, uuids: Any, job: Any) -> None:
            raise AssertionError

    def deliver(sender: str, message: object, code: object) -> None:
        taken.append(message)
        if message == "first":
            post.send("me", "answer")
            post.send("me", "second")
            assert taken == ["first"]

    others = Others()
    post = JobPost(others, deliver)
    post.add_identity("me")
    post.send("me", "first")
    post.send("you", "hello")
    assert taken == ["first", "answer", "second"]
    assert others.sent == [("you", "hello")]
    post.add_identity("me again")
    post.send("me", "late")
    assert taken[-1] == "late"
    assert post.is_own("me again")
    assert not post.is_own("you")
