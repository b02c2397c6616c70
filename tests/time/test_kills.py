"""Event time from source to window in runs that are killed and go on from their last snapshot: each result is exact."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from shmjet import Batch, BroadcastKey, column, processors, session, sliding
from shmjet.aggregate_ops import counting
from shmjet.columns import count, frame_tables
from shmjet.core import DAG, Vertex, between
from shmjet.core.event_time import EventTimePolicy
from shmjet.core.timed import TIMESTAMP, TimedKey
from shmjet.processors.general.fused_steps import Step, fused
from shmjet.processors.time.column_sessions import sessions_of_columns
from shmjet.processors.time.column_windows import (
    combined_windows_of_columns,
    frames_of_columns,
    windows_of_columns,
)
from shmjet.processors.time.grouped_windows import GroupedSessions, grouped_by
from shmjet.processors.time.timed_items import PartitionItems
from shmjet.processors.time.timed_source import TimedSource
from tests.execution.snapshot_runs import Killed, SnapshotRun
from tests.execution.snapshot_stages import RESULTS, Tally
from tests.time import interpreter
from tests.time.interpreter import Event

LAG = 40
POLICY = EventTimePolicy("native", allowed_lag=LAG, stride=50, idle_timeout=None)
SIZES = (200, 120, 60, 50)


@pytest.fixture(scope="module", autouse=True, params=[1, frame_tables.LEAST_ROWS])
def least_rows(request: pytest.FixtureRequest) -> Iterator[None]:
    """Frames on columns have tables of their own, or have none, as few rows come together here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frame_tables, "LEAST_ROWS", request.param)
        yield


def events_of(shard: int) -> list[tuple[int, Any]]:
    """Return events that come at most the lag too late; those of one shard are far ahead of the others."""
    dice = random.Random(shard)
    return [
        (10 * number + 700 * shard - dice.randint(0, LAG), (dice.choice("abc"), shard, number))
        for number in range(SIZES[shard])
    ]


SHARDS = {f"shard {shard}": events_of(shard) for shard in range(len(SIZES))}
EVENTS = [Event(*event) for events in SHARDS.values() for event in events]


@pytest.fixture(autouse=True)
def no_results() -> Iterator[None]:
    RESULTS.clear()
    yield
    RESULTS.clear()


class Shards(TimedSource):
    """Gives the events of its shards, a few of each in a call; without a policy bare."""

    read_again = 0

    def first_partitions(self) -> Sequence[Hashable]:
        index, count = self.context.global_index, self.context.total_parallelism
        self._own = list(SHARDS)[index::count]
        for name in self._own:
            self._at.setdefault(name, 0)
        return self._own

    def start(self, context: Any) -> None:
        self._at: dict[Hashable, int] = {}

    def read(self) -> Iterable[PartitionItems]:
        runs = []
        for partition, name in enumerate(self._own):
            at = self._at[name]
            some = SHARDS[name][at : at + 3]
            self._at[name] = at + len(some)
            runs.append(PartitionItems([item for _, item in some], partition, [stamp for stamp, _ in some]))
        self.ended = all(self._at[name] == len(SHARDS[name]) for name in self._own)
        return runs

    def saved_positions(self) -> Iterable[tuple[Any, Any]]:
        return [(BroadcastKey(name), self._at[name]) for name in self._own]

    def restore_positions(self, entries: list[tuple[Any, Any]]) -> None:
        for name, at in entries:
            self._at[name.key] = max(at, self._at.get(name.key, 0))


def first(item: Any) -> Any:
    return item[0]


def time_of(item: Any) -> int:
    return SHARDS[f"shard {item[1]}"][item[2]][0]


KEY = TimedKey(first)


def in_one_stage(dag: DAG, source: Vertex, parallelism: int) -> Vertex:
    window = processors.aggregate_to_sliding_window(KEY, TIMESTAMP, sliding(0.3, 0.1), counting())
    made = dag.new_vertex("made", window, parallelism)
    dag.edge(between(source, made).partitioned(KEY))
    return made


def in_two_stages(dag: DAG, source: Vertex, parallelism: int) -> Vertex:
    window = sliding(0.3, 0.1)
    frames = dag.new_vertex("frames", processors.accumulate_by_frame(KEY, TIMESTAMP, window, counting()), parallelism)
    made = dag.new_vertex("made", processors.combine_to_sliding_window(window, counting()), parallelism)
    dag.edge(between(source, frames)).edge(between(frames, made).partitioned(lambda result: result[2]))
    return made


