"""`group_by(...).agg(...)` in one stage and in two, on batches and on items."""

from __future__ import annotations

import itertools
import math
import pickle
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet import DAG, Batch, BatchError, between, column, columns, processors
from shmjet.columns import count, first, last, max_, mean, min_, sum_, var
from shmjet.core import Outbox
from shmjet.core.context import ProcessorContext
from shmjet.core.inbox import Inbox
from shmjet.processors.columns.group_by import GroupBy
from shmjet.processors.columns.project_batches import project_batches
from shmjet.testing import verify_processor
from tests.examples import seeds

from ..execution.harness import LocalRun
from ..execution.vertices import Collect
from .driving import Driver, processors_of

BATCH = Batch({"k": ["a", "b", "a", None], "v": [1, 2, None, 4], "w": [0.5, 1.5, 2.5, 3.5]})
rows = st.lists(
    st.fixed_dictionaries(
        {"k": st.sampled_from(["a", "b", "c", None]), "j": st.integers(-1, 1), "v": st.integers(-9, 9) | st.none()}
    ),
    max_size=20,
)
EVERYTHING = {
    "total": sum_("v"),
    "n": count(),
    "values": count("v"),
    "least": min_("v"),
    "most": max_("v"),
    "average": mean("v"),
}
SCHEMA = {"k": str, "j": int, "v": int}


def run(supplier: Any, items: list[Any], room: int = 2048) -> list[Any]:
    return Driver(processors_of(supplier)[0], room=room).feed(items).complete()


def by_key(output: list[Batch], *keys: str) -> dict[Any, dict[str, Any]]:
    """Return results by key, asserting that each key is there once."""
    found: dict[Any, dict[str, Any]] = {}
    for batch in output:
        for row in batch.rows():
            key = tuple(row.pop(name) for name in keys)
            assert key not in found
            found[key] = row
    return found


def expected(items: list[dict[str, Any]], *keys: str) -> dict[Any, dict[str, Any]]:
    """Return what Python computes for `EVERYTHING`."""
    groups: dict[Any, list[Any]] = defaultdict(list)
    for item in items:
        groups[tuple(item[name] for name in keys)].append(item["v"])
    found = {}
    for key, group in groups.items():
        values = [value for value in group if value is not None]
        found[key] = {
            "total": sum(values) if values else None,
            "n": len(group),
            "values": len(values),
            "least": min(values, default=None),
            "most": max(values, default=None),
            "average": pytest.approx(sum(values) / len(values)) if values else None,
        }
    return found


def test_batches_are_grouped_by_a_column() -> None:
    supplier = processors.group_by("k").agg(total=sum_("v"), n=count(), most=max_("w"))
    result = Batch({"k": ["a", "b", None], "total": [1, 2, 4], "n": [2, 1, 1], "most": [2.5, 1.5, 3.5]})
    verify_processor(supplier).inputs([BATCH]).any_order().expect([result])


def test_every_aggregate_can_be_had() -> None:
    supplier = processors.group_by("k").agg(a=first("v"), b=last("v"), c=var("v"), d=var("v", ddof=0), e=mean("v"))
    batch = Batch({"k": [1, 1, 1, 2], "v": [3.0, 5.0, 10.0, 7.0]})
    found = by_key(run(supplier, [batch]), "k")
    assert found[1,] == {"a": 3, "b": 10, "c": pytest.approx(13), "d": pytest.approx(26 / 3), "e": 6}
    assert found[2,] == {"a": 7, "b": 7, "c": None, "d": 0, "e": 7}


@given(rows, st.lists(st.integers(0, 20), max_size=4))
def test_batches_give_what_python_computes(items: list[dict[str, Any]], places: list[int]) -> None:
    ends = sorted(min(place, len(items)) for place in [0, *places, len(items)])
    batches = [
        batch
        for start, end in itertools.pairwise(ends)
        for batch in run(processors.to_batches(100, schema=SCHEMA), items[start:end])
    ]
    for keys in (("k",), ("j",), ("k", "j")):
        output = run(processors.group_by(*keys).agg(**EVERYTHING), batches)
        assert by_key(output, *keys) == expected(items, *keys)


