"""One execution's part in one process: unpickles the job, makes the processors placed here and joins them by lanes."""

from __future__ import annotations

import contextlib
import logging
import mmap
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import cloudpickle

from shmjet._native import Codec, Doorbell, Poller, RingConsumer, RingProducer
from shmjet.core import (
    DAG,
    Edge,
    Processor,
    ProcessorContext,
    ProcessorError,
    ProcessorSupplier,
    SupplierContext,
    Vertex,
)
from shmjet.core.arrangement import local_table
from shmjet.core.keys import partition_id
from shmjet.core.processor import make_processors
from shmjet.execution.control import BLOCK_SIZE
from shmjet.execution.counters import ProcessorCounters
from shmjet.execution.inbound import InboundEdge, OrderedInboundEdge
from shmjet.execution.layout import CANCELLED_OFFSET, ArenaLayout, is_ring_lane, lane_pairs, lay_out
from shmjet.execution.messages import Deploy, EdgePlan
from shmjet.execution.outbound import Outbound, Router, make_router
from shmjet.execution.tasklet import ProcessorTasklet
from shmjet.ring.lane import LaneReader, LaneWriter, LocalLane, RingLaneReader, RingLaneWriter
from shmjet.ring.pickling import ItemEncodingError


class SharedMemory:
    """What a process has mapped: the control segment, and arenas by id, kept for executions that use them again.

    Args:
        control: the control segment, in which the workers' doorbells lie.
    """

    def __init__(self, control: memoryview) -> None:
        self.control = control
        self.codec = Codec()
        self._mapped: dict[int, memoryview] = {}

    def arena(self, deploy: Deploy, fds: Sequence[int]) -> memoryview:
        """Return an execution's arena, mapped."""
        if fds:
            self._mapped[deploy.arena_id] = memoryview(mmap.mmap(fds[0], deploy.arena_size))
            for fd in fds:
                os.close(fd)
        return self._mapped[deploy.arena_id]

    def forget(self, arena_id: int) -> None:
        """Unmap an arena."""
        memory = self._mapped.pop(arena_id, None)
        if memory is not None:
            mapping = memory.obj
            with contextlib.suppress(BufferError):  # a view somewhere still holds it; it goes with that view
                memory.release()
                mapping.close()  # type: ignore[attr-defined]


def extend_import_path(paths: Iterable[str]) -> None:
    """Add the client's import paths behind our own, so that modules beside the user's script are found."""
    for path in paths:
        if path not in sys.path:
            sys.path.append(path)


