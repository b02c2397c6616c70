"""From the planner's vertices and edges to steps on Spark: what each task hosts, and how items come to it.

The plan is the engine's own, so whatever it knows (stages that are fused, items that lie by their key already, what is
combined before it moves) holds on Spark too. Here each edge becomes a way of moving items, and whatever Spark cannot do
is refused, before anything starts. Must not know RDDs.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field

from shmjet.core.job import JobConfig
from shmjet.core.keys import PartitionCount
from shmjet.core.processor import ProcessorMetaSupplier, supplier_for_all
from shmjet.data.errors import PlanError
from shmjet.pipeline import transforms as t
from shmjet.pipeline.planner import plan
from shmjet.pipeline.planner.model import PhysicalPlan, PlannedEdge, PlannedVertex
from shmjet.pipeline.planner.pushdown import pushed_down
from shmjet.processors.columns.sort_batches import sort_batches
from shmjet.processors.columns.sorted_shares import ColumnOrder
from shmjet.processors.general.base import telling_columns
from shmjet.spark.runner.ends import End, Place, needs_instance, sink_end, source_end
from shmjet.spark.runner.frame_stages import on_frames


class How(enum.Enum):
    """The ways from one step to another."""

    NARROW = "in the same task"
    IN_PLACE = "in the same task, as items lie by the key already"
    DEAL = "a shuffle that deals blocks of items evenly"
    BY_KEY = "a shuffle of blocks by key"
    TO_ONE = "a shuffle of blocks to one task"
    SORTED = "a shuffle of sorted blocks by ranges"
    BROADCAST = "a broadcast to all tasks"


@dataclass(frozen=True)
class Input:
    """How items come to a step.

    Args:
        source: the step that they come from.
        ordinal: of the edge, at the step that they come to.
        how: the way.
        count: partitions by key.
        key: name of the function that gives keys or, in a sorted shuffle, what is compared, among the functions of the
            plan; None: the item itself.
        why: reasons, the planner's included.
    """

    source: str
    ordinal: int
    how: How
    count: int = 0
    key: str | None = None
    why: tuple[str, ...] = ()


@dataclass
class Step:
    """One vertex on Spark.

    Args:
        name: of the vertex.
        supplier: of its processors.
        inputs: those first that are read first.
        tasks: how many, where an input is shuffled; -1: as many as Spark is set to.
        end: for sources and sinks.
        is_source: which of them.
        partitions: a source's partitions, 0 for none, and the key by which they are made.
        shared: several steps read it, so that its result is cached.
        why: reasons.
    """

    name: str
    supplier: object
    inputs: tuple[Input, ...]
    tasks: int
    end: End | None = None
    is_source: bool = False
    partitions: int = 0
    key: str | None = None
    shared: bool = False
    definition: object = None
    why: list[str] = field(default_factory=list)


@dataclass
class SparkPlan:
    """All steps, each after its inputs, and the functions that they name."""

    steps: list[Step]
    functions: dict[str, object]


def translate(nodes: Sequence[t.Node], config: JobConfig, *, instances: int = 0) -> SparkPlan:
    """Translate a pipeline.

    Args:
        nodes: its stages.
        config: of the job.
        instances: how many instances there are that maps and lists could be of; it has to be one.

    Raises:
        PlanError: the pipeline cannot be planned, or a stage cannot be run on Spark; the text names it.
    """
    nodes = pushed_down(on_frames(nodes))
    return _Translator(nodes, plan(nodes, config).physical, instances).translated()


class _Translator:
    def __init__(self, nodes: Sequence[t.Node], physical: PhysicalPlan, instances: int) -> None:
        self._nodes = {node.name: node for node in nodes}
        self._physical = physical
        self._instances = instances
        self._functions: dict[str, object] = {}

    def translated(self) -> SparkPlan:
        steps = [self._step(vertex) for vertex in self._physical.vertices]
        readers: dict[str, int] = {}
        for step in steps:
            for each in step.inputs:
                readers[each.source] = readers.get(each.source, 0) + 1
        for step in steps:
            step.shared = readers.get(step.name, 0) > 1
        return SparkPlan(steps, self._functions)

    def _step(self, vertex: PlannedVertex) -> Step:
        node = self._node_of(vertex)
        transform = None if node is None else node.transform
        if isinstance(transform, t.MapUsingMap):
            raise PlanError(
                f"{vertex.name}: map_using_map cannot be run on Spark, whose tasks have no maps; use hash_join"
            )
        edges = sorted(self._physical.inbound(vertex), key=lambda edge: (edge.priority, edge.ordinal))
        exact = -1
        if isinstance(transform, t.Custom | t.UsingService) and node is not None and len(edges) == 1:
            exact = node.parallelism
        inputs = tuple(self._input(edge, exact) for edge in edges)
        step = Step(vertex.name, _supplier(vertex, edges), inputs, _tasks(vertex, edges), why=list(vertex.why))
        if node is not None and isinstance(transform, t.Source):
            self._complete_source(step, node, transform)
        elif isinstance(transform, t.Sink):
            step.definition, step.end = transform.sink, sink_end(vertex.name, transform.sink)
            self._check_instance(step)
        elif isinstance(vertex.supplier, ProcessorMetaSupplier) and supplier_for_all(vertex.supplier) is None:
            raise PlanError(
                f"{vertex.name}: {type(vertex.supplier).__name__} decides for the members of a cluster, which Spark "
                "has not; give the stage a ProcessorSupplier or a function that makes a processor"
            )
        return step

    def _node_of(self, vertex: PlannedVertex) -> t.Node | None:
        """Return the stage that a vertex is, where it is one and no helper of one."""
        return self._nodes.get(vertex.name) if vertex.stages == (vertex.name,) else None

    def _complete_source(self, step: Step, node: t.Node, transform: t.Source) -> None:
        source = transform.source
        step.definition, step.end, step.is_source = source, source_end(step.name, source), True
        self._check_instance(step)
        if step.end.place is not Place.TASKS:
            step.tasks = node.parallelism  # how many processors the engine would like does not matter
        if source.partitions is not None:
            step.partitions = source.partitions
            step.key = self._function(f"key of {step.name}", source.partition_key)

    def _check_instance(self, step: Step) -> None:
        if step.end is not None and step.end.place is Place.INSTANCE and self._instances != 1:
            raise needs_instance(step.name, "what it reads" if step.is_source else "what it writes to", self._instances)

    def _function(self, name: str, fn: object) -> str | None:
        if fn is None:
            return None
        self._functions[name] = fn
        return name

    def _input(self, edge: PlannedEdge, exact: int) -> Input:
        way = f"{edge.source.name} -> {edge.destination.name} ({edge.ordinal})"
        if edge.side is not None:
            raise PlanError(f'{edge.source.name}: on_error(send_to=...) cannot be run on Spark; on_error("skip") can')
        why = tuple(edge.why)
        if isinstance(edge.order_key, ColumnOrder):
            return Input(edge.source.name, edge.ordinal, How.TO_ONE, why=why)
        if edge.ordered:
            key = self._function(f"order of {way}", edge.order_key)
            return Input(edge.source.name, edge.ordinal, How.SORTED, key=key, why=why)
        if edge.routing == "partitioned":
            count = edge.partitioner.count if isinstance(edge.partitioner, PartitionCount) else 0
            assert count, f"{way} has a partitioner that the planner does not make"
            key = self._function(f"key of {way}", edge.key_fn)
            return Input(edge.source.name, edge.ordinal, How.BY_KEY, count, key, why)
        ways = {"broadcast": How.BROADCAST, "all_to_one": How.TO_ONE, "isolated": How.IN_PLACE}
        how = ways.get(edge.routing, How.NARROW)
        if how is How.NARROW and edge.distributed:
            how = How.DEAL
        if how is How.NARROW and exact != -1:
            how = How.TO_ONE if exact == 1 else How.DEAL
            why = (*why, f"its parallelism was set to {exact}")
        return Input(edge.source.name, edge.ordinal, how, why=why)


def _supplier(vertex: PlannedVertex, edges: Sequence[PlannedEdge]) -> object:
    """Return the supplier of a vertex; what an edge of the engine merges is sorted by the processor itself."""
    for edge in edges:
        if isinstance(order := edge.order_key, ColumnOrder):
            return telling_columns(sort_batches(order.by, descending=order.descending, nulls_first=order.nulls_first))
    return vertex.supplier


def _tasks(vertex: PlannedVertex, edges: Sequence[PlannedEdge]) -> int:
    """Return how many tasks a step has behind a shuffle, -1 for the usual number.

    Vertices whose processors the planner counts as equal in number get equal numbers.
    """
    if any(
        edge.routing == "all_to_one" and (not edge.ordered or isinstance(edge.order_key, ColumnOrder)) for edge in edges
    ):
        return 1
    if any(edge.ordered for edge in edges):
        return -1
    processors = vertex.processors
    if isinstance(processors, tuple):
        return int(processors[1])
    return processors if isinstance(processors, int) else -1
