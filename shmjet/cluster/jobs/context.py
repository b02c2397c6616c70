"""The execution context of an attempt on a member: plan, arena, processes, and what the processes are told.

Everything here happens at once and in memory; when it happens, and what follows, `Participant` decides.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from shmjet.cluster.jobs.snapshot_copies import SnapshotCopies
from shmjet.cluster.jobs.snapshot_keeper import SnapshotKeeper
from shmjet.cluster.membership.peer_messages import PreparePart, ProbePart
from shmjet.cluster.processes.arenas import ArenaPool, PooledArena
from shmjet.cluster.processes.workers import Child, Workers
from shmjet.cluster.protocol import Submission
from shmjet.execution.arena_format import format_arena
from shmjet.execution.collect import Reading
from shmjet.execution.counters import STATE
from shmjet.execution.job_plan import JobPlan, JobShape
from shmjet.execution.layout import CANCELLED_OFFSET, COUNTERS, ArenaLayout, lay_out, slab_size
from shmjet.execution.messages import Deploy, Probe
from shmjet.execution.plan import make_plan
from shmjet.execution.readiness import STARTED, Readiness
from shmjet.execution.tasklet_state import State
from shmjet.ipc.inline_or_memfd import InlineOrMemfd
from shmjet.net.client import LinkClient
from shmjet.net.compression import check_installed
from shmjet.net.messages import OpenExecution
from shmjet.snapshots.store import SnapshotStore


class MemberServices(msgspec.Struct, kw_only=True):
    """What executions use of their member."""

    workers: Workers
    arenas: ArenaPool
    address: str
    partition_count: int
    ring_memory: int
    force_rings: bool
    stealing: bool
    name_of: Callable[[int], str | None]
    """How the job of an execution is called in messages, by the execution's number."""
    note_change: Callable[[], None]
    """Called when an execution has got its arena, and before it gives it back, so that monitors look again."""
    attachments: Path = Path()
    """Where the files attached to jobs are, in a folder for each job."""
    snapshots: SnapshotStore = msgspec.field(default_factory=lambda: SnapshotStore(Path()))
    """Of this member."""
    snapshot_keeper: SnapshotKeeper | None = None
    """Keeps copies of snapshots here that other members order; None for a member alone."""
    snapshot_copies: SnapshotCopies | None = None
    """Has other members keep copies, when this one coordinates; None for a member alone."""
    link: Callable[[], LinkClient | None] = lambda: None
    """Gives the link to other members, None where there is none."""
    reach: Callable[[Sequence[str]], Awaitable[None]] | None = None
    """Waits until there are connections to members, by their identities; OSError when one cannot be had."""


def needs_probe(shape: JobShape) -> bool:
    """Say whether a worker has to be asked about suppliers before a job can be planned."""
    return any(vertex.has_meta or vertex.cooperative is None for vertex in shape.vertices)


def probe_of(order: ProbePart, code: InlineOrMemfd, services: MemberServices) -> Probe:
    """Return what a worker is asked before a job can be planned."""
    job, shape = order.submission, order.submission.shape
    meta = [v for v, vertex in enumerate(shape.vertices) if vertex.has_meta]
    unknown = [v for v, vertex in enumerate(shape.vertices) if vertex.cooperative is None]
    return Probe(
        order.execution,
        shape,
        code.inline,
        job.config,
        job.job_id,
        job.name,
        len(services.workers.workers),
        services.partition_count,
        services.address,
        meta,
        unknown,
        job.import_paths,
        code.size,
        order.others,
        order.logs,
        _attached(job, services),
        order.owners,
    )


def _attached(job: Submission, services: MemberServices) -> dict[str, str]:
    """Return where the files attached to a job are on this member, by their ids."""
    return {key: str(services.attachments / job.job_id / path) for key, path in job.attachments.items()}


