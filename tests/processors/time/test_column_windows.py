"""Windows on batches against the interpreter, however rows are cut into batches, with restarts in the middle.

What is in each window comes from `tests/time/interpreter.py`; the aggregates of its rows are written down here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet import Batch, Watermark
from shmjet.columns import count, first, frame_groups, frame_tables, last, mean, min_by, sum_, window_groups
from shmjet.core.state_placement import StatePlacement
from shmjet.core.windows import SlidingWindow, SlidingWindowPolicy
from shmjet.processors.time import column_windows
from shmjet.processors.time.column_windows import (
    combined_windows_of_columns,
    frames_of_columns,
    windows_of_columns,
)
from shmjet.processors.time.grouped_windows import grouped_by
from shmjet.processors.time.window_processor import EarlyResults
from tests.examples import examples
from tests.processors.restoring import Stage
from tests.processors.time.column_rows import (
    EXACT,
    FLOATS,
    HALVES,
    KEPT,
    KEYS,
    NUMBERS,
    ORDERED,
    OTHERS,
    PARTITIONS,
    TEXTS,
    VALUES,
    WHOLE,
    Row,
    batch_of,
    by_rows,
    comparable,
    counted,
    fit,
    key_of,
    owned,
    plain,
    rows,
    streams,
    values_of,
)
from tests.time import interpreter
from tests.time.interpreter import Event


@pytest.fixture(autouse=True, scope="module", params=[1, 3, frame_tables.LEAST_ROWS])
def small_tables(request: pytest.FixtureRequest) -> Iterator[None]:
    """Have tables made anew for a few dead groups; all frames, some or none have tables of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frame_tables, "LEAST_ROWS", request.param)
        patch.setattr(frame_groups, "LEAST_DEAD", 3)
        patch.setattr(window_groups, "LEAST_DEAD", 3)
        patch.setattr(column_windows, "MEASURED_ROWS", 4)
        patch.setattr(column_windows, "PASSED", 2)
        yield


class Windows:
    """The stages of a window, driven with batches of rows and with watermarks."""

    def __init__(self, grouped: Any, *, two_stages: bool, processors: int, late_ordinal: int | None = None) -> None:
        self.keys = grouped.keys
        one = partial(Stage, placement=StatePlacement(PARTITIONS, self.keys, is_partitioned=bool(self.keys)))
        last = combined_windows_of_columns(grouped) if two_stages else windows_of_columns(grouped)
        self.first = Stage(frames_of_columns(grouped), 2) if two_stages else None
        self.last = one(last, processors)
        self.turn = 0

    def feed(self, batch: Batch) -> None:
        if self.first is None:
            self._own(batch)
            return
        self.first.feed(self.turn % 2, [batch])
        self.turn += 1

    def _own(self, batch: Batch) -> None:
        for index, part in enumerate(owned(self.last, batch, self.keys)):
            if len(part):
                self.last.feed(index, [part])

    def _onward(self) -> None:
        if self.first is not None:
            states = [item for item in self.first.output if isinstance(item, Batch)]
            self.first.output.clear()
            for batch in states:
                self._own(batch)

    def _mark(self, stage: Stage, mark: Watermark) -> None:
        for index, processor in enumerate(stage.processors):
            while not stage.call(index, processor.try_process_watermark, mark):
                pass

    def pass_on(self, timestamp: int) -> None:
        if self.first is not None:
            self._mark(self.first, Watermark(timestamp))
            self._onward()
        self._mark(self.last, Watermark(timestamp))

    def save(self) -> None:
        """Save all, and go on."""
        if self.first is not None:
            self.first.save()
            self._onward()
        self.last.save()

    def restart(self, processors: int) -> None:
        if self.first is not None:
            late = self.late_of(self.first)
            self.first = self.first.restored()
            self._onward()
            self.first.processors[0].late_events_dropped += late  # type: ignore[attr-defined]
        late = self.late_of(self.last)
        self.last = self.last.restored(processors)
        self.last.processors[0].late_events_dropped += late  # type: ignore[attr-defined]

    @staticmethod
    def late_of(stage: Stage) -> int:
        return sum(processor.late_events_dropped for processor in stage.processors)  # type: ignore[attr-defined]

    @property
    def late(self) -> int:
        return self.late_of(self.last) + (self.late_of(self.first) if self.first else 0)

    def end(self) -> list[Batch]:
        if self.first is not None:
            self.first.complete()
            self._onward()
            self.first.close()
        self.last.complete()
        self.last.close()
        return [item for item in self.last.output if isinstance(item, Batch)]