def in_sessions(dag: DAG, source: Vertex, parallelism: int) -> Vertex:
    window = processors.aggregate_to_session_window(KEY, TIMESTAMP, session(0.06), counting())
    made = dag.new_vertex("made", window, parallelism)
    dag.edge(between(source, made).partitioned(KEY))
    return made


def row_of(pair: tuple[int, Any]) -> dict[str, Any]:
    return {"ts": pair[0], "letter": pair[1][0]}


def results_of(batch: Batch) -> list[tuple[Any, ...]]:
    names = ("letter", "n")
    times = (batch[name].view("int64").tolist() for name in ("window_start", "window_end"))
    return [(*found, False) for found in zip(*times, *(list(batch[name]) for name in names), strict=True)]


COUNTED = grouped_by(("letter",), {"n": count()}, sliding(0.3, 0.1), "ts")


def on_columns(dag: DAG, source: Vertex, parallelism: int, two_stages: bool = False, one_stage: Any = None) -> Vertex:
    rows = dag.new_vertex("rows", fused([Step("map", row_of, "rows")]), source.local_parallelism)
    batches = dag.new_vertex("batches", processors.to_batches(), source.local_parallelism)
    dag.edge(between(source, rows).isolated()).edge(between(rows, batches).isolated())
    before = batches
    if two_stages:
        before = dag.new_vertex("frames", frames_of_columns(COUNTED), parallelism)
        dag.edge(between(batches, before))
    supplier = combined_windows_of_columns(COUNTED) if two_stages else one_stage or windows_of_columns(COUNTED)
    windows = dag.new_vertex("windows", supplier, parallelism)
    made = dag.new_vertex("made", processors.flat_map(results_of), parallelism)
    dag.edge(between(before, windows).partitioned(column("letter"))).edge(between(windows, made).isolated())
    return made


def on_columns_in_two_stages(dag: DAG, source: Vertex, parallelism: int) -> Vertex:
    return on_columns(dag, source, parallelism, two_stages=True)


def sessions_on_columns(dag: DAG, source: Vertex, parallelism: int) -> Vertex:
    grouped = GroupedSessions(("letter",), {"n": count()}, 60, "ts")
    return on_columns(dag, source, parallelism, one_stage=sessions_of_columns(grouped))


def with_watermarks_inserted(dag: DAG, source: Vertex, parallelism: int) -> Vertex:
    policy = EventTimePolicy("items", time_of, allowed_lag=LAG, stride=50, idle_timeout=None)
    timed = dag.new_vertex("timed", processors.insert_watermarks(policy), source.local_parallelism)
    dag.edge(between(source, timed).isolated())
    return in_two_stages(dag, timed, parallelism)


SLIDING = interpreter.sliding(EVENTS, 300, 100, first).results
SESSIONS = interpreter.sessions(EVENTS, 60, first).results


@pytest.mark.parametrize(
    ("plan", "windows"),
    [
        (in_one_stage, SLIDING),
        (in_two_stages, SLIDING),
        (in_sessions, SESSIONS),
        (on_columns, SLIDING),
        (on_columns_in_two_stages, SLIDING),
        (sessions_on_columns, SESSIONS),
        (with_watermarks_inserted, SLIDING),
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_windows_are_exact_after_kills(
    plan: Callable[[DAG, Vertex, int], Vertex], windows: interpreter.Windows, seed: int, tmp_path: Path
) -> None:
    dice = random.Random(seed)
    for attempt in range(5):
        dag = DAG()
        if plan is with_watermarks_inserted:  # which takes what comes to a processor for one partition
            source = dag.new_vertex("source", lambda: Shards(None), len(SHARDS))
        else:
            source = dag.new_vertex("source", lambda: Shards(POLICY), dice.choice([1, 2, 3]) if seed else 2)
        made = plan(dag, source, dice.choice([1, 2, 3]) if seed else 2)
        tally = dag.new_vertex("tally", lambda: Tally("t"), 2)
        dag.edge(between(made, tally).partitioned())
        run = SnapshotRun(
            dag,
            tmp_path,
            dice.choice([1, 2, 3]),
            rate=0.2,
            restore=attempt > 0,
            kill_at=dice.randint(20, 120) if attempt < 4 else None,
            seed=100 * seed + attempt,
        )
        try:
            run.run()
        except Killed:
            for tasklet in (each for deployment in run.deployments for each in deployment.tasklets if not each.done):
                tasklet.processor.close()  # which no kill does
            continue
        break
    expected = Counter({(start, end, key, len(items), False): 1 for (start, end, key), items in windows.items()})
    assert {item: count for (_, item), count in RESULTS.items()} == expected
