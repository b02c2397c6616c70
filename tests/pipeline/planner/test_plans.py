"""Which vertices and edges the planner chooses, kind by kind, and which reasons it gives."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any

import pytest

from shmjet.aggregate_ops import AggregateOperation, counting
from shmjet.columns import count
from shmjet.columns import list_ as column_list
from shmjet.core.column_key import column
from shmjet.pipeline import BatchStage, Pipeline, SinkDef, SourceDef, Table, on_keys
from shmjet.pipeline.planner.model import PhysicalPlan
from shmjet.processors import read_items, write_files
from tests.pipeline.running import items_source, list_sink

Build = Callable[[BatchStage[Any], BatchStage[Any]], BatchStage[Any]]

LAST: AggregateOperation[Any, Any, Any] = AggregateOperation(lambda: 0, lambda _, x: x)
"""An operation that cannot be combined."""


def planned(build: Build, *, sink: SinkDef[Any] | None = None, columnar: bool = False) -> PhysicalPlan:
    pipeline = Pipeline()
    source = SourceDef("a", items_source("a", []).supplier, -1, columnar=columnar)
    build(pipeline.read_from(source), _lazy_other(pipeline)).write_to(sink or list_sink("out"))
    return pipeline.plan().physical


class _Other:
    """A second source, which is read when it is used."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    def __getattr__(self, name: str) -> Any:
        stage = self._pipeline.read_from(items_source("b", [], -1))
        self.__dict__.update(stage=stage)
        return getattr(stage, name)


def _lazy_other(pipeline: Pipeline) -> Any:
    return _Other(pipeline)


def shape(plan: PhysicalPlan) -> list[str]:
    """The edges as `source > destination: traits`."""
    return [
        f"{edge.source.name} > {edge.destination.name}" + (f": {edge.traits()}" if edge.traits() else "")
        for vertex in plan.vertices
        for edge in plan.inbound(vertex)
    ]


