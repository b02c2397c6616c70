"""Partition counts of pipelines: a table of cases, and what is said when streams disagree."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Any

import pytest

from shmjet.core import ConfigError, JobConfig, PlanError
from shmjet.pipeline import BatchStage, Pipeline, Table
from shmjet.pipeline.planner.graph import LogicalGraph
from shmjet.pipeline.planner.streams import partition_counts
from shmjet.processors import counting
from tests.pipeline.partitioned import of_count, sink

Stage = BatchStage[Any]


def key(item: Any) -> Any:
    return item[0]


def other_key(item: Any) -> Any:
    return item[1]


class Building:
    """A pipeline under construction whose sources have a name and a count, and nothing else."""

    def __init__(self) -> None:
        self.pipeline = Pipeline()

    def source(self, name: str, partitions: int | None = None) -> Stage:
        return self.pipeline.read_from(of_count(name, partitions))

    def new(self, name: str, upstream: Stage | None = None) -> Stage:
        """An intermediate stream."""
        made = (self.source(f"before-{name}") if upstream is None else upstream).partition_by(other_key)
        return made.set_name(name)

    def counts(self, configured: int | None = None) -> dict[str, int]:
        """The planned counts by name, after all ends have got a sink."""
        used = {upstream for node in self.pipeline.nodes for upstream in node.upstream}
        for node in self.pipeline.nodes:
            if node.id not in used and not node.name.startswith(("send_to", "out")):
                BatchStage(self.pipeline, node.id).write_to(sink())
        config = JobConfig() if configured is None else JobConfig(intermediate_partitions=configured)
        graph = LogicalGraph(self.pipeline.nodes)
        found = partition_counts(graph, config)
        assert self.pipeline.to_dag(config)
        return {graph.nodes[node].name: count for node, count in found.items()}


def join(left: Stage, right: Stage, name: str = "join") -> Stage:
    return left.join(right, key, key).set_name(name)


def lookup(stage: Stage, table: Table, name: str = "lookup") -> Stage:
    return stage.join_table(table, key, lambda item, value: (item, value)).set_name(name)


def test_equal_counts_agree() -> None:
    build = Building()
    join(build.source("a", 8), build.source("b", 8).filter(bool).map(tuple))
    assert build.counts(3) == {"join": 8}


def test_unequal_counts_are_an_error_that_names_everything() -> None:
    build = Building()
    join(build.source("orders", 4).map(tuple), build.source("payments", 8), "settle")
    with pytest.raises(
        PlanError, match="join 'settle': stream 'orders' has 4 partitions, but stream 'payments' has 8;"
    ):
        build.counts()


def test_to_dag_and_explain_raise_it_too() -> None:
    build = Building()
    join(build.source("a", 4), build.source("b", 8)).write_to(sink())
    for plan in (build.pipeline.to_dag, build.pipeline.explain):
        with pytest.raises(PlanError, match="'a' has 4 partitions, but stream 'b' has 8"):
            plan()


def test_an_intermediate_stream_takes_the_count_of_what_it_is_joined_with() -> None:
    for swapped in (False, True):
        build = Building()
        sides = [build.source("a", 16), build.new("b")]
        join(*(reversed(sides) if swapped else sides))
        assert build.counts(3) == {"b": 16, "join": 16}


def test_a_source_without_partitions_is_the_side_that_adapts() -> None:
    build = Building()
    join(build.source("a"), build.source("b", 16))
    assert build.counts(3) == {"join": 16}


@pytest.mark.parametrize("order", list(permutations(range(3))))
@pytest.mark.parametrize("end", [0, 3])
def test_a_count_passes_through_three_joins_in_every_order(order: tuple[int, ...], end: int) -> None:
    build = Building()
    streams = [build.source("known", 12) if i == end else build.new(f"s{i}") for i in range(4)]
    for i in order:
        join(streams[i], streams[i + 1], f"join-{i}")
    found = build.counts(3)
    assert found == {
        **{f"s{i}": 12 for i in range(4) if i != end},
        "join-0": 12,
        "join-1": 12,
        "join-2": 12,
    }


def test_a_stream_between_two_of_different_counts_is_an_error() -> None:
    build = Building()
    between = build.new("between")
    join(build.source("s1", 16), between, "j1")
    join(between, build.source("s4", 8), "j2")
    with pytest.raises(PlanError, match=r"join 'j2': stream 's4' has 8 partitions, but stream 'between' has 16"):
        build.counts()


def test_streams_go_on_behind_a_join() -> None:
    build = Building()
    first = join(build.source("a", 8), build.source("b", 8), "first")
    join(first.map(tuple), build.source("c", 9), "second")
    with pytest.raises(PlanError, match="join 'second': stream 'a' has 8 partitions, but stream 'c' has 9"):
        build.counts()


ENDING: dict[str, Callable[[Stage], Stage]] = {
    "partition_by": lambda s: s.partition_by(key),
    "rebalance": lambda s: s.rebalance(),
    "rebalance by key": lambda s: s.rebalance(key),
    "sort": lambda s: s.sort(),
    "distinct": lambda s: s.distinct(),
    "aggregate": lambda s: s.aggregate(counting()),
    "aggregate by key": lambda s: s.grouping_key(key).aggregate(counting()),
    "keyed state": lambda s: s.grouping_key(key).map_stateful(list, lambda state, k, item: item),
    "keyed service": lambda s: s.grouping_key(key).map_using_service(dict, lambda service, k, item: item),
    "the small side of a hash join": lambda s: s.pipeline.read_from(of_count("large", 8)).hash_join(s, key, key),
}
GOING_ON: dict[str, Callable[[Stage], Stage]] = {
    "map": lambda s: s.map(tuple),
    "filter": lambda s: s.filter(bool),
    "flat_map": lambda s: s.flat_map(list),
    "service": lambda s: s.map_using_service(dict, lambda service, item: item),
    "merge": lambda s: s.merge(s.pipeline.read_from(of_count("merged", None))),
    "the stream of a hash join": lambda s: s.hash_join(s.pipeline.read_from(of_count("small", 5)), key, key),
}


@pytest.mark.parametrize("stage", ENDING.values(), ids=ENDING)
def test_a_walk_ends_at_a_stage_that_spreads_its_items_anew(stage: Callable[[Stage], Stage]) -> None:
    build = Building()
    join(stage(build.source("a", 4)), build.source("b", 8))
    assert build.counts()["join"] == 8


@pytest.mark.parametrize("stage", GOING_ON.values(), ids=GOING_ON)
def test_a_walk_goes_on_through_other_stages(stage: Callable[[Stage], Stage]) -> None:
    build = Building()
    join(stage(build.source("a", 4)), build.source("b", 8))
    with pytest.raises(PlanError, match="'a' has 4 partitions, but stream 'b' has 8"):
        build.counts()


# -- tables -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table_count", "stream_count", "expected"),
    [(8, 8, 8), (None, 8, 8), (8, None, 8), (None, None, 3)],
    ids=["both known", "the table's adapts", "the stream adapts", "neither known"],
)
def test_a_stream_and_what_fills_the_table_agree(
    table_count: int | None, stream_count: int | None, expected: int
) -> None:
    build = Building()
    table = Table("t")
    filling = build.source("filling", table_count) if table_count else build.new("filling")
    filling.map(tuple).send_to(table)
    lookup(build.source("stream", stream_count) if stream_count else build.new("stream"), table)
    found = build.counts(3)
    assert found.pop("lookup") == expected
    assert set(found.values()) <= {expected}


def test_a_table_that_is_filled_with_another_count_is_an_error() -> None:
    build = Building()
    table = Table("t")
    build.source("filling", 4).send_to(table)
    lookup(build.source("stream", 8), table)
    with pytest.raises(PlanError, match="join 'lookup': stream 'filling' has 4 partitions, but stream 'stream' has 8"):
        build.counts()


def test_all_joins_on_a_table_agree_with_it() -> None:
    build = Building()
    table = Table("t")
    build.new("filling").send_to(table)
    lookup(build.new("one"), table, "lookup-1")
    lookup(build.source("two", 8), table, "lookup-2")
    assert build.counts(3) == dict.fromkeys(["filling", "one", "lookup-1", "lookup-2"], 8)


def test_what_comes_through_a_table_reaches_the_joins_behind_it() -> None:
    """Row 4 of the proposal's table: the join of two intermediate streams is joined with an input."""
    build = Building()
    table = Table("t")
    build.new("s1").send_to(table)
    looked_up = lookup(build.new("s2"), table)
    join(looked_up, build.source("s3", 24))
    assert build.counts(3) == dict.fromkeys(["s1", "s2", "lookup", "join"], 24)


