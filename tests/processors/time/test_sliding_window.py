"""Tumbling and sliding windows: Jet's numerics, case by case, and against an interpreter."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from operator import itemgetter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet import KeyedWindowResult, Watermark, WindowResult, processors, sliding, tumbling
from shmjet.aggregate_ops import (
    AggregateOperation,
    aggregate_operation2,
    all_of,
    averaging,
    counting,
    grouping_by,
    linear_trend,
    max_by,
    pick_any,
    summing,
    to_list,
    to_set,
)
from shmjet.aggregate_ops.extremes import first_item
from shmjet.core.keys import partition_id
from shmjet.core.windows import SlidingWindowPolicy
from shmjet.processors.time.window_contents import is_exact
from shmjet.testing import verify_processor
from tests.memory import held_bytes
from tests.processors.driving import Driver, processors_of, restored
from tests.processors.time.interpreter import counted, in_time, sliding_counts
from tests.processors.time.streams import play, run, streams

TIME, KEY, VALUE = itemgetter(0), itemgetter(1), itemgetter(2)


def ms(size: int, slide: int | None = None) -> SlidingWindowPolicy:
    return SlidingWindowPolicy(size, slide or size)


def counts(size: int, slide: int | None = None, **options: Any) -> Any:
    return processors.aggregate_to_sliding_window(KEY, TIME, ms(size, slide), counting(), **options)


# -- Jet's numerics ----------------------------------------------------------------------------------------------------


def test_a_tumbling_window_is_emitted_when_its_end_is_reached() -> None:
    verify_processor(counts(10)).inputs(
        [(0, "a"), (9, "a"), (10, "a"), (3, "b"), Watermark(9), Watermark(10), (19, "a"), Watermark(25)]
    ).expect(
        [
            Watermark(9),
            (0, 10, "a", 2, False),
            (0, 10, "b", 1, False),
            Watermark(10),
            (10, 20, "a", 2, False),
            Watermark(25),
        ]
    )


@pytest.mark.parametrize("op", [counting(), summing(lambda _: 1), to_list().and_then(len)])
def test_a_sliding_window_has_all_its_frames(op: Any) -> None:
    supplier = processors.aggregate_to_sliding_window(KEY, TIME, ms(30, 10), op)
    verify_processor(supplier).inputs([(5, "a"), Watermark(10), (15, "a"), (15, "b"), Watermark(60)]).expect(
        [
            (-20, 10, "a", 1, False),
            Watermark(10),
            (-10, 20, "a", 2, False),
            (-10, 20, "b", 1, False),
            (0, 30, "a", 2, False),
            (0, 30, "b", 1, False),
            (10, 40, "a", 1, False),
            (10, 40, "b", 1, False),
            Watermark(60),
        ]
    )


def test_windows_that_are_left_come_at_the_end() -> None:
    verify_processor(counts(20, 10)).inputs([(5, "a"), Watermark(3), (25, "a")]).expect(
        [
            Watermark(3),
            (-10, 10, "a", 1, False),
            (0, 20, "a", 1, False),
            (10, 30, "a", 1, False),
            (20, 40, "a", 1, False),
        ]
    )


def test_events_before_the_first_watermark_are_not_late() -> None:
    verify_processor(counts(10)).inputs([(1000, "a"), (-1000, "a"), Watermark(500)]).expect(
        [(-1000, -990, "a", 1, False), Watermark(500), (1000, 1010, "a", 1, False)]
    )


def test_times_below_zero_are_as_others() -> None:
    verify_processor(counts(10)).inputs([(-1, "a"), (-10, "a"), (-11, "a"), (0, "a"), Watermark(0)]).expect(
        [(-20, -10, "a", 1, False), (-10, 0, "a", 2, False), Watermark(0), (0, 10, "a", 1, False)]
    )


def test_an_event_is_late_once_the_window_of_its_frame_is_out() -> None:
    driver = run(counts(30, 10), [Watermark(15), (9, "a"), (10, "a"), (25, "a"), Watermark(20), (19, "a"), (20, "a")])
    assert driver.processor.late_events_dropped == 2
    assert counted(driver.output) == {
        (-10, 20, "a"): 1,
        (0, 30, "a"): 3,
        (10, 40, "a"): 3,
        (20, 50, "a"): 2,
    }


def test_late_events_go_where_they_are_sent() -> None:
    stream = [(5, "a"), Watermark(20), (3, "b"), (25, "a"), (4, "a"), Watermark(30)]
    late = counts(10, late_ordinal=1)
    verify_processor(late).inputs(stream).expect(
        [(0, 10, "a", 1, False), Watermark(20), (20, 30, "a", 1, False), Watermark(30)],
        [Watermark(20), (3, "b"), (4, "a"), Watermark(30)],
    )


def test_a_gap_of_ten_years_is_jumped_over() -> None:
    years = 10 * 365 * 24 * 3600 * 1000
    for op in (counting(), to_list().and_then(len)):
        supplier = processors.aggregate_to_sliding_window(KEY, TIME, ms(3, 1), op)
        driver = run(supplier, [(0, "a"), Watermark(0), (years, "a"), Watermark(years)])
        assert counted(driver.output) == {
            (start, start + 3, "a"): 1 for first in (-2, years - 2) for start in range(first, first + 3)
        }
        assert driver.calls < 20


def test_a_key_whose_accumulator_is_as_a_fresh_one_is_not_in_a_sliding_window() -> None:
    supplier = processors.aggregate_to_sliding_window(KEY, TIME, ms(20, 10), summing(VALUE))
    driver = run(supplier, [(5, "a", 7), (15, "a", -7), (16, "b", 1)])
    assert counted(driver.output) == {(-10, 10, "a"): 7, (0, 20, "b"): 1, (10, 30, "a"): -7, (10, 30, "b"): 1}


def test_sums_of_floats_do_not_drift() -> None:
    stream = [(n * 10, "a", 0.1 * n) for n in range(8)] + [(200, "b", 0.5)]
    for op in (summing(VALUE), averaging(VALUE), all_of(summing(VALUE), counting())):
        supplier = processors.aggregate_to_sliding_window(KEY, TIME, ms(30, 10), op)
        driver = run(supplier, [(5, "a", float("inf")), *stream])
        found = counted(driver.output)
        assert found[30, 60, "a"] == op.aggregate([item for item in stream if 30 <= item[0] < 60])
        assert (100, 130, "a") not in found


@dataclass
class Total:
    """An accumulator that is an object."""

    value: Any = 0

    def add(self, item: Any) -> None:
        self.value += item[2]

    def combine(self, other: Total) -> None:
        self.value += other.value

    def deduct(self, other: Total) -> None:
        self.value -= other.value


def total_of(made: Any, add: Any, combine: Any, deduct: Any, finish: Any) -> Any:
    return AggregateOperation(made, add, combine, deduct, finish, finish)


OF_FLOATS = [
    grouping_by(itemgetter(1), summing(VALUE)),
    all_of(counting(), grouping_by(itemgetter(1), averaging(VALUE))),
    summing(lambda item: np.float32(item[2])),
    total_of(Total, Total.add, Total.combine, Total.deduct, lambda total: total.value),
    total_of(
        lambda: [0],
        lambda total, item: [total[0] + item[2]],
        lambda total, other: [total[0] + other[0]],
        lambda total, other: [total[0] - other[0]],
        lambda total: total[0],
    ),
]


@pytest.mark.parametrize("op", OF_FLOATS, ids=range(len(OF_FLOATS)))
def test_floats_that_have_left_a_window_leave_nothing_wherever_they_are_kept(op: Any) -> None:
    stream = [(5, "a", 1e17), *((15 + n * 10, "b" if n % 2 else "a", 0.5 * n) for n in range(9)), (400, "c", 0.5)]
    supplier = processors.aggregate_to_sliding_window(lambda item: 0, TIME, ms(30, 10), op)
    output = run(supplier, stream).output
    found = {(each.start, each.end): each.result for each in output if not isinstance(each, Watermark)}
    for start in range(10, 80, 10):
        assert found[start, start + 30] == op.aggregate([item for item in stream if start <= item[0] < start + 30])


@pytest.mark.parametrize(
    ("accumulator", "is_known"),
    [
        (5, True), (True, True), (np.int64(5), True), (None, True), ("x", True), (Fraction(1, 3), True),
        (timedelta(1), True), ((1, [2, {"k": {3}}]), True), (Total(1), True), (np.zeros(2, np.int64), True),
        (0.5, False), (np.float32(1), False), (1j, False), (Decimal(1), False), ((1, [2, {"k": 0.5}]), False),
        (Total(0.5), False), (Total([0.5]), False), (np.zeros(2), False), (object(), False), (iter([]), False),
    ],
)  # fmt: skip
def test_what_can_be_deducted_is_known(accumulator: Any, is_known: bool) -> None:
    assert is_exact(accumulator) is is_known


def test_what_holds_itself_is_not_looked_through_for_ever() -> None:
    itself: list[Any] = []
    itself.append(itself)
    assert not is_exact(itself)


OPERATIONS = [
    counting(),
    summing(VALUE),
    averaging(VALUE),
    linear_trend(TIME, VALUE),
    max_by(VALUE),
    to_list(),
    to_set(),
    all_of(counting(), max_by(VALUE)),
    pick_any().and_then(lambda item: item is not None),
]


@pytest.mark.parametrize("op", OPERATIONS, ids=str)
@pytest.mark.parametrize("policy", [ms(10), ms(30, 10)], ids=str)
def test_every_operation_gives_in_one_stage_and_in_two_what_it_gives_of_the_events(op: Any, policy: Any) -> None:
    stream = [(time, key, value) for value, (time, key) in enumerate([(3, "a"), (7, "b"), (12, "a"), (31, "a")], 1)]
    expected = {}
    for end in range(0, 80, policy.slide):
        for key in "ab":
            inside = [item for item in stream if item[1] == key and end - policy.size <= item[0] < end]
            if inside:
                expected[end - policy.size, end, key] = str(op.aggregate(inside))
    one = run(processors.aggregate_to_sliding_window(KEY, TIME, policy, op), stream).output
    frames = run(processors.accumulate_by_frame(KEY, TIME, policy, op), stream).output
    two = run(processors.combine_to_sliding_window(policy, op), frames).output
    for output in (one, two):
        assert {where: str(result) for where, result in counted(output).items()} == expected


# -- the forms ---------------------------------------------------------------------------------------------------------


def test_timed_items_bring_their_timestamps_and_results_have_theirs() -> None:
    supplier = processors.aggregate_to_sliding_window(str.lower, None, tumbling(1), counting(), timed=True)
    verify_processor(supplier).inputs([(5, "A"), (6, "a"), Watermark(1_000), (2_500, "a")]).expect(
        [(999, (0, 1_000, "a", 2, False)), Watermark(1_000), (2_999, (2_000, 3_000, "a", 1, False))]
    )


def test_windows_without_keys() -> None:
    stream = [(5, "a"), (6, "b"), Watermark(10), (14, "c")]
    supplier = processors.aggregate_to_sliding_window(None, TIME, ms(20, 10), counting(), keyed=False)
    verify_processor(supplier).inputs(stream).expect(
        [(-10, 10, 2, False), Watermark(10), (0, 20, 3, False), (10, 30, 1, False)]
    )
    frames = run(processors.accumulate_by_frame(None, TIME, ms(20, 10), counting(), keyed=False), stream).output
    assert frames == [(0, 10, 2, False), Watermark(10), (10, 20, 1, False)]
    combined = processors.combine_to_sliding_window(ms(20, 10), counting(), keyed=False, timed=True)
    verify_processor(combined).inputs(frames).expect(
        [(9, (-10, 10, 2, False)), Watermark(10), (19, (0, 20, 3, False)), (29, (10, 30, 1, False))]
    )
    assert [type(item[1]) for item in run(combined, frames).output if isinstance(item, tuple)] == [WindowResult] * 3


def test_the_first_item_of_a_key_is_one_of_its_window() -> None:
    stream = [(n, "ab"[n % 2], n) for n in range(0, 60, 3)] + [(71, "a", None)]
    supplier = processors.aggregate_to_sliding_window(KEY, TIME, ms(20, 10), first_item())
    frames = run(processors.accumulate_by_frame(KEY, TIME, ms(20, 10), first_item()), stream).output
    two = run(processors.combine_to_sliding_window(ms(20, 10), first_item()), frames)
    for driver in (run(supplier, stream), two):
        for (start, end, key), item in counted(driver.output).items():
            assert item == next(each for each in stream if each[1] == key and start <= each[0] < end)


def test_several_inputs_are_aggregated_together() -> None:
    op = aggregate_operation2(counting(), to_list())
    for keys in (KEY, [KEY, KEY]):
        supplier = processors.aggregate_to_sliding_window(keys, [TIME, lambda item: item[0] + 1], ms(10), op)
        verify_processor(supplier).inputs([(1, "a"), (2, "b"), (12, "a")], [(3, "a"), (9, "b")]).any_order().expect(
            [
                (0, 10, "a", (1, [(3, "a")]), False),
                (0, 10, "b", (1, []), False),
                (10, 20, "a", (1, []), False),
                (10, 20, "b", (0, [(9, "b")]), False),
            ]
        )


def test_output_is_mapped_and_none_is_left_out() -> None:
    supplier = counts(10, map_to_output=lambda start, end, key, n, early: None if key == "a" else f"{key}{end}:{n}")
    verify_processor(supplier).inputs([(1, "a"), (2, "b"), (12, "b")]).expect(["b10:1", "b20:1"])


def test_timestamps_may_be_datetimes() -> None:
    moment = datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)
    supplier = processors.aggregate_to_sliding_window(KEY, TIME, tumbling(10), counting())
    assert run(supplier, [(moment, "a"), (7_000, "a")]).output == [KeyedWindowResult(0, 10_000, "a", 2)]
    with pytest.raises(TypeError, match="a timestamp must be an int of milliseconds"):
        run(supplier, [("soon", "a")])


def test_all_nans_are_one_key() -> None:
    nans = [(1, float("nan")), (2, float("nan")), Watermark(5), (12, float("nan"))]
    one = run(counts(20, 10), nans).output
    frames = run(processors.accumulate_by_frame(KEY, TIME, ms(20, 10), counting()), nans).output
    two = run(processors.combine_to_sliding_window(ms(20, 10), counting()), frames).output
    assert [item.result for item in one if isinstance(item, tuple)] == [2, 3, 1]
    assert [item.result for item in two if isinstance(item, tuple)] == [2, 3, 1]


def test_early_results_come_by_the_clock() -> None:
    supplier = counts(20, 10, early_results=0.5)
    (processor,) = processors_of(supplier)
    now = 100.0
    processor.clock = lambda: now
    driver = Driver(processor)
    driver.feed([(5, "a"), (15, "b")])
    assert not driver.output
    assert processor.next_call == 0.5
    now = 100.6
    driver.until_true(processor.try_process)
    early = [
        (-10, 10, "a", 1, True),
        (0, 20, "a", 1, True),
        (0, 20, "b", 1, True),
        (10, 30, "b", 1, True),
    ]
    assert driver.output == early
    assert processor.next_call == 0.5
    driver.until_true(processor.try_process_watermark, Watermark(20))
    assert driver.output[4:] == [(*item[:4], False) for item in early[:3]] + [Watermark(20)]
    driver.feed([(10_000_000_000_000, "c")])
    now = 200.0
    driver.until_true(processor.try_process)
    assert [item[3] for item in driver.output[8:]] == [1, 1, 1]
    verify_processor(counts(10, early_results=3600)).inputs([(1, "a"), Watermark(10)]).expect(
        [(0, 10, "a", 1, False), Watermark(10)]
    )


def test_arguments_are_checked() -> None:
    make = processors.aggregate_to_sliding_window
    with pytest.raises(TypeError, match=r"must be tumbling\(...\) or sliding\(...\), got 10"):
        make(KEY, TIME, 10, counting())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="expected an AggregateOperation"):
        make(KEY, TIME, tumbling(1), len)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no combine function"):
        make(KEY, TIME, sliding(2, 1), processors.AggregateOperation(list, list.append))
    with pytest.raises(ValueError, match="2 inputs, but there are 1 timestamp functions"):
        make([KEY, KEY], [TIME], tumbling(1), aggregate_operation2(counting(), counting()))
    with pytest.raises(TypeError, match="without keys key_fns must be None"):
        make(KEY, TIME, tumbling(1), counting(), keyed=False)
    with pytest.raises(TypeError, match="timestamp_fns must be None"):
        make(KEY, TIME, tumbling(1), counting(), timed=True)
    with pytest.raises(TypeError, match="give timestamp_fns"):
        make(KEY, None, tumbling(1), counting())


def combined(policy: Any) -> Any:
    """Return a checker of a first stage's output: however frames are cut by barriers, the second stage gives this."""
    second = processors.combine_to_sliding_window(policy, counting())
    return lambda expected, actual: (
        expected == actual
        if not any(isinstance(item, KeyedWindowResult) for item in expected)
        else run(second, expected).output == run(second, actual).output
        and [mark for mark in expected if isinstance(mark, Watermark)]
        == [mark for mark in actual if isinstance(mark, Watermark)]
    )


