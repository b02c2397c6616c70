"""A plan under construction, which the rules for single kinds of stages share.

Rules ask a `Draft` for the outputs of what feeds a stage and add vertices and edges to it. It must not know transforms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from shmjet.core.column_key import ColumnKey
from shmjet.core.key_functions import KeyFn, RoutableKey
from shmjet.pipeline import transforms as t
from shmjet.pipeline.planner.graph import LogicalGraph
from shmjet.pipeline.planner.keys import identity_of
from shmjet.pipeline.planner.model import Partitioning, PhysicalPlan, PlannedVertex
from shmjet.pipeline.planner.outputs import TIMED, Feed, Output, Wires
from shmjet.processors.general.base import telling_columns
from shmjet.processors.general.batches_and_rows import to_batches
from shmjet.processors.general.failures import OnError
from shmjet.processors.general.fused_steps import Step, fused
from shmjet.processors.general.timed_rows import TIME_COLUMN, with_time_column


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
        self.late: dict[int, Output] = {}
        """By node id, of windows: where the late items come out."""
        self.failed: dict[int, Output] = {}
        """By node id: where items come out for which a function of the node raised."""
        self._names: set[str] = set()

    def vertex(self, name: str, supplier: Any, parallelism: int, node: t.Node, *why: str) -> PlannedVertex:
        """Add a vertex that does a node's work.

        Args:
            name: gets a number when it is taken.
            supplier, parallelism: as of `PlannedVertex`.
            node: the stage.
            why: reasons; empty ones are left out.
        """
        reasons = [reason for reason in why if reason]
        vertex = PlannedVertex(
            self._free_name(name), supplier, parallelism, (node.name,), reasons, is_named=node.is_named
        )
        self.plan.vertices.append(vertex)
        return vertex

    def extend(self, vertex: PlannedVertex, name: str, supplier: Any, node: t.Node, *why: str) -> None:
        """Let a vertex do the work of another node, too, which takes all that comes.

        Args:
            vertex: it has no consumer yet.
            name: that it gets; it gets a number when it is taken.
            supplier: of the processors that do all of it.
            node: the stage.
            why: further reasons.
        """
        self._names.discard(vertex.name)
        vertex.name, vertex.supplier, vertex.is_named = self._free_name(name), supplier, node.is_named
        vertex.stages = (*vertex.stages, node.name)
        vertex.why.extend(why)
        for edge in self.plan.edges:
            if edge.destination is vertex:
                edge.absorbed = True

    def _free_name(self, name: str) -> str:
        found, number = name, 1
        while found in self._names:
            number += 1
            found = f"{name}-{number}"
        self._names.add(found)
        return found

    def policy(self, node: t.Node, side: int = 0) -> OnError | None:
        """Return what is done with items for which a function of a node raises.

        Args:
            node: which.
            side: the side output of its vertex that is free.
        """
        if node.on_error is None:
            return None
        return OnError(node.name, side if node.on_error == "send" else None)

    def guarded(self, node: t.Node, vertex: PlannedVertex, policy: OnError | None) -> None:
        """Note what a vertex does with items for which a function of a node raises."""
        if policy is None:
            return
        where = "skipped" if policy.side is None else "sent on"
        vertex.why.append(f"{node.name}: items that fail are {where}")
        if policy.side is not None:
            self.failed[node.id] = Output((Feed(vertex, side=policy.side),))

    def edge_key(self, node: t.Node, key_fn: KeyFn) -> KeyFn:
        """Return the key function of an edge to a node; it never raises where the node deals with such items."""
        return key_fn if node.on_error is None or isinstance(key_fn, ColumnKey) else RoutableKey(key_fn)

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
        columnar = output.columnar and len(output.times) == 1
        if not columnar:
            output = self.rows(output, node)
        return Output((Feed(passing, self.passed(output, passing, node), columnar, time=output.feeds[0].time),))

    def passed(self, output: Output, vertex: PlannedVertex, node: t.Node) -> Partitioning | None:
        """Join an output to a vertex that hands its items on to a stage; they stay where they lie if that pays.

        Returns:
            how they lie then.
        """
        if any(upstream in self.graph.placed for upstream in node.upstream) and self.lies_alike(output, vertex):
            self.wires.in_place(output, vertex, f"items stay where they lie by key, which {node.name} makes use of")
            return output.feeds[0].partitioning
        return self.onward(output, vertex, node)

    def onward(
        self, output: Output, vertex: PlannedVertex, node: t.Node, ordinal: int = 0, **properties: Any
    ) -> Partitioning | None:
        """Join an output to a vertex that does not mind who gets what; of a stream, what comes in order stays so.

        Returns:
            how the items then lie, if that is known.
        """
        in_order = node.id in self.graph.endless
        if in_order and not vertex.is_fixed:
            adopt(vertex, output.feeds[0].vertex)
        return self.wires.any_way(output, vertex, ordinal, in_order=in_order, **properties)

    def rows(self, output: Output, node: t.Node) -> Output:
        """Return an output of items: batches become dicts, row by row, with their event time if the node needs it."""
        if not output.has_batches:
            return output
        feeds = []
        for feed in output.feeds:
            if feed.columnar is False:
                feeds.append(feed)
                continue
            why = f"{node.name} works on items: rows of batches become dicts"
            timed = isinstance(feed.time, str) and self.graph.times.takes(node)
            if timed:
                supplier = fused([], takes_batches=True, times="kept", time_column=str(feed.time))
            else:
                supplier = fused([ROWS]) if feed.columnar else fused([], takes_batches=True)
            vertex = self.vertex(f"{node.name}-rows", supplier, feed.vertex.parallelism, node, why)
            lie = self.passed(Output((feed,)), vertex, node)
            feeds.append(Feed(vertex, lie, time=TIMED if timed else None))
        return Output(tuple(feeds))

    def batches(self, output: Output, node: t.Node, schema: Mapping[str, Any] | None = None) -> Output:
        """Return an output of batches: rows are gathered into such, with their time in a column if the node needs it.

        Args:
            output: what feeds a node.
            node: which.
            schema: the types of the columns of rows.
        """
        if output.columnar and len(output.times) == 1:
            return output
        parallelism = self.graph.parallelism(node)
        output = self.rows(output, node) if output.times != {None} else output
        why = f"{node.name} works on batches of columns: items are gathered into such"
        time: str | None = None
        if self.graph.times.takes(node) and output.timed:
            time = TIME_COLUMN
            timing = self.vertex(
                f"{node.name}-times",
                fused([Step("map", with_time_column, node.name)]),
                parallelism,
                node,
                f"event time goes into the column {TIME_COLUMN!r}",
            )
            self.onward(output, timing, node)
            output = Output((Feed(timing),))
            schema = None if schema is None else {**schema, time: "int64"}
        else:
            output = self.bare(output, node)
        gathering = self.vertex(
            f"{node.name}-batches", telling_columns(to_batches(schema=schema)), parallelism, node, why
        )
        self.onward(output, gathering, node)
        return Output((Feed(gathering, columnar=True, time=time),))

    def alike(self, output: Output, node: t.Node) -> Output:
        """Return an output whose items all have their event time in the same way, behind a merge, or all have none."""
        if len(output.times) == 1:
            return output
        if None not in output.times:
            return self.rows(output, node)
        return self.bare(output, node)

    def bare(self, output: Output, node: t.Node) -> Output:
        """Return an output of items without their event time."""
        feeds = []
        for feed in output.feeds:
            if feed.time is TIMED:
                why = f"{node.name} does not look at event time: it is taken off"
                supplier = fused([], times="dropped")
                vertex = self.vertex(f"{node.name}-items", supplier, feed.vertex.parallelism, node, why)
                feeds.append(Feed(vertex, self.passed(Output((feed,)), vertex, node)))
            else:
                feeds.append(replace(feed, time=None))
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