@given(st.lists(rows, min_size=1, max_size=4), st.booleans())
def test_two_stages_give_what_one_stage_gives(parts: list[list[dict[str, Any]]], as_items: bool) -> None:
    grouping = processors.group_by("k", "j", schema=SCHEMA).agg(**EVERYTHING)
    states: list[Any] = []
    for part in parts:
        given_ = part if as_items else run(processors.to_batches(7, schema=SCHEMA), part)
        states += run(grouping.accumulate, given_, room=1)
    output = run(grouping.combine, states)
    assert by_key(output, "k", "j") == expected([item for part in parts for item in part], "k", "j")


@given(
    st.lists(rows, min_size=1, max_size=4),
    st.sampled_from([(), ("j",), ("k", "j")]),
    st.sampled_from([-9, 0, 99]),
)
def test_projections_in_the_first_stage_give_what_they_give_before_it(
    parts: list[list[dict[str, Any]]], keys: tuple[str, ...], least: int
) -> None:
    steps = [("where", column("j") * 4 >= least), ("with", [("v", column("v") * 2), ("w", column("j") + 1)])]
    grouping = processors.group_by(*keys).agg(**EVERYTHING, widest=max_("w"))
    batches = [batch for part in parts for batch in run(processors.to_batches(7, schema=SCHEMA), part)]
    projected = run(project_batches(steps), batches)
    states = run(grouping.accumulate_projected(tuple(steps)), batches, room=1)
    mine, other = run(grouping.combine, states), run(grouping.combine, run(grouping.accumulate, projected))
    assert by_key(mine, *keys) == by_key(other, *keys)
    assert [batch.schema for batch in mine] == [batch.schema for batch in other]
    if mine and least == -9:
        doubled = [item | {"v": item["v"] and item["v"] * 2} for part in parts for item in part]
        assert {key: {name: row[name] for name in EVERYTHING} for key, row in by_key(mine, *keys).items()} == expected(
            doubled, *keys
        )


def test_a_call_of_the_first_stage_takes_no_longer_than_it_should(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0]

    def passing() -> int:
        now[0] += 400_000
        return now[0]

    monkeypatch.setattr("shmjet.processors.columns.group_by.monotonic_ns", passing)
    grouping = processors.group_by().agg(total=sum_("v"))
    driver = Driver(processors_of(grouping.accumulate_projected((("where", column("v") > 0),)))[0])
    inbox = Inbox()
    inbox.fill([Batch({"v": [number]}) for number in range(20)])
    left = [20]
    while inbox:
        driver.call(driver.processor.process, 0, inbox)
        left.append(len(inbox))
    assert 1 <= left[0] - left[1] < 20
    assert all(before > after for before, after in itertools.pairwise(left))
    output = run(grouping.combine, driver.complete())
    assert [row for batch in output for row in batch.tuples()] == [(sum(range(20)),)]


def test_projections_in_the_first_stage_take_batches_only() -> None:
    supplier = processors.group_by().agg(n=count()).accumulate_projected((("where", column("v") > 1),))
    with pytest.raises(BatchError, match="filter"):
        run(supplier, [{"v": 1}])


@given(rows, st.lists(st.booleans(), min_size=20, max_size=20))
def test_items_and_batches_may_come_on_one_edge(items: list[dict[str, Any]], is_batch: list[bool]) -> None:
    given_ = [
        run(processors.to_batches(1, schema=SCHEMA), [item])[0] if as_batch else item
        for item, as_batch in zip(items, is_batch, strict=False)
    ]
    supplier = processors.group_by("k", schema=SCHEMA).agg(start=first("v"), end=last("v"), **EVERYTHING)
    found = by_key(run(supplier, given_), "k")
    for key, group in found.items():
        values = [item["v"] for item in items if item["k"] == key[0] and item["v"] is not None]
        assert (group.pop("start"), group.pop("end")) == ((values[0], values[-1]) if values else (None, None))
    assert found == expected(items, "k")