def test_the_first_stage_emits_its_frames_before_each_barrier() -> None:
    stream = [(5, "a"), (7, "b"), (8, "a"), (15, "a"), Watermark(10), (3, "late"), (12, "b"), (16, "a")]
    first = processors.accumulate_by_frame(KEY, TIME, ms(20, 10), counting(), late_ordinal=1)
    check = verify_processor(first).output_checker(combined(ms(20, 10))).inputs(stream)
    frames = [(0, 10, "a", 2, False), (0, 10, "b", 1, False), Watermark(10)]
    rest = [(10, 20, "a", 2, False), (10, 20, "b", 1, False)]
    check.expect(
        [KeyedWindowResult(*item) if isinstance(item, tuple) else item for item in [*frames, *rest]],
        [Watermark(10), (3, "late")],
    )


# -- memory, state, and any stream -------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [ms(30, 10), ms(160, 10)], ids=str)
def test_keys_that_have_gone_leave_nothing_behind(policy: Any) -> None:
    for op in (counting(), to_list()):
        (processor,) = processors_of(processors.aggregate_to_sliding_window(KEY, TIME, policy, op))
        driver = Driver(processor)
        held = []
        for turn in range(200):
            driver.feed([(turn * 10, f"{turn}-{n}") for n in range(50)])
            driver.until_true(processor.try_process_watermark, Watermark(turn * 10))
            driver.output.clear()
            held.append(held_bytes(processor) if turn % 4 == 0 else 0)
        assert max(held[100:]) < 1.2 * max(held[:60])


