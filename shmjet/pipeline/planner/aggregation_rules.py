"""Rules for the stages that need all items, or all items of a key: aggregate, sort, distinct.

What a rule is: see `item_rules`. Must not know what an operation computes, only whether its accumulators combine.
"""

from __future__ import annotations

from typing import Any

from shmjet.core.key_functions import KeyFn
from shmjet.pipeline import transforms as t
from shmjet.pipeline.checks import inputs_of
from shmjet.pipeline.planner.column_rules import described, distinct_of
from shmjet.pipeline.planner.draft import Draft, adopt
from shmjet.pipeline.planner.edge_order import Descending
from shmjet.pipeline.planner.keys import FIRST, identity_of
from shmjet.pipeline.planner.model import GRID_PARTITIONS, Partitioning, PlannedVertex
from shmjet.pipeline.planner.outputs import Feed, Output, partitioned_by
from shmjet.processors import (
    accumulate,
    accumulate_by_key,
    aggregate,
    aggregate_by_key,
    combine,
    combine_by_key,
    distinct,
    sort,
)
from shmjet.processors.columns.project_batches import steps_of
from shmjet.processors.general.base import telling_columns
from shmjet.processors.general.fused_steps import fused


def plan_sort(draft: Draft, node: t.Node, transform: t.Sort) -> Output:
    output = draft.rows(draft.only_input(node), node)
    key_fn, reverse = transform.key_fn, transform.reverse
    local = draft.vertex(
        f"{node.name}-local",
        sort(key_fn, reverse=reverse),
        node.parallelism,
        node,
        "each processor sorts its share",
    )
    draft.wires.any_way(output, local, absorbed=True)
    merging = draft.vertex(node.name, fused([]), 1, node, "one processor, which merges the sorted shares")
    order_key = Descending(key_fn) if reverse else key_fn
    draft.wires.to_one(
        Output((Feed(local),)), merging, "sorted streams are merged into one", ordered=True, order_key=order_key
    )
    return Output((Feed(merging),))


def plan_distinct(draft: Draft, node: t.Node, transform: t.Distinct) -> Output:
    if transform.key_fn is None and draft.only_input(node).columnar:
        return distinct_of(draft, node, t.DistinctColumns(()), draft.only_input(node))
    output = draft.rows(draft.only_input(node), node)
    key_fn = transform.key_fn
    supplier = distinct(key_fn)
    wanted = partitioned_by(key_fn)
    first = output.feeds[0].partitioning
    if first is not None and first.key == wanted.key and output.lies_as(first):
        vertex = draft.vertex(
            node.name, supplier, node.parallelism, node, "one stage: equal items are together already"
        )
        adopt(vertex, output.feeds[0].vertex)
        draft.wires.by_key(output, vertex, key_fn, first)
        return Output((Feed(vertex, first),))
    local = draft.vertex(
        f"{node.name}-local", supplier, node.parallelism, node, "what is repeated on a processor does not move"
    )
    draft.wires.any_way(output, local)
    vertex = draft.vertex(node.name, supplier, node.parallelism, node, "what is repeated between processors goes")
    draft.wires.by_key(Output((Feed(local),)), vertex, key_fn, wanted)
    return Output((Feed(vertex, wanted),))


def plan_aggregate(draft: Draft, node: t.Node, transform: t.Aggregate) -> Output:
    inputs = [draft.rows(output, node) for output in draft.inputs(node)]
    if inputs_of(transform.op) > 1:
        inputs = [draft.single(output, node) for output in inputs]
    if transform.key_fns is None:
        return _aggregate_all(draft, node, transform.op, inputs)
    return _aggregate_by_key(draft, node, transform.op, list(transform.key_fns), inputs)


def _aggregate_all(draft: Draft, node: t.Node, op: Any, inputs: list[Output]) -> Output:
    if op.combine is None:
        why = "one stage on one processor: the operation has no combine function"
        vertex = draft.vertex(node.name, aggregate(op), 1, node, why)
        for ordinal, output in enumerate(inputs):
            draft.wires.to_one(output, vertex, "everything is one group", ordinal, absorbed=True)
        return Output((Feed(vertex),))
    first = draft.vertex(
        f"{node.name}-accumulate", accumulate(op), node.parallelism, node, "each processor folds what it gets"
    )
    for ordinal, output in enumerate(inputs):
        draft.wires.any_way(output, first, ordinal, absorbed=True)
    vertex = draft.vertex(f"{node.name}-combine", combine(op), 1, node, "one processor combines the parts")
    draft.wires.to_one(Output((Feed(first),)), vertex, "one accumulator from each processor", absorbed=True)
    return Output((Feed(vertex),))


