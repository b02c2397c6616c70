"""The compiler from the logical graph to the physical plan: the vertices that do a stage's work, and their edges.

One rule for each kind of stage (`item_rules`, `aggregation_rules`, `join_rules`); a stage is planned after its inputs.
It must not know what a rule does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from shmjet.pipeline import transforms as t
from shmjet.pipeline.planner.aggregation_rules import plan_aggregate, plan_distinct, plan_group_columns, plan_sort
from shmjet.pipeline.planner.draft import Draft
from shmjet.pipeline.planner.graph import STATELESS, LogicalGraph
from shmjet.pipeline.planner.item_rules import (
    plan_chain,
    plan_custom,
    plan_map_batches,
    plan_map_stateful,
    plan_merge,
    plan_partition_by,
    plan_rebalance,
    plan_rolling_aggregate,
    plan_sink,
    plan_source,
    plan_using_service,
)
from shmjet.pipeline.planner.join_rules import plan_hash_join, plan_join, plan_join_table, plan_send_to_table
from shmjet.pipeline.planner.model import PhysicalPlan
from shmjet.pipeline.planner.outputs import Output

Rule = Callable[[Draft, t.Node, Any], Output | None]
"""Plans a node, given its transform, and returns its output; None where nothing comes out."""

_RULES: dict[type[t.Transform], Rule] = {
    t.Source: plan_source,
    t.Sink: plan_sink,
    t.MapBatches: plan_map_batches,
    t.Custom: plan_custom,
    t.MapStateful: plan_map_stateful,
    t.FilterStateful: plan_map_stateful,
    t.FlatMapStateful: plan_map_stateful,
    t.RollingAggregate: plan_rolling_aggregate,
    t.UsingService: plan_using_service,
    t.UsingServiceAsync: plan_using_service,
    t.Merge: plan_merge,
    t.Rebalance: plan_rebalance,
    t.PartitionBy: plan_partition_by,
    t.Sort: plan_sort,
    t.Distinct: plan_distinct,
    t.Aggregate: plan_aggregate,
    t.GroupColumns: plan_group_columns,
    t.HashJoin: plan_hash_join,
    t.Join: plan_join,
    t.JoinTable: plan_join_table,
    t.SendToTable: plan_send_to_table,
}


def compile_plan(graph: LogicalGraph, counts: Mapping[int, int]) -> PhysicalPlan:
    """Make the physical plan of a logical graph.

    Args:
        graph: the pipeline's.
        counts: partition counts by node id, of intermediate streams and of joins; the others have the grid's count.
    """
    draft = Draft(graph, counts)
    for node in graph.order:
        if isinstance(node.transform, STATELESS):
            chain = graph.chains.get(node.id)
            if chain is not None:
                draft.outputs[chain[-1].id] = plan_chain(draft, chain)
            continue
        output = _RULES[type(node.transform)](draft, node, node.transform)
        if output is not None:
            draft.outputs[node.id] = output
    return draft.plan