def test_a_window_of_a_million_frames_costs_what_its_events_cost() -> None:
    events = [(n * 10, "a") for n in range(8)]
    for op in (counting(), to_list().and_then(len)):
        (processor,) = processors_of(processors.aggregate_to_sliding_window(KEY, TIME, ms(1_000_000, 1), op))
        driver = Driver(processor).feed(events)
        driver.until_true(processor.try_process_watermark, Watermark(71))
        results = [item for item in driver.output if not isinstance(item, Watermark)]
        assert results[-1] == (-999_929, 71, "a", 8, False)
        assert len(results) == 71


@pytest.mark.parametrize("count", [1, 2, 3])
def test_state_goes_to_the_processors_that_own_its_keys(count: int) -> None:
    stream = [(n, f"k{n % 7}") for n in range(40)]
    supplier = counts(20, 10)
    drivers = [Driver(processor, index=i, count=2) for i, processor in enumerate(processors_of(supplier, 2))]
    for item in stream[:25]:
        drivers[partition_id(item[1]) % 2].feed([item])
    for driver in drivers:
        driver.until_true(driver.processor.try_process_watermark, Watermark(15))
    others = restored(supplier, [entry for driver in drivers for entry in driver.save()], count)
    for item in stream[25:]:
        others[partition_id(item[1]) % count].feed([item])
    others[0].feed([(9, "late")])
    assert others[0].processor.late_events_dropped == 1
    output = [item for driver in others for item in driver.complete()]
    assert counted([item for driver in drivers for item in driver.output] + output) == sliding_counts(stream, 20, 10)