def test_items_may_be_dicts_or_tuples() -> None:
    result = Batch({"k": ["a", "b"], "total": [4, 2]})
    dicts = [{"k": "a", "v": 1, "x": object()}, {"k": "b", "v": 2}, {"k": "a", "v": 3}]
    verify_processor(processors.group_by("k").agg(total=sum_("v"))).inputs(dicts).any_order().expect([result])
    tuples = [(1, 0, "a"), (2, 0, "b"), (3, 0, "a")]
    supplier = processors.group_by("k", item_columns=["v", "x", "k"]).agg(total=sum_("v"))
    verify_processor(supplier).inputs(tuples).any_order().expect([result])
    counting = processors.group_by().agg(n=count())
    verify_processor(counting).inputs(dicts).expect([Batch({"n": [3]})])


def test_without_keys_everything_is_one_group() -> None:
    supplier = processors.group_by().agg(total=sum_("v"), n=count())
    verify_processor(supplier).inputs([BATCH, BATCH]).expect([Batch({"total": [14], "n": [8]})])
    states = [*run(supplier.accumulate, [BATCH]), *run(supplier.accumulate, [BATCH])]
    verify_processor(supplier.combine).inputs(states).expect([Batch({"total": [14], "n": [8]})])


def test_without_aggregates_the_distinct_keys_come_out() -> None:
    supplier = processors.group_by("k").agg()
    verify_processor(supplier).inputs([BATCH, BATCH]).any_order().expect([Batch({"k": ["a", "b", None]})])


def test_nothing_comes_out_when_nothing_came_in() -> None:
    for grouping in (processors.group_by("k").agg(n=count()), processors.group_by().agg(n=count())):
        for supplier in (grouping, grouping.accumulate, grouping.combine):
            verify_processor(supplier).inputs([]).expect([])
        verify_processor(grouping).inputs([BATCH[:0]]).expect([])


def test_keys_are_said_in_several_ways() -> None:
    for keys in (("a", "b"), (["a", "b"],), (columns("a", "b"),), (column("a"), "b"), (("a",), ["b"])):
        grouping = processors.group_by(*keys).agg(n=count())
        assert grouping.keys == ("a", "b")
        assert grouping.key == columns("a", "b")
    assert repr(grouping) == "group_by('a', 'b').agg(n=count())"
    assert repr(processors.group_by("a")) == "group_by('a')"
    with pytest.raises(BatchError, match="at least 1 column, got none"):
        processors.group_by().agg(n=count()).key


def test_many_groups_are_emitted_in_batches_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shmjet.processors.columns.grouping.EMITTED_ROWS", 1000)
    (processor,) = processors_of(processors.group_by("k").agg(n=count()))
    driver = Driver(processor, room=2)
    driver.feed([Batch({"k": np.arange(25_500)}), Batch({"k": np.arange(100)})])
    output = driver.complete()
    assert [batch.num_rows for batch in output] == [1000] * 25 + [500]
    assert driver.calls > 13
    found = Batch.concat(output)
    assert sorted(found["k"].tolist()) == list(range(25_500))
    assert found["n"].sum() == 25_600


def test_a_column_that_does_not_fit_is_an_error_that_names_it() -> None:
    supplier = processors.group_by("k").agg(total=sum_("v"))
    for batch in (Batch({"k": [1]}), Batch({"v": [1]}), Batch({"k": [1], "v": ["text"]})):
        with pytest.raises(BatchError, match=r"'(k|v)'"):
            run(supplier, [batch])
    with pytest.raises(BatchError, match=r"^a row has no value for column 'v'"):
        run(supplier, [{"k": 1}])
    with pytest.raises(BatchError, match=r"names of the columns are needed|must be a dict or a tuple"):
        run(supplier, ["text"])
    with pytest.raises(BatchError, match=r"expected a Batch, got int"):
        run(supplier.combine, [5])


