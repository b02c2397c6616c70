"""Batches on every routing, among items, marks and moving tasklets: no row is lost, doubled or misplaced."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet.core import DAG, BatchError, Edge, EdgeConfig, PartitionError, Watermark, between, column, columns
from shmjet.core.keys import partition_id
from shmjet.data.batch import Batch
from shmjet.data.nullable import Nullable
from shmjet.data.text import Text
from tests.examples import examples
from tests.execution.harness import LocalRun
from tests.execution.vertices import Collect, Emit, Pass

ROUTES = ["unicast", "isolated", "partitioned", "custom", "broadcast", "all_to_one", "fanout"]


def numbered(index: int, total: int, sizes: tuple[int, ...] = (1, 700, 0, 3000, 12)) -> Iterator[Batch]:
    """Batches whose rows are (producer, number, name)."""
    first = 0
    for size in sizes:
        numbers = np.arange(first, first + size)
        names = Nullable(Text.of([f"n{number % 17}" for number in numbers.tolist()]), numbers % 5 != 0)
        yield Batch({"producer": np.full(size, index), "number": numbers, "name": names})
        first += size


def run(route: str, up: int, down: int, *, key: Any = None, make: Any = numbered, **options: Any) -> list[Any]:
    dag = DAG()
    source = dag.new_vertex("source", lambda: Emit(make), up)
    sink = dag.new_vertex("sink", Collect, down)
    edge: Edge = between(source, sink).configure(EdgeConfig(queue_size=16))
    if route == "partitioned":
        edge.partitioned(column("number") if key is None else key)
    elif route == "custom":
        edge.partitioned(column("number"), lambda key, count: key % count)
    elif route != "unicast":
        getattr(edge, route)()
    dag.edge(edge)
    return LocalRun(dag, 3, seed=up * 10 + down, **options).run().grid.get_list("out")


def rows_of(out: list[Any]) -> Iterator[tuple[int, int, int, str | None]]:
    """(consumer, producer, number, name) of every row, in the order of arrival."""
    for consumer, _, batch in out:
        assert isinstance(batch, Batch)
        for row in batch.tuples():
            yield consumer, *row


@pytest.mark.parametrize("force_rings", [False, True], ids=["lanes", "rings"])
@pytest.mark.parametrize(("up", "down"), [(1, 3), (2, 5), (5, 2), (4, 4)])
@pytest.mark.parametrize("route", ROUTES)
def test_every_row_reaches_the_consumers_that_its_routing_names(
    route: str, up: int, down: int, force_rings: bool
) -> None:
    found = list(rows_of(run(route, up, down, force_rings=force_rings)))
    copies = down if route == "broadcast" else 1
    expected = {row: copies for index in range(up) for batch in numbered(index, up) for row in batch.tuples()}
    assert Counter(row for _, *row in map(tuple, found) for row in [tuple(row)]) == expected
    lanes = defaultdict(list)
    for consumer, producer, number, _ in found:
        lanes[consumer, producer].append(number)
    assert all(numbers == sorted(numbers) for numbers in lanes.values()), "a lane was reordered"
    if route == "partitioned":
        assert all(consumer == partition_id(number, 271) % down for consumer, _, number, _ in found)
    elif route == "custom":
        assert all(consumer == number % 271 % down for consumer, _, number, _ in found)


@pytest.mark.parametrize("key", [column("name"), columns("name", "producer")], ids=repr)
def test_rows_go_where_items_of_the_same_key_go(key: Any) -> None:
    for consumer, producer, number, name in rows_of(run("partitioned", 2, 5, key=key)):
        row = {"producer": producer, "number": number, "name": name}
        assert consumer == partition_id(key(row), 271) % 5


def test_rows_and_batches_may_share_an_edge_in_order() -> None:
    def make(index: int, total: int) -> Iterator[Any]:
        for start in range(0, 4000, 400):
            yield Batch({"number": np.arange(start, start + 300)})
            yield from ({"number": number} for number in range(start + 300, start + 400))

    lanes: dict[int, list[int]] = defaultdict(list)
    for consumer, _, item in run("partitioned", 1, 4, make=make):
        lanes[consumer] += item["number"].tolist() if isinstance(item, Batch) else [item["number"]]
    assert sorted(chain.from_iterable(lanes.values())) == list(range(4000))
    assert all(numbers == sorted(numbers) for numbers in lanes.values())


def test_watermarks_come_behind_the_rows_before_them() -> None:
    def make(index: int, total: int) -> Iterator[Any]:
        for start in range(0, 3000, 100):
            yield Batch({"number": np.arange(start, start + 100)})
            yield Watermark(start + 100)

    seen: dict[int, int] = defaultdict(int)
    for consumer, ordinal, item in run("partitioned", 1, 3, make=make):
        if ordinal == -1:
            seen[consumer] = item.timestamp
        else:
            assert item["number"].min() >= seen[consumer]
    assert set(seen.values()) == {3000}


def test_many_small_batches_become_few_full_ones() -> None:
    out = run("partitioned", 1, 8, make=lambda index, total: numbered(index, total, (50,) * 1000), force_rings=True)
    assert len(out) < 200
    assert sum(batch.num_rows for _, _, batch in out) == 50_000


@examples(15)
@given(st.integers(0, 1 << 30))
def test_rows_survive_moving_tasklets_and_barriers(seed: int) -> None:
    dag = DAG()
    sizes = (400, 3, 900, 0, 2000, 77) * 3
    source = dag.new_vertex("source", lambda: Emit(lambda i, n: numbered(i, n, sizes)), 2)
    passing = dag.new_vertex("pass", Pass, 4)
    sink = dag.new_vertex("sink", Collect, 3)
    dag.edge(between(source, passing).partitioned(column("number")))
    dag.edge(between(passing, sink).partitioned(columns("number", "producer")))
    local = LocalRun(dag, 3, seed=seed, stealing=0.1, barriers=0.05).run()
    found = Counter((producer, number) for _, producer, number, _ in rows_of(local.grid.get_list("out")))
    assert found == {(producer, number): 1 for producer in range(2) for number in range(sum(sizes))}


def test_a_batch_without_the_key_is_an_error_that_names_its_columns() -> None:
    with pytest.raises(BatchError, match=r"'nome'.*'number'"):
        run("partitioned", 1, 2, key=column("nome"))


def test_a_batch_cannot_be_its_own_key() -> None:
    dag = DAG()
    source, sink = dag.new_vertex("source", lambda: Emit(numbered), 1), dag.new_vertex("sink", Collect, 2)
    dag.edge(between(source, sink).partitioned())
    with pytest.raises(PartitionError, match=r"partitioned\(column\('name'\)\)"):
        LocalRun(dag, 2).run()
