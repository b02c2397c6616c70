"""Rules for stages that handle items one by one, for sinks, and for stages that redistribute items.

A rule takes the draft of a plan, a node and its transform, adds vertices and edges with their reasons, and returns the
output of the stage. After Jet's planner, with two rules of our own: what lies by the right key already does not move,
and batches of columns stay batches as long as stages can use them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from shmjet.core.column_key import ColumnKey
from shmjet.core.key_functions import KeyFn
from shmjet.pipeline import transforms as t
from shmjet.pipeline.planner.draft import ROWS, Draft
from shmjet.pipeline.planner.graph import PASSING
from shmjet.pipeline.planner.keys import FIRST
from shmjet.pipeline.planner.model import GRID_PARTITIONS
from shmjet.pipeline.planner.outputs import TIMED, Feed, Output, Spread, partitioned_by
from shmjet.processors import map_batches
from shmjet.processors.checks.peek import PeekFunction
from shmjet.processors.general.async_services import using_service_async
from shmjet.processors.general.failures import OnError
from shmjet.processors.general.fused_code import Kind, Times
from shmjet.processors.general.fused_steps import Step, fused
from shmjet.processors.general.service_use import using_service
from shmjet.processors.general.stateful import (
    WHOLE,
    filter_stateful,
    flat_map_stateful,
    map_stateful,
    rolling_aggregate,
)
from shmjet.processors.general.timed_wrapping import timed_wrapping
from shmjet.processors.grid.map_lookup import map_using_map

_KINDS: dict[type[t.Transform], Kind] = {t.Map: "map", t.Filter: "filter", t.FlatMap: "flat_map", t.Peek: "peek"}

# -- in and out --------------------------------------------------------------------------------------------------------


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
    inputs = [draft.bare(output, node) for output in inputs]
    vertex = draft.vertex(node.name, sink.supplier, parallelism, node, why)
    vertex.expand = sink.expand
    vertex.guarantee = sink.guarantee
    ordinal = 0
    for output in inputs:
        if sink.single:
            draft.wires.to_one(output, vertex, "one processor gets all items", ordinal)
        else:
            draft.onward(output, vertex, node, ordinal, absorbed=True)
        ordinal += len(output.feeds)


def _is_mixed(output: Output) -> bool:
    """Tell whether a merge has brought batches and items together."""
    return not output.columnar and any(feed.columnar for feed in output.feeds)


def plan_late_items(draft: Draft, node: t.Node, transform: t.LateItems) -> Output:
    return draft.late[node.upstream[0]]


def plan_failed_items(draft: Draft, node: t.Node, transform: t.FailedItems) -> Output:
    return draft.failed[node.upstream[0]]


# -- item by item ------------------------------------------------------------------------------------------------------


def plan_chain(draft: Draft, chain: list[t.Node]) -> Output:
    """Plan stateless stages that follow one another as one vertex."""
    first, last = chain[0], chain[-1]
    policies = _policies(draft, chain)
    steps = [_step(node, policy) for node, policy in zip(chain, policies, strict=True)]
    output = draft.only_input(first)
    why = []
    carries = draft.graph.times.carries(last)
    time_column = _time_column(output) if carries else None
    if output.has_batches and carries and time_column is None:
        output = draft.rows(output, first)
    if len(output.times) > 1:
        output = draft.bare(output, first)
    times: Times = "none" if not output.timed else "kept" if carries else "dropped"
    takes_batches = output.has_batches and not output.columnar
    if time_column is not None:
        times, takes_batches = "kept", True
        why.append("rows of batches become dicts on the way in, each with its event time")
    elif output.columnar:
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
    if times == "dropped":
        why.append("no stage behind looks at event time: it is taken off")
    supplier = fused(steps, takes_batches=takes_batches, times=times, time_column=time_column)
    vertex = draft.vertex(name, supplier, parallelism, first, *why)
    vertex.stages = tuple(node.name for node in chain)
    for node, policy in zip(chain, policies, strict=True):
        draft.guarded(node, vertex, policy)
    time = TIMED if times == "kept" else None
    passes = all(isinstance(node.transform, PASSING) for node in chain)
    if passes and last.id in draft.graph.placed and draft.lies_alike(output, vertex):
        reason = "items stay on the processor where they lie by key, which a later stage makes use of"
        draft.wires.in_place(output, vertex, reason)
        return Output((Feed(vertex, output.feeds[0].partitioning, time=time),))
    partitioning = draft.onward(output, vertex, first)
    return Output((Feed(vertex, partitioning if passes else None, time=time),))


def _time_column(output: Output) -> str | None:
    """Return the one column that has the event time of all batches; None where items have it in another way."""
    (time, *others) = output.times
    return time if isinstance(time, str) and not others else None


def _policies(draft: Draft, chain: list[t.Node]) -> list[OnError | None]:
    """Return what is done with failed items, stage by stage; each that sends them on has a side output."""
    policies: list[OnError | None] = []
    sides = 0
    for node in chain:
        policies.append(draft.policy(node, sides))
        sides += node.on_error == "send"
    return policies


def _step(node: t.Node, on_error: OnError | None) -> Step:
    transform = node.transform
    if isinstance(transform, t.Peek):
        return Step("peek", PeekFunction(node.name, transform.to_text, transform.predicate), node.name)
    assert isinstance(transform, t.Map | t.Filter | t.FlatMap)
    return Step(_KINDS[type(transform)], transform.fn, node.name, on_error)


def plan_map_batches(draft: Draft, node: t.Node, transform: t.MapBatches) -> Output:
    output = draft.batches(draft.only_input(node), node)
    parallelism = draft.graph.parallelism(node)
    policy = draft.policy(node)
    supplier = map_batches(transform.fn, transform.as_, on_error=policy)
    vertex = draft.vertex(node.name, supplier, parallelism, node)
    draft.guarded(node, vertex, policy)
    draft.onward(output, vertex, node)
    return Output((Feed(vertex, columnar=True, time=output.feeds[0].time),))


def plan_custom(draft: Draft, node: t.Node, transform: t.Custom) -> Output:
    output = draft.only_input(node)
    if draft.graph.times.takes(node) or len(output.times) > 1:
        output = draft.rows(output, node)
    output = draft.single(output, node)
    supplier = timed_wrapping(transform.supplier) if output.timed else transform.supplier
    vertex = draft.vertex(node.name, supplier, draft.graph.parallelism(node), node)
    if transform.keyed:
        draft.wires.by_key(output, vertex, transform.key_fn, draft.wanted(output, vertex, transform.key_fn))
    elif draft.lies_alike(output, vertex):
        draft.wires.in_place(output, vertex, "items stay where they lie by key")
    else:
        draft.onward(output, vertex, node)
    return Output((Feed(vertex, time=TIMED if output.timed else None),))


# -- with a state or a service -----------------------------------------------------------------------------------------


def plan_map_stateful(draft: Draft, node: t.Node, transform: t.MapStateful) -> Output:
    of_kind = {t.FilterStateful: filter_stateful, t.FlatMapStateful: flat_map_stateful}
    make = of_kind.get(type(transform), map_stateful)
    key_fn = transform.key_fn if transform.keyed else WHOLE

    def supplier(timed: bool) -> Any:
        ttl, on_evict = transform.ttl, transform.on_evict
        create, fn = transform.create, transform.fn
        return make(create, fn, key_fn, ttl=ttl, on_evict=on_evict, timed=timed, on_error=draft.policy(node))

    passes = isinstance(transform, t.FilterStateful) and transform.on_evict is None
    return _by_key_or_one(draft, node, supplier, transform.key_fn, transform.keyed, passes)


def plan_rolling_aggregate(draft: Draft, node: t.Node, transform: t.RollingAggregate) -> Output:
    key_fn = transform.key_fn if transform.keyed else WHOLE

    def supplier(timed: bool) -> Any:
        return rolling_aggregate(transform.op, key_fn, ttl=transform.ttl, timed=timed, on_error=draft.policy(node))

    output = _by_key_or_one(draft, node, supplier, transform.key_fn, transform.keyed, False)
    if not transform.keyed:
        return output
    return Output((replace(output.feeds[0], partitioning=partitioned_by(FIRST)),))


def _by_key_or_one(
    draft: Draft, node: t.Node, supplier: Callable[[bool], Any], key_fn: KeyFn, keyed: bool, passes: bool
) -> Output:
    """Plan a stage that has a state for each key, or one in all; `supplier(timed)` makes what the vertex takes."""
    output = draft.alike(draft.rows(draft.only_input(node), node), node)
    made, time = supplier(output.timed), TIMED if output.timed else None
    if not keyed:
        vertex = draft.vertex(node.name, made, 1, node, "one state for the whole stream: one processor")
        draft.guarded(node, vertex, draft.policy(node))
        draft.wires.to_one(output, vertex, "all items reach the one state")
        return Output((Feed(vertex, time=time),))
    vertex = draft.vertex(node.name, made, node.parallelism, node, "a state for each key")
    draft.guarded(node, vertex, draft.policy(node))
    wanted = draft.wanted(output, vertex, key_fn)
    draft.wires.by_key(output, vertex, draft.edge_key(node, key_fn), wanted)
    return Output((Feed(vertex, wanted if passes else None, time=time),))


def plan_using_service(draft: Draft, node: t.Node, transform: t.UsingService) -> Output:
    output = draft.alike(draft.rows(draft.only_input(node), node), node)
    service, policy = transform.service, draft.policy(node)
    if isinstance(transform, t.UsingServiceAsync):
        supplier = using_service_async(
            transform.kind,
            service,
            transform.fn,
            transform.key_fn,
            transform.keyed,
            transform.max_concurrent_ops,
            transform.preserve_order,
            timed=output.timed,
            on_error=policy,
        )
    else:
        supplier = using_service(
            transform.kind,
            service,
            transform.fn,
            transform.key_fn,
            transform.keyed,
            timed=output.timed,
            on_error=policy,
        )
    kept = "one service for each " + ("worker process" if service.shared else "processor")
    own = "" if service.is_cooperative else "its calls block: each processor has a process of its own"
    vertex = draft.vertex(node.name, supplier, draft.graph.parallelism(node), node, kept, own)
    draft.guarded(node, vertex, policy)
    time = TIMED if output.timed else None
    if not transform.keyed:
        draft.onward(output, vertex, node)
        return Output((Feed(vertex, time=time),))
    wanted = draft.wanted(output, vertex, transform.key_fn)
    draft.wires.by_key(output, vertex, draft.edge_key(node, transform.key_fn), wanted)
    return Output((Feed(vertex, wanted if transform.kind == "filter" else None, time=time),))


def plan_map_using_map(draft: Draft, node: t.Node, transform: t.MapUsingMap) -> Output:
    output = draft.alike(draft.rows(draft.only_input(node), node), node)
    policy = draft.policy(node)
    supplier = map_using_map(transform.name, transform.key_fn, transform.fn, timed=output.timed, on_error=policy)
    why = f"looks map {transform.name!r} up for each list of items that comes"
    vertex = draft.vertex(node.name, supplier, draft.graph.parallelism(node), node, why)
    draft.guarded(node, vertex, policy)
    draft.onward(output, vertex, node)
    return Output((Feed(vertex, time=TIMED if output.timed else None),))


# -- spreading ---------------------------------------------------------------------------------------------------------


def plan_merge(draft: Draft, node: t.Node, transform: t.Merge) -> Output:
    merged = draft.alike(Output(tuple(feed for output in draft.inputs(node) for feed in output.feeds)), node)
    if node.parallelism == -1 and not node.is_named:
        return merged
    columnar = True if merged.columnar else None if merged.has_batches else False
    vertex = draft.vertex(node.name, fused([]), node.parallelism, node, "a vertex of its own, as it was given a name")
    draft.onward(merged, vertex, node)
    return Output((Feed(vertex, columnar=columnar, time=merged.feeds[0].time),))


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
