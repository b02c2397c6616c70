"""Stages with state that other tests look at piece by piece, in all modes of `verify_processor`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shmjet import Batch, Watermark, column, processors, sources
from shmjet.aggregate_ops import counting
from shmjet.columns import count, median, sum_
from shmjet.columns.stream_join_columns import How, JoinColumns
from shmjet.core.windows import SlidingWindow, SlidingWindowPolicy
from shmjet.processors.columns.distinct_rows import distinct_rows
from shmjet.processors.columns.project_batches import project_batches
from shmjet.processors.columns.union_batches import union_batches
from shmjet.processors.columns.word_count import count_words_of
from shmjet.processors.time.column_sessions import sessions_of_columns
from shmjet.processors.time.column_stream_join import join_streams_of_columns
from shmjet.processors.time.column_windows import combined_windows_of_columns, frames_of_columns, windows_of_columns
from shmjet.processors.time.grouped_windows import GroupedSessions, grouped_by
from shmjet.testing import TestGrid, verify_processor

LONG = 3600.0
"""Seconds between early results: none come in a test."""
WINDOWS = grouped_by(("k",), {"n": count(), "total": sum_("v")}, SlidingWindow(SlidingWindowPolicy(20, 10)), "ts")
SESSIONS = GroupedSessions(("k",), {"n": count(), "total": sum_("v")}, 5, "ts")


def rows(*found: tuple[int, int]) -> Batch:
    """Rows of (timestamp, key); the value is the timestamp."""
    times, keys = zip(*found, strict=True)
    return Batch({"ts": np.array(times), "k": np.array(keys), "v": np.array(times)})


EVENTS: list[Any] = [
    rows((1, 0), (2, 1), (9, 0)),
    Watermark(10),
    rows((12, 0), (25, 1)),
    rows((14, 1)),
    Watermark(31),
    rows((32, 0)),
]


def in_rows(supplier: Any, items: list[Any]) -> list[Any]:
    """Return what a processor emits that is run once, without snapshots: rows, and watermarks."""
    found: list[Any] = []

    def keeps(_: Any, actual: list[Any]) -> bool:
        found[:] = found or texts(actual)
        return True

    verify_processor(supplier).inputs(items).without_snapshots().output_checker(keeps).expect([])
    return found


def texts(items: list[Any]) -> list[Any]:
    """Return rows and watermarks in an order that does not hang on how rows are cut into batches."""
    return sorted(str(row) for item in items for row in (item.tuples() if isinstance(item, Batch) else [item]))


@pytest.mark.parametrize(
    ("supplier", "emitted"),
    [
        (windows_of_columns(WINDOWS), 9),
        (windows_of_columns(WINDOWS, period=LONG), 9),
        (sessions_of_columns(SESSIONS), 7),
        (sessions_of_columns(SESSIONS, period=LONG), 7),
    ],
)
def test_windows_and_sessions_of_columns(supplier: Any, emitted: int) -> None:
    wanted = in_rows(supplier, EVENTS)
    assert len(wanted) >= emitted
    verify_processor(supplier).inputs(EVENTS).output_checker(lambda _, got: texts(got) == wanted).expect([])


def test_the_two_stages_of_windows_of_columns() -> None:
    frames: list[Any] = []

    def keeps(_: Any, actual: list[Any]) -> bool:
        frames[:] = frames or actual
        return sum(item.num_rows for item in actual if isinstance(item, Batch)) >= 6

    verify_processor(frames_of_columns(WINDOWS)).inputs(EVENTS).output_checker(keeps).expect([])
    whole = in_rows(windows_of_columns(WINDOWS), EVENTS)
    combined = combined_windows_of_columns(WINDOWS)
    verify_processor(combined).inputs(frames).output_checker(lambda _, got: texts(got) == whole).expect([])


@pytest.mark.parametrize("how", ["inner", "left", "right", "outer"])
def test_a_join_of_streams_of_columns(how: How) -> None:
    columns = JoinColumns(("k",), ("k",), "ts", "at")
    left = [rows((1, 0), (2, 1)), rows((30, 0)), rows((60, 5))]
    right = [Batch({"k": [0, 1, 7], "at": [3, 40, 41], "w": [1, 2, 3]}), Batch({"k": [0], "at": [33], "w": [4]})]
    least = {"inner": 2, "left": 4, "right": 4, "outer": 6}[how]
    check = verify_processor(join_streams_of_columns(columns, 10, how)).inputs(left, right)
    check.output_checker(lambda _, got: sum(batch.num_rows for batch in got) == least).expect([])


def test_early_results_of_items() -> None:
    events: list[Any] = [(1, "a"), (3, "a"), Watermark(20), (22, "b")]
    sessions = processors.aggregate_to_session_window(
        lambda e: e[1], lambda e: e[0], 0.01, counting(), early_results=LONG
    )
    verify_processor(sessions).inputs(events).expect([(1, 13, "a", 2, False), Watermark(20), (22, 32, "b", 1, False)])


def test_stages_of_batches() -> None:
    batches = [rows((1, 0), (2, 1)), rows((3, 0)), rows((4, 2), (5, 1))]
    kept = [rows((1, 0), (2, 1), (4, 2))]
    verify_processor(distinct_rows(("k",))).inputs(batches).expect(kept)
    doubled = project_batches([("select", [("d", column("v") * 2)])])
    verify_processor(doubled).inputs(batches).expect([Batch({"d": np.arange(1, 6) * 2})])
    moved = processors.group_by("k").agg(half=median("v")).accumulate
    verify_processor(moved).inputs(batches).any_order().expect([Batch({"k": [0, 1, 0, 2, 1], "v": range(1, 6)})])
    check = verify_processor(union_batches()).inputs(batches, batches)
    check.output_checker(lambda _, got: sum(item.num_rows for item in got if isinstance(item, Batch)) in (0, 10))
    check.expect([], [])
    turned = verify_processor(union_batches(("v", "k", "ts"))).inputs(batches)
    turned.output_checker(lambda _, got: {item.names for item in got if isinstance(item, Batch)} <= {("v", "k", "ts")})
    turned.expect([], [])


def test_accumulators_by_key_and_words() -> None:
    pairs = [("a", 2), ("b", 1), ("a", 1)]
    verify_processor(processors.combine_by_key(counting())).inputs(pairs).any_order().expect([("a", 3), ("b", 1)])

    def counts(items: list[Any]) -> dict[str, int]:
        found: dict[str, int] = {}
        for batch in items:
            for word, number in batch.tuples():
                found[word] = found.get(word, 0) + number
        return found

    texts_of = [Batch({"t": ["to be or", "not to be"]}), Batch({"t": ["be"]})]
    check = verify_processor(count_words_of("t")).inputs(texts_of)
    check.output_checker(lambda _, got: counts(got) == {"to": 2, "be": 3, "or": 1, "not": 1}).expect([])


@pytest.mark.parametrize("make", [processors.read_map, lambda name: sources.map(name).supplier])
def test_readers_of_maps(make: Callable[[str], Any]) -> None:
    grid = TestGrid()
    grid.get_map("given").update({n: str(n) for n in range(9)})
    verify_processor(make("given")).context(grid=grid).any_order().expect([(n, str(n)) for n in range(9)])


def test_sinks_of_batches(tmp_path: Path) -> None:
    batches = [rows((1, 0), (2, 1)), rows((3, 0))]
    for sink in (processors.write_files(tmp_path / "csv", format="csv"), processors.write_npy(tmp_path / "npy")):
        verify_processor(sink).inputs(batches).expect()
    for folder in ("csv", "npy"):
        names = [path.name for path in (tmp_path / folder).iterdir()]
        assert names
        assert not [name for name in names if name.startswith(".")]


def test_what_is_looked_at_and_what_is_only_logged() -> None:
    verify_processor(processors.logger()).inputs("abc").expect()
    verify_processor(processors.peek_output(processors.read_items(range(4)))).expect(range(4))
    verify_processor(processors.peek_snapshot(processors.sort())).inputs([3, 1, 2]).expect([1, 2, 3])