def check(
    calls: list[Any],
    keys: tuple[str, ...],
    aggregates: dict[str, Any],
    size: int,
    slide: int,
    *,
    two_stages: bool = False,
    processors: int = 1,
    of_rows: Callable[[list[Row]], dict[str, Any]] = lambda rows: plain([row[3] for row in rows]),
) -> None:
    """Run a stream and compare: lists of rows, steps of the watermark, snapshots, and processors after a restart."""
    grouped = grouped_by(keys, aggregates, SlidingWindow(SlidingWindowPolicy(size, slide)), "ts")
    windows = Windows(grouped, two_stages=two_stages, processors=processors)
    events, top, mark = [], -200, None
    for call in calls:
        if isinstance(call, list):
            windows.feed(batch_of(call))
            events += [Event(row[0], row, mark) for row in call]
        elif call == "0":
            windows.save()
        elif isinstance(call, str):
            windows.restart(int(call))
        else:
            top += call
            mark = top
            windows.pass_on(top)
    output = windows.end()

    expected = interpreter.sliding(events, size, slide, partial(key_of, keys=keys))
    wanted = Counter(
        (start, end, *of, *(comparable(of_rows(rows)[name]) for name in aggregates))
        for (start, end, of), rows in expected.results.items()
    )
    assert counted(output) == wanted
    assert windows.late == len(expected.late)


SHAPES = st.sampled_from([(10, 10), (20, 10), (60, 10), (120, 10), (12, 1)])


@examples(20)
@given(streams(rows(NUMBERS, WHOLE)), KEYS, SHAPES, st.booleans(), st.integers(1, 3))
def test_counts_and_sums_of_integers(
    calls: list[Any], keys: tuple[str, ...], shape: tuple[int, int], two: bool, n: int
) -> None:
    check(fit(calls, keys), keys, EXACT, *shape, two_stages=two, processors=n if keys else 1)


@examples(20)
@given(streams(rows(TEXTS, HALVES)), KEYS, SHAPES, st.booleans(), st.integers(1, 3))
def test_all_aggregates_of_floats(
    calls: list[Any], keys: tuple[str, ...], shape: tuple[int, int], two: bool, n: int
) -> None:
    check(fit(calls, keys), keys, EXACT | OTHERS, *shape, two_stages=two, processors=n if keys else 1)


@examples(10)
@given(streams(rows(FLOATS, WHOLE)), SHAPES, st.integers(1, 3))
def test_aggregates_that_keep_rows(calls: list[Any], shape: tuple[int, int], n: int) -> None:
    check(calls, ("k",), KEPT | {"n": count()}, *shape, processors=n)


@pytest.mark.parametrize("kind", list(VALUES))
@examples(12)
@given(data=st.data(), keys=KEYS, shape=SHAPES, n=st.integers(1, 3))
def test_first_last_and_extreme_rows_go_by_time(
    kind: str, data: st.DataObject, keys: tuple[str, ...], shape: tuple[int, int], n: int
) -> None:
    calls = data.draw(streams(rows(NUMBERS, VALUES[kind])))
    check(fit(calls, keys), keys, ORDERED, *shape, processors=n if keys else 1, of_rows=by_rows)


