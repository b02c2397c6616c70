"""Running pipelines in the test's process, on the deterministic harness, and random pipelines to be run.

All items of the pipelines here are ints, so that any stage can follow any other, and functions are such that the
multiset of results does not depend on the order of items. `tests/pipeline/mixed.py` has items of every kind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from shmjet.aggregate_ops import AggregateOperation
from shmjet.columns import count
from shmjet.core import EdgeConfig
from shmjet.pipeline import BatchStage, Pipeline, SinkDef, SourceDef, Table, on_keys
from shmjet.pipeline.planner.graph import LogicalGraph
from shmjet.pipeline.transforms import Sink
from shmjet.processors import counting, summing, write_list
from shmjet.processors.general.base import Supply
from shmjet.processors.general.generate import ItemsProcessor
from tests.execution.harness import LocalRun


def items_source(name: str, items: list[Any], parallelism: int = 1) -> SourceDef[Any]:
    """A source of given items, which runs without a meta-supplier, as the harness needs it."""
    return SourceDef(name, Supply(ItemsProcessor, tuple(items)), parallelism)


def list_sink(name: str) -> SinkDef[Any]:
    """A sink that writes to the harness' list of that name."""
    return SinkDef(name, write_list(name), 1)


def run(pipeline: Pipeline, workers: int = 2, *, narrow: bool = False, **options: Any) -> dict[str, list[Any]]:
    """Run a pipeline on the harness and return what its list sinks got.

    Args:
        narrow: let so little lie on an edge that a vertex which is not read stops at once, so that deadlocks show.
    """
    dag = pipeline.to_dag()
    if narrow:
        for edge in dag.edges:
            edge.configure(EdgeConfig(high_water_mark=4, queue_size=2))
    return LocalRun(dag, workers, **options).run().grid.lists


def results_of(build: Callable[[Pipeline], BatchStage[Any]], workers: int = 2, **options: Any) -> list[Any]:
    """Run a pipeline that `build` makes, and return the items of the stage that it returns."""
    pipeline = Pipeline()
    build(pipeline).write_to(list_sink("out"))
    return run(pipeline, workers, **options).get("out", [])


def ordered_sinks(pipeline: Pipeline) -> set[str]:
    """Return the names of the list sinks whose items come in a sorted order."""
    graph = LogicalGraph(pipeline.nodes)
    return {
        node.transform.sink.name
        for node in pipeline.nodes
        if isinstance(node.transform, Sink) and node.upstream[0] in graph.in_order and len(node.upstream) == 1
    }


def _digit(item: int) -> int:
    return item % 5


def _pair(item: int, match: int | None) -> int:
    return item * 3 + (1 if match is None else match)


def _count(state: list[int], key: int, item: int) -> int:
    state.append(item)
    return key * 100 + len(state)


def _first_two(state: list[int], key: int, item: int) -> bool:
    state.append(item)
    return len(state) <= 2


def _counts(state: list[int], key: int, item: int) -> range:
    state.append(item)
    return range(len(state) % 3)


def _number(state: list[int], item: int) -> int:
    state.append(item)
    return len(state)


async def _later(service: dict[str, int], item: int) -> int | None:
    await asyncio.sleep(0)
    return item + service["offset"] if item % 7 else None


def _service() -> dict[str, int]:
    return {"offset": 3}


def _joined(pair: tuple[int, int]) -> int:
    return pair[0] * 10 + pair[1] % 10


def _grow(lists: dict[str, list[int]], item: int) -> None:
    lists["seen"].append(item)


def _both(lists: dict[str, list[int]], others: dict[str, list[int]]) -> None:
    lists["seen"] += others["seen"]


def _no_lists() -> dict[str, list[int]]:
    return {"seen": []}


_GROWING: AggregateOperation[int, dict[str, list[int]], dict[str, list[int]]] = AggregateOperation(
    _no_lists, _grow, _both
)


def _size_of_lists(entry: tuple[int, dict[str, list[int]]]) -> int:
    return entry[0] * 100 + len(entry[1]["seen"])