def _aggregate_by_key(draft: Draft, node: t.Node, op: Any, key_fns: list[KeyFn], inputs: list[Output]) -> Output:
    one_key: Any = key_fns[0] if len(inputs) == 1 else key_fns
    lying = common_partitioning(draft, inputs, key_fns)
    spread = all(output.is_spread_by(partitioned_by(key_fn)) for output, key_fn in zip(inputs, key_fns, strict=True))
    if lying is not None or spread or op.combine is None:
        why = "one stage: "
        if lying is not None:
            why += "items of equal keys are together already"
        elif spread:
            why += "the items have been spread by this key on purpose"
        else:
            why += "the operation has no combine function"
        vertex = draft.vertex(node.name, aggregate_by_key(one_key, op), node.parallelism, node, why)
        if lying is not None:
            adopt(vertex, inputs[0].feeds[0].vertex)
        for ordinal, (output, key_fn) in enumerate(zip(inputs, key_fns, strict=True)):
            wanted = lying and Partitioning(identity_of(key_fn), lying.count)
            draft.wires.by_key(output, vertex, key_fn, wanted or partitioned_by(key_fn), ordinal, absorbed=True)
        return Output((Feed(vertex, Partitioning(identity_of(FIRST), lying.count if lying else GRID_PARTITIONS)),))
    why = "two stages: a processor folds what it gets, and one accumulator for each key moves"
    first = draft.vertex(f"{node.name}-accumulate", accumulate_by_key(one_key, op), node.parallelism, node, why)
    for ordinal, output in enumerate(inputs):
        draft.wires.any_way(output, first, ordinal, absorbed=True)
    vertex = draft.vertex(
        f"{node.name}-combine", combine_by_key(op), node.parallelism, node, "combines the accumulators of each key"
    )
    draft.wires.by_key(Output((Feed(first),)), vertex, FIRST, partitioned_by(FIRST), absorbed=True)
    return Output((Feed(vertex, partitioned_by(FIRST)),))


def common_partitioning(draft: Draft, inputs: list[Output], key_fns: list[KeyFn]) -> Partitioning | None:
    """Return the partitioning that all inputs have, each by its key, on equally many processors; None otherwise."""
    first = inputs[0].feeds[0]
    if first.partitioning is None:
        return None
    for output, key_fn in zip(inputs, key_fns, strict=True):
        if not output.lies_as(Partitioning(identity_of(key_fn), first.partitioning.count)):
            return None
        if output.feeds[0].vertex.processors != first.vertex.processors:
            return None
    return first.partitioning


def _first_stage(draft: Draft, node: t.Node, grouping: Any, output: Output, why: str) -> PlannedVertex:
    """Return the vertex that groups what each processor gets.

    It is that of the projections before, if no other stage reads these.
    """
    name, grouped = f"{node.name}-accumulate", "each processor groups its columns"
    vertex = output.feeds[0].vertex
    steps = steps_of(vertex.supplier) if len(output.feeds) == 1 and output.feeds[0].side is None else None
    is_alone = len(draft.graph.consumers[node.upstream[0]]) == 1 and output.feeds[0].spread is None
    supplier = grouping.accumulate_projected(steps) if steps and is_alone else None
    if supplier is not None and vertex.parallelism == node.parallelism:
        stages = ", ".join((*vertex.stages, name))
        draft.extend(vertex, f"fused({stages})", supplier, node, why, f"{grouped}, as it computes them")
        return vertex
    vertex = draft.vertex(name, grouping.accumulate, node.parallelism, node, why, grouped)
    draft.wires.any_way(output, vertex, absorbed=True)
    return vertex


def plan_group_columns(draft: Draft, node: t.Node, transform: t.GroupColumns) -> Output:
    grouping = transform.grouping
    output = draft.only_input(node)
    why = described(transform)
    if grouping.keys and output.columnar and output.feeds[0].partitioning is not None:
        lie = Partitioning(identity_of(grouping.key), output.feeds[0].partitioning.count)
        if output.lies_as(lie):
            vertex = draft.vertex(
                node.name, telling_columns(grouping), -1, node, why, "one stage: rows of equal keys are together"
            )
            adopt(vertex, output.feeds[0].vertex)
            draft.wires.by_key(output, vertex, grouping.key, lie, absorbed=True)
            return Output((Feed(vertex, lie, columnar=True),))
    first = _first_stage(draft, node, grouping, output, why)
    feeds = Output((Feed(first, columnar=True),))
    if not grouping.keys:
        vertex = draft.vertex(f"{node.name}-combine", telling_columns(grouping.combine), 1, node, "one group in all")
        draft.wires.to_one(feeds, vertex, "one row from each processor", absorbed=True)
        return Output((Feed(vertex, columnar=True),))
    vertex = draft.vertex(
        f"{node.name}-combine",
        telling_columns(grouping.combine),
        node.parallelism,
        node,
        "combines the groups of equal keys",
    )
    wanted = partitioned_by(grouping.key)
    draft.wires.by_key(feeds, vertex, grouping.key, wanted, absorbed=True)
    return Output((Feed(vertex, wanted, columnar=True),))
