"""When the sink of an observable sends its items: at once while its member keeps up, else together."""

from __future__ import annotations

import math
from typing import Any

import pytest

from shmjet import sinks
from shmjet.core.latency_policy import LOW_LATENCY, THROUGHPUT, LatencyPolicy
from shmjet.data.errors import MemberLostError, ProcessorError
from shmjet.processors.general import observable_sink
from shmjet.ring import pickling
from tests.processors.driving import Driver, processors_of


class Member:
    """What the sink sees of its member, which confirms when the test says so."""

    def __init__(self) -> None:
        self.unconfirmed = 0
        self.lists: list[list[Any]] = []
        self.waits: list[int] = []
        self.closed = False

    def open_observable(self, name: str) -> Member:
        assert name == "x"
        return self

    def write(self, count: int, items: bytes) -> None:
        self.lists.append(pickling.loads(items))
        assert len(self.lists[-1]) == count
        self.unconfirmed += 1

    def wait(self, most: int = 0) -> None:
        self.waits.append(most)
        self.unconfirmed = min(self.unconfirmed, most)

    def close(self) -> None:
        self.closed = True


def driven(member: Any, policy: LatencyPolicy = LOW_LATENCY) -> Driver:
    (processor,) = processors_of(sinks.observable("x").supplier)
    return Driver(processor, grid=member, policy=policy)


@pytest.mark.parametrize("policy", [LOW_LATENCY, THROUGHPUT])
def test_items_wait_for_others_only_while_the_member_is_behind(
    policy: LatencyPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(observable_sink, "monotonic", lambda: now)
    member = Member()
    driver = driven(member, policy)
    for n in range(5):
        driver.feed([n])
    assert member.lists == [[0], [1]]
    assert driver.processor.next_call == pytest.approx(policy.write_delay_ns / 1e9)
    now += policy.write_delay_ns / 1e9
    driver.until_true(driver.processor.try_process)
    assert member.lists == [[0], [1], [2, 3, 4]]
    assert driver.processor.next_call == math.inf
    member.unconfirmed = 0
    driver.feed([5])
    assert member.lists[-1] == [5]


def test_lists_are_no_longer_than_the_policy_says_and_a_slow_member_is_waited_for() -> None:
    member = Member()
    driver = driven(member)
    member.unconfirmed = 20
    driver.feed(range(2500))
    assert list(map(len, member.lists)) == [1024, 1024, 452]
    assert member.waits == [8, 8, 8]
    driver.feed([1]).complete()
    assert member.waits[-1] == 0
    assert member.lists[-1] == [1]
    driver.processor.close()
    assert member.closed


def test_an_item_that_cannot_be_pickled_is_named() -> None:
    with pytest.raises(TypeError, match="generator"):
        driven(Member()).feed([(n for n in range(3))])


def test_without_a_member_there_are_no_observables() -> None:
    with pytest.raises(ProcessorError, match=r"vertex 'v': there are no observables where it runs; use sinks.collect"):
        driven(None)


def test_what_is_left_is_sent_after_an_error_if_that_can_be() -> None:
    member = Member()
    member.unconfirmed = 5
    driver = driven(member)
    driver.feed([1])
    assert member.lists == []
    driver.processor.close()
    assert member.lists == [[1]]

    class Gone(Member):
        def write(self, count: int, items: bytes) -> None:
            raise MemberLostError("gone")

    gone = Gone()
    gone.unconfirmed = 5
    driver = driven(gone).feed([1])
    driver.processor.close()
    assert gone.closed
