"""The join of two streams: by example, and against all pairs that a reader of the rules would make."""

from __future__ import annotations

import math
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet.core.keys import partition_id
from shmjet.data.errors import ConfigError, ProcessorError
from shmjet.data.marks import Watermark
from shmjet.processors.time.stream_join import stream_join
from shmjet.testing import verify_processor
from tests.memory import held_bytes
from tests.processors.driving import Driver, processors_of, restored

W = Watermark
NAN = math.nan


def key_of(item: Any) -> Any:
    return item[0]


def join(**more: Any) -> Any:
    return stream_join(key_of, key_of, within=0.010, **more)


def mark(driver: Driver, watermark: int) -> Driver:
    driver.until_true(driver.processor.try_process_watermark, W(watermark))
    return driver


def test_items_match_when_their_times_are_at_most_within_apart() -> None:
    left, right = [(100, "ax"), (100, "bx")], [(90, "a1"), (110, "a2"), (89, "a3"), (111, "a4"), (100, "c1")]
    results = [(100, ("ax", "a1")), (110, ("ax", "a2"))]
    verify_processor(join()).inputs(left, right).any_order().expect(results)
    verify_processor(join(fn=lambda a, b: a + b if b == "a2" else None)).inputs(left, right).expect([(110, "axa2")])


def test_every_pair_of_a_key_is_a_result() -> None:
    left, right = [(1, "a1"), (2, "a1"), (2, "a1")], [(3, "a5"), (3, "a5")]
    expected = [(3, ("a1", "a5"))] * 6
    verify_processor(join()).inputs(left, right).any_order().expect(expected)


def test_without_a_distance_only_equal_times_match() -> None:
    supplier = stream_join(None, None, within=0)
    verify_processor(supplier).inputs([(1, "a"), (2, "a")], [(2, "a"), (3, "a")]).expect([(2, ("a", "a"))])


@pytest.mark.parametrize(
    ("how", "unmatched"),
    [
        ("left", [(20, ("b", None)), (21, ("a", None))]),
        ("right", [(20, (None, "c"))]),
        ("outer", [(20, ("b", None)), (20, (None, "c")), (21, ("a", None))]),
    ],
)
def test_rows_without_a_match_come_with_their_own_times_once_none_can_come(how: Any, unmatched: list[Any]) -> None:
    driver = Driver(processors_of(stream_join(None, None, within=0.01, how=how))[0])
    driver.feed([(21, "a"), (20, "b"), (25, "d")]).feed([(20, "c"), (30, "d")], 1)
    mark(driver, 30)
    assert driver.output == [(30, ("d", "d")), W(20)]
    mark(driver, 31)
    first = [row for row in unmatched if row[0] == 20]
    assert driver.output[2:] == [*first, W(21)]
    mark(driver, 100)
    assert driver.output[2 + len(first) + 1 :] == [*unmatched[len(first) :], W(90)]
    assert driver.complete((0, 1))[-1] == W(90)


def test_what_has_no_match_comes_at_the_end() -> None:
    left, right = [(5, "a"), (3, "b")], [(4, "c"), (6, "a")]
    supplier = stream_join(None, None, within=1, how="outer", fn=lambda a, b: f"{a}{b}")
    verify_processor(supplier).inputs(left, right).any_order().expect([(6, "aa"), (3, "bNone"), (4, "Nonec")])


def test_a_row_is_never_late_behind_the_join() -> None:
    driver = Driver(processors_of(stream_join(None, None, within=0.01, how="left"))[0])
    for time in range(0, 100, 7):
        driver.feed([(time, time)])
        mark(driver, time)
    last = -math.inf
    for out in driver.output:
        if isinstance(out, Watermark):
            last = out.timestamp
        else:
            assert out[0] >= last