@examples(15)
@given(streams(rows(NUMBERS, HALVES)), SHAPES, st.integers(1, 3))
def test_first_and_last_in_two_stages(calls: list[Any], shape: tuple[int, int], n: int) -> None:
    """Each time once: which of equal times came first is not known where two processors emit states."""
    seen: set[int] = set()
    once = [
        [row for row in call if row[0] not in seen and not seen.add(row[0])] if isinstance(call, list) else call  # type: ignore[func-returns-value]
        for call in calls
    ]
    given = [call for call in once if call != []]
    check(given, ("k",), ORDERED, *shape, two_stages=True, processors=n, of_rows=by_rows)


@pytest.mark.parametrize("size", [10, 40])
def test_gaps_are_jumped_over(size: int) -> None:
    far = 10**15
    calls = [[(5, 1, 1, 1)], far, [(far + 5, 1, 1, 2), (far + 7, 2, 1, None)], 400]
    check(calls, ("k",), EXACT, size, 10)


def test_keys_that_have_left_are_forgotten() -> None:
    calls: list[Any] = [200]
    for number in range(12):
        calls += [[(number * 10 + 1, number * 20 + i, 1, i) for i in range(20)], 10]
    check(calls, ("k",), EXACT, 20, 10)


def test_integers_become_floats_in_the_middle() -> None:
    calls = [200, [(1, 1, 1, 1)], 10, [(11, 1, 1, 2)], 10, [(21, 1, 1, 0.5)], 10, [(31, 1, 1, 3)], 10, "1", 10, 10]
    check(calls, ("k",), EXACT, 30, 10)


@pytest.mark.parametrize(("groups", "restarts"), [(1, True), (9, False)])
@pytest.mark.parametrize("two_stages", [False, True])
def test_nulls_that_have_gone_say_nothing_of_the_type_of_a_key(groups: int, restarts: bool, two_stages: bool) -> None:
    """Nulls alone are a column of floats, which does not hold the number here."""
    grouped = grouped_by(("k", "b"), {"n": count()}, SlidingWindow(SlidingWindowPolicy(20, 10)), "ts")
    windows = Windows(grouped, two_stages=two_stages, processors=1)
    number = 2**62 + 1
    windows.feed(Batch({"ts": [1] * groups, "k": [None] * groups, "b": list(range(groups))}))
    windows.feed(Batch({"ts": [11], "k": [None], "b": [0]}))
    windows.pass_on(35)
    if restarts:
        windows.restart(1)
    windows.feed(Batch({"ts": [39], "k": [number], "b": [0]}))
    found = [row["k"] for batch in windows.end() for row in batch.rows() if row["k"] is not None]
    assert found == [number, number]


def test_windows_are_emitted_once_where_processors_were_at_different_ones() -> None:
    grouped = grouped_by(("k",), EXACT, SlidingWindow(SlidingWindowPolicy(30, 10)), "ts")
    windows = Windows(grouped, two_stages=False, processors=2)
    given = [(stamp, key, 1, stamp) for stamp in (1, 11, 21) for key in (*range(8), None)]
    windows.feed(batch_of(given))
    for index, mark in enumerate((Watermark(10), Watermark(30))):
        while not windows.last.call(index, windows.last.processors[index].try_process_watermark, mark):
            pass
    windows.restart(3)
    windows.feed(batch_of([(35, key, 1, 1) for key in range(8)]))
    windows.pass_on(20)
    windows.restart(1)
    output = windows.end()
    found = [row for batch in output for row in zip(values_of(batch, "window_end"), values_of(batch, "k"), strict=True)]
    wanted = {(end, key) for end in (10, 20, 30, 40, 50) for key in (*range(8), None)}
    wanted |= {(60, key) for key in range(8)}
    assert len(found) == len(set(found))
    assert set(found) == wanted


MIXED = st.sampled_from([None, 1, -3, Decimal("0.50"), Decimal("-2.25"), Decimal("1000000.01")])


