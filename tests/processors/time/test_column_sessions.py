"""Sessions on batches against the interpreter, however rows are cut into batches, with restarts in the middle.

What is in each session comes from `tests/time/interpreter.py`; the aggregates of its rows are written in plain Python.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet import Batch, Watermark
from shmjet.columns import count, list_, session_groups, sum_
from shmjet.core.state_placement import StatePlacement
from shmjet.processors.time.column_sessions import EarlyColumnSessionsProcessor, sessions_of_columns
from shmjet.processors.time.grouped_windows import GroupedSessions
from tests.examples import examples
from tests.memory import held_bytes
from tests.processors.restoring import Stage
from tests.processors.time.column_rows import (
    EXACT,
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

GAPS = st.sampled_from([1, 3, 10, 40, 200])


@pytest.fixture(autouse=True, scope="module")
def small_tables() -> Iterator[None]:
    """Have tables made anew for a few dead groups, and sessions gathered a few at a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session_groups, "LEAST_DEAD", 3)
        patch.setattr(session_groups, "_GATHERED", 2)
        yield


def stage_of(keys: tuple[str, ...], aggregates: dict[str, Any], gap: int, processors: int, **options: Any) -> Stage:
    grouped = GroupedSessions(keys, aggregates, gap, "ts", **options)
    placement = StatePlacement(PARTITIONS, keys, is_partitioned=bool(keys))
    return Stage(sessions_of_columns(grouped), processors, placement)


def feed(stage: Stage, batch: Batch, keys: tuple[str, ...]) -> None:
    for index, part in enumerate(owned(stage, batch, keys)):
        if len(part):
            stage.feed(index, [part])


def mark(stage: Stage, timestamp: int) -> None:
    for index, processor in enumerate(stage.processors):
        while not stage.call(index, processor.try_process_watermark, Watermark(timestamp)):
            pass


def late_of(stage: Stage) -> int:
    return sum(processor.late_events_dropped for processor in stage.processors)  # type: ignore[attr-defined]


def check(
    calls: list[Any],
    keys: tuple[str, ...],
    aggregates: dict[str, Any],
    gap: int,
    processors: int = 1,
    of_rows: Callable[[list[Row]], dict[str, Any]] = lambda rows: plain([row[3] for row in rows]),
) -> None:
    """Run a stream and compare: lists of rows, steps of the watermark, snapshots, and processors after a restart."""
    stage, late = stage_of(keys, aggregates, gap, processors), 0
    events, top, last = [], -200, None
    for call in calls:
        if isinstance(call, list):
            feed(stage, batch_of(call), keys)
            events += [Event(row[0], row, last) for row in call]
        elif call == "0":
            stage.save()
        elif isinstance(call, str):
            late += late_of(stage)
            stage = stage.restored(int(call))
        else:
            top += call
            last = top
            mark(stage, top)
    stage.complete()
    stage.close()
    expected = interpreter.sessions(events, gap, partial(key_of, keys=keys))
    wanted = Counter(
        (start, end, *of, *(comparable(of_rows(found)[name]) for name in aggregates))
        for (start, end, of), found in expected.results.items()
    )
    assert counted([item for item in stage.output if isinstance(item, Batch)]) == wanted
    assert late + late_of(stage) == len(expected.late)


@examples(40)
@given(streams(rows(NUMBERS, WHOLE)), KEYS, GAPS, st.integers(1, 3))
def test_counts_and_sums_of_integers(calls: list[Any], keys: tuple[str, ...], gap: int, n: int) -> None:
    check(fit(calls, keys), keys, EXACT, gap, n if keys else 1)


@examples(20)
@given(streams(rows(TEXTS, HALVES)), KEYS, GAPS, st.integers(1, 3))
def test_all_aggregates_of_floats(calls: list[Any], keys: tuple[str, ...], gap: int, n: int) -> None:
    check(fit(calls, keys), keys, EXACT | OTHERS | KEPT, gap, n if keys else 1)


@pytest.mark.parametrize("kind", list(VALUES))
@examples(10)
@given(data=st.data(), keys=KEYS, gap=GAPS, n=st.integers(1, 3))
def test_first_last_and_extreme_rows_go_by_time(
    kind: str, data: st.DataObject, keys: tuple[str, ...], gap: int, n: int
) -> None:
    calls = data.draw(streams(rows(NUMBERS, VALUES[kind])))
    check(fit(calls, keys), keys, ORDERED, gap, n if keys else 1, by_rows)