class ExecutionContext:
    """Where one member's part of an attempt takes place.

    Args:
        order: what the coordinator has asked for.
        code: of the job; the job's record keeps it.
        services: of the member.
        first_worker: where processor 0 of every vertex is placed.

    Raises:
        PlanError: there can be no plan.
        ConfigError: an edge is to be compressed, and what does that is not installed.
    """

    def __init__(self, order: PreparePart, code: InlineOrMemfd, services: MemberServices, *, first_worker: int) -> None:
        self._logs = order.logs
        self._id = order.execution
        self._job = order.submission
        self._code = code
        self._services = services
        self._suppliers = order.probed.suppliers
        self._manifest = ""
        if order.restored >= 0:
            self._manifest = str(services.snapshots.lineage(order.snapshots).path_of(order.restored))
        shape, slot = order.submission.shape, order.slot
        if slot.count > 1:
            check_installed(shape.edges, [vertex.name for vertex in shape.vertices], f"member {services.address}")
        declared = {v for v, vertex in enumerate(shape.vertices) if vertex.cooperative is False}
        self.plan: JobPlan = make_plan(
            shape,
            worker_count=len(services.workers.workers),
            non_cooperative=declared | set(order.probed.non_cooperative),
            ring_memory=services.ring_memory,
            partition_count=services.partition_count,
            offset=first_worker,
            force_rings=services.force_rings,
            stealing=services.stealing,
            slot=slot,
            latency_target=order.submission.settings.latency_target,
        )
        self._layout: ArenaLayout = lay_out(self.plan)
        self._pooled: PooledArena | None = None
        self._readiness: Readiness | None = None
        self._link: LinkClient | None = None

    # -- beginning ----------------------------------------------------------------------------------------------

    def open(self, endpoints: Iterable[int]) -> dict[int, Child]:
        """Lay the arena out; return the processes at these endpoints: workers, and carriers forked for it.

        Raises:
            OSError: there is no memory for it, or no descriptor for a carrier; then nothing of it is left.
        """
        self._make_arena()
        children: dict[int, Child] = {}
        try:
            for endpoint in endpoints:
                children[endpoint] = self._child_at(endpoint)
        except OSError:
            carriers = [child for child in children.values() if child.is_carrier]
            self._services.workers.stop_carriers(carriers)
            self.release(carriers)
            raise
        return children

    def _make_arena(self) -> None:
        plan, services = self.plan, self._services
        later = slab_size(plan) * plan.endpoint_count
        pooled = self._pooled = services.arenas.acquire(self._layout.size, f"job-{self._id}", later)
        format_arena(plan, self._layout, pooled.arena.memory)
        self._readiness = Readiness(pooled.arena.memory, self._layout)
        services.note_change()

    @property
    def arena(self) -> PooledArena | None:
        """The arena, while there is one."""
        return self._pooled

    async def open_link(self) -> None:
        """Have the link carry the edges to and from other members. Raises OSError when it cannot."""
        if self._services.reach is not None:
            await self._services.reach(self.plan.slot.peers)
        link, pooled = self._services.link(), self._pooled
        if pooled is None:
            return  # it has ended meanwhile
        if link is None:
            raise OSError("the link process of this member is gone")
        self._link = link
        arena = pooled.arena
        await link.open_execution(OpenExecution(self._id, self.plan, arena.size, arena.reserved), arena.fd)

    def open_start_barrier(self) -> None:
        """Let processes start: all members are ready."""
        assert self._readiness is not None, "open() comes first"
        if self.plan.start_barrier_endpoint is not None:
            self._readiness.note(self.plan.start_barrier_endpoint, STARTED)

    def _child_at(self, endpoint: int) -> Child:
        workers = self._services.workers
        if endpoint < len(workers.workers):
            return workers.workers[endpoint]
        at = self._layout.carriers[endpoint - len(workers.workers)]
        return workers.fork_carrier(endpoint, self._arena().arena, at)

    def deploy(self, child: Child, *, takes_part: bool = True) -> None:
        """Tell a process to make its part; a process that does not take part only gets tasklets by stealing."""
        job, pooled = self._job, self._arena()
        attached = child.index in pooled.attached
        message = Deploy(
            self._id,
            job.job_id,
            job.name,
            self._code.inline,
            self.plan,
            pooled.id,
            pooled.arena.size,
            pooled.arena.reserved,
            attached,
            job.config,
            self._suppliers if takes_part else {},
            _attached(job, self._services),
            job.import_paths,
            self._code.size,
            self._logs,
            self._manifest,
        )
        child.send(message, self._code.fds if attached else (pooled.arena.fd, *self._code.fds))
        if not child.is_carrier:
            pooled.attached.add(child.index)

    def _arena(self) -> PooledArena:
        assert self._pooled is not None, "open() comes first"
        return self._pooled

    # -- while it runs ------------------------------------------------------------------------------------------

    def state_of(self, endpoint: int) -> int:
        """Return what a process has written into its byte of `Readiness`."""
        assert self._readiness is not None, "open() comes first"
        return self._readiness.state_of(endpoint)

    def unended_of(self, vertices: Iterable[int]) -> list[int]:
        """Return which of these vertices have processors here that have not ended."""
        if self._pooled is None:
            return []
        memory, plan = self._pooled.arena.memory, self.plan
        return [
            v
            for v in vertices
            if any(
                memory[at : at + 8 * COUNTERS].cast("q")[STATE] != State.END
                for p in range(plan.vertices[v].parallelism)
                for at in (self._layout.counters[v, p],)
            )
        ]

    def say_cancelled(self) -> None:
        """Let processors that ask see that the execution is to end."""
        if self._pooled is not None:
            self._pooled.arena.memory[CANCELLED_OFFSET] = 1

    def say_over(self) -> None:
        """Tell who waits for memory that the arena comes back soon."""
        if self._pooled is not None:
            self._services.arenas.expect(self._pooled)

    def detach(self, child: Child) -> None:
        """Note that a process does not have the arena mapped: it is dead, or could not."""
        if self._pooled is not None:
            self._pooled.attached.discard(child.index)

    def note_views(self) -> None:
        """Note that a batch in the arena outlives the execution somewhere."""
        if self._pooled is not None:
            self._pooled.is_viewed = True

    def vertices_at(self, endpoint: int) -> list[str]:
        """Return the names of the vertices of which processors started there."""
        return [vertex.name for vertex in self.plan.vertices if endpoint in vertex.endpoints]

    def reading(self) -> Reading | None:
        """Read the counters; None when there is no arena, yet or any more."""
        if self._pooled is None:
            return None
        workers = self._services.workers
        return Reading.take(self.plan, self._layout, self._pooled.arena.memory, workers.control.memory, workers.cores)

    # -- ending -------------------------------------------------------------------------------------------------

    def release(self, carriers: Sequence[Child]) -> None:
        """Give the arena back, when neither a carrier nor the link is left that has it mapped."""
        if self._readiness is not None:
            self._readiness.release()
        if self._pooled is not None:
            self._services.note_change()
        pooled, self._pooled = self._pooled, None
        if pooled is not None and (carriers or self._link is not None):
            self._services.arenas.give_back_after(pooled, self._all_gone(carriers))
        elif pooled is not None:
            self._services.arenas.give_back(pooled)

    async def _all_gone(self, carriers: Sequence[Child]) -> None:
        """Wait until neither the link nor a carrier has the arena mapped."""
        if self._link is not None:
            with contextlib.suppress(OSError):  # it is gone, and its mapping with it
                await self._link.close_execution(self._id)
        for child in carriers:
            await self._services.workers.ended(child)
