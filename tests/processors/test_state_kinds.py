"""What saved state is called: a new version of a job goes on from state of the same kind only."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shmjet import (
    Batch,
    Pipeline,
    column,
    columns,
    processors,
    session,
    sinks,
    sliding,
    sources,
    tumbling,
)
from shmjet import aggregate_ops as ops
from shmjet.core import DAG, between
from shmjet.core.processor import NO_STATE, ProcessorMetaSupplier
from shmjet.execution.plan import describe
from shmjet.processors.columns.word_count import count_words_of

Op = ops.AggregateOperation[Any, Any, Any]


async def same(service: object, item: Any) -> Any:
    """A coroutine function of an asynchronous stage."""
    return item


def everything(folder: Path) -> Pipeline:
    """A pipeline with all kinds of stages that have state or a position."""
    p = Pipeline()
    items, timed = p.read_from(sources.items([1])), p.read_from(sources.item_stream(10)).with_native_timestamps()
    files = p.read_from(sources.files(str(folder / "*.txt")))
    keyed, batches = items.grouping_key(lambda x: x), items.map(lambda x: {"a": x, "v": 1}).to_batches()
    counts = keyed.aggregate(ops.counting())
    ends: list[Any] = [
        counts,
        items.aggregate(ops.counting()),
        keyed.map_stateful(list, lambda state, key, item: item),
        keyed.rolling_aggregate(ops.counting()),
        items.distinct(),
        items.sort(),
        items.merge(files),
        items.hash_join(counts, lambda x: x, lambda pair: pair[0], lambda x, y: (x, y)),
        items.map_using_service_async(list, same),
        batches.group_by("a").agg(n=columns.count()),
        batches.sort("a"),
        batches.distinct("a"),
        batches.top(3, "a"),
        batches.join(batches.select(a="a", w="v"), on="a"),
        p.read_from(sources.list("l")),
        p.read_from(sources.map("m")),
        p.read_from(sources.csv(str(folder / "*.csv"))),
        p.read_from(sources.json(str(folder / "*.json"))),
        timed.window(tumbling(1)).aggregate(ops.counting()),
        timed.window(tumbling(1)).grouping_key(lambda e: e).aggregate(ops.counting()),
    ]
    chosen: list[Any] = [
        *(sinks.list("l"), sinks.map("m"), sinks.map("m", merge_fn=max), sinks.collect(), sinks.files(str(folder))),
        *(sinks.csv(str(folder)), sinks.json(str(folder)), sinks.noop(), sinks.logger()),
        *(sinks.assert_ordered([]), sinks.assert_any_order([]), sinks.assert_collected(print)),
        sinks.observable("o"),
    ]
    for place, end in enumerate(ends):
        end.write_to(chosen[place % len(chosen)])
    return p


def test_all_stages_of_the_library_say_what_their_state_is(tmp_path: Path) -> None:
    shape = describe(everything(tmp_path).to_dag())
    kinds = {vertex.name: vertex.state_kind for vertex in shape.vertices}
    assert len(kinds) > 40
    assert {name for name, kind in kinds.items() if not kind} == set()
    assert sum(kind != NO_STATE for kind in kinds.values()) > 25


def kind_of(supplier: Any) -> str:
    dag = DAG()
    dag.edge(between(dag.new_vertex("a", processors.read_items([])), dag.new_vertex("b", supplier)))
    return describe(dag).vertices[1].state_kind


OPERATIONS: list[Op] = [
    ops.counting(),
    ops.summing(),
    ops.averaging(),
    ops.min_by(),
    ops.min_by(len),
    ops.max_by(),
    ops.top_n(3),
    ops.bottom_n(3),
    ops.linear_trend(len, len),
    ops.to_list(),
    ops.to_set(),
    ops.to_dict(len, len),
    ops.concatenating(),
    ops.pick_any(),
    ops.all_of(ops.counting(), ops.summing()),
    ops.all_of(ops.summing(), ops.counting()),
    ops.grouping_by(len, ops.counting()),
    ops.grouping_by(len),
    ops.reducing(0, None, max),
]


@pytest.mark.parametrize(
    "supplier",
    [
        processors.aggregate,
        processors.combine,
        lambda op: processors.aggregate_by_key(len, op),
        lambda op: processors.accumulate_by_key(len, op),
        processors.combine_by_key,
    ],
)
def test_an_operation_keeps_its_accumulator(supplier: Callable[[Op], Any]) -> None:
    kinds = [kind_of(supplier(op)) for op in OPERATIONS]
    assert len(set(kinds)) == len(OPERATIONS)
    changed = ops.mapping(len, ops.filtering(bool, ops.counting().and_then(str)))
    assert kind_of(supplier(changed)) == kinds[0]


def first_of(event: Any) -> Any:
    return event[0]


@pytest.mark.parametrize(
    "stage",
    [
        lambda by: by.map_stateful(list, print),
        lambda by: by.map_stateful(list, print, ttl=1),
        lambda by: by.flat_map_stateful(list, print),
        lambda by: by.rolling_aggregate(ops.counting()),
        lambda by: by.rolling_aggregate(ops.counting(), ttl=1),
    ],
)
def test_states_of_keys_are_not_taken_for_that_of_all_items(stage: Callable[[Any], Any]) -> None:
    timed = Pipeline().read_from(sources.item_stream(10)).with_native_timestamps()
    for made in (stage(timed), stage(timed.grouping_key(first_of))):
        made.set_name("stage" if "key" not in made.name else "by key").write_to(sinks.noop())
    kinds = {vertex.name: vertex.state_kind for vertex in describe(timed.pipeline.to_dag()).vertices}
    assert kinds["stage"].replace(" without keys", "") == kinds["by key"] != kinds["stage"]


@pytest.mark.parametrize("window", [tumbling(2), sliding(4, 2), session(1)])
@pytest.mark.parametrize("early", [False, True])
def test_windows_of_keys_are_not_taken_for_those_of_all_items(window: Any, early: bool) -> None:
    def kinds(*key: Callable[[Any], Any]) -> set[str]:
        p = Pipeline()
        cut = p.read_from(sources.item_stream(10)).with_native_timestamps().window(window)
        by: Any = cut.early_results(1) if early else cut
        (by.grouping_key(*key) if key else by).aggregate(ops.counting()).set_name("stage").write_to(sinks.noop())
        return {vertex.state_kind for vertex in describe(p.to_dag()).vertices if vertex.name.startswith("stage")}

    whole, keyed = kinds() - {NO_STATE}, kinds(first_of) - {NO_STATE}
    assert whole
    assert keyed
    assert not whole & keyed


def to_rows(number: int, timestamp: int) -> dict[str, int]:
    return {"a": number}


def built(stage: Any) -> Any:
    return stage.aggregate_builder(ops.counting()).build(print)


@pytest.mark.parametrize(
    "stage",
    [
        lambda items, timed: timed.window(tumbling(1)).distinct(),
        lambda items, timed: timed.grouping_key(first_of).window(session(1)).distinct(),
        lambda items, timed: timed.window(tumbling(1)).aggregate2(ops.counting(), timed, ops.counting()),
        lambda items, timed: timed.window(tumbling(1)).group_by("a").agg(n=columns.count()),
        lambda items, timed: timed.window(session(1)).group_by().agg(n=columns.count()),
        lambda items, timed: built(items),
        lambda items, timed: built(items.grouping_key(first_of)),
        lambda items, timed: items.hash_join(items, first_of, first_of, max),
    ],
)
def test_the_state_of_a_stage_goes_by_its_name(stage: Callable[[Any, Any], Any]) -> None:
    p = Pipeline()
    items = p.read_from(sources.items([(1, 2)]))
    timed = p.read_from(sources.item_stream(10, to_rows)).with_native_timestamps()
    stage(items, timed).set_name("before").set_name("chosen").write_to(sinks.noop())
    p.write_to(sinks.noop(), items)
    p.write_to(sinks.noop(), timed)
    sources_and_sinks = "items", "item_stream", "noop"
    vertices = [v for v in describe(p.to_dag()).vertices if not v.name.startswith(sources_and_sinks)]
    kept = [vertex.name for vertex in vertices if vertex.state_kind != NO_STATE]
    assert kept
    assert [name for name in kept if not name.startswith("chosen")] == []


def test_groups_keep_their_keys_and_aggregates() -> None:
    def kinds(grouped: Any) -> set[str]:
        return {kind_of(stage) for stage in (grouped, grouped.accumulate, grouped.combine)}

    group_by, count, sum_ = processors.group_by, columns.count, columns.sum_
    found = [
        kinds(group_by("a").agg(n=count())),
        kinds(group_by("b").agg(n=count())),
        kinds(group_by("a", "b").agg(n=count())),
        kinds(group_by("a").agg(m=count())),
        kinds(group_by("a").agg(n=sum_("v"))),
    ]
    assert all(len(each) == 1 for each in found)
    assert len(set.union(*found)) == len(found)


def kinds_of(stage: Callable[[Any], Any]) -> set[str]:
    """The kinds of state of a stage of batches by event time, in as many vertices as it has."""
    p = Pipeline()
    made = stage(p.read_from(sources.batch_stream(10, two_columns)).with_timestamps(column("ts")).set_name("source"))
    made.set_name("stage").write_to(sinks.noop())
    shape = describe(p.to_dag())
    return {vertex.state_kind for vertex in shape.vertices if vertex.name.startswith("stage")}


def two_columns(sequences: Any, timestamps: Any) -> Batch:
    return Batch({"a": sequences, "b": sequences, "ts": timestamps})


@pytest.mark.parametrize("window", [tumbling(2), sliding(4, 2), session(1)])
def test_windows_of_columns_keep_their_keys_aggregates_and_slides(window: Any) -> None:
    def kinds(chosen: Any, *keys: str, **aggregates: Any) -> set[str]:
        return kinds_of(lambda batches: batches.window(chosen).group_by(*keys).agg(**aggregates))

    count, sum_ = columns.count, columns.sum_
    found = [
        kinds(window, "a", n=count()),
        kinds(window, "b", n=count()),
        kinds(window, "a", "b", n=count()),
        kinds(window, "a", m=count()),
        kinds(window, "a", n=sum_("b")),
        kinds(sliding(3, 1), "a", n=count()),
    ]
    assert len(set.union(*found)) == sum(map(len, found))
    larger = sliding(6, 2) if window == sliding(4, 2) else session(9) if window == session(1) else window
    assert kinds(larger, "a", n=count()) == found[0]


def test_joins_of_streams_of_columns_keep_their_keys() -> None:
    def kinds(*on: str, within: float = 1) -> set[str]:
        def joined(batches: Any) -> Any:
            return batches.join(batches, on=on, within=within, suffix="_right")

        return kinds_of(joined)

    found = [kinds("a"), kinds("b"), kinds("a", "b")]
    assert len(set.union(*found)) == sum(map(len, found))
    assert kinds("a", within=2) == found[0]


def test_counted_words_keep_their_column() -> None:
    assert kind_of(count_words_of("a")) != kind_of(count_words_of("b"))


def test_wrappers_and_meta_suppliers_pass_the_kind_on() -> None:
    for around in (
        processors.peek_input,
        ProcessorMetaSupplier.of,
        ProcessorMetaSupplier.prefer_local_parallelism_one,
        ProcessorMetaSupplier.force_total_parallelism_one,
        lambda supplier: processors.peek_output(ProcessorMetaSupplier.of(supplier)),
    ):
        assert kind_of(around(processors.distinct())) == "distinct"