@examples(30)
@given(
    st.lists(st.lists(st.tuples(st.integers(0, 25), st.integers(0, 1), MIXED), min_size=1, max_size=5), max_size=8),
    st.sampled_from([(10, 10), (20, 10), (60, 10)]),
    st.booleans(),
)
def test_totals_of_columns_that_are_or_become_decimals(
    batches: list[list[tuple[int, int, Any]]], shape: tuple[int, int], two: bool
) -> None:
    """Totals of frames that have left are deducted, be they of integers or of decimals, and of values or of nulls."""
    size, slide = shape
    aggregates = {"m": mean("v"), "s": sum_("v"), "n": count("v")}
    grouped = grouped_by(("k",), aggregates, SlidingWindow(SlidingWindowPolicy(size, slide)), "ts")
    windows, given_rows = Windows(grouped, two_stages=two, processors=1), list[tuple[int, int, Any]]()
    for number, some in enumerate(batches):
        moved = [(20 * number + stamp, key, value) for stamp, key, value in some]
        stamps, keys, values = (list(column) for column in zip(*moved, strict=True))
        windows.feed(Batch({"ts": stamps, "k": keys, "v": values}, schema={"v": kind_of(values)}))
        windows.pass_on(20 * number - 1)
        given_rows += [row for row in moved if row[0] >= 20 * (number - 1)]
    found = {
        (values_of(batch, "window_end")[at], row["k"]): (row["m"], row["s"], row["n"])
        for batch in windows.end()
        for at, row in enumerate(batch.rows())
    }
    wanted: dict[Any, Any] = {}
    for stamp, key, _ in given_rows:
        end = stamp - stamp % slide + slide
        for to in range(end, end + size, slide):
            some_values = [v for ts, k, v in given_rows if k == key and to - size <= ts < to and v is not None]
            total = sum(map(Fraction, some_values))
            known = bool(some_values)
            wanted[to, key] = (
                float(total / len(some_values)) if known else None,
                total if known else None,
                len(some_values),
            )
    assert found.keys() == wanted.keys()
    for place, (average, total, number) in wanted.items():
        assert found[place][2] == number
        assert found[place][0] == (None if average is None else pytest.approx(average, rel=1e-12))
        assert (None if found[place][1] is None else Fraction(found[place][1])) == total


def kind_of(values: list[Any]) -> str:
    return "decimal(12, 2)" if any(isinstance(value, Decimal) for value in values) else "int64"


def test_rows_are_passed_on_behind_the_states_of_those_that_came_before() -> None:
    aggregates = {"one": first("v"), "other": last("v"), "least": min_by("v", "ts")}
    grouped = grouped_by(("k",), aggregates, SlidingWindow(SlidingWindowPolicy(10, 10)), "ts")
    windows = Windows(grouped, two_stages=True, processors=1)
    for number, (stamp, keys) in enumerate([(5, range(9)), (15, [7]), (15, [7]), (15, [7])]):
        windows.turn = 0  # all to one processor
        windows.feed(Batch({"ts": [stamp] * len(keys), "k": list(keys), "v": [number] * len(keys)}))
        if number == 1:
            windows.pass_on(10)  # it pays no more: the rows that come are passed on
    rows = [row for batch in windows.end() for row in batch.rows() if row["k"] == 7]
    assert [(row["one"], row["other"], row["least"]) for row in rows] == [(0, 0, 0), (1, 3, 1)]


def test_early_results_leave_as_much_time_for_the_input_as_they_take(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(EarlyResults, "clock", staticmethod(lambda: now[0]))
    grouped = grouped_by(("k",), {"n": count()}, SlidingWindow(SlidingWindowPolicy(20, 10)), "ts", has_early=True)
    stage = Stage(windows_of_columns(grouped, period=1.0))
    processor: Any = stage.processors[0]
    stage.feed(0, [Batch({"ts": [1, 11], "k": [1, 1]})])
    results = processor.early

    def slow() -> Iterator[Any]:
        for batch in results():
            now[0] += 2.0
            yield batch

    monkeypatch.setattr(processor, "early", slow)
    assert processor.next_call == 1.0
    now[0] = 1.0
    while not stage.call(0, processor.try_process):
        pass
    assert len(stage.output) == 3
    assert now[0] == 7.0
    assert processor.next_call == 6.0
    assert stage.call(0, processor.try_process)
    assert len(stage.output) == 3