def key(x: Any) -> Any:
    return x % 5


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda a, b: a.map(abs), ["a > map", "map > out"]),
        (
            lambda a, b: a.map(abs).filter(abs).flat_map(range).peek(),
            ["a > fused(map, filter, flat_map, peek)", "fused(map, filter, flat_map, peek) > out"],
        ),
        (
            lambda a, b: a.map(abs).filter(abs).set_local_parallelism(2).flat_map(range).set_local_parallelism(2),
            ["a > map", "map > fused(filter, flat_map)", "fused(filter, flat_map) > out"],
        ),
        (
            lambda a, b: a.map(abs).set_name("sizes").map_batches(abs).filter(abs),
            [
                "a > sizes",
                "sizes > map_batches-batches",
                "map_batches-batches > map_batches",
                "map_batches > filter",
                "filter > out",
            ],
        ),
        (
            lambda a, b: a.aggregate(counting()),
            [
                "a > aggregate-accumulate",
                "aggregate-accumulate > aggregate-combine: all to one",
                "aggregate-combine > out",
            ],
        ),
        (lambda a, b: a.aggregate(LAST), ["a > aggregate: all to one", "aggregate > out"]),
        (
            lambda a, b: a.grouping_key(key).aggregate(counting()).set_name("counts"),
            [
                "a > counts-accumulate",
                "counts-accumulate > counts-combine: partitioned",
                "counts-combine > out",
            ],
        ),
        (
            lambda a, b: a.grouping_key(key).aggregate(LAST),
            ["a > aggregate_by_key: partitioned", "aggregate_by_key > out"],
        ),
        (
            lambda a, b: a.rebalance(key).grouping_key(key).aggregate(counting()),
            ["a > aggregate_by_key: partitioned", "aggregate_by_key > out"],
        ),
        (
            lambda a, b: a.partition_by(key).filter(abs).grouping_key(key).aggregate(counting()),
            ["a > filter: partitioned", "filter > aggregate_by_key: isolated", "aggregate_by_key > out"],
        ),
        (
            lambda a, b: a.partition_by(key).map(abs).grouping_key(key).aggregate(LAST),
            ["a > map: partitioned", "map > aggregate_by_key: partitioned", "aggregate_by_key > out"],
        ),
        (
            lambda a, b: a.distinct(),
            ["a > distinct-local", "distinct-local > distinct: partitioned", "distinct > out"],
        ),
        (
            lambda a, b: a.distinct().filter(abs).distinct(),
            [
                "a > distinct-local",
                "distinct-local > distinct: partitioned",
                "distinct > filter: isolated",
                "filter > distinct-2: isolated",
                "distinct-2 > out",
            ],
        ),
        (
            lambda a, b: a.grouping_key(key).aggregate(counting()).grouping_key(lambda e: e[0]).aggregate(counting()),
            [
                "a > aggregate_by_key-accumulate",
                "aggregate_by_key-accumulate > aggregate_by_key-combine: partitioned",
                "aggregate_by_key-combine > aggregate_by_key-2: isolated",
                "aggregate_by_key-2 > out",
            ],
        ),
        (lambda a, b: a.sort(), ["a > sort-local", "sort-local > sort: all to one, ordered", "sort > out"]),
        (lambda a, b: a.rebalance().map(abs), ["a > map: spread over all", "map > out"]),
        (lambda a, b: a.rebalance(key).map(abs), ["a > map: partitioned", "map > out"]),
        (lambda a, b: a.merge(b.map(abs)), ["b > map", "a > out", "map > out"]),
        (
            lambda a, b: a.merge(b.map(abs)).set_name("both"),
            ["b > map", "a > both", "map > both", "both > out"],
        ),
        (
            lambda a, b: a.hash_join(b.map(abs), on_keys(None, None)),
            ["b > map", "a > hash_join", "map > hash_join: broadcast, priority -1", "hash_join > out"],
        ),
        (
            lambda a, b: a.hash_join(b.merge(a), on_keys(None, None)),
            [
                "b > hash_join-merge",
                "a > hash_join-merge",
                "a > hash_join: buffered",
                "hash_join-merge > hash_join: broadcast, priority -1",
                "hash_join > out",
            ],
        ),
        (
            lambda a, b: a.hash_join(a, on_keys(None, None)),
            ["a > hash_join: buffered", "a > hash_join: broadcast, priority -1", "hash_join > out"],
        ),
        (
            lambda a, b: a.hash_join(a.aggregate(counting()), on_keys(None, None)),
            [
                "a > aggregate-accumulate",
                "aggregate-accumulate > aggregate-combine: all to one",
                "a > hash_join: buffered",
                "aggregate-combine > hash_join: broadcast, priority -1",
                "hash_join > out",
            ],
        ),
        (
            lambda a, b: a.sort().join(a.map(abs), None, None),
            [
                "a > sort-local",
                "sort-local > sort: all to one, ordered",
                "a > map",
                "sort > join: partitioned",
                "map > join: partitioned, priority -1",
                "join > out",
            ],
        ),
        (
            lambda a, b: a.join(b.map(abs), key, key),
            ["b > map", "a > join: partitioned", "map > join: partitioned, priority -1", "join > out"],
        ),
        (lambda a, b: a.grouping_key(key).map_stateful(list, abs), ["a > map_stateful_by_key: partitioned"]),
        (lambda a, b: a.map_stateful(list, abs), ["a > map_stateful: all to one"]),
        (lambda a, b: a.rolling_aggregate(counting()), ["a > rolling_aggregate: all to one"]),
        (lambda a, b: a.map_using_service(dict, max), ["a > map_using_service"]),
        (lambda a, b: a.grouping_key(key).map_using_service(dict, max), ["a > map_using_service: partitioned"]),
        (
            lambda a, b: a.group_by("k").agg(n=count()),
            ["a > group_by-accumulate", "group_by-accumulate > group_by-combine: partitioned"],
        ),
        (
            lambda a, b: a.group_by().agg(n=count()),
            ["a > group_by-accumulate", "group_by-accumulate > group_by-combine: all to one"],
        ),
    ],
)
def test_plans(build: Build, expected: list[str]) -> None:
    found = shape(planned(build))
    assert found[: len(expected)] == expected
    assert all(line.endswith("> out") for line in found[len(expected) :])


def test_batches_become_items_where_a_stage_works_on_items_and_stay_batches_elsewhere() -> None:
    plan = planned(lambda a, b: a.map_batches(abs).partition_by(column("k")).map(abs).filter(abs), columnar=True)
    assert shape(plan) == [
        "a > map_batches",
        "map_batches > fused(map, filter): partitioned",
        "fused(map, filter) > out",
    ]
    assert "rows of batches become dicts on the way in" in plan.vertices[2].why
    plan = planned(lambda a, b: a.grouping_key(column("k")).aggregate(counting()), columnar=True)
    assert shape(plan)[:2] == ["a > aggregate_by_key-rows", "aggregate_by_key-rows > aggregate_by_key-accumulate"]
    plan = planned(lambda a, b: a.group_by("k").agg(n=count()), columnar=True)
    assert shape(plan)[0] == "a > group_by-accumulate"


