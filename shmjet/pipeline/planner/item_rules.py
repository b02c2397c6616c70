"""Rules for stages that handle items one by one, for sources and sinks, and for stages that redistribute items.

A rule takes the draft of a plan, a node and its transform, adds vertices and edges with their reasons, and returns the
output of the stage. After Jet's planner, with two rules of our own: what lies by the right key already does not move,
and batches of columns stay batches as long as stages can use them.
"""

from __future__ import annotations

from typing import Any

from shmjet.core.column_key import ColumnKey
from shmjet.core.key_functions import KeyFn
from shmjet.pipeline import transforms as t
from shmjet.pipeline.planner.draft import ROWS, Draft
from shmjet.pipeline.planner.graph import PASSING
from shmjet.pipeline.planner.keys import FIRST
from shmjet.pipeline.planner.model import GRID_PARTITIONS
from shmjet.pipeline.planner.outputs import Feed, Output, Spread, described, partitioned_by
from shmjet.processors import map_batches, map_stateful, to_batches
from shmjet.processors.checks.peek import PeekFunction
from shmjet.processors.general.async_services import using_service_async
from shmjet.processors.general.fused_steps import Kind, Step, fused
from shmjet.processors.general.service_use import using_service
from shmjet.processors.general.stateful import filter_stateful, flat_map_stateful, rolling_aggregate

_KINDS: dict[type[t.Transform], Kind] = {t.Map: "map", t.Filter: "filter", t.FlatMap: "flat_map", t.Peek: "peek"}

# -- in and out --------------------------------------------------------------------------------------------------------


def plan_source(draft: Draft, node: t.Node, transform: t.Source) -> Output:
    source = transform.source
    parallelism = source.parallelism if node.parallelism == -1 else node.parallelism
    vertex = draft.vertex(node.name, source.supplier, parallelism, node)
    vertex.expand = source.expand
    vertex.guarantee = source.guarantee
    partitioning = None
    if source.partitions is not None:
        partitioning = partitioned_by(source.partition_key, source.partitions)
        vertex.why.append(f"its items lie in {source.partitions} partitions by {described(source.partition_key)}")
    if source.columnar:
        vertex.why.append("its items are batches of columns")
    return Output((Feed(vertex, partitioning, source.columnar),))


def plan_sink(draft: Draft, node: t.Node, transform: t.Sink) -> None:
    sink = transform.sink
    parallelism = draft.graph.parallelism(node)
    why = ""
    if node.parallelism == -1:
        if sink.parallelism != -1:
            parallelism = sink.parallelism
        elif parallelism == 1:
            why = "one processor, which keeps the order"
    inputs = [draft.rows(output, node) if sink.by_row or _is_mixed(output) else output for output in draft.inputs(node)]
    vertex = draft.vertex(node.name, sink.supplier, parallelism, node, why)
    vertex.expand = sink.expand
    vertex.guarantee = sink.guarantee
    ordinal = 0
    for output in inputs:
        if sink.single:
            draft.wires.to_one(output, vertex, "one processor gets all items", ordinal)
        else:
            draft.wires.any_way(output, vertex, ordinal, absorbed=True)
        ordinal += len(output.feeds)


def _is_mixed(output: Output) -> bool:
    """Tell whether a merge has brought batches and items together."""
    return not output.columnar and any(feed.columnar for feed in output.feeds)


# -- item by item ------------------------------------------------------------------------------------------------------


def plan_chain(draft: Draft, chain: list[t.Node]) -> Output:
    """Plan stateless stages that follow one another as one vertex."""
    first, last = chain[0], chain[-1]
    steps = [_step(node) for node in chain]
    output = draft.only_input(first)
    why = []
    takes_batches = output.has_batches and not output.columnar
    if output.columnar:
        steps.insert(0, ROWS)
        why.append("rows of batches become dicts on the way in")
    elif takes_batches:
        why.append("where batches come, their rows become dicts on the way in")
    if len(chain) > 1:
        why.append(f"{len(chain)} stateless stages of equal parallelism in one processor: no queue between them")
    parallelism = draft.graph.parallelism(first)
    if parallelism == 1 and first.parallelism == -1:
        why.append("one processor, which keeps the order")
    name = first.name if len(chain) == 1 else f"fused({', '.join(node.name for node in chain)})"
    vertex = draft.vertex(name, fused(steps, takes_batches=takes_batches), parallelism, first, *why)
    vertex.stages = tuple(node.name for node in chain)
    passes = all(isinstance(node.transform, PASSING) for node in chain)
    if passes and last.id in draft.graph.placed and draft.lies_alike(output, vertex):
        reason = "items stay on the processor where they lie by key, which a later stage makes use of"
        draft.wires.in_place(output, vertex, reason)
        return Output((Feed(vertex, output.feeds[0].partitioning),))
    partitioning = draft.wires.any_way(output, vertex)
    return Output((Feed(vertex, partitioning if passes else None),))


def _step(node: t.Node) -> Step:
    transform = node.transform
    if isinstance(transform, t.Peek):
        return Step("peek", PeekFunction(node.name, transform.to_text, transform.predicate), node.name)
    assert isinstance(transform, t.Map | t.Filter | t.FlatMap)
    return Step(_KINDS[type(transform)], transform.fn, node.name)