def test_side_inputs_of_a_table_have_to_agree() -> None:
    build = Building()
    table = Table("t", side_inputs=(of_count("side", 4),), side_key=key)
    lookup(build.new("stream"), table)
    assert build.counts(3) == {"stream": 4, "lookup": 4}

    build = Building()
    lookup(build.source("stream", 8), table)
    with pytest.raises(PlanError, match="join 'lookup': stream 'stream' has 8 partitions, but stream 'side' has 4"):
        build.counts()


def test_a_table_may_have_side_inputs_and_be_sent_to() -> None:
    build = Building()
    table = Table("t", side_inputs=(of_count("side", 4),), side_key=key)
    build.new("filling").send_to(table)
    lookup(build.source("stream"), table)
    assert build.counts(3) == {"filling": 4, "lookup": 4}


def test_a_table_that_is_filled_by_what_is_joined_with_it_ends_the_walk_and_is_an_error() -> None:
    """On bounded data a table is complete before it is joined, so this cannot be; that it is said at all means that the
    walk has ended."""
    build = Building()
    table = Table("t")
    looked_up = lookup(build.source("stream", 8), table)
    looked_up.send_to(table)
    with pytest.raises(PlanError, match=r"lookup: on bounded data a table is complete before it is joined.*'t'"):
        build.counts()