def test_projections_are_computed_where_their_results_are_grouped_if_nobody_else_reads_them() -> None:
    v = column("v")
    plan = planned(lambda a, b: a.filter(v > 1).select(w=v * 2).group_by("w").agg(n=count()), columnar=True)
    fused = "fused(filter, select, group_by-accumulate)"
    assert shape(plan)[:2] == [f"a > {fused}", f"{fused} > group_by-combine: partitioned"]
    vertex = next(each for each in plan.vertices if each.name == fused)
    assert vertex.stages == ("filter", "select", "group_by")
    assert "each processor groups its columns, as it computes them" in vertex.why

    def apart(a: Any, b: Any) -> Any:
        return a.filter(v > 1).set_local_parallelism(3).group_by().agg(n=count())

    assert shape(planned(apart, columnar=True))[:2] == ["a > filter", "filter > group_by-accumulate"]
    plan = planned(lambda a, b: a.filter(v > 1).group_by("v").agg(every=column_list("w")), columnar=True)
    assert shape(plan)[0] == "a > filter"
    plan = planned(lambda a, b: a.filter(v > 1).rebalance().group_by().agg(n=count()), columnar=True)
    assert shape(plan)[0] == "a > filter"

    def twice(a: Any, b: Any) -> Any:
        kept = a.filter(v > 1)
        kept.write_to(list_sink("other"))
        return kept.group_by().agg(n=count())

    assert shape(planned(twice, columnar=True))[0] == "a > filter"


def parallelism(plan: PhysicalPlan) -> dict[str, int]:
    return {vertex.name: vertex.parallelism for vertex in plan.vertices}


def test_parallelism_is_the_users_then_the_definitions() -> None:
    pipeline = Pipeline()
    source = SourceDef("a", read_items([1]), parallelism=3)
    pipeline.read_from(source).write_to(SinkDef("out", write_files("/nowhere"), parallelism=2))
    pipeline.read_from(source).set_local_parallelism(5).write_to(list_sink("list")).set_local_parallelism(4)
    assert parallelism(pipeline.plan().physical) == {"a": 3, "out": 2, "a-2": 5, "list": 4}


def test_what_keeps_an_order_has_one_processor() -> None:
    sink: SinkDef[Any] = SinkDef("files", write_files("/nowhere"))
    plan = planned(lambda a, b: a.sort().map(abs).filter(abs), sink=sink)
    assert parallelism(plan) == {"a": -1, "sort-local": -1, "sort": 1, "fused(map, filter)": 1, "files": 1}
    plan = planned(lambda a, b: a.sort().map(abs).set_local_parallelism(4), sink=sink)
    assert parallelism(plan)["map"] == 4
    assert parallelism(plan)["files"] == -1


def test_a_stage_adopts_the_number_of_processors_on_which_items_lie() -> None:
    def build(a: BatchStage[Any], b: BatchStage[Any]) -> BatchStage[Any]:
        counts = a.grouping_key(key).aggregate(counting()).set_local_parallelism(3)
        return counts.join(b.partition_by(itemgetter(0)), itemgetter(0), itemgetter(0))

    plan = planned(build)
    assert parallelism(plan)["join"] == 3
    assert "aggregate_by_key-combine > join: isolated" in shape(plan)


def test_an_isolated_edge_needs_equally_many_processors() -> None:
    def build(a: BatchStage[Any], b: BatchStage[Any]) -> BatchStage[Any]:
        counts = a.grouping_key(key).aggregate(counting()).set_local_parallelism(3)
        return counts.grouping_key(itemgetter(0)).rolling_aggregate(counting()).set_local_parallelism(2)

    assert "aggregate_by_key-combine > rolling_aggregate_by_key: partitioned" in shape(planned(build))


def test_a_fork_whose_branches_meet_in_a_table_is_buffered() -> None:
    def build(a: BatchStage[Any], b: BatchStage[Any]) -> BatchStage[Any]:
        a.map(abs).send_to(Table("t"), key)
        return a.join_table(Table("t"), key, max)

    assert "a > join_table(t): partitioned, buffered" in shape(planned(build))


