"""Tasklets that are handed from worker to worker all the time lose, double and reorder nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from shmjet import processors
from shmjet.columns import count, sum_
from shmjet.core import DAG, AbstractProcessor, EdgeConfig, Processor, Watermark, between, from_
from shmjet.data.batch import Batch
from tests.examples import seeds
from tests.execution.harness import LocalRun
from tests.execution.vertices import Collect, Emit, Pass

SEEDS = range(6)
PER_PRODUCER = 1500
SMALL = EdgeConfig(queue_size=32, high_water_mark=32)


def numbers(index: int, total: int) -> Iterator[Any]:
    """Items with a watermark among them now and then."""
    for i in range(PER_PRODUCER):
        yield (index, i)
        if i % 100 == 99:
            yield Watermark(i)


class Tag(AbstractProcessor):
    """Hands items on with the index of this processor; keeps a count, which has to survive every move."""

    def __init__(self) -> None:
        self.seen = 0

    def try_process_any(self, ordinal: int, item: Any) -> bool:
        if not self.try_emit((*item, self.context.local_index)):
            return False
        self.seen += 1
        return True

    def complete(self) -> bool:
        return self.try_emit(("seen", self.seen))


def chain(route: str, parallelism: int) -> DAG:
    dag = DAG()
    source = dag.new_vertex("source", lambda: Emit(numbers), 3)
    first = dag.new_vertex("first", Tag, parallelism)
    second = dag.new_vertex("second", Pass, parallelism)
    sink = dag.new_vertex("sink", Collect, 2)
    edge = between(first, second).configure(SMALL)
    if route == "partitioned":
        edge.partitioned(lambda item: item[1])
    else:
        getattr(edge, route)()
    return dag.edge(between(source, first).configure(SMALL)).edge(edge).edge(between(second, sink).configure(SMALL))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("route", ["unicast", "partitioned", "broadcast", "all_to_one"])
def test_nothing_is_lost_doubled_or_reordered(route: str, seed: int) -> None:
    parallelism = 1 + seed % 5
    run = LocalRun(chain(route, parallelism), 2 + seed % 3, seed=seed, stealing=0.5, barriers=0.05).run()
    out = run.grid.get_list("out")
    copies = parallelism if route == "broadcast" else 1
    items = [item for _, ordinal, item in out if ordinal == 0 and item[0] != "seen"]
    assert Counter((p, i) for p, i, _ in items) == {(p, i): copies for p in range(3) for i in range(PER_PRODUCER)}
    counts = [item[1] for _, ordinal, item in out if ordinal == 0 and item[0] == "seen"]
    assert sum(counts) == copies * 3 * PER_PRODUCER
    assert run.steals > 5
    assert run.barriers_passed
    for barriers in run.barriers_passed.values():
        assert barriers == sorted(set(barriers)), "a barrier was doubled or overtaken"


@pytest.mark.parametrize("seed", SEEDS)
def test_order_within_a_lane_and_watermarks_survive(seed: int) -> None:
    dag = DAG()
    source = dag.new_vertex("source", lambda: Emit(numbers), 1)
    middle = dag.new_vertex("middle", Pass, 1)
    last = dag.new_vertex("last", Pass, 1)
    sink = dag.new_vertex("sink", Collect, 1)
    for edge in (between(source, middle), between(middle, last), between(last, sink)):
        dag.edge(edge.configure(SMALL))
    run = LocalRun(dag, 3, seed=seed, stealing=0.6).run()
    out = [item for _, _, item in run.grid.get_list("out")]
    assert out == list(numbers(0, 1))
    assert run.steals > 5


@pytest.mark.parametrize("seed", SEEDS)
def test_priorities_and_buffered_edges_survive(seed: int) -> None:
    dag = DAG()
    source = dag.new_vertex("source", lambda: Emit(lambda i, n: range(3000)), 1)
    left, right = dag.new_vertex("left", Pass, 2), dag.new_vertex("right", Pass, 2)
    join = dag.new_vertex("join", Pair, 1)
    dag.edge(from_(source, 0).to(left)).edge(from_(source, 1).to(right))
    dag.edge(from_(left).to(join, 0).priority(1).buffered()).edge(from_(right).to(join, 1))
    dag.edge(between(join, dag.new_vertex("sink", Collect, 1)))
    run = LocalRun(dag, 3, seed=seed, stealing=0.5).run()
    out = [item for _, _, item in run.grid.get_list("out")]
    assert [ordinal for ordinal, _ in out] == [1] * 3000 + [0] * 3000
    assert sorted(out) == [(o, i) for o in (0, 1) for i in range(3000)]


class Pair(AbstractProcessor):
    """Hands items on with the ordinal that they came on."""

    def try_process_any(self, ordinal: int, item: Any) -> bool:
        return self.try_emit((ordinal, item))


@pytest.mark.parametrize("seed", SEEDS)
def test_ordered_edges_survive(seed: int) -> None:
    dag = DAG()
    source = dag.new_vertex("source", lambda: Emit(lambda i, n: range(i, 4000, 4)), 4)
    merge = dag.new_vertex("merge", Pass, 1)
    dag.edge(between(source, merge).ordered()).edge(between(merge, dag.new_vertex("sink", Collect, 1)))
    run = LocalRun(dag, 3, seed=seed, stealing=0.5).run()
    assert [item for _, _, item in run.grid.get_list("out")] == list(range(4000))


@pytest.mark.parametrize("seed", seeds(4))
def test_the_library_counts_words_while_it_is_moved_about(seed: int) -> None:
    words = [f"w{i % 97}" for i in range(60_000)]
    dag = DAG()
    lines = [" ".join(words[i : i + 20]) for i in range(0, 60_000, 20)]
    source = dag.new_vertex("source", lambda: Emit(lambda i, n: lines[i::n]), 2)
    split = dag.new_vertex("split", processors.flat_map(str.split), 3)
    count = dag.new_vertex("count", processors.accumulate_by_key(None, processors.counting()), 3)
    total = dag.new_vertex("total", processors.combine_by_key(processors.counting()), 3)
    dag.edge(between(source, split)).edge(between(split, count))
    dag.edge(between(count, total).partitioned(lambda pair: pair[0]))
    dag.edge(between(total, dag.new_vertex("sink", Collect, 1)))
    run = LocalRun(dag, 3, seed=seed, stealing=0.5).run()
    assert dict(item for _, _, item in run.grid.get_list("out")) == Counter(words)
    assert run.steals > 5


class Stubborn(Processor):
    """Holds a generator, which does not travel, or says that it does not want to move."""

    def __init__(self, movable: bool) -> None:
        if not movable:
            self.movable = False
        self.held = (i for i in range(3)) if movable else None

    def process(self, ordinal: int, inbox: Any) -> None:
        while inbox and self.outbox.offer(inbox.peek()):
            inbox.remove()


@pytest.mark.parametrize("movable", [True, False], ids=["generator", "refuses"])
def test_what_does_not_travel_stays_and_works_on(movable: bool) -> None:
    dag = DAG()
    source = dag.new_vertex("source", lambda: Emit(lambda i, n: range(5000)), 2)
    stubborn = dag.new_vertex("stubborn", lambda: Stubborn(movable), 2)
    dag.edge(between(source, stubborn)).edge(between(stubborn, dag.new_vertex("sink", Collect, 1)))
    run = LocalRun(dag, 2, seed=1, stealing=0.5).run()
    assert run.steals == 0
    assert run.refusals > 0
    assert sorted(item for _, _, item in run.grid.get_list("out")) == sorted(list(range(5000)) * 2)


def test_a_state_of_megabytes_stays() -> None:
    class Fat(Pass):
        def __init__(self) -> None:
            self.fat = bytes(2 << 20)

    dag = DAG()
    source = dag.new_vertex("source", lambda: Emit(lambda i, n: range(5000)), 1)
    fat = dag.new_vertex("fat", Fat, 1)
    dag.edge(between(source, fat)).edge(between(fat, dag.new_vertex("sink", Collect, 1)))
    run = LocalRun(dag, 2, seed=1, stealing=0.3).run()
    assert run.steals == 0
    assert len(run.grid.get_list("out")) == 5000


def test_isolated_pairs_sources_and_sinks_stay() -> None:
    dag = DAG()
    source = dag.new_vertex("source", lambda: Emit(lambda i, n: range(2000)), 3)
    middle = dag.new_vertex("middle", Pass, 3)
    dag.edge(between(source, middle).isolated()).edge(between(middle, dag.new_vertex("sink", Collect, 3)))
    run = LocalRun(dag, 3, seed=1, stealing=0.3).run()
    assert run.steals == 0


@pytest.mark.parametrize(
    ("keys", "seed"), [*((100_000, seed) for seed in SEEDS), (400, 1)], ids=lambda value: str(value)
)
def test_native_tables_move_small_ones_whole_and_megabytes_by_their_descriptors(keys: int, seed: int) -> None:
    dag = DAG()
    rows = keys // 100

    def batches(index: int, total: int) -> Iterator[Any]:
        for start in range(0, keys, rows):
            yield Batch({"k": np.arange(start, start + rows), "v": np.full(rows, index)})

    source = dag.new_vertex("source", lambda: Emit(batches), 3)
    grouping = processors.group_by("k").agg(n=count(), total=sum_("v"))
    group = dag.new_vertex("group", grouping, 4)
    sink = dag.new_vertex("sink", Collect, 1)
    narrow = EdgeConfig(queue_size=1, high_water_mark=1)
    dag.edge(between(source, group).partitioned(grouping.key).configure(narrow)).edge(between(group, sink))
    run = LocalRun(dag, 3, seed=seed, stealing=0.5).run()
    found = Batch.concat(item for _, _, item in run.grid.get_list("out"))
    assert sorted(found["k"].tolist()) == list(range(keys))
    assert set(found["n"].tolist()) == {3}
    assert set(found["total"].tolist()) == {0 + 1 + 2}
    assert run.steals > 0
