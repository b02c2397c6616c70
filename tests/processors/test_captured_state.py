"""State captured at a barrier: a processor that goes on loses nothing, and what is saved is that of the barrier.

Each processor gets some items, is captured, gets others while it is saved step by step, and ends. A processor that is
restored gets the others as well. Both give what a processor gives that was never captured.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from shmjet import Batch
from shmjet.columns import count, first, list_, max_by, median, n_unique, sum_
from shmjet.columns.stream_join_columns import JoinColumns
from shmjet.core.saving import capture, captures
from shmjet.core.state_placement import StatePlacement
from shmjet.core.windows import SlidingWindow, SlidingWindowPolicy
from shmjet.processors import group_by, hash_join_batches, sort_batches
from shmjet.processors.columns.distinct_rows import distinct_rows
from shmjet.processors.columns.word_count import combine_words
from shmjet.processors.time.column_sessions import sessions_of_columns
from shmjet.processors.time.column_stream_join import join_streams_of_columns
from shmjet.processors.time.column_windows import windows_of_columns
from shmjet.processors.time.grouped_windows import GroupedSessions, grouped_by
from tests.processors.restoring import Stage, clock

KEPT = {"kinds": n_unique("v"), "half": median("v"), "all": list_("v"), "top": max_by("ts", "v"), "n": count()}
ORDERED = {**KEPT, "begin": first("v"), "total": sum_("v")}


def rows(start: int, many: int = 40) -> Batch:
    numbers = range(start, start + many)
    texts = [f"t{n % 9}" + "x" * (n % 20) for n in numbers]
    return Batch({"k": [n % 7 for n in numbers], "v": [n * 37 % 11 for n in numbers], "ts": numbers, "t": texts})


def words(start: int) -> Batch:
    return Batch({"word": [f"w{n % 50}" for n in range(start, start + 60)], "count": range(start, start + 60)})


SUPPLIERS: dict[str, Callable[[], Any]] = {
    "group_by": lambda: group_by("k").agg(n=count(), total=sum_("v")),
    "group_by, rows are kept": lambda: group_by("k").agg(**KEPT),
    "distinct": lambda: distinct_rows(("t",)),
    "sort": lambda: sort_batches(["v", "t"]),
    "sort with a limit": lambda: sort_batches(["v", "t"], limit=20),
    "windows": lambda: windows_of_columns(
        grouped_by(("k",), {"n": count(), "total": sum_("v")}, SlidingWindow(SlidingWindowPolicy(60, 20)), "ts")
    ),
    "windows, rows are kept": lambda: windows_of_columns(
        grouped_by(("k",), ORDERED, SlidingWindow(SlidingWindowPolicy(30, 30)), "ts")
    ),
    "sessions": lambda: sessions_of_columns(GroupedSessions(("k",), ORDERED, 10, "ts")),
    "words": lambda: combine_words(batches=True),
}


def started(supplier: Any, overdue_after: int = 1 << 30) -> Stage:
    return Stage(supplier, 1, StatePlacement(7), overdue_after=overdue_after)


def counted(output: list[Any]) -> Counter[Any]:
    return Counter(tuple(map(repr, row)) for item in output if isinstance(item, Batch) for row in item.tuples())


def captured_and_saved(stage: Stage, others: list[tuple[int, list[Any]]]) -> Any:
    """Capture a processor; let it have others, list by list, while it is saved; return what was saved."""
    (processor,), (outbox,) = stage.processors, stage.outboxes
    assert captures(processor)
    while not stage.call(0, capture, processor):
        pass
    entries: list[Any] = []
    is_complete = False
    waiting = list(others)
    outbox.overdue = clock(1)
    while not is_complete:
        if waiting:
            ordinal, items = waiting.pop(0)
            stage.feed(0, items, ordinal)
        outbox.begin_saving()
        is_complete = processor.save_to_snapshot()
        entries += outbox.end_saving(is_complete)
    for ordinal, items in waiting:
        stage.feed(0, items, ordinal)
    return entries


@pytest.mark.parametrize("name", SUPPLIERS)
def test_a_processor_goes_on_and_its_state_of_the_barrier_is_saved(name: str) -> None:
    make = words if name == "words" else rows
    before, others = [make(0)], [(0, [make(at)]) for at in (40, 15, 90, 300)]
    plain = started(SUPPLIERS[name]())
    for ordinal, items in [(0, before), *others]:
        plain.feed(0, items, ordinal)
    wanted = counted(plain.complete())
    assert sum(wanted.values()) > 6

    stage = started(SUPPLIERS[name]())
    stage.feed(0, before)
    emitted = list(stage.output)
    entries = captured_and_saved(stage, others)
    assert counted(stage.complete()) == wanted

    restored = started(SUPPLIERS[name]())
    restored.restore(entries)
    for ordinal, items in others:
        restored.feed(0, items, ordinal)
    assert counted(emitted + restored.complete()) == wanted


@pytest.mark.parametrize("how", ["inner", "right", "outer"])
def test_a_join_keeps_its_build_side_and_what_had_been_met(how: str) -> None:
    def built() -> Stage:
        return started(hash_join_batches("k", how=how, suffix="_built"))

    def fed(stage: Stage, batches: list[Batch]) -> Stage:
        stage.feed(0, [Batch({"k": range(10), "name": [f"n{n}" for n in range(10)]})], 1)
        (processor,) = stage.processors
        while not stage.call(0, lambda: processor.complete_edge(1)):
            pass
        for batch in batches:
            stage.feed(0, [batch])
        return stage

    one, two = Batch({"k": [1, 2, 2]}), Batch({"k": [2, 3, 11]})
    wanted = counted(fed(built(), [one, two]).complete())
    stage = fed(built(), [one])
    emitted = list(stage.output)
    entries = captured_and_saved(stage, [(0, [two])])
    assert counted(stage.complete()) == wanted
    restored = started(hash_join_batches("k", how=how, suffix="_built"))
    restored.restore(entries)
    restored.feed(0, [two])
    assert counted(emitted + restored.complete()) == wanted


def test_a_join_of_streams_keeps_the_rows_of_the_barrier() -> None:
    columns = JoinColumns(("k",), ("k",), "ts", "ts", "_right")
    stage = started(join_streams_of_columns(columns, 20))
    stage.feed(0, [rows(0)])
    stage.feed(0, [rows(10)], 1)
    emitted = list(stage.output)
    others = [(1, [rows(30)]), (0, [rows(50)]), (1, [rows(45)])]
    entries = captured_and_saved(stage, others)
    wanted = counted(stage.complete())
    restored = started(join_streams_of_columns(columns, 20))
    restored.restore(entries)
    for ordinal, items in others:
        restored.feed(0, items, ordinal)
    assert len(wanted) > len(counted(emitted)) > 6
    assert counted(emitted + restored.complete()) == wanted


def test_what_is_captured_while_results_are_emitted_is_what_is_left() -> None:
    stage = Stage(combine_words(batches=True), 1, StatePlacement(7), room=1)
    stage.feed(0, [Batch({"word": [f"w{n}" for n in range(30_000)], "count": [1] * 30_000})])
    (processor,) = stage.processors
    stage.call(0, processor.complete)
    emitted = list(stage.output)
    entries = captured_and_saved(stage, [])
    restored = started(combine_words(batches=True))
    restored.restore(entries)
    assert counted(emitted + restored.complete()).total() == 30_000
    assert counted(stage.complete()).total() == 30_000
