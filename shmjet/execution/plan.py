"""From a DAG to a `JobPlan`: effective parallelism and the place of every processor on this member.

`describe` runs where the DAG is (the client) and keeps what planning needs as plain data; `make_plan` runs in the
member, which never unpickles user code.

Effective parallelism is Jet's rule (DetermineLocalParallelismTest): the vertex' own, else the smaller of what its
meta-supplier prefers and the default, else the default, which is the number of workers. Processor i starts on worker
(i + offset) mod W, so that the chains of all vertices meet on one worker and lanes between them stay local.
"""

from __future__ import annotations

import msgspec

from shmjet.core import DAG, Processor, Vertex, supplier_for_all
from shmjet.core.latency_policy import LatencyPolicy, policy_for
from shmjet.data.errors import PlanError
from shmjet.execution.job_plan import EdgePlan, JobPlan, JobShape, MemberSlot, VertexPlan, VertexShape


def cooperative_of(supplier: object) -> bool | None:
    """Return what a supplier says of its processors without making one: a class' or the supplier's attribute."""
    return declaration(supplier, "is_cooperative")


def declaration(supplier: object, name: str) -> bool | None:
    declared = _static(supplier, name)
    if isinstance(declared, bool):
        return declared
    if isinstance(supplier, type) and issubclass(supplier, Processor):
        return None  # a property: only an instance knows
    value = None if declared is None else getattr(supplier, name, None)
    return value if isinstance(value, bool) else None


def _state_kind(supplier: object) -> str:
    kind = None if _static(supplier, "state_kind") is None else getattr(supplier, "state_kind", None)
    return kind if isinstance(kind, str) else ""


def _static(supplier: object, name: str) -> object:
    """Return an attribute as it is declared, without running a property or `__getattr__`; None when there is none."""
    places = supplier.__mro__ if isinstance(supplier, type) else type(supplier).__mro__
    own = None if isinstance(supplier, type) else getattr(supplier, "__dict__", None)
    if own is not None and name in own:
        return own[name]
    for place in places:
        if name in place.__dict__:
            return place.__dict__[name]
    return None


def describe(dag: DAG) -> JobShape:
    """Return the shape of a valid DAG.

    Raises:
        DagError: the DAG is not valid.
    """
    order: list[Vertex] = list(dag)
    index = {vertex.name: i for i, vertex in enumerate(order)}
    vertices = [
        VertexShape(
            vertex.name,
            vertex.local_parallelism,
            vertex.preferred_local_parallelism,
            cooperative_of(vertex.supplier),
            supplier_for_all(vertex.supplier) is None,
            declaration(vertex.supplier, "movable"),
            declaration(vertex.supplier, "is_endless") is True,
            _state_kind(vertex.supplier),
        )
        for vertex in order
    ]
    edges = []
    for vertex in order:
        for edge in dag.outbound_edges(vertex):
            config = edge.edge_config
            edges.append(
                EdgePlan(
                    index[vertex.name],
                    edge.source_ordinal,
                    index[edge.destination.name],
                    edge.destination_ordinal,
                    edge.routing.value,
                    edge.priority_value,
                    edge.is_buffered,
                    edge.is_ordered,
                    config.queue_size,
                    config.high_water_mark,
                    edge.is_distributed,
                    config.packet_size_limit,
                    config.receive_window_multiplier,
                    edge.target_address,
                    compression=config.compression,
                )
            )
    return JobShape(vertices, edges)


def policy_of(shape: JobShape, latency_target: float | None = None) -> LatencyPolicy:
    """Choose the latency policy of a job: by its target, else low latency where a vertex is endless."""
    return policy_for(latency_target, is_endless=any(vertex.is_endless for vertex in shape.vertices))


def effective_parallelism(vertex: VertexShape, default: int) -> int:
    """Return the number of processors of a vertex on a member whose default is `default`."""
    if vertex.local_parallelism != -1:
        return vertex.local_parallelism
    if vertex.preferred_parallelism != -1:
        return min(vertex.preferred_parallelism, default)
    return default


def make_plan(
    shape: JobShape,
    *,
    worker_count: int,
    non_cooperative: set[int],
    ring_memory: int,
    partition_count: int,
    offset: int = 0,
    force_rings: bool = False,
    stealing: bool = False,
    slot: MemberSlot | None = None,
    latency_target: float | None = None,
) -> JobPlan:
    """Decide parallelism and placement on one member.

    Each member makes its own plan from the same shape and slots that differ in `index` only; parallelism is the same on
    all of them, so processor p of member m is number `m * parallelism + p` of its vertex everywhere.

    Args:
        non_cooperative: indexes of the vertices whose processors get a carrier each.
        offset: the worker on which processor 0 of every vertex starts.
        force_rings: let no lane be local (a setting for debugging).
        stealing: let workers take over tasklets of others, which needs a ring for every lane that may cross then.
        slot: this member's place among several; None for a member alone.
        latency_target: seconds that items should be under way at most; None: by the sources.

    Raises:
        PlanError: an edge says `distribute_to` an address of no member; also when there is one member only.
    """
    slot = MemberSlot() if slot is None else slot
    if slot.count > 1:
        ring_memory //= 2  # the other half is for lanes to and from other members
    inbound = [0] * len(shape.vertices)
    outbound = [0] * len(shape.vertices)
    isolated = set()
    for edge in shape.edges:
        inbound[edge.destination] += 1
        outbound[edge.source] += 1
        if edge.routing == "isolated":
            isolated |= {edge.source, edge.destination}
    vertices = []
    carriers = 0
    for v, vertex in enumerate(shape.vertices):
        parallelism = effective_parallelism(vertex, slot.default_parallelism or worker_count)
        if v in non_cooperative:
            endpoints = [worker_count + carriers + k for k in range(parallelism)]
            carriers += parallelism
        else:
            endpoints = [(i + offset) % worker_count for i in range(parallelism)]
        inner = inbound[v] > 0 and outbound[v] > 0
        movable = inner if vertex.movable is None else vertex.movable
        movable = movable and v not in non_cooperative and v not in isolated
        vertices.append(VertexPlan(vertex.name, parallelism, endpoints, inbound[v], outbound[v], movable))
    may_steal = stealing and worker_count > 1 and any(vertex.movable for vertex in vertices)
    edges = [_aimed(edge, shape, slot) for edge in shape.edges]
    return JobPlan(
        vertices=vertices,
        edges=edges,
        worker_count=worker_count,
        carrier_count=carriers,
        ring_memory=ring_memory,
        partition_count=partition_count,
        force_rings=force_rings,
        stealing=may_steal,
        slot=slot,
        latency=policy_of(shape, latency_target),
    )


def _aimed(edge: EdgePlan, shape: JobShape, slot: MemberSlot) -> EdgePlan:
    """Return an edge with the member's place that its `distribute_to` names."""
    if edge.target_address is None:
        return edge
    if edge.target_address not in slot.addresses:
        label = f"{shape.vertices[edge.source].name!r} -> {shape.vertices[edge.destination].name!r}"
        raise PlanError(
            f"edge {label}: distribute_to({edge.target_address!r}) names no member; "
            f"the members are {', '.join(slot.addresses)}"
        )
    if slot.count == 1:
        return edge
    return msgspec.structs.replace(edge, target=slot.addresses.index(edge.target_address))
