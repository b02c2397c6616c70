"""Sinks that assert."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import shmjet
from shmjet import DAG, Batch, JobFailedError, Processor, between, sinks, sources
from shmjet.processors.checks.assertion_sinks import AssertCollectedEventuallyProcessor, difference
from shmjet.testing import AssertionCompletedError
from tests.processors.driving import Driver
from tests.sources.running import run


def test_what_is_expected_passes(jet: shmjet.JetInstance) -> None:
    run(jet, sources.items(range(5000)), sinks.assert_ordered(range(5000)))
    run(jet, sources.items(range(5000)), sinks.assert_any_order(reversed(range(5000))))
    run(jet, sources.items([]), sinks.assert_ordered([]))
    run(jet, sources.items([]), sinks.assert_any_order([]))
    run(jet, sources.items([[1], {"a": 2}]), sinks.assert_any_order([{"a": 2}, [1]]))
    batch = Batch({"a": [1, 2]})
    run(jet, sources.items([batch]), sinks.assert_ordered([{"a": 1}, {"a": 2}]))
    run(jet, sources.items([batch]), sinks.assert_any_order([{"a": 2}, {"a": 1}]))
    run(jet, sources.items(range(5000)), sinks.assert_contains([4999, 0, 0]))
    run(jet, sources.items([[1], {"a": 2}, 3]), sinks.assert_contains([{"a": 2}, 3]))
    run(jet, sources.items([]), sinks.assert_contains([]))
    run(jet, sources.items(range(5000)), sinks.assert_collected(lambda items: sorted(items) == [*range(5000)]))
    run(jet, sources.items([batch]), sinks.assert_collected(lambda rows: rows == [{"a": 1}, {"a": 2}]))


@pytest.mark.parametrize(
    ("sink", "text"),
    [
        (sinks.assert_ordered([1, 3, 2]), r"assert_ordered: item 1 is 2, expected 3"),
        (sinks.assert_ordered([1, 2]), r"expected 2 items, then came 3 as item 2"),
        (
            sinks.assert_ordered([1, 2, 3, 4, 5], "numbers"),
            r"numbers: expected 5 items, got 3; missing at the end: 4",
        ),
        (sinks.assert_ordered([]), r"expected 0 items, then came 1\b.* as item 0"),
        (sinks.assert_any_order([3, 2]), r"expected 2 items in any order, got 3\nunexpected: 1"),
        (sinks.assert_any_order([3, 2, 1, 1, "x"]), r"got 3\nmissing: 1, 'x'"),
        (sinks.assert_any_order([[4], 1, 2], "mine"), r"mine: .*\nmissing: \[4\]\nunexpected: 3"),
        (sinks.assert_any_order([1, 2, 3, *range(10, 20)]), r"missing: 10, 11, 12, 13, 14 and 5 more"),
        (sinks.assert_contains([3, 4, [5]]), r"2 of the expected .* among the 3 that came\nmissing: 4, \[5\]"),
        (sinks.assert_collected(lambda items: len(items) == 4), r"lambda> returned False for 1, 2, 3"),
        (sinks.assert_collected_eventually(60, lambda items: len(items) == 4), r"of 3 items the last error is: Ass"),
    ],
)
def test_what_is_not_expected_fails_the_job_and_is_shown(jet: shmjet.JetInstance, sink: Any, text: str) -> None:
    with pytest.raises(JobFailedError, match=text) as caught:
        run(jet, sources.items([1, 2, 3]), sink)
    assert isinstance(caught.value.cause, AssertionError)
    assert caught.value.vertex == sink.name


class Numbers(Processor):
    """0, 1, 2, ... without an end, a few at a time."""

    is_endless = True
    number = 0

    def complete(self) -> bool:
        if self.outbox.offer(self.number):
            self.number += 1
        return False


def waiting(fn: Callable[[list[Any]], Any]) -> DAG:
    dag = DAG()
    source = dag.new_vertex("numbers", Numbers, 1)
    sink = dag.new_vertex("sink", sinks.assert_collected_eventually(60, fn).supplier)
    return dag.edge(between(source, sink))


def test_a_job_ends_as_soon_as_its_items_are_as_expected(jet: shmjet.JetInstance) -> None:
    def has_come(items: list[int]) -> None:
        assert items[:3] == [0, 1, 2]
        assert 100 in items

    for fn in (has_come, lambda items: items[100] == 100):  # at first an IndexError
        with pytest.raises(JobFailedError, match="items are as expected; this error ends the job") as caught:
            jet.new_job(waiting(fn)).run(timeout=60)
        assert isinstance(caught.value.cause, AssertionCompletedError)


def test_items_that_are_not_as_expected_in_time_fail_the_job() -> None:
    now = [5.0]
    driver = Driver(AssertCollectedEventuallyProcessor(2.0, lambda items: sum(items) > 9, lambda: now[0]))
    driver.feed([1, 2])
    assert driver.processor.next_call == 2.0
    now[0] += 1.5
    assert driver.processor.try_process()
    assert driver.processor.next_call == 0.5
    now[0] += 0.5
    with pytest.raises(AssertionError, match=r"not within 2 s; of 2 items the last error is: AssertionError: .* 1, 2"):
        driver.processor.try_process()
    driver.processor.close()


@pytest.mark.parametrize("timeout", [0, -1, math.nan, math.inf])
def test_a_timeout_is_checked(timeout: float) -> None:
    with pytest.raises(ValueError, match="timeout must be above 0"):
        sinks.assert_collected_eventually(timeout, len)
    with pytest.raises(TypeError, match="expected a function of the items, got 5"):
        sinks.assert_collected_eventually(1, 5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="assert_collected: expected a function"):
        sinks.assert_collected([1])  # type: ignore[arg-type]


values = st.lists(st.one_of(st.integers(0, 3), st.sampled_from(["a", "b"])))


@given(values, values)
def test_the_difference_is_the_same_for_items_that_cannot_be_hashed(left: list[Any], right: list[Any]) -> None:
    missing, unexpected = difference(left, right)
    wrapped = difference([[item] for item in left], [[item] for item in right])
    assert sorted(map(repr, missing)) == sorted(repr(item) for [item] in wrapped[0])
    assert sorted(map(repr, unexpected)) == sorted(repr(item) for [item] in wrapped[1])