def test_a_window_that_one_processor_has_emitted_is_not_emitted_again() -> None:
    a, b = "k0", next(f"k{n}" for n in range(1, 99) if partition_id(f"k{n}") % 2 != partition_id("k0") % 2)
    supplier = counts(20, 10)
    drivers = [Driver(processor, index=i, count=2) for i, processor in enumerate(processors_of(supplier, 2))]
    for key, watermark in ((a, 10), (b, 30)):
        driver = drivers[partition_id(key) % 2].feed([(5, key), (25, key)])
        driver.until_true(driver.processor.try_process_watermark, Watermark(watermark))
    (one,) = restored(supplier, [entry for driver in drivers for entry in driver.save()], 1)
    one.feed([(26, b), (35, a)])
    one.complete()
    output = [item for driver in [*drivers, one] for item in driver.output]
    expected = sliding_counts([(5, a), (25, a), (35, a), (5, b), (25, b)], 20, 10)
    expected[20, 40, b] += 1
    assert counted(output) == expected


@given(
    stream=streams(),
    slide=st.sampled_from([1, 7, 10]),
    frames=st.sampled_from([1, 2, 3, 6, 9, 16]),
    op=st.sampled_from([0, 1]),
)
def test_windows_are_those_of_the_interpreter(stream: list[Any], slide: int, frames: int, op: int) -> None:
    operation = [counting(), to_list().and_then(len)][op]
    policy = ms(slide * frames, slide)
    expected, late = sliding_counts(stream, policy.size, slide), in_time(stream, slide)[1]
    one = run(processors.aggregate_to_sliding_window(KEY, TIME, policy, operation), stream)
    assert counted(one.output) == expected
    assert one.processor.late_events_dropped == late
    first = run(processors.accumulate_by_frame(KEY, TIME, policy, operation), stream)
    assert first.processor.late_events_dropped == late
    assert counted(run(processors.combine_to_sliding_window(policy, operation), first.output).output) == expected


