"""The join of two streams of batches against the interpreter, however rows are cut, with restarts in the middle."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet import Batch, Watermark
from shmjet.columns import stream_join, stream_rows
from shmjet.columns.stream_join_columns import How, JoinColumns
from shmjet.columns.stream_kinds import StreamKinds
from shmjet.core.state_placement import StatePlacement
from shmjet.data.column_keys import hash_rows
from shmjet.data.errors import BatchError
from shmjet.processors.time.column_stream_join import join_streams_of_columns
from tests.examples import examples
from tests.memory import held_bytes
from tests.processors.restoring import Stage
from tests.time import interpreter
from tests.time.interpreter import Event

PARTITIONS = 7
COLUMNS = JoinColumns(("k", "other"), ("id", "more"), "ts", "at", "_right")


@pytest.fixture(autouse=True, scope="module")
def small_steps() -> Iterator[None]:
    """Have few pairs at once, small runs, and keys that get other numbers early."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream_rows, "STEP_ROWS", 3)
        patch.setattr(stream_rows, "LEAST_RUN", 4)
        patch.setattr(stream_join, "LEAST_DEAD", 3)
        yield


Row = tuple[int, Any, Any, int]
"""A timestamp, two keys and a value."""


def batch_of(side: int, rows: list[Row]) -> Batch:
    time, key, other = (("ts", "k", "other"), ("at", "id", "more"))[side]
    return Batch(
        {
            time: np.array([row[0] for row in rows], np.int64),
            key: [row[1] for row in rows],
            other: [row[2] for row in rows],
            "v": np.array([row[3] for row in rows], np.int64),
        }
    )


def key_of(row: Row) -> Any:
    key = row[1], row[2]
    return object() if None in key or any(part != part for part in key) else key


def stage_of(within: int, processors: int, how: How = "inner") -> Stage:
    placement = StatePlacement(PARTITIONS, COLUMNS.left_keys)
    return Stage(join_streams_of_columns(COLUMNS, within, how), processors, placement)


def feed(stage: Stage, side: int, rows: list[Row]) -> None:
    batch = batch_of(side, rows)
    kinds = StreamKinds()
    kinds.add(batch)
    head = kinds.head()  # tells the columns, as an edge does
    count = len(stage.processors)
    owners = hash_rows(batch, COLUMNS[side]) % PARTITIONS % count
    for index in range(count):
        part = batch.filter(owners == index)
        stage.feed(index, [part if len(part) else head], side)


def mark(stage: Stage, timestamp: int) -> None:
    for index, processor in enumerate(stage.processors):
        while not stage.call(index, processor.try_process_watermark, Watermark(timestamp)):
            pass


NAMES = ("ts", "k", "other", "v", "v_right")


def found(stage: Stage, how: How) -> Counter[Any]:
    """Count the rows of results; columns of a side that has had no batch may be missing in outer joins."""
    batches = [item for item in stage.output if isinstance(item, Batch)]
    if how == "inner":
        assert all(batch.names == ("ts", "k", "other", "v", "at", "v_right") for batch in batches)
    rows = [row for batch in batches for row in batch.rows()]
    return Counter(tuple(plain(row.get(name)) for name in NAMES) for row in rows)


def plain(value: Any) -> Any:
    """Return a value that is equal to itself."""
    return "nan" if value != value else value


def result(time: int, left: Row | None, right: Row | None) -> tuple[Any, ...]:
    """Return what comes out of a pair; of a right row alone under the left names, if a left one has told these."""
    key = left or right
    assert key is not None
    return time, plain(key[1]), plain(key[2]), left and left[3], right and right[3]


def check(calls: list[Any], within: int, processors: int = 1, how: How = "inner") -> None:
    """Run and compare: (side, rows), steps of the watermark, and processors after a restart."""
    stage, late = stage_of(within, processors, how), 0
    sides: tuple[list[Event], list[Event]] = ([], [])
    top, last = -100, None
    for call in calls:
        if isinstance(call, tuple):
            side, rows = call
            feed(stage, side, rows)
            sides[side].extend(Event(row[0], row, last) for row in rows)
        elif isinstance(call, str):
            late += sum(processor.late_events_dropped for processor in stage.processors)  # type: ignore[attr-defined]
            stage = stage.restored(int(call))
        else:
            top += call
            last = top
            mark(stage, top)
    stage.complete()
    stage.close()
    expected = interpreter.joined(*sides, within, key_of, how=how)
    assert found(stage, how) == Counter(result(*each) for each in expected.results)
    late += sum(processor.late_events_dropped for processor in stage.processors)  # type: ignore[attr-defined]
    assert late == len(expected.late)