def test_none_and_nan_match_nothing_and_outer_joins_keep_their_rows() -> None:
    def by(pair: Any) -> Any:
        return pair

    rows = [(1, None), (1, NAN), (1, (NAN, 2))]
    boxed = [(time, [key]) for time, key in rows]
    supplier = stream_join(lambda box: box[0], lambda box: box[0], lambda a, b: (a, b), within=1, how="outer")
    (one,) = processors_of(supplier)
    driver = Driver(one).feed(boxed).feed(boxed, 1)
    (other,) = restored(supplier, driver.save(), 1)
    for each in (driver, other):
        assert len(each.feed(boxed, 1).complete((0, 1))) == 9
    inner = stream_join(lambda box: box[0], lambda box: box[0], within=1)
    assert Driver(processors_of(inner)[0]).feed(boxed).feed(boxed, 1).complete((0, 1)) == []


def test_an_item_below_the_watermark_is_dropped_and_counted() -> None:
    driver = Driver(processors_of(join())[0]).feed([(50, "a1")])
    mark(driver, 55).feed([(54, "a2"), (55, "a3")], 1)
    assert driver.output == [W(55), (55, ("a1", "a3"))]
    assert driver.processor.late_events_dropped == 1


def test_a_side_that_is_ahead_waits_for_the_other_and_memory_falls() -> None:
    driver = Driver(processors_of(join(how="outer"))[0])
    driver.feed([(time, f"{time}") for time in range(0, 100_000, 10)])
    held = [held_bytes(driver.processor)]
    for time in (50_000, 100_011):
        mark(driver, time)
        driver.output.clear()
        held.append(held_bytes(driver.processor))
    assert held[1] < 0.7 * held[0]
    assert held[2] < 0.2 * held[0]


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"join: how must be one of 'inner', 'left', 'right', 'outer', got 'full'"):
        join(how="full")
    with pytest.raises(ConfigError, match="join: within must be at least 0, got -1"):
        stream_join(None, None, within=-1)
    with pytest.raises(TypeError, match="join: expected a function of left and right item, got int"):
        join(fn=3)
    with pytest.raises(ProcessorError, match="two inputs"):
        Driver(processors_of(join())[0]).feed([(1, "a")], 2)
    stream_join(None, None, within=timedelta(seconds=1))


def test_snapshots_keep_rows_and_what_they_have_met() -> None:
    left = [(1, "a1"), W(5), (12, "b1"), W(11), (11, "a3"), W(40), (40, "e1")]
    right = [(2, "a9"), (3, "c1"), W(9), (13, "b2"), W(20), (21, "d1"), W(41)]
    driver = Driver(processors_of(join(how="outer"))[0])
    for ordinal, items in ((0, left), (1, right)):
        driver.feed([item for item in items if not isinstance(item, Watermark)], ordinal)
    expected = sorted(driver.complete((0, 1)), key=repr)
    bare = [[item for item in side if not isinstance(item, Watermark)] for side in (left, right)]
    verify_processor(join(how="outer")).inputs(*bare).any_order().expect(expected)


@pytest.mark.parametrize("how", ["left", "right", "outer"])
def test_rows_that_an_inner_join_has_kept_do_not_come_without_a_match_from_an_outer_one(how: str) -> None:
    """That they have had one is not known."""
    driver = Driver(processors_of(join())[0])
    driver.feed([(1, "a1"), (2, "b1")], 0)
    driver.feed([(3, "a2"), (4, "c1")], 1)
    assert driver.output == [(3, ("a1", "a2"))]
    (other,) = restored(join(how=how), driver.save(), 1)
    other.feed([(5, "c2"), (6, "d1")], 0)
    unmatched = [] if how == "right" else [(6, ("d1", None))]
    assert other.complete((0, 1)) == [(5, ("c2", "c1")), *unmatched]


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from([0, 1]), st.integers(0, 120), st.sampled_from(["a", "b", None, 1, 1.0])),
        st.integers(1, 30),
    ),
    max_size=50,
)