Stage = BatchStage[Any]
Grow = Callable[[Stage], Stage]


@dataclass(frozen=True)
class Kit:
    """What random pipelines are made of: items, steps with one input and with two, and how a table is joined.

    Any step takes any item, and the multiset of its results does not depend on the order of items.
    """

    items: st.SearchStrategy[Any]
    one: Mapping[str, Grow]
    two: Mapping[str, Callable[[Stage, Stage], Stage]]
    table: Callable[[Stage, Stage, int], Stage]


def _built_join(a: Stage, b: Stage) -> Stage:
    builder = a.hash_join_builder()
    left, right = builder.add(b.distinct(), _BY_DIGIT), builder.add_inner(b.map(abs).distinct(), _BY_DIGIT)
    return builder.build(lambda x, found: x + (found[left] or 0) * 2 + found[right])


def _built_aggregate(a: Stage, b: Stage) -> Stage:
    builder = a.grouping_key(_digit).aggregate_builder(counting())
    total = builder.add(b.grouping_key(_digit), summing())
    first = builder.tag0
    return builder.build(lambda key, results: key + 10 * results[first] + results[total])


_ONE: dict[str, Grow] = {
    "map": lambda s: s.map(lambda x: x + 1 if x % 4 else None),
    "filter": lambda s: s.filter(lambda x: x % 3),
    "flat_map": lambda s: s.flat_map(lambda x: [x, x // 2][: x % 3]),
    "flat_map_lazy": lambda s: s.flat_map(lambda x: (x + i for i in range(x % 3))),
    "peek": lambda s: s.peek(predicate=lambda x: False),
    "map_stateful": lambda s: s.grouping_key(_digit).map_stateful(list, _count),
    "filter_stateful": lambda s: s.grouping_key(lambda x: x).filter_stateful(list, _first_two),
    "flat_map_stateful": lambda s: s.grouping_key(_digit).flat_map_stateful(list, _counts),
    "map_stateful_in_all": lambda s: s.map_stateful(list, _number),
    "service": lambda s: s.map_using_service(_service, lambda service, x: x + service["offset"]),
    "service_filter": lambda s: s.filter_using_service(_service, lambda service, x: x > service["offset"]),
    "service_flat": lambda s: s.grouping_key(_digit).flat_map_using_service(_service, lambda v, k, x: [x] * (k % 3)),
    "async": lambda s: s.map_using_service_async(_service, _later),
    "async_unordered": lambda s: s.map_using_service_async(_service, _later, 2, preserve_order=False),
    "rebalance": lambda s: s.rebalance(),
    "rebalance_by_key": lambda s: s.rebalance(_digit),
    "partition_by": lambda s: s.partition_by(_digit),
    "sort": lambda s: s.sort(),
    "sort_descending": lambda s: s.sort(reverse=True),
    "sort_by_key": lambda s: s.sort(lambda x: -x),
    "distinct": lambda s: s.distinct(),
    "aggregate": lambda s: s.aggregate(summing()),
    "aggregate_by_key": lambda s: s.grouping_key(_digit).aggregate(counting()).map(_joined),
    "rolling": lambda s: s.rolling_aggregate(counting()),
    "rolling_lists": lambda s: s.grouping_key(_digit).rolling_aggregate(_GROWING).map(_size_of_lists),
    "rolling_by_key": lambda s: s.grouping_key(_digit).rolling_aggregate(counting()).map(_joined),
    "apply": lambda s: s.apply(lambda stage: stage.map(lambda x: x * 2)),
    "batches": lambda s: s.map(lambda x: {"v": x}).map_batches(lambda b: {"v": b["v"] * 2}).map(lambda row: row["v"]),
    "columns": lambda s: (
        s.map(lambda x: {"k": x % 5}).group_by("k").agg(n=count()).map(lambda row: row["k"] * 100 + row["n"])
    ),
}
_BY_DIGIT = on_keys(_digit, _digit)
_TWO: dict[str, Callable[[Stage, Stage], Stage]] = {
    "merge": lambda a, b: a.merge(b),
    "hash_join": lambda a, b: a.hash_join(b.distinct(), on_keys(_digit, _digit), _pair),
    "inner_hash_join": lambda a, b: a.inner_hash_join(b.distinct(), _digit, lambda x: x % 7, _pair),
    "join": lambda a, b: a.distinct().join(b.distinct(), _digit, _digit, _pair),
    "hash_join_2": lambda a, b: a.inner_hash_join(
        b.distinct(), _BY_DIGIT, b.filter(lambda x: x % 2).distinct(), _BY_DIGIT, lambda x, y, z: x + y * 2 + z
    ),
    "hash_join_builder": _built_join,
    "aggregate2": lambda a, b: a.aggregate2(counting(), b, summing()).map(sum),
    "aggregate3": lambda a, b: a.aggregate3(counting(), b, counting(), a.map(abs), summing()).map(sum),
    "aggregate3_by_key": lambda a, b: (
        a.grouping_key(_digit)
        .aggregate3(counting(), b.grouping_key(_digit), counting(), a.map(abs).grouping_key(_digit), summing())
        .map(lambda entry: entry[0] + sum(entry[1]))
    ),
    "aggregate2_by_key": lambda a, b: (
        a.grouping_key(_digit)
        .aggregate2(counting(), b.grouping_key(lambda x: x % 7), summing())
        .map(lambda entry: entry[0] + 10 * entry[1][0] + entry[1][1])
    ),
    "aggregate_builder": _built_aggregate,
    "join_counts": lambda a, b: (
        a.grouping_key(_digit)
        .aggregate(counting())
        .join(b.grouping_key(_digit).aggregate(counting()), lambda p: p[0], lambda p: p[0])
        .map(lambda both: both[0][0] * 100 + both[0][1] + both[1][1])
    ),
}


def _with_table(a: Stage, b: Stage, number: int) -> Stage:
    table = Table(f"table-{number}")
    b.map(lambda x: (x % 5, x % 5 * 10)).send_to(table)
    return a.join_table(table, _digit, _pair)


INTS = Kit(st.integers(-5, 60), _ONE, _TWO, _with_table)


@st.composite
def pipelines(draw: st.DrawFn, kit: Kit = INTS, prefix: str = "") -> tuple[Pipeline, dict[str, list[Any]]]:
    """Random pipelines of one or two sources and up to eight steps, with the items of each source.

    Args:
        prefix: begins the names of their sinks, so that several of them may run side by side.
    """
    pipeline = Pipeline()
    sources: dict[str, list[Any]] = {}
    stages: list[Stage] = []
    for number in range(draw(st.integers(1, 2))):
        items = draw(st.lists(kit.items, max_size=40))
        if draw(st.booleans()):
            items = items * 20
        name = f"source-{number}"
        sources[name] = items
        stages.append(pipeline.read_from(items_source(name, items, draw(st.integers(1, 3)))))
    size = sum(map(len, sources.values()))
    for number in range(draw(st.integers(1, 8))):
        kind = draw(st.sampled_from([*kit.one, *kit.two, "table"]))
        stage = draw(st.sampled_from(stages[-3:]))
        if kind in kit.one:
            made = kit.one[kind](stage)
        else:
            other = draw(st.sampled_from(stages))
            size *= 5 if kind != "merge" else 1
            made = kit.table(stage, other, number) if kind == "table" else kit.two[kind](stage, other)
        if size > 20_000:
            made = kit.one["distinct"](made)
        if draw(st.integers(0, 4)) == 0:
            made.set_local_parallelism(draw(st.integers(1, 3)))
        stages.append(made)
    used = {upstream for node in pipeline.nodes for upstream in node.upstream}
    for stage in stages:
        if stage.node_id not in used:
            stage.write_to(list_sink(f"{prefix}sink-{stage.node_id}"))
    return pipeline, sources
