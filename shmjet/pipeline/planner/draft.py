"""A plan under construction, which the rules for single kinds of stages share.

Rules ask a `Draft` for the outputs of what feeds a stage and add vertices and edges to it. It must not know transforms.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shmjet.core.key_functions import KeyFn
from shmjet.pipeline import transforms as t
from shmjet.pipeline.planner.graph import LogicalGraph
from shmjet.pipeline.planner.keys import identity_of
from shmjet.pipeline.planner.model import Partitioning, PhysicalPlan, PlannedVertex
from shmjet.pipeline.planner.outputs import Feed, Output, Wires
from shmjet.processors.general.fused_steps import Step, fused


def _rows_of(batch: Any) -> Any:
    return batch.rows()


ROWS = Step("flat_map", _rows_of, "rows")
"""Makes the rows of batches dicts, one by one."""


class Draft:
    """The plan so far, and the outputs of the stages that are in it.

    Args:
        graph: the pipeline's.
        counts: partition counts by node id, of intermediate streams and of joins; the others have the grid's count.
    """

    def __init__(self, graph: LogicalGraph, counts: Mapping[int, int]) -> None:
        self.graph = graph
        self.counts = counts
        self.plan = PhysicalPlan()
        self.wires = Wires(self.plan)
        self.outputs: dict[int, Output] = {}
        """By node id, of all nodes that have been planned and emit something."""
        self._names: set[str] = set()

    def vertex(self, name: str, supplier: Any, parallelism: int, node: t.Node, *why: str) -> PlannedVertex:
        """Add a vertex that does a node's work.

        Args:
            name: gets a number when it is taken.
            supplier, parallelism: as of `PlannedVertex`.
            node: the stage.
            why: reasons; empty ones are left out.
        """
        found, number = name, 1
        while found in self._names:
            number += 1
            found = f"{name}-{number}"
        self._names.add(found)
        vertex = PlannedVertex(found, supplier, parallelism, (node.name,), [reason for reason in why if reason])
        self.plan.vertices.append(vertex)
        return vertex

    def inputs(self, node: t.Node) -> list[Output]:
        """Return the outputs of all that feeds a node."""
        return [self.outputs[upstream] for upstream in node.upstream]

    def only_input(self, node: t.Node) -> Output:
        """Return the output of what feeds a node with one input."""
        return self.outputs[node.upstream[0]]

    def single(self, output: Output, node: t.Node) -> Output:
        """Return an output of one vertex, for stages whose inputs are told apart by ordinals."""
        if len(output.feeds) == 1:
            return output
        passing = self.vertex(f"{node.name}-merge", fused([]), -1, node, "joins what was merged, as one input")
        columnar = output.columnar
        if not columnar:
            output = self.rows(output, node)
        return Output((Feed(passing, self.passed(output, passing, node), columnar),))

    def passed(self, output: Output, vertex: PlannedVertex, node: t.Node) -> Partitioning | None:
        """Join an output to a vertex that hands its items on to a stage; they stay where they lie if that pays.

        Returns:
            how they lie then.
        """
        if any(upstream in self.graph.placed for upstream in node.upstream) and self.lies_alike(output, vertex):
            self.wires.in_place(output, vertex, f"items stay where they lie by key, which {node.name} makes use of")
            return output.feeds[0].partitioning
        return self.wires.any_way(output, vertex)

    def rows(self, output: Output, node: t.Node) -> Output:
        """Return an output of items: batches become dicts, row by row."""
        if not output.has_batches:
            return output
        feeds = []
        for feed in output.feeds:
            if feed.columnar is not False:
                why = f"{node.name} works on items: rows of batches become dicts"
                supplier = fused([ROWS]) if feed.columnar else fused([], takes_batches=True)
                vertex = self.vertex(f"{node.name}-rows", supplier, feed.vertex.parallelism, node, why)
                feeds.append(Feed(vertex, self.passed(Output((feed,)), vertex, node)))
            else:
                feeds.append(feed)
        return Output(tuple(feeds))

    def lies_alike(self, output: Output, vertex: PlannedVertex) -> bool:
        """Tell whether all items lie by the same key, on as many processors as a vertex has; it adopts their number."""
        first = output.feeds[0]
        if first.partitioning is None or not output.lies_as(first.partitioning):
            return False
        adopt(vertex, first.vertex)
        return bool(first.vertex.processors == vertex.processors)

    def wanted(self, output: Output, vertex: PlannedVertex, key_fn: KeyFn) -> Partitioning:
        """Return how a keyed stage wants its items to lie: as they do, if that is by its key."""
        first = output.feeds[0]
        identity = identity_of(key_fn)
        if first.partitioning is not None and first.partitioning.key == identity and output.lies_as(first.partitioning):
            adopt(vertex, first.vertex)
            return first.partitioning
        if first.spread is not None and first.spread.keyed and output.is_spread_by(Partitioning(identity)):
            return Partitioning(identity, first.spread.count)
        return Partitioning(identity)


def adopt(vertex: PlannedVertex, like: PlannedVertex) -> None:
    """Give a vertex as many processors as another one has, unless its own number is set."""
    if vertex.parallelism == -1 and isinstance(like.processors, int):
        vertex.parallelism = like.processors
