"""Sinks that assert."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import shmjet
from shmjet import Batch, JobFailedError, sinks, sources
from shmjet.processors.checks.assertion_sinks import difference
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
    ],
)
def test_what_is_not_expected_fails_the_job_and_is_shown(jet: shmjet.JetInstance, sink: Any, text: str) -> None:
    with pytest.raises(JobFailedError, match=text) as caught:
        run(jet, sources.items([1, 2, 3]), sink)
    assert isinstance(caught.value.cause, AssertionError)
    assert caught.value.vertex == sink.name


values = st.lists(st.one_of(st.integers(0, 3), st.sampled_from(["a", "b"])))


@given(values, values)
def test_the_difference_is_the_same_for_items_that_cannot_be_hashed(left: list[Any], right: list[Any]) -> None:
    missing, unexpected = difference(left, right)
    wrapped = difference([[item] for item in left], [[item] for item in right])
    assert sorted(map(repr, missing)) == sorted(repr(item) for [item] in wrapped[0])
    assert sorted(map(repr, unexpected)) == sorted(repr(item) for [item] in wrapped[1])
