"""The planner: from the stages of a pipeline to the vertices and edges of a DAG.

Logical graph (`graph`) → partition counts of streams (`streams`) → vertices and edges (`compiling`) → buffered edges
(`buffering`). Each step reads what the one before has made and changes nothing of it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from shmjet.core.dag import DAG
from shmjet.core.job import JobConfig, ProcessingGuarantee
from shmjet.pipeline.planner.compiler import compile_plan
from shmjet.pipeline.planner.edge_buffers import buffer_edges
from shmjet.pipeline.planner.explanation import explain
from shmjet.pipeline.planner.graph import LogicalGraph
from shmjet.pipeline.planner.model import PhysicalPlan
from shmjet.pipeline.planner.pruning import pruned
from shmjet.pipeline.planner.pushdown import pushed_down
from shmjet.pipeline.planner.streams import partition_counts
from shmjet.pipeline.transforms import Node

__all__ = ["Plan", "plan"]

logger = logging.getLogger("shmjet.pipeline")


@dataclass(frozen=True)
class Plan:
    """How a pipeline will run.

    Args:
        physical: its vertices and edges.
        guarantee: of the job.
    """

    physical: PhysicalPlan
    guarantee: ProcessingGuarantee = ProcessingGuarantee.NONE

    def to_dag(self) -> DAG:
        """Return the DAG; the log warns of state that a changed pipeline may not find again."""
        saving = (vertex for vertex in self.physical.vertices if vertex.has_unnamed_state)
        unnamed = dict.fromkeys(repr(stage) for vertex in saving for stage in vertex.stages)
        if unnamed and self.guarantee is not ProcessingGuarantee.NONE:
            text = "saved state goes by the names of stages, which may change with the pipeline; use set_name() for %s"
            logger.warning(text, ", ".join(unnamed))
        return self.physical.to_dag()

    def explain(self) -> str:
        """Return the plan as a tree, with the reason of each choice, and the guarantee of each source and sink."""
        return explain(self.physical, self.guarantee)


def plan(nodes: Sequence[Node], config: JobConfig) -> Plan:
    """Plan a pipeline.

    Args:
        nodes: its stages, each after its inputs.
        config: of the job; `intermediate_partitions` counts.

    Raises:
        PlanError: the pipeline is empty, a stage has nothing attached to it, a table is unknown or feeds itself, or
            streams that are joined do not agree in their partitions.
    """
    LogicalGraph(nodes)  # what is wrong with the pipeline, before stages are left out
    graph = LogicalGraph(pruned(pushed_down(nodes)))
    physical = compile_plan(graph, partition_counts(graph, config))
    buffer_edges(physical)
    return Plan(physical, config.processing_guarantee)
