"""Schedules of streams against exact fractions, and numbers that are dealt anew among other processors."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet.data.errors import ConfigError
from shmjet.processors.streams.schedule import Made, NumberShare, Schedule, checked_rate

RATES = [1, 3, 7, 999, 1000, 10**7, 10**9, 0.1, 0.3, 2.5, 1 / 3, 33.333, 0.001]


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("first", [0, 5, 10**6, 10**10])
def test_a_number_is_due_at_its_exact_instant_and_has_its_timestamp_by_floor(rate: float, first: int) -> None:
    schedule = Schedule(1_700_000_000_123, checked_rate("rate", rate))
    numbers = np.arange(first, first + 300, 3)
    assert schedule.timestamp_array(numbers).tolist() == schedule.timestamps(numbers.tolist())
    for number in numbers[:20].tolist():
        due_ms = Fraction(number * 1000) / Fraction(str(rate)).limit_denominator(10**6)
        assert schedule.timestamp(number) == 1_700_000_000_123 + math.floor(due_ms)
        due = schedule.due_ns(number)
        assert schedule.count_due(due) > number >= schedule.count_due(due - 1)
        assert due >= schedule.timestamp(number) * 10**6


def test_of_whole_rates_the_timestamp_is_that_of_the_contract() -> None:
    schedule = Schedule(50, checked_rate("rate", 7))
    assert schedule.timestamps(range(1000)) == [50 + n * 1000 // 7 for n in range(1000)]


@pytest.mark.parametrize("rate", [0, -1, -0.5, math.nan, math.inf, 1e10, 1e-12])
def test_rates_that_are_none_are_refused(rate: float) -> None:
    with pytest.raises(ConfigError, match="the rate must be above 0 and at most 1,000,000,000"):
        checked_rate("the rate", rate)


@pytest.mark.parametrize("rate", [True, "10", None, 1j])
def test_a_rate_is_a_number(rate: Any) -> None:
    with pytest.raises(TypeError, match="the rate must be a number of items a second, got"):
        checked_rate("the rate", rate)


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[int, list[tuple[int, int, int]]]]:
    """For each attempt the number of processors and the calls of `take`: (processor, bound, most)."""
    counts = draw(st.lists(st.integers(1, 5), min_size=1, max_size=5))
    return [
        (
            count,
            draw(st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, 60), st.integers(1, 9)), max_size=12)),
        )
        for count in counts
    ]


@given(histories(), st.integers(1, 4))
def test_numbers_have_no_gap_and_none_comes_twice_however_often_they_are_dealt_anew(
    history: list[tuple[int, list[tuple[int, int, int]]]], last: int
) -> None:
    emitted: list[int] = []
    made: list[Made] = []
    for count, calls in [*history, (last, [(g, 80, 1000) for g in range(last)] * 2)]:
        shares = [NumberShare(g, count) for g in range(count)]
        for share in shares:
            if made:
                share.restore(made)
        for processor, bound, most in calls:
            numbers = list(shares[processor].take(bound, most))
            assert numbers == sorted(numbers)
            assert len(numbers) <= most
            emitted += numbers
        earlier = dict.fromkeys(one for share in shares for one in share.made)
        made = [Made(tuple(share.position for share in shares)), *earlier]
    assert sorted(emitted) == list(range(80))


def test_what_was_made_is_passed_over_and_then_forgotten() -> None:
    share = NumberShare(0, 1)
    share.restore([Made((99, 10_000, 10_001))])
    assert share.take(20_000, 1) == [99]
    numbers: list[int] = []
    while share.made:
        numbers += share.take(20_000, 50)
    left = [n for n in range(102, 20_000) if n % 3 == 0 or (n % 3 == 1 and n >= 10_000) or n >= 10_001]
    assert numbers == left[: len(numbers)]
    assert 10_000 <= share.position < 10_100