class Deployment:
    """What one process hosts of one execution.

    Args:
        deploy: the member's order.
        endpoint: this process' number in the plan.
        grid: opens maps and lists when first called.
    """

    def __init__(self, deploy: Deploy, endpoint: int, grid: Callable[[], Any]) -> None:
        self.execution_id = deploy.execution_id
        self.tasklets: list[ProcessorTasklet] = []
        self.running = 0
        self.ended = False
        self._deploy = deploy
        self._endpoint = endpoint
        self._grid = LazyGrid(grid)
        self._suppliers: list[ProcessorSupplier] = []
        self._processors: dict[tuple[int, int], Processor] = {}
        self._owner: dict[int, tuple[str, int]] = {}
        self._started: set[int] = set()
        self._blamed: tuple[str, int] | None = None
        self._counters: list[ProcessorCounters] = []
        self._memory: memoryview | None = None

    @property
    def has_suppliers(self) -> bool:
        """True when there are suppliers whose `close` has to be called."""
        return bool(self._suppliers)

    # -- making -------------------------------------------------------------------------------------------------

    def create(self, shared: SharedMemory, fds: Sequence[int]) -> None:
        """Unpickle the job, make the processors placed here and the lanes between them.

        Args:
            shared: what this process has mapped.
            fds: the arena's descriptor, when it is not mapped here yet.
        """
        deploy, plan = self._deploy, self._deploy.plan
        arena = self._memory = shared.arena(deploy, fds)
        extend_import_path(deploy.import_paths)
        dag: DAG = cloudpickle.loads(deploy.dag)
        config = cloudpickle.loads(deploy.config)
        order = list(dag)
        self._common = {
            "member_index": 0,
            "member_count": 1,
            "job_id": deploy.job_id,
            "job_config": config,
            "partition_count": plan.partition_count,
            "attached_files": {key: Path(path) for key, path in deploy.attachments.items()},
            "grid": self._grid,
        }
        for v, vertex in enumerate(order):
            if self._endpoint in plan.vertices[v].endpoints:
                self._make_processors(v, vertex)
        self._join([e for vertex in order for e in dag.outbound_edges(vertex)], lay_out(plan), shared, arena)

    def _make_processors(self, v: int, vertex: Vertex) -> None:
        plan = self._deploy.plan.vertices[v]
        self._blamed = (vertex.name, -1)
        supplier: Any = vertex.supplier
        if v in self._deploy.suppliers:
            supplier = cloudpickle.loads(self._deploy.suppliers[v])
        mine = [p for p, endpoint in enumerate(plan.endpoints) if endpoint == self._endpoint]
        if isinstance(supplier, ProcessorSupplier):
            supplier.init(SupplierContext(**self._vertex_context(plan.name, plan.parallelism)))
            self._suppliers.append(supplier)
            made = make_processors(supplier, plan.parallelism, plan.name)
            for p in mine:
                self._processors[v, p] = made[p]
        else:
            for p in mine:
                self._blamed = (vertex.name, p)
                self._processors[v, p] = checked_processor(supplier(), vertex.name)
        for p in mine:
            if self._processors[v, p].is_cooperative != (self._endpoint < self._deploy.plan.worker_count):
                raise ProcessorError(
                    f"vertex {vertex.name!r}: is_cooperative of its processors must not change; processor {p} says "
                    f"{self._processors[v, p].is_cooperative}"
                )
        self._blamed = None

    def _vertex_context(self, name: str, parallelism: int) -> dict[str, Any]:
        return {
            **self._common,
            "vertex_name": name,
            "logger": logging.getLogger(f"shmjet.job.{name}"),
            "local_parallelism": parallelism,
            "total_parallelism": parallelism,
        }

    def _join(self, edges: list[Edge], layout: ArenaLayout, shared: SharedMemory, arena: memoryview) -> None:
        """Make the lanes that touch a processor here, and a tasklet for each processor."""
        plan, here = self._deploy.plan, self._endpoint
        bells = _Doorbells(plan.worker_count, shared.control, arena, layout)
        writers: dict[tuple[int, int], list[LaneWriter]] = {}
        readers: dict[tuple[int, int], list[LaneReader]] = {}
        for e, edge in enumerate(plan.edges):
            sources, targets = plan.vertices[edge.source].endpoints, plan.vertices[edge.destination].endpoints
            for p, c in lane_pairs(plan, edge):
                writes, reads = sources[p] == here, targets[c] == here
                if not (writes or reads):
                    continue
                writer: LaneWriter
                reader: LaneReader
                if is_ring_lane(plan, edge, p, c):
                    offset = layout.rings[e, p, c]
                    if writes:
                        writer = RingLaneWriter(RingProducer(arena, offset, bells.of(targets[c])), shared.codec)
                    if reads:
                        reader = RingLaneReader(RingConsumer(arena, offset, bells.of(sources[p])), shared.codec)
                else:
                    writer = reader = LocalLane(edge.queue_size)
                if writes:
                    writers.setdefault((e, p), []).append(writer)
                if reads:
                    readers.setdefault((e, c), []).append(reader)
        for (v, p), processor in self._processors.items():
            self._make_tasklet(edges, layout, arena, v, p, processor, writers, readers)

    def _make_tasklet(
        self,
        edges: list[Edge],
        layout: ArenaLayout,
        arena: memoryview,
        v: int,
        p: int,
        processor: Processor,
        writers: dict[tuple[int, int], list[LaneWriter]],
        readers: dict[tuple[int, int], list[LaneReader]],
    ) -> None:
        plan = self._deploy.plan
        vertex = plan.vertices[v]
        outbound, marks, out_lanes, inbound, in_lanes = [], [], [], [], []
        for e, edge in enumerate(plan.edges):
            if edge.source == v:
                targets = writers[e, p]
                out_lanes += targets
                outbound.append(Outbound(targets, self._router(e, edges[e], targets)))
                marks.append(edge.high_water_mark)
            if edge.destination == v:
                sources = readers[e, p]
                in_lanes += sources
                inbound.append(_inbound_edge(edge, edges[e], sources))
        counters = ProcessorCounters(arena, layout.counters[v, p], vertex.inbound, vertex.outbound)
        self._counters.append(counters)
        context = ProcessorContext(
            **self._vertex_context(vertex.name, vertex.parallelism),
            local_index=p,
            global_index=p,
            cancelled=lambda: arena[CANCELLED_OFFSET] != 0,
        )
        consumers = [consumer for stream in inbound for consumer in stream.consumers]
        producers = [lane.producer for lane in out_lanes if isinstance(lane, RingLaneWriter)]
        tasklet = ProcessorTasklet(processor, context, inbound, outbound, marks, Poller(consumers, producers), counters)
        for target in out_lanes:
            if isinstance(target, LocalLane):
                target.on_pull = tasklet.wake
        for source in in_lanes:
            if isinstance(source, LocalLane):
                source.on_push = tasklet.wake
        self._owner[id(tasklet)] = (vertex.name, p)
        self.tasklets.append(tasklet)

    def _router(self, e: int, edge: Edge, lanes: list[LaneWriter]) -> Router:
        plan = self._deploy.plan
        edge_plan = plan.edges[e]
        count = plan.partition_count
        table = local_table(count, range(count), plan.vertices[edge_plan.destination].parallelism)
        target = partition_id(edge.to_one_key, count) if edge_plan.routing == "all_to_one" else 0
        return make_router(
            edge_plan.routing,
            lanes,
            producers=plan.vertices[edge_plan.source].parallelism,
            workers=plan.worker_count,
            key_fn=edge.key_fn,
            partitioner=edge.partitioner,
            table=table,
            target_partition=target,
            edge=repr(edge),
        )

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
                    self._blamed = self._owner[id(tasklet)]
        if first is not None:
            raise first

    # -- faults -------------------------------------------------------------------------------------------------

    def blame(self, error: BaseException, tasklet: ProcessorTasklet | None) -> tuple[str | None, int, str]:
        """Return the vertex and processor that an error came from, and a hint for the user."""
        name, index = self._blamed or (None, -1)
        if tasklet is not None:
            name, index = self._owner[id(tasklet)]
        hint = ""
        if isinstance(error, ItemEncodingError):
            hint = "items that go to another worker must be picklable; emit plain data, or open the resource in init()"
        return name, index, hint

    # -- ending -------------------------------------------------------------------------------------------------

    def close_processors(self) -> None:
        """Close every processor made here that is not closed yet."""
        known = {id(tasklet.processor) for tasklet in self.tasklets}
        for tasklet in self.tasklets:
            tasklet.close()
        for processor in self._processors.values():
            if id(processor) not in known:
                with contextlib.suppress(Exception):
                    processor.close()
        self._processors.clear()

    def close_suppliers(self, error: str | None) -> None:
        """Call `close` of the suppliers, with the execution's error if it failed; their errors are logged only."""
        cause = None if error is None else ProcessorError(error)
        for supplier in self._suppliers:
            try:
                supplier.close(cause)
            except Exception:
                logging.getLogger("shmjet.worker").exception("close() of a supplier failed")
        self._suppliers.clear()

    def release(self) -> None:
        """Let go of the arena."""
        for counters in self._counters:
            counters.release()
        self.tasklets.clear()
        self._processors.clear()
        self._memory = None


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


