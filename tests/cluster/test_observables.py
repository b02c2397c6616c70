"""What the keeper of observables and a client's readers say to each other, without a network."""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from shmjet.cluster.client.subscriptions import Destroyed, Missed, Subscription, Subscriptions
from shmjet.cluster.member import observables
from shmjet.cluster.member.observables import CAPACITY, MOST_SUBSCRIPTIONS, Observables
from shmjet.cluster.observable_messages import (
    ConfigureObservable,
    DestroyObservable,
    JobEnd,
    LeaveObservable,
    Observed,
    ReadObservable,
    WriteObservable,
)
from shmjet.cluster.protocol import Done, Refused
from shmjet.data.errors import MemberLostError, ShmjetError
from shmjet.ring import pickling
from tests.examples import seeds


class Line:
    """A member's end of a connection, and the client's: messages arrive when the test says so."""

    is_here = True

    def __init__(self, keeper: Observables) -> None:
        self.keeper = keeper
        self.to_member: deque[Any] = deque()
        self.to_client: deque[Any] = deque()
        self.replies: list[Any] = []
        self._futures: dict[int, Future[Any]] = {}
        self._numbers = itertools.count(1)
        self.readers = Subscriptions(self.ask, self.post)

    def queue(self, message: Any) -> None:
        self.to_client.append(message)

    send = queue

    def flush(self) -> None:
        """Everything is under way."""

    def post(self, make: Callable[[int], Any]) -> Future[Any]:
        number = next(self._numbers)
        self._futures[number] = Future()
        self.to_member.append(make(number))
        return self._futures[number]

    def ask(self, make: Callable[[int], Any]) -> Any:
        self.post(make)
        self.deliver()
        return self.replies[-1]

    def deliver(self) -> None:
        """Have everything arrive."""
        while self.to_member or self.to_client:
            while self.to_member:
                self.serve(self.to_member.popleft())
            while self.to_client:
                self.hear(self.to_client.popleft())

    def serve(self, request: Any) -> None:
        kinds: dict[Any, Any] = {
            ReadObservable: self.keeper.read,
            LeaveObservable: self.keeper.leave,
            WriteObservable: self.keeper.write,
            ConfigureObservable: self.keeper.configure,
            DestroyObservable: self.keeper.destroy,
        }
        kinds[type(request)](self, request)

    def hear(self, message: Any) -> None:
        if isinstance(message, Observed):
            self.readers.take(message)
        else:
            self.replies.append(message)
            future = self._futures.pop(message.request, None)
            if future is not None:
                future.set_result(message)

    def write(self, *items: Any, name: str = "x") -> None:
        self.keeper.write(self, WriteObservable(0, name, len(items), b"".join(pickling.dumps(list(items)))))  # type: ignore[arg-type]


@pytest.fixture
def line() -> Line:
    return Line(Observables())


def events(line: Line, reader: Subscription) -> list[Any]:
    """Return all that a reader meets, the items of all lists in one."""
    found: list[Any] = []
    while True:
        line.deliver()
        met = reader.events()
        if not met:
            return found
        for event in met:
            found += event if isinstance(event, list) else [event]


def test_each_reader_gets_what_is_kept_and_then_what_comes(line: Line) -> None:
    line.write(1, 2)
    one = line.readers.open("x")
    line.write(3)
    other = line.readers.open("x")
    assert events(line, one) == events(line, other) == [1, 2, 3]
    line.write("a", name="y")
    assert events(line, one) == []
    line.write(4)
    assert events(line, one) == events(line, other) == [4]
    assert line.keeper.sizes == {"x": 2}


def test_a_slow_reader_is_told_how_many_items_it_has_missed(line: Line) -> None:
    line.ask(lambda number: ConfigureObservable(number, "x", 3))
    reader = line.readers.open("x")
    line.deliver()
    for n in range(10):
        line.write(n)
    assert events(line, reader) == [0, Missed(6), 7, 8, 9]
    line.write(*range(10, 20))
    assert events(line, reader) == [Missed(7), 17, 18, 19]


def test_the_end_of_a_job_comes_after_its_items_and_counts_the_jobs_that_go_on(line: Line) -> None:
    line.keeper.run_begins(1, ["x"])
    line.keeper.run_begins(2, ["x", "y"])
    line.write(1)
    line.keeper.run_ends(1, ["x"], job="one")
    line.keeper.run_ends(1, ["x"], job="one")  # it is told once
    line.keeper.run_ends(2, ["x", "y"], job="two", cancelled=True)
    assert events(line, line.readers.open("x")) == [1, JobEnd("one", 1), JobEnd("two", 0, None, True)]
    assert events(line, line.readers.open("y")) == [JobEnd("two", 0, None, True)]


