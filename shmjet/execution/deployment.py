"""One execution's part in one process: unpickles the job, makes the processors placed here and joins them by lanes."""

from __future__ import annotations

import errno
import gc
import logging
import os
import pickle
import resource
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from shmjet.core import (
    Outbox,
    ProcessingGuarantee,
    Processor,
    ProcessorContext,
    ProcessorError,
    ProcessorSupplier,
    SupplierContext,
    make_processors,
)
from shmjet.core.kept_services import hand_in_keep
from shmjet.core.latency_policy import LatencyPolicy, set_policy
from shmjet.core.ownership import hand_in
from shmjet.core.processor import CommittingSupplier, StandIn
from shmjet.core.saving import saves_at_end
from shmjet.core.state_placement import StatePlacement, hand_in_placement
from shmjet.core.wake_up import set_wake_up
from shmjet.execution.assembly import Place, Wiring
from shmjet.execution.code import EdgeCode, JobCode, load_code
from shmjet.execution.deployment_snapshots import DeploymentSnapshots
from shmjet.execution.interrupts import Interrupts
from shmjet.execution.kept_services import AttemptServices
from shmjet.execution.layout import CANCELLED_OFFSET, lay_out
from shmjet.execution.logs import About, speaker
from shmjet.execution.messages import Adopt, Deploy, HandOver, Resolve, Save
from shmjet.execution.ownership import owners_of, receives
from shmjet.execution.processor_endpoints import OpenEndpoints
from shmjet.execution.readiness import READY, STARTED, Readiness
from shmjet.execution.shared_memory import SharedMemory
from shmjet.execution.state_partitions import placement_of
from shmjet.execution.tasklet import ProcessorTasklet
from shmjet.execution.tasklet_transfer import pack, unpack
from shmjet.ipc.inline_or_memfd import MOST_INLINE, InlineOrMemfd
from shmjet.ring.class_versions import classes_in
from shmjet.ring.pickling import ItemEncodingError
from shmjet.snapshots.chunk import EntryError

_decoded = lru_cache(maxsize=256)(os.fsdecode)  # every job of a client has the same paths


def extend_import_path(paths: Iterable[bytes]) -> None:
    """Add the client's import paths behind our own, so that modules next to the user's script are found."""
    for path in map(_decoded, paths):
        if path not in sys.path:
            sys.path.append(path)


@dataclass
class Prepared:
    """What a process has of a job already when it is deployed, by vertex; what is used is taken out.

    `suppliers` have been initialised, or have failed to. Of `processors` a supplier has made all, a function one.
    """

    code: JobCode | None = None
    suppliers: dict[int, ProcessorSupplier] = field(default_factory=dict)
    processors: dict[int, list[Processor]] = field(default_factory=dict)


