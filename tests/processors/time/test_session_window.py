"""Session windows: Jet's numerics, case by case, and against an interpreter."""

from __future__ import annotations

import math
from operator import itemgetter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet import Watermark, processors
from shmjet.aggregate_ops import aggregate_operation2, counting, summing, to_list
from shmjet.core.windows import SessionWindow, SlidingWindowPolicy
from shmjet.testing import verify_processor
from tests.memory import held_bytes
from tests.processors.driving import Driver, processors_of, restored
from tests.processors.time.interpreter import counted, session_counts
from tests.processors.time.streams import play, run, streams

TIME, KEY = itemgetter(0), itemgetter(1)


def sessions(gap: int, op: Any = None, **options: Any) -> Any:
    return processors.aggregate_to_session_window(KEY, TIME, SessionWindow(gap), op or counting(), **options)


def test_a_session_goes_on_while_events_come_within_the_gap() -> None:
    verify_processor(sessions(10)).inputs(
        [(0, "a"), (9, "a"), (18, "a"), (3, "b"), Watermark(28), Watermark(29), (40, "a")]
    ).expect([(3, 13, "b", 1, False), Watermark(28), (0, 28, "a", 3, False), Watermark(29), (40, 50, "a", 1, False)])


def test_a_watermark_is_held_for_a_session_that_ends_with_it_and_not_for_one_that_has_grown() -> None:
    def passed(*events: tuple[int, int]) -> list[int]:
        supplier = processors.aggregate_to_session_window(None, None, SessionWindow(10), counting(), timed=True)
        output = run(supplier, [*events, Watermark(10)]).output
        return [found.timestamp for found in output if isinstance(found, Watermark)]

    assert passed((0, 1)) == [9]
    assert passed((0, 1), (5, 1)) == [10]
    assert passed((0, 1), (5, 1), (0, 2)) == [9]


def test_sessions_that_touch_are_two() -> None:
    verify_processor(sessions(10)).inputs([(0, "a"), (10, "a"), (-10, "a")]).expect(
        [(-10, 0, "a", 1, False), (0, 10, "a", 1, False), (10, 20, "a", 1, False)]
    )


def test_an_event_between_two_sessions_makes_one_of_them() -> None:
    op = to_list().and_then(lambda items: sorted(map(TIME, items)))
    verify_processor(sessions(10, op)).inputs([(0, "a"), (12, "a"), (30, "a"), (9, "a")]).expect(
        [(0, 22, "a", [0, 9, 12], False), (30, 40, "a", [30], False)]
    )


def test_an_event_before_its_session_extends_it() -> None:
    verify_processor(sessions(10)).inputs([(5, "a"), (-4, "a"), Watermark(16)]).expect(
        [(-4, 15, "a", 2, False), Watermark(16)]
    )


def test_an_event_below_the_watermark_is_late() -> None:
    driver = run(sessions(10), [(5, "a"), Watermark(10), (9, "a"), (10, "a"), Watermark(40), (35, "a")])
    assert counted(driver.output) == {(5, 20, "a"): 2}
    assert driver.processor.late_events_dropped == 2
    verify_processor(sessions(10, late_ordinal=1)).inputs([Watermark(10), (9, "a"), (10, "b")]).expect(
        [Watermark(10), (10, 20, "b", 1, False)], [Watermark(10), (9, "a")]
    )


def test_sessions_without_keys_of_timed_items() -> None:
    supplier = processors.aggregate_to_session_window(None, None, 1, summing(), keyed=False, timed=True)
    verify_processor(supplier).inputs([(5, 3), (900, 4), (2_000, 5), Watermark(1_901)]).expect(
        [(1_899, (5, 1_900, 7, False)), Watermark(1_901), (2_999, (2_000, 3_000, 5, False))]
    )


def test_several_inputs_are_in_one_session() -> None:
    op = aggregate_operation2(counting(), to_list())
    verify_processor(sessions(10, op)).inputs([(1, "a"), (30, "a")], [(8, "a"), (15, "b")]).any_order().expect(
        [(1, 18, "a", (1, [(8, "a")]), False), (30, 40, "a", (1, []), False), (15, 25, "b", (0, [(15, "b")]), False)]
    )


def test_early_results_come_by_the_clock() -> None:
    (processor,) = processors_of(sessions(10, to_list(), early_results=1))
    now = 0.0
    processor.clock = lambda: now
    driver = Driver(processor).feed([(0, "a"), (5, "a"), (30, "b")])
    assert processor.next_call == 1.0
    now = 1.5
    driver.until_true(processor.try_process)
    early = [(0, 15, "a", [(0, "a"), (5, "a")], True), (30, 40, "b", [(30, "b")], True)]
    assert driver.output == early
    driver.feed([(7, "a")])
    assert driver.complete() == [
        *early,
        (0, 17, "a", [(0, "a"), (5, "a"), (7, "a")], False),
        (30, 40, "b", [(30, "b")], False),
    ]


@pytest.mark.parametrize(
    "supplier",
    [
        sessions(10, early_results=1),
        processors.aggregate_to_sliding_window(KEY, TIME, SlidingWindowPolicy(10, 10), counting(), early_results=1),
    ],
)
def test_where_no_window_is_open_no_timer_runs(supplier: Any) -> None:
    (processor,) = processors_of(supplier)
    now = 0.0
    processor.clock = lambda: now
    driver = Driver(processor)
    now = 1.0
    driver.until_true(processor.try_process)
    assert processor.next_call == math.inf
    now = 5.25
    driver.feed([(0, "a")])
    assert processor.next_call == 1.0
    driver.until_true(processor.try_process_watermark, Watermark(50))
    now = 6.5
    driver.until_true(processor.try_process)
    assert processor.next_call == math.inf


def test_sessions_that_have_ended_leave_nothing_behind() -> None:
    (processor,) = processors_of(sessions(10))
    driver = Driver(processor)
    held = []
    for turn in range(200):
        driver.feed([(turn * 10 + n % 5, f"{turn}-{n % 10}") for n in range(50)])
        driver.until_true(processor.try_process_watermark, Watermark(turn * 10))
        driver.output.clear()
        held.append(held_bytes(processor))
    assert max(held[100:]) < 1.2 * max(held[:20])


def test_an_operation_needs_combine() -> None:
    with pytest.raises(ValueError, match="no combine function"):
        sessions(1, processors.AggregateOperation(list, list.append))


@given(stream=streams(), gap=st.integers(1, 30), fold=st.sampled_from([counting(), to_list().and_then(len)]))
def test_sessions_are_those_of_the_interpreter(stream: list[Any], gap: int, fold: Any) -> None:
    expected, late = session_counts(stream, gap)
    driver = run(sessions(gap, fold), stream)
    assert counted(driver.output) == expected
    assert driver.processor.late_events_dropped == late


@given(stream=streams(), gap=st.integers(1, 30), at=st.integers(0, 40))
def test_a_restart_anywhere_changes_nothing(stream: list[Any], gap: int, at: int) -> None:
    supplier = sessions(gap)
    (first,) = processors_of(supplier)
    driver = Driver(first)
    play(driver, stream[:at])
    (other,) = restored(supplier, driver.save(), 1)
    play(other, stream[at:])
    assert counted(driver.output + other.complete()) == session_counts(stream, gap)[0]
