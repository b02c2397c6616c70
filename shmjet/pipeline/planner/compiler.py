"""The compiler from the logical graph to the physical plan: the vertices that do a stage's work, and their edges.

One rule for each kind of stage (`source_rules`, `item_rules`, `aggregation_rules`, `window_rules`, `join_rules`); a
stage is planned after its inputs.
It must not know what a rule does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from shmjet.pipeline import transforms as t
from shmjet.pipeline.planner.aggregation_rules import plan_aggregate, plan_distinct, plan_group_columns, plan_sort
from shmjet.pipeline.planner.column_rules import (
    plan_distinct_columns,
    plan_join_columns,
    plan_projections,
    plan_sort_columns,
    plan_to_batches,
    plan_to_rows,
    plan_top,
    plan_union,
)
from shmjet.pipeline.planner.column_window_rules import plan_window_columns
from shmjet.pipeline.planner.draft import Draft
from shmjet.pipeline.planner.graph import STATELESS, LogicalGraph
from shmjet.pipeline.planner.item_rules import (
    plan_chain,
    plan_custom,
    plan_failed_items,
    plan_late_items,
    plan_map_batches,
    plan_map_stateful,
    plan_map_using_map,
    plan_merge,
    plan_partition_by,
    plan_rebalance,
    plan_rolling_aggregate,
    plan_sink,
    plan_using_service,
)
from shmjet.pipeline.planner.join_rules import (
    plan_hash_join,
    plan_join,
    plan_join_table,
    plan_send_to_table,
    plan_stream_join,
    plan_stream_join_columns,
)
from shmjet.pipeline.planner.model import PhysicalPlan
from shmjet.pipeline.planner.outputs import Output
from shmjet.pipeline.planner.source_rules import plan_add_timestamps, plan_source, plan_with_time
from shmjet.pipeline.planner.window_rules import plan_window

Rule = Callable[[Draft, t.Node, Any], Output | None]
"""Plans a node, given its transform, and returns its output; None where nothing comes out."""

_RULES: dict[type[t.Transform], Rule] = {
    t.Source: plan_source,
    t.AddTimestamps: plan_add_timestamps,
    t.Window: plan_window,
    t.WindowColumns: plan_window_columns,
    t.WithTime: plan_with_time,
    t.LateItems: plan_late_items,
    t.FailedItems: plan_failed_items,
    t.Sink: plan_sink,
    t.MapBatches: plan_map_batches,
    t.Custom: plan_custom,
    t.MapStateful: plan_map_stateful,
    t.FilterStateful: plan_map_stateful,
    t.FlatMapStateful: plan_map_stateful,
    t.RollingAggregate: plan_rolling_aggregate,
    t.UsingService: plan_using_service,
    t.UsingServiceAsync: plan_using_service,
    t.MapUsingMap: plan_map_using_map,
    t.Merge: plan_merge,
    t.Rebalance: plan_rebalance,
    t.PartitionBy: plan_partition_by,
    t.Sort: plan_sort,
    t.Distinct: plan_distinct,
    t.Aggregate: plan_aggregate,
    t.GroupColumns: plan_group_columns,
    t.JoinColumns: plan_join_columns,
    t.SortColumns: plan_sort_columns,
    t.Top: plan_top,
    t.DistinctColumns: plan_distinct_columns,
    t.Union: plan_union,
    t.ToBatches: plan_to_batches,
    t.ToRows: plan_to_rows,
    t.HashJoin: plan_hash_join,
    t.Join: plan_join,
    t.StreamJoin: plan_stream_join,
    t.StreamJoinColumns: plan_stream_join_columns,
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
        if isinstance(node.transform, (*STATELESS, *t.PROJECTIONS)):
            chain = graph.chains.get(node.id)
            if chain is not None:
                plan = plan_chain if isinstance(node.transform, STATELESS) else plan_projections
                draft.outputs[chain[-1].id] = plan(draft, chain)
            continue
        output = _RULES[type(node.transform)](draft, node, node.transform)
        if output is not None:
            draft.outputs[node.id] = output
    return draft.plan
