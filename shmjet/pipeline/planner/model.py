"""The physical plan: vertices and edges as they will be in the DAG, each with the reason why it is there.

Descriptions only. It must not know stages or how choices are made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from shmjet.core.batch_order import BatchOrder
from shmjet.core.dag import DAG
from shmjet.core.edge import EdgeConfig, from_
from shmjet.core.job import ProcessingGuarantee
from shmjet.core.processor import NO_STATE, ProcessorMetaSupplier, state_kind_of
from shmjet.core.vertex import Vertex
from shmjet.pipeline.definitions import Expansion
from shmjet.pipeline.planner.keys import KeyIdentity

GRID_PARTITIONS = 271
"""Partitions of what is partitioned for no particular reason: as many as maps have, unless `JetConfig` says otherwise,
so that what is joined with a map need not move."""


_IN_PLACE = EdgeConfig(high_water_mark=4096, queue_size=2048)
"""Of edges on which items mostly stay on their worker: an empty lane takes all that an outbox holds, in one piece."""


@dataclass(frozen=True)
class Partitioning:
    """How items lie on the processors of a vertex.

    Args:
        key: by which key.
        count: number of partitions; processor `p % n` has partition `p`.
    """

    key: KeyIdentity
    count: int = GRID_PARTITIONS


@dataclass(eq=False)
class PlannedVertex:
    """A vertex to be.

    Args:
        name: unique in the plan.
        supplier: what `dag.new_vertex` takes.
        parallelism: processors per member; -1: one per worker, unless the supplier prefers another number.
        stages: names of the stages whose work it does.
        why: reasons for it to be as it is.
        expand: instead of `supplier`, adds vertices to the DAG.
        guarantee: of a source or sink, the strongest that it can keep; None for others.
        is_named: the user chose the name of its stage.
    """

    name: str
    supplier: Any
    parallelism: int = -1
    stages: tuple[str, ...] = ()
    why: list[str] = field(default_factory=list)
    expand: Expansion | None = None
    guarantee: ProcessingGuarantee | None = None
    is_named: bool = False

    @property
    def has_unnamed_state(self) -> bool:
        """Whether its saved state goes by a name that changes when other stages come or go; sources and sinks aside."""
        kind = state_kind_of(self.supplier)
        return not self.is_named and self.guarantee is None and kind not in ("", NO_STATE)

    @property
    def is_fixed(self) -> bool:
        """Whether it says itself how many processors it has."""
        return self.parallelism != -1 or self.expand is not None or isinstance(self.supplier, ProcessorMetaSupplier)

    @property
    def processors(self) -> Any:
        """What tells whether two vertices have as many processors: equal for those of which that is certain."""
        if self.expand is not None:
            return self
        if self.parallelism == -1 and isinstance(self.supplier, ProcessorMetaSupplier):
            preferred = self.supplier.preferred_local_parallelism
            return -1 if preferred == -1 else ("at most", preferred)
        return self.parallelism


@dataclass(eq=False)
class PlannedEdge:
    """An edge to be.

    Args:
        source, destination: its vertices.
        ordinal: at the destination.
        routing: name of the method of `Edge` that sets it.
        key_fn, partitioner: of a partitioned edge.
        distributed: it reaches processors on other members too.
        priority, buffered: as of `Edge`.
        ordered: it merges sorted streams by `order_key`.
        absorbed: its consumer takes everything that comes, whether or not it can emit.
        side: it takes a side output of its source: -1 for late items, whose ordinal is 0; from 0 on those for failed
            items, whose ordinals are the last ones.
        why: the reasons for it to be as it is.
    """

    source: PlannedVertex
    destination: PlannedVertex
    ordinal: int
    routing: str = "unicast"
    key_fn: Callable[[Any], Any] | None = None
    partitioner: Any = None
    distributed: bool = False
    priority: int = 0
    buffered: bool = False
    ordered: bool = False
    order_key: Callable[[Any], Any] | BatchOrder | None = None
    absorbed: bool = False
    side: int | None = None
    why: list[str] = field(default_factory=list)

    def traits(self) -> str:
        """Short text: what differs from a plain edge."""
        words = [] if self.routing == "unicast" else [self.routing.replace("_", " ")]
        if self.routing == "unicast" and self.distributed:
            words.append("spread over all")
        if self.ordered:
            words.append("ordered")
        if self.priority:
            words.append(f"priority {self.priority}")
        if self.buffered:
            words.append("buffered")
        return ", ".join(words)


@dataclass(eq=False)
class PhysicalPlan:
    """All vertices and edges, each vertex after its inputs."""

    vertices: list[PlannedVertex] = field(default_factory=list)
    edges: list[PlannedEdge] = field(default_factory=list)

    def inbound(self, vertex: PlannedVertex) -> list[PlannedEdge]:
        """Return the edges into a vertex by ordinal."""
        return sorted((e for e in self.edges if e.destination is vertex), key=lambda e: e.ordinal)

    def outbound(self, vertex: PlannedVertex) -> list[PlannedEdge]:
        """Return the edges out of a vertex in the order of its ordinals."""
        found = [e for e in self.edges if e.source is vertex]
        return sorted(found, key=lambda e: -0.5 if e.side is None else e.side)

    def to_dag(self) -> DAG:
        """Return the DAG."""
        dag = DAG()
        made: dict[PlannedVertex, Vertex] = {}
        for vertex in self.vertices:
            if vertex.expand is not None:
                made[vertex] = vertex.expand(dag, vertex.name, vertex.parallelism)
            else:
                made[vertex] = dag.new_vertex(vertex.name, vertex.supplier, vertex.parallelism)
        for vertex in self.vertices:
            for ordinal, planned in enumerate(self.outbound(vertex)):
                edge = from_(made[vertex], ordinal).to(made[planned.destination], planned.ordinal)
                if planned.routing == "unicast":
                    edge.configure(_IN_PLACE)
                if planned.routing == "partitioned":
                    edge.partitioned(planned.key_fn, planned.partitioner)
                elif planned.routing != "unicast":
                    getattr(edge, planned.routing)()
                if planned.distributed:
                    edge.distributed()
                if planned.ordered:
                    edge.ordered(planned.order_key)
                if planned.buffered:
                    edge.buffered()
                dag.edge(edge.priority(planned.priority))
        dag.validate()
        return dag