def plan_map_batches(draft: Draft, node: t.Node, transform: t.MapBatches) -> Output:
    output = draft.only_input(node)
    parallelism = draft.graph.parallelism(node)
    if not output.columnar:
        why = f"{node.name} works on batches of columns: items are gathered into such"
        gathering = draft.vertex(f"{node.name}-batches", to_batches(), parallelism, node, why)
        draft.wires.any_way(output, gathering)
        output = Output((Feed(gathering, columnar=True),))
    vertex = draft.vertex(node.name, map_batches(transform.fn, transform.as_), parallelism, node)
    draft.wires.any_way(output, vertex)
    return Output((Feed(vertex, columnar=True),))


def plan_custom(draft: Draft, node: t.Node, transform: t.Custom) -> Output:
    output = draft.single(draft.only_input(node), node)
    vertex = draft.vertex(node.name, transform.supplier, draft.graph.parallelism(node), node)
    draft.wires.any_way(output, vertex)
    return Output((Feed(vertex),))


# -- with a state or a service -----------------------------------------------------------------------------------------


def plan_map_stateful(draft: Draft, node: t.Node, transform: t.MapStateful) -> Output:
    create, fn, key_fn = transform.create, transform.fn, transform.key_fn
    if isinstance(transform, t.FilterStateful):
        supplier = filter_stateful(create, fn, key_fn, transform.keyed)
    elif isinstance(transform, t.FlatMapStateful):
        supplier = flat_map_stateful(create, fn, key_fn, transform.keyed)
    elif transform.keyed:
        supplier = map_stateful(create, fn, key_fn)
    else:
        supplier = map_stateful(create, fn)
    return _by_key_or_one(draft, node, supplier, key_fn, transform.keyed, isinstance(transform, t.FilterStateful))


def plan_rolling_aggregate(draft: Draft, node: t.Node, transform: t.RollingAggregate) -> Output:
    supplier = rolling_aggregate(transform.op, transform.key_fn, transform.keyed)
    output = _by_key_or_one(draft, node, supplier, transform.key_fn, transform.keyed, False)
    if not transform.keyed:
        return output
    return Output((Feed(output.feeds[0].vertex, partitioned_by(FIRST)),))


def _by_key_or_one(draft: Draft, node: t.Node, supplier: Any, key_fn: KeyFn, keyed: bool, passes: bool) -> Output:
    """Plan a stage that has a state for each key, or one in all."""
    output = draft.rows(draft.only_input(node), node)
    if not keyed:
        vertex = draft.vertex(node.name, supplier, 1, node, "one state for the whole stream: one processor")
        draft.wires.to_one(output, vertex, "all items reach the one state")
        return Output((Feed(vertex),))
    vertex = draft.vertex(node.name, supplier, node.parallelism, node, "a state for each key")
    wanted = draft.wanted(output, vertex, key_fn)
    draft.wires.by_key(output, vertex, key_fn, wanted)
    return Output((Feed(vertex, wanted if passes else None),))


def plan_using_service(draft: Draft, node: t.Node, transform: t.UsingService) -> Output:
    output = draft.rows(draft.only_input(node), node)
    service = transform.service
    if isinstance(transform, t.UsingServiceAsync):
        supplier = using_service_async(
            transform.kind,
            service,
            transform.fn,
            transform.key_fn,
            transform.keyed,
            transform.max_concurrent_ops,
            transform.preserve_order,
        )
    else:
        supplier = using_service(transform.kind, service, transform.fn, transform.key_fn, transform.keyed)
    kept = "one service for each " + ("worker process" if service.shared else "processor")
    own = "" if service.is_cooperative else "its calls block: each processor has a process of its own"
    vertex = draft.vertex(node.name, supplier, draft.graph.parallelism(node), node, kept, own)
    if not transform.keyed:
        draft.wires.any_way(output, vertex)
        return Output((Feed(vertex),))
    wanted = draft.wanted(output, vertex, transform.key_fn)
    draft.wires.by_key(output, vertex, transform.key_fn, wanted)
    return Output((Feed(vertex, wanted if transform.kind == "filter" else None),))


# -- spreading ---------------------------------------------------------------------------------------------------------


def plan_merge(draft: Draft, node: t.Node, transform: t.Merge) -> Output:
    outputs = draft.inputs(node)
    merged = Output(tuple(feed for output in outputs for feed in output.feeds))
    if node.parallelism == -1 and not node.is_named:
        return merged
    vertex = draft.vertex(node.name, fused([]), node.parallelism, node, "a vertex of its own, as it was given a name")
    draft.wires.any_way(merged, vertex)
    return Output((Feed(vertex, columnar=True if merged.columnar else None if merged.has_batches else False),))


def plan_rebalance(draft: Draft, node: t.Node, transform: t.Rebalance) -> Output:
    output = draft.only_input(node)
    if transform.keyed and not isinstance(transform.key_fn, ColumnKey):
        output = draft.rows(output, node)
    return output.spreading(Spread(node.name, transform.key_fn, transform.keyed))


def plan_partition_by(draft: Draft, node: t.Node, transform: t.PartitionBy) -> Output:
    output = draft.only_input(node)
    if not isinstance(transform.key_fn, ColumnKey):
        output = draft.rows(output, node)
    count = draft.counts.get(node.id, GRID_PARTITIONS)
    if output.lies_as(partitioned_by(transform.key_fn, count)):
        return output
    return output.spreading(Spread(node.name, transform.key_fn, True, count))