def streams(keys: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    row = st.tuples(st.integers(-60, 60), keys, st.sampled_from(["a", "b", None]), st.integers(0, 9))
    batch = st.tuples(st.integers(0, 1), st.lists(row, min_size=1, max_size=8))
    return st.lists(st.one_of(batch, batch, batch, st.integers(1, 40), st.sampled_from("123")), max_size=14)


@examples(25)
@given(streams(st.sampled_from([1, 2, 3, None])), st.sampled_from([0, 1, 7, 30, 1000]), st.integers(1, 3))
def test_integer_keys(calls: list[Any], within: int, n: int) -> None:
    check(calls, within, n)


@examples(12)
@given(streams(st.sampled_from([0.5, -0.0, 0.0, math.nan, None])), st.sampled_from([0, 7, 1000]), st.integers(1, 3))
def test_float_keys(calls: list[Any], within: int, n: int) -> None:
    check(calls, within, n)


@examples(8)
@given(streams(st.sampled_from(["", "a", "a text of more than twelve bytes", None])), st.sampled_from([3, 1000]))
def test_text_keys(calls: list[Any], within: int) -> None:
    check(calls, within)


def test_numbers_are_equal_whatever_their_dtype() -> None:
    check(
        [(0, [(1, 1, "a", 1), (2, 2, "a", 1)]), (1, [(1, 1.0, "a", 2), (2, 2.5, "a", 3)]), (0, [(2, 2.5, "a", 4)])], 5
    )


def test_times_that_are_far_apart() -> None:
    far = 1 << 61
    rows = [(-far, 1, "a", 1), (far, 1, "a", 2), (0, 1, "a", 3)]
    check([(0, rows), (1, rows)], 5)
    check([(0, rows), (1, rows)], 2 * far)


@examples(25)
@given(
    streams(st.sampled_from([1, 2, None])),
    st.sampled_from([0, 1, 7, 30, 1000]),
    st.integers(1, 3),
    st.sampled_from(["left", "right", "outer"]),
)
def test_rows_without_a_match(calls: list[Any], within: int, n: int, how: How) -> None:
    both = [(side, [(-60, 5, "c", 1)]) for side in (0, 1)]  # a match, so that both sides have told their columns
    check([*both, *calls], within, n, how)


def test_rows_without_a_match_come_before_the_watermark_that_is_passed_on() -> None:
    stage = stage_of(5, 1, "outer")
    feed(stage, 0, [(10, 1, "a", 1), (12, None, "a", 2)])
    feed(stage, 1, [(11, 2, "a", 3)])
    mark(stage, 15)
    mark(stage, 18)
    assert [item.timestamp if isinstance(item, Watermark) else item["ts"].tolist() for item in stage.output] == [
        10,
        [10, 12],
        [11],
        13,
    ]
    stage.close()


def test_times_of_rows_without_a_match_are_of_the_left_column() -> None:
    join = stream_join.StreamJoin(JoinColumns(("k",), ("id",), "ts", "at"), 10, "outer")
    list(join.add(1, Batch({"at": [7], "id": [1], "w": [0.5]}), 0))
    assert [batch.to_dict() for batch in join.unmatched(20)] == [{"ts": [7], "k": [1], "at": [7], "w": [0.5]}]
    join.forget(20)
    list(join.add(0, Batch({"ts": np.array([25], "M8[ms]"), "k": [1], "v": ["x"]}), 0))
    list(join.add(1, Batch({"at": [27], "id": [2], "w": [1.5]}), 0))
    left, right = join.unmatched(50)
    assert left.names == right.names == ("ts", "k", "v", "at", "w")
    assert left["ts"].dtype == right["ts"].dtype == np.dtype("M8[ms]")
    assert (left["at"].to_list(), left["w"].to_list()) == ([None], [None])
    assert (right["k"].tolist(), right["v"].to_list(), right["ts"].astype(int).tolist()) == ([2], [None], [27])


def test_many_rows_of_one_key_are_joined_by_time() -> None:
    rows = [(stamp, 1, "a", stamp) for stamp in range(200)]
    check([(0, rows), (1, rows[::-1]), 150, (1, rows), "2", (0, rows)], 2)


def test_rows_and_keys_that_match_no_more_are_forgotten() -> None:
    stage = stage_of(5, 1)
    held = []
    for number in range(100):
        feed(stage, number % 2, [(number * 10 + i, number * 10 + i, "a", 1) for i in range(6)])
        mark(stage, number * 10)
        stage.output.clear()
        held.append(held_bytes(stage.processors[0]))
    assert max(held[50:]) < 1.2 * max(held[:20])
    stage.close()


def test_the_left_time_column_has_the_later_time_in_its_own_unit() -> None:
    columns = JoinColumns(("k",), ("k",), "ts", "at")
    join = stream_join.StreamJoin(columns, 10)
    stamps = np.array(["1970-01-01T00:00:00.005900", "1970-01-01T00:00:00.009900"], "M8[us]")
    assert not list(join.add(0, Batch({"ts": stamps, "k": [1, 2]}), 0))
    (found,) = join.add(1, Batch({"at": [7, 8], "k": [1, 2]}), 0)
    assert found["ts"].tolist() == np.array([7000, 9900], "M8[us]").tolist()


def test_the_left_time_column_keeps_its_zone() -> None:
    join = stream_join.StreamJoin(JoinColumns(("k",), ("k",), "ts", "at"), 10, "outer")
    instants = [datetime(1970, 1, 1, tzinfo=UTC), datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)]
    assert not list(join.add(0, Batch({"ts": instants, "k": [1, 2]}), 0))
    (found,) = join.add(1, Batch({"at": [8, 5_000], "k": [1, 3]}), 0)
    assert found["ts"].to_list() == [datetime(1970, 1, 1, 0, 0, 0, 8_000, tzinfo=UTC)]
    left, right = join.unmatched(20_000)
    assert left["ts"].to_list() == right["ts"].to_list() == instants[1:]