class Deployment:
    """What one process hosts of one execution.

    Args:
        deploy: the member's order.
        endpoint: this process' number in the plan.
        grid: opens maps and lists when first called.
        say: sends a message to the member.
        services: the keep of services of this attempt.
    """

    def __init__(
        self,
        deploy: Deploy,
        endpoint: int,
        grid: Callable[[], Any],
        say: Callable[[object], None] = lambda _: None,
        *,
        services: AttemptServices,
    ) -> None:
        self.execution_id = deploy.execution_id
        self.services = services
        self.endpoints = OpenEndpoints(deploy.execution_id, say)
        self.tasklets: list[ProcessorTasklet] = []
        self.running = 0
        self.adopted = 0
        self.started = False
        self.ended = False
        self.dropped = False
        self._deploy = deploy
        self._endpoint = endpoint
        self._grid = LazyGrid(grid)
        self._suppliers: list[tuple[str, int, ProcessorSupplier]] = []
        self._processors: dict[Place, Processor] = {}
        self._places: dict[int, Place] = {}
        self._arrived: set[Place] = set()
        self._blamed: tuple[str, int] | None = None
        self.snapshots: DeploymentSnapshots | None = None
        """None in a job without a guarantee until it is exported."""
        self._make_snapshots: Callable[[], DeploymentSnapshots]
        self._edges: Sequence[EdgeCode]
        self._placements: dict[int, StatePlacement] = {}
        self._wiring: Wiring
        self._readiness: Readiness | None = None
        self._memory: memoryview | None = None
        self._let_go: Callable[[], None] = lambda: None
        self._slab_bytes = 0

    @property
    def takes_part(self) -> bool:
        """True when processors start here; False when only tasklets of others come."""
        return self._endpoint in self._deploy.plan.participants()

    @property
    def steals(self) -> bool:
        """True when tasklets of it may go to other workers, and come from them."""
        return self._deploy.plan.stealing

    @property
    def policy(self) -> LatencyPolicy:
        """How long the items of the job may wait."""
        return self._deploy.plan.latency

    @property
    def has_carriers(self) -> bool:
        """Whether processors of it have processes of their own."""
        return self._deploy.plan.carrier_count > 0

    @property
    def is_needed(self) -> bool:
        """True when there may be something to do here after the last tasklet: adopt one, save, close suppliers.

        Without a guarantee, too, a source tells its position when the job is exported after its end. There is no such
        export where all of the job has been in this process: it ends with its last tasklet.
        """
        if self.steals or self._suppliers or self.snapshots is not None:
            return True
        if self._deploy.plan.is_in_one_process:
            return False
        return any(saves_at_end(processor) for processor in self._processors.values())

    # -- making -------------------------------------------------------------------------------------------------

    def create(self, shared: SharedMemory, fds: Sequence[int], prepared: Prepared | None = None) -> None:
        """Unpickle the job, make the processors placed here and the lanes between them.

        Args:
            shared: what this process has mapped.
            fds: the arena's descriptor, when it is not mapped here yet, and that of the code, when it came in a file.
            prepared: what there is of the job already.
        """
        prepared = Prepared() if prepared is None else prepared
        deploy, plan = self._deploy, self._deploy.plan
        data = InlineOrMemfd.received(deploy.code, deploy.code_size, fds[-1:])
        try:
            arena = self._memory = shared.arena(deploy, fds)
            self._let_go = partial(shared.let_go, deploy.arena_id)
            extend_import_path(deploy.import_paths)
            code = load_code(data.view()) if prepared.code is None else prepared.code
            classes = classes_in(data.view()) if deploy.manifest else {}
        finally:
            data.close()
        config = pickle.loads(deploy.config)
        self._common: dict[str, Any] = {
            "member_index": plan.slot.index,
            "member_count": plan.slot.count,
            "job_id": deploy.job_id,
            "job_config": config,
            "partition_count": plan.partition_count,
            "attached_files": {key: Path(path) for key, path in deploy.attachments.items()},
            "grid": self._grid,
        }
        self._edges = code.edges
        self._to_one_keys = [edge.to_one_key for edge in code.edges]
        for v, vertex in enumerate(plan.vertices):
            if self._endpoint in vertex.endpoints:
                self._make_processors(v, code.suppliers[v], prepared)
        layout = lay_out(plan)
        self._readiness = Readiness(arena, layout)
        self._make_snapshots = partial(
            DeploymentSnapshots, deploy, self._endpoint, code.edges, config, shared.codec, classes
        )
        if DeploymentSnapshots.are_needed(deploy, config):
            self.snapshots = self._make_snapshots()
            self._check_saved(self.snapshots)
        aligns = config.processing_guarantee is not ProcessingGuarantee.AT_LEAST_ONCE
        self._wiring = Wiring(deploy, layout, code.edges, self._endpoint, shared, arena, aligns)
        for place, processor in self._processors.items():
            self._add(place, processor, self._context(place), self._outbox(place[0]), moved=False)
        self._wiring.connect()

    def _check_saved(self, snapshots: DeploymentSnapshots) -> None:
        for v, vertex in enumerate(self._deploy.plan.vertices):
            if self._endpoint in vertex.endpoints:
                self._blamed = (vertex.name, -1)
                snapshots.check(v)

    def _make_processors(self, v: int, supplier: Any, prepared: Prepared) -> None:
        deploy, vertex = self._deploy, self._deploy.plan.vertices[v]
        self._blamed = (vertex.name, -1)
        made = prepared.processors.pop(v, [])
        if v in prepared.suppliers:
            supplier = prepared.suppliers.pop(v)
        elif v in deploy.suppliers:
            supplier = pickle.loads(deploy.suppliers[v])
        mine = [p for p, endpoint in enumerate(vertex.endpoints) if endpoint == self._endpoint]
        if isinstance(supplier, ProcessorSupplier):
            if getattr(supplier.close, "__func__", None) is not ProcessorSupplier.close:
                self._suppliers.append((*self._named(v, mine[0]), supplier))
            if not made:
                speaker.about = About(self._common["job_config"].name or deploy.job_id, deploy.job_id, vertex.name)
                if getattr(supplier.init, "__func__", None) is not ProcessorSupplier.init:
                    supplier.init(SupplierContext(**self._vertex_context(vertex.name, vertex.parallelism)))
                made = make_processors(supplier, vertex.parallelism, vertex.name)
            for p in mine:
                self._processors[v, p] = made[p]
        else:
            for p in mine:
                self._blamed = self._named(v, p)
                self._processors[v, p] = made.pop() if made else checked_processor(supplier(), vertex.name)
        for p in mine:
            processor = self._processors[v, p]
            if isinstance(processor, StandIn):
                continue
            if processor.is_cooperative != (self._endpoint < self._deploy.plan.worker_count):
                raise ProcessorError(
                    f"vertex {vertex.name!r}: is_cooperative of its processors must not change; processor {p} says "
                    f"{processor.is_cooperative}"
                )
        self._blamed = None

    def _vertex_context(self, name: str, parallelism: int) -> dict[str, Any]:
        return {
            **self._common,
            "vertex_name": name,
            "logger": logging.getLogger(f"shmjet.job.{name}"),
            "local_parallelism": parallelism,
            "total_parallelism": parallelism * self._deploy.plan.slot.count,
        }

    def _context(self, place: Place) -> ProcessorContext:
        v, p = place
        vertex, arena = self._deploy.plan.vertices[v], self._memory
        assert arena is not None
        context = ProcessorContext(
            **self._vertex_context(vertex.name, vertex.parallelism),
            local_index=p,
            global_index=self._named(v, p)[1],
            execution_id=self.execution_id,
            receives=receives(self._deploy.plan, v, p, self._to_one_keys),
            cancelled=lambda: arena[CANCELLED_OFFSET] != 0,
            open_endpoint=self.endpoints.open,
        )
        hand_in(context, owners_of(self._deploy.plan.slot))
        hand_in_placement(context, partial(self._placement_of, v))
        set_policy(context, self.policy)
        hand_in_keep(context, self.services)
        return context

    def _placement_of(self, v: int) -> StatePlacement:
        """Return what processors of a vertex are told of where their state belongs; found once for all of them."""
        if v not in self._placements:
            self._placements[v] = placement_of(self._deploy.plan, self._edges, v)
        return self._placements[v]

    def _outbox(self, v: int) -> Outbox:
        return Outbox([edge.high_water_mark for edge in self._deploy.plan.edges if edge.source == v])

    def _add(self, place: Place, processor: Processor, context: ProcessorContext, outbox: Outbox, moved: bool) -> None:
        tasklet = self._wiring.add(place, outbox, processor, context, moved=moved)
        set_wake_up(context, partial(self._wake, tasklet))
        if self.snapshots is not None:
            self.snapshots.attach(place, tasklet, moved=moved)
        self._places[id(tasklet)] = place
        self.tasklets.append(tasklet)

    def _wake(self, tasklet: ProcessorTasklet) -> None:
        """Have a processor called that waits for something outside; any thread of this process may call this."""
        tasklet.wake_processor()
        self._wiring.post((self._endpoint,))

    def init(self) -> None:
        """Call `init` of all processors here; every one is called even when another fails.

        Raises:
            BaseException: what the first failing `init` raised.
        """
        first: BaseException | None = None
        for tasklet in self.tasklets:
            try:
                tasklet.init()
            except BaseException as error:
                if first is None:
                    first = error
                    self._blamed = self.vertex_and_index(tasklet)
        if first is not None:
            raise first

    # -- starting -----------------------------------------------------------------------------------------------

    def say_ready(self) -> bool:
        """Let all participants see that the processors here are initialised; True when those of all are."""
        assert self._readiness is not None
        self._readiness.note(self._endpoint, READY)
        return self._readiness.all_ready()

    def all_ready(self) -> bool:
        """Say whether all who take part are ready."""
        return self._readiness is not None and self._readiness.all_ready()

    def say_started(self) -> None:
        """Let the member see that it need not tell this process to start."""
        assert self._readiness is not None
        self.started = True
        self._readiness.note(self._endpoint, STARTED)

    def wake_waiting(self) -> None:
        """Post the doorbells of the others that are ready and wait."""
        assert self._readiness is not None
        self._wiring.post(endpoint for endpoint in self._readiness.waiting() if endpoint != self._endpoint)

    # -- snapshots ----------------------------------------------------------------------------------------------

    def order(self, command: Save | Resolve) -> None:
        """Begin phase one or phase two of a snapshot; nothing when this part has been stopped."""
        if self.dropped:
            return
        if isinstance(command, Save):
            if self.snapshots is None:
                self.snapshots = self._make_snapshots()
                self.snapshots.attach_late(self._places, self.tasklets)
            self.snapshots.begin(command, self.tasklets)
        elif self.snapshots is not None:
            self.snapshots.finish(command, self.tasklets)

    # -- tasklets that come and go ------------------------------------------------------------------------------

    def hand_over(self, tasklet: ProcessorTasklet, to: int) -> tuple[HandOver, list[int]] | None:
        """Pack a tasklet for another worker and take it out of the lanes here.

        Returns:
            what the member has to pass on, with descriptors; None when it has to stay, and then nothing has changed.
        """
        place = v, p = self._places[id(tasklet)]
        movable = self._deploy.plan.vertices[v].movable and tasklet.processor.movable is not False
        if not self._deploy.plan.stealing or not movable:
            return None
        tasklet.flush_buffered()
        if not tasklet.is_at_rest:
            return None
        packed = pack({"processor": tasklet.processor, "tasklet": tasklet.export_state()}, self._staying(tasklet))
        if packed is None:
            return None
        state, tables = packed
        self._wiring.remove(place)
        self._wiring.move_owner(place, to)
        self.tasklets.remove(tasklet)
        del self._places[id(tasklet)]
        del self._processors[place]
        self.running -= 1
        large = InlineOrMemfd.of(state, MOST_INLINE)
        return HandOver(self.execution_id, to, v, p, large.inline, large.size, len(tables)), [*large.fds, *tables]

    def adopt(self, message: Adopt, fds: list[int]) -> ProcessorTasklet:
        """Make the tasklet that another worker has handed over; the descriptors are closed in any case."""
        try:
            return self._adopt(message, fds)
        finally:
            for fd in fds:
                os.close(fd)

    def _adopt(self, message: Adopt, fds: list[int]) -> ProcessorTasklet:
        tables = fds[len(fds) - message.tables :]
        data = InlineOrMemfd.received(message.state, message.size, fds).view()
        place = message.vertex, message.processor
        context, outbox = self._context(place), self._outbox(message.vertex)
        self._blamed = self._named(*place)
        here = {"outbox": outbox, "context": context, "grid": self._grid, "config": self._common["job_config"]}
        state = unpack(data, here, tables)
        self._blamed = None
        processor = self._processors[place] = state["processor"]
        self._arrived.add(place)
        self._add(place, processor, context, outbox, moved=True)
        tasklet = self.tasklets[-1]
        tasklet.import_state(state["tasklet"])
        self.running += 1
        self.adopted += 1
        return tasklet

    def _staying(self, tasklet: ProcessorTasklet) -> dict[str, Any]:
        return {
            "outbox": tasklet.outbox,
            "context": tasklet.context,
            "grid": self._grid,
            "config": self._common["job_config"],
        }

    def vertex_and_index(self, tasklet: ProcessorTasklet) -> tuple[str, int]:
        """Return the name of a tasklet's vertex and the processor's global index."""
        return self._named(*self._places[id(tasklet)])

    def _named(self, v: int, p: int) -> tuple[str, int]:
        vertex = self._deploy.plan.vertices[v]
        return vertex.name, self._deploy.plan.slot.index * vertex.parallelism + p

    # -- faults -------------------------------------------------------------------------------------------------

    def blame(self, error: BaseException, tasklet: ProcessorTasklet | None) -> tuple[str | None, int, str]:
        """Return the vertex and processor that an error came from, and a hint for the user."""
        name, index = self._blamed or (None, -1)
        if tasklet is not None:
            name, index = self.vertex_and_index(tasklet)
        hint = ""
        if issubclass(type(error), EntryError):
            hint = "saved state must be picklable; save plain data, and open resources in init() and after a restore"
        elif issubclass(type(error), ItemEncodingError):
            hint = "items that go to another worker must be picklable; emit plain data, or open the resource in init()"
        elif issubclass(type(error), OSError) and OSError.__dict__["errno"].__get__(error) == errno.EMFILE:
            limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            hint = (
                f"process {os.getpid()} has as many files open as RLIMIT_NOFILE allows ({limit}); raise that limit "
                "(`ulimit -n` before the instance is started), or close files that are not needed"
            )
        return name, index, hint

    # -- ending -------------------------------------------------------------------------------------------------

    def close_processors(self, interrupts: Interrupts) -> None:
        """Close every processor that has been initialised and not closed yet; interrupt those whose `close` hangs.

        A processor whose `init` was not called has acquired nothing, and is forgotten.
        """
        known = {id(tasklet.processor) for tasklet in self.tasklets}
        for tasklet in self.tasklets:
            with interrupts.closing(self.execution_id, f"a processor of vertex {tasklet.context.vertex_name!r}"):
                tasklet.close()
        for place, processor in self._processors.items():
            if place in self._arrived and id(processor) not in known:
                name = self._deploy.plan.vertices[place[0]].name
                with interrupts.closing(self.execution_id, f"a processor of vertex {name!r}"):
                    processor.close()
        self._processors.clear()
        self.endpoints.close()
        if self.snapshots is not None and self.dropped:
            self.snapshots.close()

    def commits(self) -> Iterator[tuple[str, int, Callable[[], None]]]:
        """Yield `commit` of the suppliers that have one, each with the vertex and the processor to blame."""
        for name, index, supplier in self._suppliers:
            if isinstance(supplier, CommittingSupplier):
                yield name, index, supplier.commit

    def close_suppliers(self, error: str | None, interrupts: Interrupts) -> None:
        """Call `close` of the suppliers, with the execution's error if it failed; their errors are logged only."""
        cause = None if error is None else ProcessorError(error)
        for name, _, supplier in self._suppliers:
            with interrupts.closing(self.execution_id, f"the supplier of vertex {name!r}"):
                supplier.close(cause)
        self._suppliers.clear()

    def new_slab_bytes(self) -> int:
        """Return the bytes of batches that were put into the slab since this was last asked."""
        before, self._slab_bytes = self._slab_bytes, self._wiring.slab_bytes if hasattr(self, "_wiring") else 0
        return self._slab_bytes - before

    def release(self) -> bool:
        """Let go of the arena; True if views of its batches are still alive in this process."""
        has_views = False
        if hasattr(self, "_wiring"):
            slabs = self._wiring.release()
            self._processors.clear()
            self.tasklets.clear()
            if slabs.live:
                gc.collect()
            has_views = slabs.live > 0
        if self._readiness is not None:
            self._readiness.release()
            self._readiness = None
        if self.snapshots is not None:
            self.snapshots.close()
        self._processors.clear()
        self.tasklets.clear()
        self._memory = None
        self._let_go()
        return has_views


class LazyGrid:
    """The member's maps and lists, opened in this process when the first is asked for."""

    def __init__(self, open_grid: Callable[[], Any]) -> None:
        self._open = open_grid

    def get_map(self, name: str) -> Any:
        return self._open().get_map(name)

    def get_list(self, name: str) -> Any:
        return self._open().get_list(name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._open(), name)


def checked_processor(processor: Any, vertex: str) -> Processor:
    if not isinstance(processor, Processor):
        raise ProcessorError(
            f"vertex {vertex!r}: its supplier must make Processor objects, got {processor!r} "
            f"({type(processor).__name__})"
        )
    return processor