@given(stream=streams(), frames=st.integers(1, 4), at=st.integers(0, 40))
def test_a_restart_anywhere_changes_nothing(stream: list[Any], frames: int, at: int) -> None:
    policy = ms(10 * frames, 10)
    expected = sliding_counts(stream, policy.size, 10)
    supplier = processors.aggregate_to_sliding_window(KEY, TIME, policy, counting())
    (first,) = processors_of(supplier)
    driver = Driver(first)
    play(driver, stream[:at])
    (other,) = restored(supplier, driver.save(), 1)
    play(other, stream[at:])
    assert counted(driver.output + other.complete()) == expected
    stage = processors.accumulate_by_frame(KEY, TIME, policy, counting())
    (first,) = processors_of(stage)
    driver = Driver(first)
    play(driver, stream[:at])
    (other,) = restored(stage, driver.save(), 1)
    play(other, stream[at:])
    combined = processors.combine_to_sliding_window(policy, counting())
    assert counted(run(combined, driver.output + other.complete()).output) == expected


def test_the_kind_of_saved_state_tells_slides_apart_but_not_sizes() -> None:
    suppliers = [
        lambda window: processors.aggregate_to_sliding_window(KEY, TIME, window, counting()),
        lambda window: processors.aggregate_to_sliding_window(KEY, TIME, window, counting(), early_results=1),
        lambda window: processors.accumulate_by_frame(KEY, TIME, window, counting()),
        lambda window: processors.combine_to_sliding_window(window, counting()),
    ]
    for make in suppliers:
        kinds: Any = [make(window).state_kind for window in (sliding(2, 1), sliding(3, 1), tumbling(2))]
        assert kinds[0] == kinds[1] != kinds[2]
        assert "slides of 1000 ms" in kinds[0]
