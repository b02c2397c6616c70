"""One execution on several members: orders in Jet's order, and an end in every story."""

from __future__ import annotations

import random
from collections import deque

import pytest

from shmjet.cluster.coordination import Coordination, Order, Stage
from shmjet.core import JobStatus
from shmjet.execution.messages import Failure


def failure(text: str) -> Failure:
    return Failure("error", None, -1, -1, 1, "ValueError", text, [], None)


def told(coordination: Coordination) -> list[tuple[str, str]]:
    return [(member, order.name) for member, order in coordination.take_orders()]


def running(*members: str) -> Coordination:
    coordination = Coordination(members)
    for member in members:
        coordination.ready(member)
    assert told(coordination) == [(member, "START") for member in members]
    return coordination


def test_nobody_starts_before_all_are_ready() -> None:
    coordination = Coordination(["a", "b"])
    coordination.ready("b")
    assert told(coordination) == []
    assert coordination.status is JobStatus.STARTING
    coordination.ready("a")
    assert told(coordination) == [("a", "START"), ("b", "START")]
    assert coordination.status is JobStatus.RUNNING


def test_the_results_are_committed_once_when_all_have_ended() -> None:
    coordination = running("a", "b")
    coordination.ended("a", commits=True)
    assert told(coordination) == []
    coordination.ended("b")
    assert told(coordination) == [("a", "COMMIT")]
    coordination.committed("a")
    assert told(coordination) == [("a", "FINISH"), ("b", "FINISH")]
    assert coordination.status is JobStatus.COMPLETED
    coordination.finished("a")
    coordination.finished("b")
    assert coordination.stage is Stage.OVER


def test_all_that_commit_have_to_before_the_job_counts_as_completed() -> None:
    coordination = running("a", "b", "c")
    for member in "abc":
        coordination.ended(member, commits=member != "b")
    assert told(coordination) == [("a", "COMMIT"), ("c", "COMMIT")]
    coordination.committed("c")
    assert told(coordination) == []
    assert coordination.status is JobStatus.COMPLETING
    coordination.committed("a")
    assert told(coordination) == [("a", "FINISH"), ("b", "FINISH"), ("c", "FINISH")]


@pytest.mark.parametrize("when", ["before", "while", "after"])
def test_a_member_that_is_lost_with_what_it_had_to_commit_fails_the_job(when: str) -> None:
    coordination = running("a", "b")
    coordination.ended("b", commits=True)
    if when != "before":
        coordination.ended("a")
    if when == "after":
        coordination.committed("b")
    assert coordination.lost(["b"], failure("b is gone")) is (when != "after")
    coordination.ended("a")
    assert coordination.status is (JobStatus.COMPLETED if when == "after" else JobStatus.FAILED)


def test_the_first_error_cancels_all_and_is_the_one_that_counts() -> None:
    coordination = running("a", "b", "c")
    coordination.failed("b", failure("first"))
    assert told(coordination) == [("a", "CANCEL"), ("b", "CANCEL"), ("c", "CANCEL")]
    coordination.failed("c", failure("second"))
    for member in "abc":
        coordination.ended(member)
    assert coordination.error == "first"
    assert coordination.status is JobStatus.FAILED
    assert told(coordination) == [("a", "FINISH"), ("b", "FINISH"), ("c", "FINISH")]


def test_an_error_while_committing_fails_the_job() -> None:
    coordination = running("a", "b")
    coordination.ended("a", commits=True)
    coordination.ended("b")
    coordination.failed("a", failure("no room"))
    assert coordination.error == "no room"
    assert told(coordination)[-2:] == [("a", "FINISH"), ("b", "FINISH")]


@pytest.mark.parametrize("ready", [0, 1, 2])
def test_a_member_that_is_lost_ends_the_execution(ready: int) -> None:
    coordination = Coordination(["a", "b"])
    for member in ["b", "a"][:ready]:
        coordination.ready(member)
    coordination.take_orders()
    assert coordination.lost(["b", "stranger"], failure("b is gone"))
    assert told(coordination) == [("a", "CANCEL")]
    coordination.ended("a")
    coordination.finished("a")
    assert coordination.stage is Stage.OVER
    assert coordination.error == "b is gone"


def test_a_member_that_goes_when_it_has_nothing_left_to_do_is_no_error() -> None:
    coordination = running("a", "b")
    coordination.ended("b")
    assert not coordination.lost(["b"], failure("b is gone"))
    coordination.ended("a")
    assert coordination.status is JobStatus.COMPLETED


def test_strangers_are_ignored() -> None:
    coordination = running("a", "b")
    coordination.failed("x", failure("none of our business"))
    coordination.ended("x")
    assert coordination.status is JobStatus.RUNNING
    assert not coordination.lost(["x"], failure("who?"))


class _Part:
    """A member's part: does what it is told, takes its time, and fails now and then."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.started = self.cancelled = self.ended = self.finished = False

    def act(self, order: Order | None) -> list[str]:
        if order is Order.START:
            self.started = True
        elif order is Order.CANCEL:
            self.cancelled = True
        elif order is Order.FINISH:
            assert self.ended, "told to finish before it had ended"
            self.finished = True
            return ["finished"]
        if not self.ended and (self.cancelled or (self.started and self.chance.random() < 0.2)):
            self.ended = True
            return ["ended"]
        if not self.ended and self.chance.random() < 0.02:
            self.cancelled = True
            return ["failed"]
        return []


@pytest.mark.parametrize("first", range(0, 500, 100))
def test_whatever_fails_whenever_it_ends_everywhere(first: int) -> None:
    for seed in range(first, first + 100):
        _story(seed)


def _story(seed: int) -> None:
    chance = random.Random(seed)
    names = [f"m{i}" for i in range(chance.randint(2, 5))]
    coordination = Coordination(names)
    commits = {name: chance.random() < 0.2 for name in names}
    parts = {name: _Part(chance) for name in names}
    reports: dict[str, deque[str]] = {name: deque(["ready"]) for name in names}
    orders: dict[str, deque[Order]] = {name: deque() for name in names}
    gone: set[str] = set()
    for _ in range(10_000):
        name = chance.choice(names)
        if name not in gone:
            order = orders[name].popleft() if orders[name] and chance.random() < 0.7 else None
            if order is Order.COMMIT:
                assert commits[name]
                assert all(part.ended for other, part in parts.items() if other not in gone)
                reports[name].append("failed" if chance.random() < 0.1 else "committed")
            elif "ready" not in reports[name]:
                reports[name].extend(parts[name].act(order))
            elif order is not None:
                orders[name].appendleft(order)
        if chance.random() < 0.005 and name != names[0] and name not in gone:
            gone.add(name)
            coordination.lost([name], failure(f"{name} is gone"))
        if chance.random() < 0.003:
            coordination.cancel()
        name = chance.choice(names)
        if reports[name] and name not in gone:
            match reports[name].popleft():
                case "ready":
                    coordination.ready(name)
                case "failed":
                    coordination.failed(name, failure(name))
                case "ended":
                    coordination.ended(name, commits[name])
                case "finished":
                    coordination.finished(name)
                case "committed":
                    coordination.committed(name)
        for receiver, told_order in coordination.take_orders():
            assert receiver not in gone
            orders[receiver].append(told_order)
        if any(part.started for part in parts.values()):
            assert coordination.stage is not Stage.PREPARING
        if coordination.stage is Stage.OVER:
            break
    assert coordination.stage is Stage.OVER, f"seed {seed}: still {coordination.stage}"
    assert all(part.finished for name, part in parts.items() if name not in gone)