def test_an_end_is_an_old_one_when_another_job_begins(line: Line) -> None:
    for run in (1, 2):
        line.keeper.run_begins(run, ["x"])
        line.write(run)
        line.keeper.run_ends(run, ["x"], job="job")
    assert events(line, line.readers.open("x")) == [1, JobEnd("job", 0, is_old=True), 2, JobEnd("job", 0)]


def test_a_reader_of_what_is_destroyed_is_told_and_gets_nothing_of_the_next(line: Line) -> None:
    one, other = line.readers.open("x"), line.readers.open("x")
    line.write(1)
    assert events(line, one) == [1]
    line.deliver()
    line.ask(lambda number: DestroyObservable(number, "x"))
    line.write(2)
    [gone] = events(line, one)
    assert isinstance(gone, Destroyed)
    found = events(line, other)
    assert found[0] == 1
    assert isinstance(found[1], Destroyed)
    assert events(line, line.readers.open("x")) == [2]


def test_another_keeper_is_an_error_and_then_the_reader_goes_on_there(line: Line) -> None:
    reader = line.readers.open("x")
    line.write(1)
    assert events(line, reader) == [1]
    line.keeper = Observables()
    line.write(5)
    line.readers.again()
    lost, *others = events(line, reader)
    assert isinstance(lost, MemberLostError)
    assert "kept observable 'x' is gone" in str(lost)
    assert others == [5]


@pytest.mark.parametrize("seed", seeds(20))
def test_nothing_is_lost_or_doubled_when_messages_are(line: Line, seed: int) -> None:
    chance, sent, got = random.Random(seed), 0, []
    reader = line.readers.open("x")
    for _ in range(200):
        match chance.randrange(6):
            case 0 | 1:
                count = chance.randint(1, 5)
                line.write(*range(sent, sent + count))
                sent += count
            case 2 if line.to_member:
                line.serve(line.to_member.popleft())
            case 3 if line.to_client:
                line.hear(line.to_client.popleft())
            case 4:
                got += [item for event in reader.events() for item in event]  # type: ignore[union-attr]
            case 5 if chance.random() < 0.3:  # the connection breaks, and is made again
                line.to_member.clear()
                line.to_client.clear()
                line.readers.again()
    line.readers.again()
    assert got + events(line, reader) == list(range(sent))


def test_the_capacity_is_set_before_anything_else(line: Line) -> None:
    line.ask(lambda number: ConfigureObservable(number, "x", 5))
    line.ask(lambda number: ConfigureObservable(number, "x", 5))
    assert not isinstance(line.replies[-1], Refused)
    refused = line.ask(lambda number: ConfigureObservable(number, "x", 6))
    assert "in use with a capacity of 5 items" in refused.text
    line.readers.open("y")
    assert f"capacity of {CAPACITY} items" in line.ask(lambda number: ConfigureObservable(number, "y", 5)).text
    assert "more than 10000000" in line.ask(lambda number: ConfigureObservable(number, "z", 10**9)).text


def test_readers_that_are_gone_are_forgotten(line: Line) -> None:
    for _ in range(3):
        del_me = line.readers.open("x")
        line.deliver()
    del del_me
    left = line.readers.open("x")
    line.deliver()
    assert line.keeper.sizes == {"x": 1}
    left.leave()
    line.deliver()
    assert line.keeper.sizes == {}
    kept = line.readers.open("x")
    line.keeper.client_gone(line)  # type: ignore[arg-type]
    assert line.keeper.sizes == {}
    assert events(line, kept) == []


def test_a_client_has_so_many_readers_at_most(line: Line) -> None:
    kept = [line.readers.open("x") for _ in range(MOST_SUBSCRIPTIONS)]
    line.deliver()
    assert line.keeper.sizes == {"x": len(kept)}
    assert isinstance(line.ask(lambda number: ReadObservable(number, 10**6, "x")), Refused)


def test_looking_makes_only_so_many_observables(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observables, "MOST_UNWRITTEN", 2)
    for number, name in enumerate("abc"):
        line.ask(lambda at, n=number, name=name: ReadObservable(at, n, name))  # type: ignore[misc]
    assert [type(reply) for reply in line.replies] == [Done, Done, Refused]
    assert isinstance(line.ask(lambda at: ConfigureObservable(at, "c", 5)), Refused)
    line.write(1, name="c")  # a job may
    assert events(line, line.readers.open("c")) == [1]


def test_a_stranger_does_not_write(line: Line) -> None:
    line.is_here = False
    assert line.ask(lambda number: WriteObservable(number, "x", 1, b"")).error == "AuthenticationError"


def test_a_reader_meets_the_end_of_its_instance(line: Line) -> None:
    reader = line.readers.open("x")
    line.readers.close(ShmjetError("closed"))
    reader.wait()
    assert [str(event) for event in events(line, reader)] == ["closed"]
    with pytest.raises(ShmjetError, match="closed"):
        line.readers.open("x")
