"""What members agree on before a job runs: its shape, and the plan of an execution, as msgspec structs.

The shape of the DAG comes with every number decided (parallelism, placement), so that the member and all workers derive
the same arena layout from it without exchanging addresses.
"""

from __future__ import annotations

import msgspec

from shmjet.core.latency_policy import THROUGHPUT, LatencyPolicy


class VertexPlan(msgspec.Struct, frozen=True, array_like=True):
    """One vertex on one member.

    `endpoints[i]` is where processor `i` starts: a worker's index, or `worker_count + k` for the k-th carrier.
    `movable` says whether its processors may be stolen by other workers.
    """

    name: str
    parallelism: int
    endpoints: list[int]
    inbound: int
    outbound: int
    movable: bool


class EdgePlan(msgspec.Struct, frozen=True, array_like=True):
    """One edge: indexes of its vertices, its ordinals there, and what the lanes need to know.

    `target_address` is that of `distribute_to`; `target` its place among the members of a plan, -1 for all of them.
    """

    source: int
    source_ordinal: int
    destination: int
    destination_ordinal: int
    routing: str
    priority: int
    buffered: bool
    ordered: bool
    queue_size: int
    high_water_mark: int
    distributed: bool = False
    packet_size_limit: int = 16384
    receive_window_multiplier: int = 3
    target_address: str | None = None
    target: int = -1
    compression: str | None = None


class VertexShape(msgspec.Struct, frozen=True, array_like=True):
    """What planning needs to know of a vertex; `cooperative` is None when only an instance could tell,
    `movable` when nothing was declared; `has_meta` when its meta-supplier has to be asked; `is_endless` when its
    processors never complete by themselves; `state_kind` names what its saved state is, empty when that is unknown."""

    name: str
    local_parallelism: int
    preferred_parallelism: int
    cooperative: bool | None
    has_meta: bool
    movable: bool | None
    is_endless: bool = False
    state_kind: str = ""


class JobShape(msgspec.Struct, frozen=True, array_like=True):
    """A DAG as plain data, in topological order."""

    vertices: list[VertexShape]
    edges: list[EdgePlan]


class MemberSlot(msgspec.Struct, frozen=True, array_like=True):
    """One member's place among the members that run an execution.

    Args:
        index: this member's place, from 0.
        peers: uuids of all members by their places, this one's included; empty for a member alone.
        addresses: their addresses.
        owners: the place of each partition's owner.
        default_parallelism: processors on each member of a vertex that does not say; 0: as many as it has workers.
        ring_memory: the coordinator's `ring_memory`, half of which goes to the rings of lanes to and from others; the
            same everywhere, since records pass from ring to ring as they are.
    """

    index: int = 0
    peers: list[str] = []
    addresses: list[str] = []
    owners: list[int] = []
    default_parallelism: int = 0
    ring_memory: int = 0

    @property
    def count(self) -> int:
        """Members that take part."""
        return max(1, len(self.peers))


class JobPlan(msgspec.Struct, frozen=True, array_like=True):
    """Everything that fixes an execution's layout on one member."""

    vertices: list[VertexPlan]
    edges: list[EdgePlan]
    worker_count: int
    carrier_count: int
    ring_memory: int
    partition_count: int
    force_rings: bool
    stealing: bool
    slot: MemberSlot = MemberSlot()
    latency: LatencyPolicy = THROUGHPUT

    def participants(self) -> set[int]:
        """Return the endpoints where processors start."""
        return {endpoint for vertex in self.vertices for endpoint in vertex.endpoints}

    @property
    def is_in_one_process(self) -> bool:
        """Whether all processors of the job start in one process of one member."""
        return self.slot.count == 1 and len(self.participants()) == 1

    @property
    def process_count(self) -> int:
        """Workers and carriers."""
        return self.worker_count + self.carrier_count

    @property
    def start_barrier_endpoint(self) -> int | None:
        """The endpoint behind all others where other members take part, else None.

        It stands for them: no process starts before the coordinator has said that all members are ready, and what comes
        from them lies in its slab, that of the link process.
        """
        return self.process_count if self.slot.count > 1 else None

    @property
    def endpoint_count(self) -> int:
        """All endpoints, the start barrier's included."""
        return self.process_count + (self.start_barrier_endpoint is not None)