def test_columns_of_one_name_and_keys_of_other_kinds_are_refused() -> None:
    join = stream_join.StreamJoin(JoinColumns(("k",), ("k",), "ts", "ts"), 10)
    list(join.add(0, Batch({"ts": [1], "k": [1]}), 0))
    with pytest.raises(BatchError, match="both sides of the join have a column 'ts'; rename one, or give suffix="):
        list(join.add(1, Batch({"ts": [1], "k": [1]}), 0))
    with pytest.raises(BatchError, match="'k'"):
        list(join.add(1, Batch({"ts": [1], "k": ["a"]}), 0))


@pytest.mark.parametrize("how", ["inner", "outer"])
def test_keys_are_looked_through_only_when_many_rows_have_gone(how: How, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    look = stream_rows.StreamRows.used

    def counted(self: stream_rows.StreamRows, count: int) -> Any:
        nonlocal looks
        looks += 1
        return look(self, count)

    monkeypatch.setattr(stream_rows.StreamRows, "used", counted)
    monkeypatch.setattr(stream_join, "LEAST_DEAD", 100)
    join = stream_join.StreamJoin(JoinColumns(("k", "j"), ("k", "j"), "ts", "at"), 2_000, how)

    def add(times: range) -> None:
        for time in times:
            keys = list(range(10 * time, 10 * time + 10))
            list(join.add(time % 2, Batch({("ts", "at")[time % 2]: [time] * 10, "k": keys, "j": keys}), 0))
            join.forget(time)

    add(range(200))
    assert looks == 0, "no row has gone"
    add(range(200, 4_000))
    assert join.num_keys < 3 * 10 * 2_000 + 100, "keys without rows go"
    assert looks <= 2 * 6, "in steps of as many rows as there are keys"
    join.forget(10_000)
    assert join.num_keys == 0
    for time in range(10_000, 10_500):  # keys that match nothing are not kept where such rows do not come out
        list(join.add(0, Batch({"ts": [time] * 10, "k": range(10 * time, 10 * time + 10), "j": [None] * 10}), 0))
        join.forget(time + 4_000)
    assert join.num_keys < 1000