def test_wrong_arguments_are_refused_where_the_vertex_is_described() -> None:
    with pytest.raises(BatchError, match="column 'a' is there twice"):
        processors.group_by("a", ["a"])
    with pytest.raises(BatchError, match="non-empty str, got 5"):
        processors.group_by(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"agg\(total=...\): expected an aggregate .* got str 'v'"):
        processors.group_by("a").agg(total="v")  # type: ignore[arg-type]
    with pytest.raises(BatchError, match="'a' is a key; give the result another name"):
        processors.group_by("a").agg(a=count())
    with pytest.raises(BatchError, match="neither keys nor aggregates"):
        processors.group_by().agg()
    with pytest.raises(BatchError, match=r"column 'v' is needed, but item_columns are \['k'\]"):
        processors.group_by("k", item_columns=["k"]).agg(total=sum_("v"))
    with pytest.raises(BatchError, match="schema: column 'k' must"):
        processors.group_by("k", schema={"k": object})


def test_suppliers_travel_and_processors_may_move() -> None:
    """The engine moves their tables: `tests/execution/test_work_stealing.py`."""
    grouping: GroupBy = pickle.loads(pickle.dumps(processors.group_by("k").agg(n=count(), total=sum_("v"))))
    for supplier in (grouping, grouping.accumulate, grouping.combine):
        (processor,) = processors_of(pickle.loads(pickle.dumps(supplier)))
        assert processor.movable is None
        processor.init(Outbox([1]), ProcessorContext())
        assert processor.is_cooperative
    (processor,) = processors_of(grouping)
    driver = Driver(processor)
    driver.feed([BATCH, {"k": "a", "v": 5}])
    assert processor.movable is None
    assert by_key(driver.complete(), "k") == {
        ("a",): {"n": 3, "total": 6},
        ("b",): {"n": 1, "total": 2},
        (None,): {"n": 1, "total": 4},
    }


def test_a_sum_of_floats_with_nan_is_nan() -> None:
    (batch,) = run(processors.group_by("k").agg(total=sum_("v")), [Batch({"k": [1, 1], "v": [1.0, math.nan]})])
    assert math.isnan(batch["total"][0])


def test_values_of_items_that_are_not_needed_may_be_anything() -> None:
    supplier = processors.group_by("k", item_columns=["v", "x", "k"]).agg(total=sum_("v"))
    found = run(supplier, [(1, object(), "a"), (2, None, "a")])
    assert by_key(found, "k") == {("a",): {"total": 3}}
    (batch,) = run(processors.group_by(item_columns=["a", "b"]).agg(n=count()), [(1, 2), (3, 4)])
    assert batch == Batch({"n": [2]})


@pytest.mark.parametrize("seed", seeds(8))
def test_groups_and_rows_that_wait_survive_a_move_to_another_worker(seed: int) -> None:
    def numbers(index: int, total: int) -> Iterator[tuple[str, int]]:
        return ((f"key {number % 50}", number) for number in range(index, 10_000, total))

    dag = DAG()
    grouping = processors.group_by("k", schema={"k": str}).agg(total=sum_("v"), n=count())
    source = dag.new_vertex("source", processors.generate(numbers), 2)
    gather = dag.new_vertex("gather", processors.to_batches(700, ["k", "v"]), 3)
    scatter = dag.new_vertex("scatter", processors.to_rows(), 3)
    accumulate, combine = (
        dag.new_vertex("accumulate", grouping.accumulate, 3),
        dag.new_vertex("combine", grouping.combine, 3),
    )
    sink = dag.new_vertex("sink", Collect, 1)
    dag.edge(between(source, gather)).edge(between(gather, scatter)).edge(between(scatter, accumulate))
    dag.edge(between(accumulate, combine).partitioned(grouping.key)).edge(between(combine, sink))
    run_ = LocalRun(dag, 3, seed=seed, stealing=0.4).run()
    assert run_.steals > 0
    found = by_key([item for _, _, item in run_.grid.lists["out"]], "k")
    assert found == {(f"key {key}",): {"total": sum(range(key, 10_000, 50)), "n": 200} for key in range(50)}
