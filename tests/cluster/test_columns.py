"""Jobs on columns: batches through a real instance, over local lanes, rings and partitioned edges."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shmjet
from shmjet import (
    DAG,
    Batch,
    BatchError,
    JetInstance,
    JobFailedError,
    Processor,
    between,
    column,
    columns,
    processors,
)
from shmjet.columns import count, first, max_, mean, sum_

ROWS = 40_000


def made(index: int, total: int) -> Iterator[Batch]:
    """Give a share of `ROWS` rows in batches of 1000: k = row mod 97, name and part from k, v = row / 2, null at 0."""
    for start in range(index * 1000, ROWS, total * 1000):
        rows = np.arange(start, start + 1000)
        keys = rows % 97
        yield Batch(
            {"k": keys, "name": [f"é{key}" for key in keys.tolist()], "part": (keys % 5).astype("i1"), "v": rows / 2},
            {"v": rows % 10 != 0},
        )


class OneItemThenNothing(Processor):
    """A stream that emits one item and then nothing, for ever."""

    emitted = False

    def complete(self) -> bool:
        if not self.emitted:
            self.emitted = self.outbox.offer({"n": 1})
        return False


def items(index: int, total: int) -> Iterator[dict[str, Any]]:
    """Give the same rows as dicts."""
    for batch in made(index, total):
        yield from batch.rows()


def reference(*names: str) -> dict[Any, tuple[int, float]]:
    """Return the number of rows and the sum of v by key, computed in Python."""
    counts: Counter[Any] = Counter()
    sums: Counter[Any] = Counter()
    for row in items(0, 1):
        key = tuple(row[name] for name in names)
        counts[key] += 1
        sums[key] += row["v"] or 0
    return {key: (counts[key], sums[key]) for key in counts}


def results(jet: JetInstance, out: str, *names: str) -> dict[Any, tuple[int, float]]:
    """Return what a job wrote, and that each key is there once."""
    found: dict[Any, tuple[int, float]] = {}
    for batch in jet.get_list(out):
        assert isinstance(batch, Batch)
        for row in batch.rows():
            key = tuple(row[name] for name in names)
            assert key not in found
            found[key] = row["n"], row["total"]
    return found


def test_batches_reach_a_list_as_they_were(jet: JetInstance, out: str) -> None:
    dag = DAG()
    source = dag.new_vertex("source", processors.generate(made), 2)
    sink = dag.new_vertex("sink", processors.write_list(out), 1)
    dag.edge(between(source, sink))
    jet.new_job(dag).run(60)
    found = sorted(jet.get_list(out), key=lambda batch: batch["v"][1])
    assert found == list(made(0, 1))


def test_a_batch_is_a_value_of_a_map_and_comes_back_equal(jet: JetInstance, out: str) -> None:
    batch = next(made(0, 1))
    jet.get_map(out)["key"] = batch
    assert jet.get_map(out)["key"] == batch
    jet.get_list(out).extend([batch, batch[:0], batch.select("name")])
    assert list(jet.get_list(out)) == [batch, batch[:0], batch.select("name")]


def test_items_to_batches_to_items(jet: JetInstance, out: str) -> None:
    dag = DAG()
    source = dag.new_vertex("source", processors.generate(items), 2)
    gather = dag.new_vertex("gather", processors.to_batches(500))
    double = dag.new_vertex(
        "double", processors.map_batches(lambda columns: {"k": columns["k"], "w": columns["v"] * 2}, as_=dict)
    )
    scatter = dag.new_vertex("scatter", processors.to_rows(tuple))
    sink = dag.new_vertex("sink", processors.write_list(out), 1)
    dag.edge(between(source, gather)).edge(between(gather, double)).edge(between(double, scatter))
    dag.edge(between(scatter, sink))
    jet.new_job(dag).run(60)
    wanted = [(row["k"], None if row["v"] is None else row["v"] * 2) for row in items(0, 1)]
    assert Counter(jet.get_list(out)) == Counter(wanted)


def test_a_stream_that_trickles_is_not_held_back(jet: JetInstance, out: str, eventually: Any) -> None:
    dag = DAG()
    source = dag.new_vertex("source", OneItemThenNothing, 1)
    gather = dag.new_vertex("gather", processors.to_batches(1000), 1)
    sink = dag.new_vertex("sink", processors.write_list(out), 1)
    dag.edge(between(source, gather)).edge(between(gather, sink))
    execution = jet.new_job(dag).execute()
    eventually(lambda: list(jet.get_list(out)) == [Batch({"n": [1]})])
    assert not execution.done()
    execution.cancel()
    eventually(execution.done)


def test_dicts_are_partitioned_by_a_column_and_grouped(jet: JetInstance, out: str) -> None:
    dag = DAG()
    source = dag.new_vertex("source", processors.generate(items), 2)
    group = dag.new_vertex("group", processors.group_by("name").agg(n=count(), total=sum_("v")), 3)
    sink = dag.new_vertex("sink", processors.write_list(out), 1)
    dag.edge(between(source, group).partitioned(column("name"))).edge(between(group, sink))
    jet.new_job(dag).run(60)
    assert results(jet, out, "name") == reference("name")


def test_everything_in_one_group(jet: JetInstance, out: str) -> None:
    dag = DAG()
    grouping = processors.group_by().agg(n=count(), total=sum_("v"), most=max_("k"), some=first("name"))
    source = dag.new_vertex("source", processors.generate(made), 2)
    partial = dag.new_vertex("partial", grouping.accumulate)
    whole = dag.new_vertex("whole", grouping.combine, 1)
    sink = dag.new_vertex("sink", processors.write_list(out), 1)
    dag.edge(between(source, partial)).edge(between(partial, whole)).edge(between(whole, sink))
    jet.new_job(dag).run(60)
    (batch,) = jet.get_list(out)
    (row,) = batch.rows()
    assert row.pop("some").startswith("é")
    assert row == {"n": ROWS, "total": sum(row["v"] or 0 for row in items(0, 1)), "most": 96}


@pytest.mark.parametrize("parallelism", [1, 2, 5])
@pytest.mark.parametrize("names", [("k",), ("name",), ("k", "name"), ("part", "k"), ("v",)])
def test_batches_are_partitioned_row_by_row_and_grouped(
    jet: JetInstance, out: str, names: tuple[str, ...], parallelism: int
) -> None:
    dag = DAG()
    source = dag.new_vertex("source", processors.generate(made), 2)
    group = dag.new_vertex("group", processors.group_by(*names).agg(n=count(), total=sum_("v")), parallelism)
    sink = dag.new_vertex("sink", processors.write_list(out), 1)
    dag.edge(between(source, group).partitioned(columns(*names))).edge(between(group, sink))
    jet.new_job(dag).run(60)
    found = {key: (n, total or 0) for key, (n, total) in results(jet, out, *names).items()}
    assert found == reference(*names)


@pytest.mark.parametrize("names", [("k",), ("name", "part")])
def test_groups_in_two_stages(jet: JetInstance, out: str, names: tuple[str, ...]) -> None:
    dag = DAG()
    grouping = processors.group_by(*names).agg(n=count(), total=sum_("v"), average=mean("v"))
    source = dag.new_vertex("source", processors.generate(made), 2)
    accumulate = dag.new_vertex("accumulate", grouping.accumulate)
    combine = dag.new_vertex("combine", grouping.combine)
    sink = dag.new_vertex("sink", processors.write_list(out), 1)
    dag.edge(between(source, accumulate)).edge(between(accumulate, combine).partitioned(grouping.key))
    dag.edge(between(combine, sink))
    jet.new_job(dag).run(60)
    assert results(jet, out, *names) == reference(*names)


def test_items_and_batches_of_one_key_meet(jet: JetInstance, out: str) -> None:
    """On one edge from a vertex that emits both, and so with hashes of Python values and of columns."""

    def both(index: int, total: int) -> Iterator[Any]:
        for number, batch in enumerate(made(index, total)):
            if number % 2:
                yield batch
            else:
                yield from batch.rows()

    dag = DAG()
    source = dag.new_vertex("source", processors.generate(both), 2)
    group = dag.new_vertex("group", processors.group_by("name", "k").agg(n=count(), total=sum_("v")), 4)
    sink = dag.new_vertex("sink", processors.write_list(out), 1)
    dag.edge(between(source, group).partitioned(columns("name", "k"))).edge(between(group, sink))
    jet.new_job(dag).run(60)
    assert results(jet, out, "name", "k") == reference("name", "k")


def test_a_job_fails_with_the_vertex_and_the_column(jet: JetInstance, out: str) -> None:
    dag = DAG()
    source = dag.new_vertex("source", processors.generate(made), 1)
    ragged = dag.new_vertex("ragged", processors.map_batches(lambda batch: {"a": [1, 2], "b": [1]}))
    sink = dag.new_vertex("sink", processors.write_list(out), 1)
    dag.edge(between(source, ragged)).edge(between(ragged, sink))
    with pytest.raises(JobFailedError, match="vertex 'ragged': column 'b' has 1 rows, 'a' has 2") as failure:
        jet.new_job(dag).run(60)
    assert failure.value.vertex == "ragged"
    assert isinstance(failure.value.cause, BatchError)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda folder: processors.map_batches(lambda batch: batch["absent"]), "there is no column 'absent'"),
        (lambda folder: processors.map_batches(lambda batch: Batch({"a": [1], "b": []})), "column 'b' has 0 rows"),
        (lambda folder: processors.group_by("absent").agg(n=count()), "expected a column 'absent'"),
        (lambda folder: processors.sort_batches("absent"), "there is no column 'absent'"),
        (lambda folder: processors.write_npy(folder), "write_npy: column 'name' is text of variable length"),
    ],
)
def test_a_batch_error_begins_with_the_vertex_whoever_raises_it(
    jet: JetInstance, tmp_path: Path, make: Callable[[Path], Any], text: str
) -> None:
    dag = DAG()
    source = dag.new_vertex("source", processors.generate(made), 1)
    dag.edge(between(source, dag.new_vertex("wrong", make(tmp_path))))
    with pytest.raises(JobFailedError) as failure:
        jet.new_job(dag).run(60)
    assert str(failure.value.cause).startswith(f"vertex 'wrong': {text}")
    assert len(str(failure.value).splitlines()) <= 25
    assert f'File "{shmjet.__path__[0]}{os.sep}' not in str(failure.value)


def test_a_key_that_is_not_there_is_an_error_that_names_the_edge_or_vertex(jet: JetInstance, out: str) -> None:
    dag = DAG()
    source = dag.new_vertex("source", processors.generate(made), 1)
    sink = dag.new_vertex("sink", processors.write_list(out), 2)
    dag.edge(between(source, sink).partitioned(column("no such column")))
    with pytest.raises(JobFailedError, match="no such column") as failure:
        jet.new_job(dag).run(60)
    assert isinstance(failure.value.cause, BatchError)
    edge = "edge between('source', 'sink').partitioned(column('no such column'))"
    assert str(failure.value.cause).startswith(f"vertex 'source': {edge}: there is no column 'no such column'; ")