class Interpreter:
    """The rules of the join, by looking at all pairs."""

    def __init__(self, within: int, how: str) -> None:
        self.within = within
        self.waits = how in ("left", "outer"), how in ("right", "outer")
        self.delay = 0 if how == "inner" else within
        self.watermark = -math.inf
        self.rows: list[list[Any]] = []  # side, time, item, key, is done
        self.output: list[Any] = []

    def item(self, side: int, time: int, key: Any, item: Any) -> None:
        if time < self.watermark:
            return
        new = [side, time, item, key, False]
        for row in self.rows:
            if row[0] != side and key is not None and row[3] == key and abs(row[1] - time) <= self.within:
                new[4] = row[4] = True
                self.output.append((max(time, row[1]), (row[2], item) if side else (item, row[2])))
        self.rows.append(new)

    def mark(self, watermark: float) -> None:
        self.watermark = watermark
        for row in sorted(self.rows, key=lambda row: row[1]):
            if self.waits[row[0]] and not row[4] and row[1] < watermark - self.within:
                row[4] = True
                self.output.append((row[1], (None, row[2]) if row[0] else (row[2], None)))
        if watermark < math.inf:
            self.output.append(W(int(watermark) - self.delay))


def owner(key: Any, count: int) -> int:
    return partition_id(key) % count


@given(
    EVENTS,
    st.sampled_from([0, 1, 7, 64, 200]),
    st.sampled_from(["inner", "left", "right", "outer"]),
    st.integers(1, 30),
    st.lists(st.integers(1, 3), min_size=1, max_size=4),
)
def test_random_streams_join_as_all_pairs_do(
    events: list[Any], within: int, how: Any, restart_at: int, counts: list[int]
) -> None:
    supplier = stream_join(key_of, key_of, within=within / 1000, how=how)
    model = Interpreter(within, how)
    parallel = [Driver(p, room=2, index=i, count=1) for i, p in enumerate(processors_of(supplier, 1))]
    output: list[Any] = []
    watermark = -10
    for number, event in enumerate(events):
        if isinstance(event, tuple):
            side, time, key = event
            item = (key, number)
            model.item(side, time, key, item)
            parallel[owner(key, len(parallel))].feed([(time, item)], side)
        else:
            watermark += event
            model.mark(watermark)
            for driver in parallel:
                mark(driver, watermark)
        if number % restart_at == restart_at - 1:
            output += [out for driver in parallel for out in driver.output]
            entries = [entry for driver in parallel for entry in driver.save()]
            parallel = restored(supplier, entries, counts[number % len(counts)])
    model.mark(math.inf)
    output += [out for driver in parallel for out in driver.complete((0, 1))]
    items = Counter(repr(out) for out in output if not isinstance(out, Watermark))
    assert items == Counter(repr(out) for out in model.output if not isinstance(out, Watermark))


@given(EVENTS, st.sampled_from([0, 7, 200]), st.sampled_from(["inner", "outer"]))
def test_one_processor_gives_them_in_order_of_time_and_arrival(events: list[Any], within: int, how: Any) -> None:
    driver = Driver(processors_of(stream_join(key_of, key_of, within=within / 1000, how=how))[0], room=3)
    model = Interpreter(within, how)
    watermark = -10
    for number, event in enumerate(events):
        if isinstance(event, tuple):
            model.item(event[0], event[1], event[2], (event[2], number))
            driver.feed([(event[1], (event[2], number))], event[0])
        else:
            watermark += event
            model.mark(watermark)
            mark(driver, watermark)
    assert Counter(map(repr, driver.output)) == Counter(map(repr, model.output))
    marks = [out for out in driver.output if isinstance(out, Watermark)]
    assert marks == [out for out in model.output if isinstance(out, Watermark)]
    unmatched = [out for out in driver.output if isinstance(out, tuple) and None in out[1]]
    assert unmatched == [out for out in model.output if isinstance(out, tuple) and None in out[1]]
