"""`TimedSource`: what endless sources share."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import pytest

from shmjet.core.broadcast_key import BroadcastKey
from shmjet.core.event_time import EventTimePolicy
from shmjet.data.marks import IDLE, Watermark
from shmjet.processors.time import timed_source as module
from shmjet.processors.time.timed_items import PartitionItems as Items
from shmjet.processors.time.timed_source import TimedSource
from shmjet.testing import verify_processor
from tests.processors.driving import Driver, restored
from tests.processors.time.test_insert_watermarks import MS, Clock, policy, wm


class Steps(TimedSource):
    """Gives the next of some lists of runs in each call."""

    read_again = math.inf

    def __init__(
        self, policy: EventTimePolicy | None, steps: list[list[Items]], partitions: Sequence[Hashable] = (0,)
    ) -> None:
        super().__init__(policy)
        self._steps = steps
        self._partitions = partitions
        self.at = 0

    def first_partitions(self) -> Sequence[Hashable]:
        return self._partitions

    def read(self) -> Iterable[Items]:
        self.at += 1
        self.ended = self.at == len(self._steps)
        return self._steps[self.at - 1]

    def saved_positions(self) -> Iterable[tuple[Any, Any]]:
        return [("at", self.at)]

    def restore_positions(self, entries: list[tuple[Any, Any]]) -> None:
        self.at = dict(entries)["at"]
        self.ended = self.at == len(self._steps)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(module, "monotonic_ns", found)
    return found


def test_runs_of_partitions_in_every_mode() -> None:
    steps = [
        [Items([15, 19], 0), Items([12], 1)],
        [Items([33], 1)],
        [Items([31, 40], 0), Items([], 1)],
    ]
    check = verify_processor(lambda: Steps(policy(idle_timeout=None), steps, (0, 1)))
    check.expect([(15, 15), (19, 19), wm(10), (12, 12), (33, 33), wm(30), (31, 31), (40, 40)])


def test_without_policy_items_are_bare() -> None:
    verify_processor(lambda: Steps(None, [[Items([1, 2], 0), Items([3], 1)], [Items([4])]])).expect([1, 2, 3, 4])


def test_native_timestamps_travel_with_their_items() -> None:
    check = verify_processor(lambda: Steps(policy(timestamps="native"), [[Items(["a", "b"], 0, [7, 12])]]))
    check.expect([wm(0), (7, "a"), wm(10), (12, "b")])


def test_silent_source_sets_one_timer(clock: Clock) -> None:
    source = Steps(policy(idle_timeout=2_000), [[Items([7])], [], [], [Items([8])]])
    driver = Driver(source)
    assert not driver.call(source.complete)
    assert source.next_call == 2.0
    clock.now = 2_000 * MS
    assert not driver.call(source.complete)
    assert driver.output == [wm(0), (7, 7), IDLE]
    assert source.next_call == math.inf
    assert source.time_facts() == [(0, 7, 0, 1)]


def test_partitions_come_and_go(clock: Clock) -> None:
    source = Steps(policy(idle_timeout=None), [[Items([17])], [], [Items([25], 1)], [Items([31])]])
    driver = Driver(source)
    driver.call(source.complete)
    source.add_partitions(1)
    driver.call(source.complete)
    assert driver.output == [wm(10), (17, 17)]
    driver.call(source.complete)
    source.remove_partition(0)
    driver.call(source.complete)
    assert driver.output[2:] == [(25, 25), wm(20), wm(30), (31, 31)]


def test_processor_without_partitions_is_idle_and_saves_no_watermark() -> None:
    source = Steps(policy(), [[], []], partitions=())
    driver = Driver(source)
    driver.call(source.complete)
    assert driver.output == [IDLE]
    assert driver.save() == [("at", 1)]


def test_partitions_go_on_at_their_watermarks_and_new_ones_at_the_least() -> None:
    ahead, behind = (
        Driver(
            Steps(policy(idle_timeout=None), [[Items([first], 0), Items([second], 1)]] * 2, (0, 1)),
            index=i,
            count=2,
        )
        for i, (first, second) in enumerate([(45, 63), (15, 25)])
    )
    for driver in (ahead, behind):
        driver.call(driver.processor.complete)
    saved = [
        (BroadcastKey(("watermark", i)), (mark, tuple((names[k], value) for k, (_, value) in enumerate(marks))))
        for i, (driver, names) in enumerate([(ahead, "ab"), (behind, "cd")])
        for _, (mark, marks) in driver.save()[1:]
    ]
    assert [value for _, value in saved] == [(40, (("a", 45), ("b", 63))), (10, (("c", 15), ("d", 25)))]
    source = Steps(policy(idle_timeout=None), [[], [Items([70], 1)], [Items([80], 0)], []], "be")
    (again,) = restored(lambda: source, saved, 1)
    again.call(source.complete)
    assert again.output == []
    again.call(source.complete)
    again.call(source.complete)
    assert again.output == [wm(60), (70, 70), wm(70), (80, 80)]


def test_policy_that_waits_asks_the_mapper(clock: Clock) -> None:
    source = Steps(policy(max_skew=10), [[Items([50], 0), Items([20], 1)], []], (0, 1))
    driver = Driver(source)
    assert source.may_read(0)
    driver.call(source.complete)
    assert [source.may_read(0), source.may_read(1)] == [False, True]
    assert Watermark(20) in driver.output