@examples(10)
@given(st.lists(st.lists(st.tuples(st.integers(-900, 900), st.integers(0, 3)), min_size=1), max_size=8), GAPS)
def test_long_runs_out_of_order_join_sessions(batches: list[list[tuple[int, int]]], gap: int) -> None:
    calls: list[Any] = []
    for number, batch in enumerate(batches):
        calls += [[(stamp, key, 1, stamp) for stamp, key in batch], *(["2"] if number % 3 == 1 else [])]
    check(calls, ("k",), EXACT, gap)


def test_sessions_that_only_touch_are_two() -> None:
    check([[(0, 1, 1, 1), (10, 1, 1, 2)], [(-10, 1, 1, 3)]], ("k",), EXACT, 10)
    check([[(0, 1, 1, 1), (10, 1, 1, 2)], [(9, 1, 1, 3)]], ("k",), EXACT, 10)


def test_times_that_are_far_apart() -> None:
    far = (1 << 62) - 100
    check(
        [[(-far, 1, 1, 1), (far, 1, 1, 2), (0, 2, 1, 3)], [(far - 5, 1, 1, 1), (-far + 5, 1, 1, 1)]], ("k",), EXACT, 10
    )


def test_integers_become_floats_and_keys_become_long_in_the_middle() -> None:
    calls: list[Any] = [[(1, 1, 1, 1)], "1", [(5, 2, 1, 0.5), (6, 1, 1, 0.5)], "2", [(7, 2.5, 1, 2), (8, 1, 1, 3)]]
    check(calls, ("k",), EXACT, 10)


def test_keys_and_sessions_that_have_gone_are_forgotten() -> None:
    stage = stage_of(("k",), {"n": count(), "all": list_("v")}, 5, 1)
    held = []
    for number in range(60):
        feed(stage, batch_of([(number * 10, number, 1, 1), (number * 10 + 1, -1, 1, 1)]), ("k",))
        mark(stage, number * 10)
        held.append(held_bytes(stage.processors[0]))
    assert max(held[30:]) < 1.2 * max(held[:20])
    stage.complete()
    assert sum(int(sum(values_of(item, "n"))) for item in stage.output if isinstance(item, Batch)) == 120
    stage.close()


def test_a_larger_gap_after_a_restart_joins_sessions() -> None:
    stage = stage_of(("k",), {"n": count()}, 5, 2)
    feed(stage, batch_of([(0, 1, 1, 1), (9, 1, 1, 1), (40, 1, 1, 1)]), ("k",))
    stage.supplier = sessions_of_columns(GroupedSessions(("k",), {"n": count()}, 20, "ts"))
    stage = stage.restored(1)
    feed(stage, batch_of([(4, 1, 1, 1)]), ("k",))
    stage.complete()
    stage.close()
    assert counted([item for item in stage.output if isinstance(item, Batch)]) == Counter(
        {(0, 24, 1, 3): 1, (40, 45, 1, 1): 1}
    )


def test_the_watermark_waits_for_a_session_that_ends_with_it() -> None:
    stage = stage_of(("k",), {"n": count()}, 10, 1, time_column="time")
    feed(stage, batch_of([(0, 1, 1, 1), (3, 2, 1, 1)]), ("k",))
    mark(stage, 10)
    assert stage.output == [Watermark(9)]
    mark(stage, 12)
    assert [item if isinstance(item, Watermark) else values_of(item, "time") for item in stage.output[1:]] == [
        [9],
        Watermark(12),
    ]
    stage.close()


def test_late_rows_go_to_their_ordinal_and_early_results_are_marked() -> None:
    grouped = GroupedSessions(("k",), {"total": sum_("v")}, 10, "ts", has_early=True)
    stage = Stage(sessions_of_columns(grouped, period=1))
    processor = stage.processors[0]
    assert isinstance(processor, EarlyColumnSessionsProcessor)
    feed(stage, batch_of([(0, 1, 1, 5), (30, 1, 1, 6)]), ("k",))
    processor.clock = lambda: float("inf")  # type: ignore[method-assign]
    while not stage.call(0, processor.try_process):
        pass
    mark(stage, 20)
    feed(stage, batch_of([(19, 1, 1, 7), (21, 1, 1, 8)]), ("k",))
    stage.complete()
    stage.close()
    found = counted([item for item in stage.output if isinstance(item, Batch)])
    assert found == Counter(
        {(0, 10, 1, 5, True): 1, (30, 40, 1, 6, True): 1, (0, 10, 1, 5, False): 1, (21, 40, 1, 14, False): 1}
    )
    assert late_of(stage) == 1