class _Doorbells:
    """Doorbells of endpoints: workers' in the control segment, carriers' in the arena."""

    def __init__(self, workers: int, control: memoryview, arena: memoryview, layout: ArenaLayout) -> None:
        self._workers = workers
        self._control = control
        self._arena = arena
        self._layout = layout
        self._made: dict[int, Doorbell] = {}

    def of(self, endpoint: int) -> Doorbell:
        if endpoint not in self._made:
            if endpoint < self._workers:
                self._made[endpoint] = Doorbell(self._control, endpoint * BLOCK_SIZE)
            else:
                self._made[endpoint] = Doorbell(self._arena, self._layout.carriers[endpoint - self._workers])
        return self._made[endpoint]


def _inbound_edge(plan: EdgePlan, edge: Edge, lanes: list[LaneReader]) -> InboundEdge:
    ordinal = plan.destination_ordinal
    if plan.ordered:
        return OrderedInboundEdge(ordinal, lanes, edge.order_key, priority=plan.priority)
    return InboundEdge(ordinal, lanes, priority=plan.priority, buffered=plan.buffered)


def checked_processor(processor: Any, vertex: str) -> Processor:
    if not isinstance(processor, Processor):
        raise ProcessorError(
            f"vertex {vertex!r}: its supplier must make Processor objects, got {processor!r} "
            f"({type(processor).__name__})"
        )
    return processor
