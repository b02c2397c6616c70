"""Processors on items in runs that are killed and go on from their last snapshot: each result is exact."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shmjet import processors
from shmjet.aggregate_ops import counting, to_list
from shmjet.core import DAG, Vertex, between, from_
from shmjet.core.timed import TimedKey
from shmjet.processors.general.async_services import using_service_async
from shmjet.processors.general.services import ServiceFactory
from shmjet.processors.general.stateful import rolling_aggregate
from shmjet.processors.time.stream_join import stream_join
from tests.execution.snapshot_runs import Killed, SnapshotRun
from tests.execution.snapshot_stages import RESULTS, Positions, Tally

SHARDS = (70, 50, 30)
ITEMS = [("s", number % 5, shard, number) for shard, size in enumerate(SHARDS) for number in range(size)]
"""What the source gives."""


@pytest.fixture(autouse=True)
def no_results() -> Iterator[None]:
    RESULTS.clear()
    yield
    RESULTS.clear()


def second(item: Any) -> Any:
    return item[1]


def first(item: Any) -> Any:
    return item[0]


async def with_length(_: Any, item: Any) -> Any:
    return (*item, len(item))


def numbered(state: list[Any], key: Any, item: Any) -> Any:
    state.append(item)
    return key, len(state)


def by_key(supplier: Any) -> Callable[[DAG, Vertex, int], Vertex]:
    def plan(dag: DAG, source: Vertex, parallelism: int) -> Vertex:
        made = dag.new_vertex("made", supplier, parallelism)
        dag.edge(between(source, made).partitioned(second))
        return made

    return plan


def in_two_stages(dag: DAG, source: Vertex, parallelism: int) -> Vertex:
    accumulated = dag.new_vertex("first", processors.accumulate_by_key(second, counting()), parallelism)
    combined = dag.new_vertex("made", processors.combine_by_key(counting()), parallelism)
    dag.edge(between(source, accumulated)).edge(between(accumulated, combined).partitioned(first))
    return combined


def in_all(dag: DAG, source: Vertex, parallelism: int) -> Vertex:
    accumulated = dag.new_vertex("first", processors.accumulate(counting()), parallelism)
    combined = dag.new_vertex("made", processors.combine(counting()), 2)
    dag.edge(between(source, accumulated)).edge(between(accumulated, combined).all_to_one("x"))
    return combined


def sorted_by_all(dag: DAG, source: Vertex, parallelism: int) -> Vertex:
    local = dag.new_vertex("first", processors.sort(), parallelism)
    numbering = dag.new_vertex("made", processors.map_stateful(list, lambda state, item: numbered(state, item, 0)), 1)
    dag.edge(between(source, local)).edge(between(local, numbering).all_to_one().ordered())
    return numbering


def asynchronous(dag: DAG, source: Vertex, parallelism: int) -> Vertex:
    made = dag.new_vertex("made", using_service_async("map", ServiceFactory(dict), with_length), parallelism)
    dag.edge(between(source, made))
    return made


def joined(dag: DAG, source: Vertex, parallelism: int) -> Vertex:
    names = dag.new_vertex("names", processors.read_items([(n, f"n{n}") for n in range(4)] + [(3, "again")]))
    made = dag.new_vertex("made", processors.hash_join((second, first)), parallelism)
    dag.edge(between(source, made)).edge(from_(names).to(made, 1).broadcast().priority(-1))
    return made


def distinct_in_place(dag: DAG, source: Vertex, parallelism: int) -> Vertex:
    kept = dag.new_vertex("kept", processors.map(lambda item: item[1:]), parallelism)
    made = dag.new_vertex("made", processors.distinct(first), parallelism)
    dag.edge(between(source, kept).partitioned(second)).edge(between(kept, made).isolated())
    last = dag.new_vertex("last", processors.map(first), parallelism)
    dag.edge(between(made, last))
    return last


def timed(item: Any) -> Any:
    return item[3], item


def without_state(state: list[Any], key: Any, item: Any) -> Any:
    state.append(item)


def size_at_end(state: list[Any], key: Any, watermark: int) -> Any:
    return key, len(state)


def expiring(dag: DAG, source: Vertex, parallelism: int) -> Vertex:
    pairs = dag.new_vertex("pairs", processors.map(timed), 2)
    keep = processors.map_stateful(list, without_state, second, ttl=60, on_evict=size_at_end, timed=True)
    made = dag.new_vertex("made", keep, parallelism)
    dag.edge(between(source, pairs)).edge(between(pairs, made).partitioned(TimedKey(second)))
    return made


def joined_with_itself(dag: DAG, source: Vertex, parallelism: int) -> Vertex:
    pairs = dag.new_vertex("pairs", processors.map(timed), 2)
    made = dag.new_vertex("made", stream_join(second, second, within=0.005, how="left"), parallelism)
    dag.edge(between(source, pairs)).edge(from_(pairs, 0).to(made, 0).partitioned(TimedKey(second)))
    right = dag.new_vertex("right", processors.filter(lambda pair: pair[1][2] == 0), 2)
    dag.edge(from_(pairs, 1).to(right)).edge(from_(right).to(made, 1).partitioned(TimedKey(second)))
    return made


JOINED = [
    (max(left[3], right[3]), (left, right))
    for left in ITEMS
    for right in ITEMS
    if right[2] == 0 and left[1] == right[1] and abs(left[3] - right[3]) <= 5
]
COUNTS = Counter(item[1] for item in ITEMS)
LAST_OF = {item[1]: max(other[3] for other in ITEMS if other[1] == item[1]) for item in ITEMS}
NUMBERED = [(key, n + 1) for key in COUNTS for n in range(COUNTS[key])]
NAMES: dict[int, list[Any]] = {0: [(0, "n0")], 1: [(1, "n1")], 2: [(2, "n2")], 3: [(3, "n3"), (3, "again")], 4: [None]}


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        (by_key(processors.aggregate_by_key(second, counting())), list(COUNTS.items())),
        (by_key(processors.group_and_accumulate(second, 0, lambda n, _: n + 1)), list(COUNTS.items())),
        (
            by_key(processors.aggregate_by_key(second, to_list().and_then(lambda found: tuple(sorted(found))))),
            [(key, tuple(sorted(item for item in ITEMS if item[1] == key))) for key in COUNTS],
        ),
        (
            by_key(processors.map_stateful(list, numbered, second)),
            NUMBERED,
        ),
        (by_key(rolling_aggregate(counting(), second)), NUMBERED),
        (in_two_stages, list(COUNTS.items())),
        (in_all, [len(ITEMS)]),
        (sorted_by_all, [(item, place) for place, item in enumerate(sorted(ITEMS), 1)]),
        (asynchronous, [(*item, 4) for item in ITEMS]),
        (joined, [(item, right) for item in ITEMS for right in NAMES[item[1]]]),
        (distinct_in_place, list(range(5))),
        (expiring, [(LAST_OF[key], (key, COUNTS[key])) for key in COUNTS]),
        (joined_with_itself, JOINED),
    ],
)
@pytest.mark.parametrize("seed", range(2))
def test_results_are_exact_after_kills(
    plan: Callable[[DAG, Vertex, int], Vertex], expected: list[Any], seed: int, tmp_path: Path
) -> None:
    dice = random.Random(seed)
    for attempt in range(5):
        dag = DAG()
        source = dag.new_vertex("source", lambda: Positions("s", list(SHARDS)), 2)
        parallelism = dice.choice([1, 2, 3]) if seed else 2
        made = plan(dag, source, parallelism)
        tally = dag.new_vertex("tally", lambda: Tally("t"), 2)
        dag.edge(between(made, tally).partitioned())
        run = SnapshotRun(
            dag,
            tmp_path,
            dice.choice([1, 2, 3]),
            rate=0.2,
            restore=attempt > 0,
            kill_at=dice.randint(5, 60) if attempt < 4 else None,
            seed=100 * seed + attempt,
        )
        try:
            run.run()
        except Killed:
            for tasklet in (each for deployment in run.deployments for each in deployment.tasklets if not each.done):
                tasklet.processor.close()  # which no kill does
            continue
        break
    assert {item: count for (_, item), count in RESULTS.items()} == Counter(expected)