def test_a_join_with_a_table_that_nothing_fills_is_an_error() -> None:
    build = Building()
    lookup(build.source("stream", 8), Table("profiles"))
    with pytest.raises(PlanError, match="unknown table 'profiles'"):
        build.counts()


# -- configured and inferred counts -----------------------------------------------------------------------------------


def test_what_is_joined_with_nothing_known_takes_the_configured_count() -> None:
    build = Building()
    build.source("a", 8)
    join(build.new("b"), build.new("c"))
    build.new("alone")
    assert build.counts(3) == dict.fromkeys(["b", "c", "join", "alone"], 3)


def test_a_configured_count_is_not_capped() -> None:
    build = Building()
    build.new("a")
    assert build.counts(1000) == {"a": 1000}


@pytest.mark.parametrize(("largest", "expected"), [(5, 5), (256, 256), (257, 256), (5000, 256)])
def test_without_one_it_is_the_largest_of_the_inputs_up_to_256(largest: int, expected: int) -> None:
    build = Building()
    build.source("a", 2)
    build.source("b", largest)
    build.new("c")
    assert build.counts() == {"c": expected}


def test_or_the_largest_of_the_outputs() -> None:
    build = Building()
    build.new("c", build.source("a", 2)).write_to(sink("out-1", 9))
    assert build.counts() == {"c": 9}


def test_or_that_of_maps_where_nothing_is_known() -> None:
    build = Building()
    build.new("a")
    assert build.counts() == {"a": 271}


def test_a_known_count_is_not_capped() -> None:
    build = Building()
    join(build.source("a", 1000), build.new("b"))
    assert build.counts() == {"b": 1000, "join": 1000}


@pytest.mark.parametrize("count", [0, -1])
def test_a_configured_count_below_one_is_an_error_of_the_plan_and_of_the_config(count: int) -> None:
    for error in (PlanError, ConfigError):
        with pytest.raises(error, match=rf"intermediate_partitions must be at least 1, got {count}"):
            JobConfig(intermediate_partitions=count)


def test_a_source_that_claims_no_partitions_is_an_error() -> None:
    build = Building()
    build.source("a", 0)
    with pytest.raises(PlanError, match="stream 'a': a partition count must be from 1 to 65535, got 0"):
        build.counts()