def test_two_joins_that_read_each_others_sources_in_opposite_order_are_buffered_once() -> None:
    pipeline = Pipeline()
    a, b = (pipeline.read_from(items_source(name, [], -1)) for name in "ab")
    a.join(b, None, None).write_to(list_sink("x"))
    b.join(a, None, None).write_to(list_sink("y"))
    edges = pipeline.plan().physical.edges
    assert [f"{e.source.name} > {e.destination.name}" for e in edges if e.buffered] == ["b > join-2"]


def test_absorbing_vertices_need_no_buffer() -> None:
    def build(a: BatchStage[Any], b: BatchStage[Any]) -> BatchStage[Any]:
        left, right = (a.grouping_key(key).aggregate(counting()) for _ in range(2))
        return left.join(right, itemgetter(0), itemgetter(0))

    assert not [edge for edge in planned(build).edges if edge.buffered]


def test_every_vertex_and_edge_of_the_plan_is_in_the_dag() -> None:
    def build(a: BatchStage[Any], b: BatchStage[Any]) -> BatchStage[Any]:
        return a.rebalance().sort(reverse=True).join(a.distinct(), None, None)

    plan = planned(build)
    dag = plan.to_dag()
    assert [vertex.name for vertex in dag.vertices] == [vertex.name for vertex in plan.vertices]
    for planned_edge in plan.edges:
        (edge,) = [
            e for e in dag.inbound_edges(planned_edge.destination.name) if e.destination_ordinal == planned_edge.ordinal
        ]
        assert edge.source.name == planned_edge.source.name
        assert edge.routing.value == planned_edge.routing
        assert edge.is_buffered == planned_edge.buffered
        assert edge.is_ordered == planned_edge.ordered
        assert edge.priority_value == planned_edge.priority
        assert edge.is_distributed == planned_edge.distributed


def test_explain_says_where_the_order_of_one_processor_is_lost() -> None:
    lost = "edge: dealt to several processors, whose results come in any order: set_local_parallelism(1) would keep it"
    pipeline = Pipeline()
    pipeline.read_from(items_source("a", [], 1)).map(abs).write_to(list_sink("out"))
    assert pipeline.explain() == f"out (1)\n└─ map (one per worker)\n   └─ a (1)\n           {lost}\n"
    kept = Pipeline()
    kept.read_from(items_source("a", [], 1)).map(abs).set_local_parallelism(1).write_to(list_sink("out"))
    assert lost not in kept.explain()
    counted = Pipeline()
    counted.read_from(items_source("a", [], 1)).aggregate(counting()).write_to(list_sink("out"))
    assert lost not in counted.explain(), "there is no order in a count"


def test_explain_gives_the_tree_with_reasons() -> None:
    pipeline = Pipeline()
    a = pipeline.read_from(items_source("a", [], -1)).map(abs).filter(abs)
    a.join(a.grouping_key(lambda x: x).aggregate(counting()), None, itemgetter(0)).write_to(list_sink("out"))
    a.write_to(list_sink("all"))
    assert pipeline.explain() == (
        "out (1)\n"
        "└─ join (one per worker)\n"
        "   │    both sides are partitioned by the key\n"
        "   ├─ fused(map, filter) (one per worker)  → partitioned, buffered\n"
        "   │  │    does map, filter\n"
        "   │  │    2 stateless stages of equal parallelism in one processor: no queue between them\n"
        "   │  │    edge: items of equal item meet on one processor\n"
        "   │  │    edge: buffered: what feeds it also feeds, or waits for, what join reads first, and would otherwise "
        "stop for ever\n"
        "   │  └─ a (one per worker)\n"
        "   └─ aggregate_by_key-combine (one per worker)  → isolated, priority -1\n"
        "      │    does aggregate_by_key\n"
        "      │    combines the accumulators of each key\n"
        "      │    edge: the items are partitioned by item[0] already: nothing moves\n"
        "      └─ aggregate_by_key-accumulate (one per worker)  → partitioned\n"
        "         │    does aggregate_by_key\n"
        "         │    two stages: a processor folds what it gets, and one accumulator for each key moves\n"
        "         │    edge: items of equal item[0] meet on one processor\n"
        "         └─ fused(map, filter) (one per worker)  (see above)\n"
        "all (1)\n"
        "└─ fused(map, filter) (one per worker)  (see above)\n"
    )
