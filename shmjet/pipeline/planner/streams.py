"""Partition counts of a pipeline: the stages that begin a stream, and the partitions of each stream and join.

The only module that knows stages as well as streams: it feeds the logical graph to the three steps (`joined_streams`,
`stream_edges`, `stream_counts` with `agreement`), which know nothing of it nor of each other. After the
`calculatePartitions` of Samza's `ExecutionPlanner`.
"""

from __future__ import annotations

from collections.abc import Mapping

from shmjet.core.job import JobConfig
from shmjet.pipeline import transforms as t
from shmjet.pipeline.planner.agreement import check
from shmjet.pipeline.planner.graph import LogicalGraph
from shmjet.pipeline.planner.joined_streams import OperatorGraph, joined_streams
from shmjet.pipeline.planner.stream_counts import assign_counts
from shmjet.pipeline.planner.stream_edges import StreamEdge, to_stream_edges

_REDISTRIBUTES = (
    t.PartitionBy,
    t.Rebalance,
    t.Sort,
    t.Distinct,
    t.Aggregate,
    t.RollingAggregate,
    t.GroupColumns,
    t.JoinColumns,
    t.SortColumns,
    t.Top,
    t.DistinctColumns,
    t.MapStateful,
    *t.WINDOWS,
)
"""Stages that spread all of their items anew: the partitions of what comes in mean nothing behind them."""


def partition_counts(graph: LogicalGraph, config: JobConfig) -> Mapping[int, int]:
    """Return the partition counts of `partition_by` stages and of joins, by node id.

    Streams are the sources, and what leaves a stage that spreads its items anew. The count of a source that has no
    partitions is unknown, as that of an intermediate stream: it is the side that has to move. Joins that are missing
    from the answer are free: nothing but the results of aggregations and the like reaches them, which have partitions
    for no particular reason.

    Args:
        graph: of the pipeline.
        config: `intermediate_partitions` is the count of streams that are joined with none of a known count.

    Raises:
        PlanError: streams that are joined do not agree, a count is below 1 or above 65535, or a table is unknown; the
            text names both streams, the join and both counts.
    """
    operators = _operators(graph)
    joined = joined_streams(operators)
    edge_of = {i: StreamEdge(graph.nodes[i].name, _partitions(graph.nodes[i])) for i in operators.streams}
    streams = to_stream_edges(joined, edge_of, {join: graph.nodes[join].name for join in joined})
    counts = assign_counts(
        streams.known,
        streams.sets,
        config.intermediate_partitions,
        inputs=(_partitions(node) for node in graph.nodes),
        outputs=(node.transform.sink.partitions for node in graph.nodes if isinstance(node.transform, t.Sink)),
    )
    check(counts, streams.sets)
    planned = {
        i: counts[edge.name] for i, edge in edge_of.items() if isinstance(graph.nodes[i].transform, t.PartitionBy)
    }
    for join, reached_by in joined.items():
        if any(isinstance(graph.nodes[i].transform, t.Source | t.PartitionBy) for i in reached_by):
            planned[join] = counts[edge_of[reached_by[0]].name]
    return planned


def _operators(graph: LogicalGraph) -> OperatorGraph[int]:
    """Return the graph as the analysis wants it: node ids, and the roles that nodes have."""
    redistributing = [node.id for node in graph.nodes if _redistributes(node)]
    return OperatorGraph(
        streams=tuple(node.id for node in graph.nodes if isinstance(node.transform, t.Source) or _redistributes(node)),
        next_of=lambda i: [consumer.id for consumer in graph.consumers[i] if _takes_as_a_stream(consumer, i)],
        joins=frozenset(node.id for node in graph.nodes if isinstance(node.transform, t.Join)),
        sends={node.id: node.transform.table for node in graph.nodes if isinstance(node.transform, t.SendToTable)},
        table_joins={node.id: node.transform.table for node in graph.nodes if isinstance(node.transform, t.JoinTable)},
        ends=frozenset(redistributing),
    )


def _redistributes(node: t.Node) -> bool:
    keyed_service = isinstance(node.transform, t.UsingService) and node.transform.keyed
    return keyed_service or isinstance(node.transform, _REDISTRIBUTES)


def _takes_as_a_stream(consumer: t.Node, upstream: int) -> bool:
    """Tell whether the items of `upstream` go on behind a consumer: not those of which a hash join makes its tables."""
    return not isinstance(consumer.transform, t.HashJoin) or consumer.upstream[0] == upstream


def _partitions(node: t.Node) -> int | None:
    return node.transform.source.partitions if isinstance(node.transform, t.Source) else None
