"""Items of every size and number, and keys of every kind, through a real instance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from shmjet import DAG, JetInstance, JobFailedError, between, processors


def keyed(items: Any, key_fn: Any, out: str) -> DAG:
    dag = DAG()
    source = dag.new_vertex("items", processors.read_items(items), 2)
    sink = dag.new_vertex("sink", processors.write_list(out))
    return dag.edge(between(source, sink).partitioned(key_fn))


def test_a_hundred_thousand_items_of_one_byte(jet: JetInstance, out: str, mapping: Callable[..., DAG]) -> None:
    jet.new_job(mapping(lambda x: x, [b"x"] * 100_000)).run(60)
    assert list(jet.get_list(out)) == [b"x"] * 100_000


def test_a_source_without_items(jet: JetInstance, out: str, mapping: Callable[..., DAG]) -> None:
    jet.new_job(mapping(lambda x: x, [])).run(60)
    assert list(jet.get_list(out)) == []


def test_a_vertex_with_64_processors_on_two_workers(jet: JetInstance, out: str) -> None:
    dag = DAG()
    source = dag.new_vertex("source", processors.read_items(range(10_000)), 64)
    middle = dag.new_vertex("middle", processors.map(lambda x: -x), 64)
    sink = dag.new_vertex("sink", processors.write_list(out), 64)
    dag.edge(between(source, middle).partitioned()).edge(between(middle, sink))
    jet.new_job(dag).run(60)
    assert sorted(jet.get_list(out)) == sorted(-x for x in range(10_000))


@pytest.mark.slow
def test_one_item_of_100_mb_crosses_a_ring(jet: JetInstance, out: str) -> None:
    size = 100_000_000
    dag = DAG()
    source = dag.new_vertex("source", processors.generate(lambda i, n: [bytes(size)] if i == 0 else []), 2)
    measure = dag.new_vertex("measure", processors.map(lambda item: (len(item), item[-1], item[0])), 2)
    sink = dag.new_vertex("sink", processors.write_list(out), 1)
    dag.edge(between(source, measure).partitioned(lambda item: "key of the other worker"))
    dag.edge(between(measure, sink))
    jet.new_job(dag).run(120)
    assert list(jet.get_list(out)) == [(size, 0, 0)]


def test_one_key_for_everything(jet: JetInstance, out: str) -> None:
    jet.new_job(keyed(range(50_000), lambda item: "one", out)).run(60)
    assert sorted(jet.get_list(out)) == list(range(50_000))


def test_a_key_without_canonical_bytes_is_an_error_that_says_what_to_do(jet: JetInstance, out: str) -> None:
    class Opaque:
        pass

    with pytest.raises(JobFailedError, match="__partition_key__") as failure:
        jet.new_job(keyed(range(10), lambda item: Opaque(), out)).run(60)
    assert failure.value.vertex == "items"


def test_none_as_an_item_is_an_error(jet: JetInstance, out: str) -> None:
    dag = DAG()
    source = dag.new_vertex("source", processors.read_items([1]), 1)
    flat = dag.new_vertex("flat", processors.flat_map(lambda x: [x, None]))
    dag.edge(between(source, flat)).edge(between(flat, dag.new_vertex("sink", processors.write_list(out))))
    with pytest.raises(JobFailedError, match="None is never an item") as failure:
        jet.new_job(dag).run(60)
    assert failure.value.vertex == "flat"
    assert isinstance(failure.value.cause, TypeError)


@pytest.mark.parametrize(
    "items",
    [
        [0, -1, 2**63, -(2**70)],
        [True, 1, 1.0, False, 0],
        ["", "ä", "\U0001f600", "x" * 100_000],
        [b"", b"\0\xff", bytes(70_000)],
        [(1, "a"), (2, "b", None), ((), {"k": [1, {2}]})],
        [1.5, float("inf"), -0.0, 10**400],
        [{"a": 1}, {"a": "x", "b": None}, frozenset({1})],
    ],
    ids=["ints", "numbers", "texts", "bytes", "nested", "floats", "containers"],
)
def test_values_arrive_equal_and_of_the_same_type(jet: JetInstance, out: str, items: list[Any]) -> None:
    jet.new_job(keyed(items, lambda item: repr(item)[:50], out)).run(60)
    received = sorted(jet.get_list(out), key=repr)
    expected = sorted(items, key=repr)
    assert received == expected
    assert [type(item) for item in received] == [type(item) for item in expected]
