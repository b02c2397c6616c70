"""One execution's part in one process: unpickles the job, makes the processors placed here and joins them by lanes."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import cloudpickle

from shmjet.core import (
    DAG,
    Outbox,
    Processor,
    ProcessorContext,
    ProcessorError,
    ProcessorSupplier,
    SupplierContext,
    Vertex,
)
from shmjet.core.processor import make_processors
from shmjet.execution.handover import pack, unpack
from shmjet.execution.layout import CANCELLED_OFFSET, lay_out
from shmjet.execution.messages import Adopt, Deploy, HandOver
from shmjet.execution.shared_memory import SharedMemory, put_state
from shmjet.execution.tasklet import ProcessorTasklet
from shmjet.execution.wiring import Place, Wiring
from shmjet.ring.pickling import ItemEncodingError


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
        self.adopted = 0
        self.ended = False
        self.dropped = False
        self._deploy = deploy
        self._endpoint = endpoint
        self._grid = LazyGrid(grid)
        self._suppliers: list[ProcessorSupplier] = []
        self._processors: dict[Place, Processor] = {}
        self._places: dict[int, Place] = {}
        self._blamed: tuple[str, int] | None = None
        self._wiring: Wiring
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
        self._common: dict[str, Any] = {
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
        edges = [edge for vertex in order for edge in dag.outbound_edges(vertex)]
        self._wiring = Wiring(plan, lay_out(plan), edges, self._endpoint, shared, arena)
        for place, processor in self._processors.items():
            self._add(place, processor, self._context(place), self._outbox(place[0]), moved=False)
        self._wiring.connect()

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

    def _context(self, place: Place) -> ProcessorContext:
        v, p = place
        vertex, arena = self._deploy.plan.vertices[v], self._memory
        assert arena is not None
        return ProcessorContext(
            **self._vertex_context(vertex.name, vertex.parallelism),
            local_index=p,
            global_index=p,
            cancelled=lambda: arena[CANCELLED_OFFSET] != 0,
        )

    def _outbox(self, v: int) -> Outbox:
        return Outbox([edge.high_water_mark for edge in self._deploy.plan.edges if edge.source == v])

    def _add(self, place: Place, processor: Processor, context: ProcessorContext, outbox: Outbox, moved: bool) -> None:
        tasklet = self._wiring.add(place, outbox, processor, context, moved=moved)
        self._places[id(tasklet)] = place
        self.tasklets.append(tasklet)

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

    # -- tasklets that come and go ------------------------------------------------------------------------------

    def hand_over(self, tasklet: ProcessorTasklet, to: int) -> tuple[HandOver, list[int]] | None:
        """Pack a tasklet for another worker and take it out of the lanes here.

        Returns:
            what the member has to pass on, with descriptors; None when it has to stay, and then nothing has changed.
        """
        place = v, p = self._places[id(tasklet)]
        movable = self._deploy.plan.vertices[v].movable and tasklet.processor.movable is not False
        if not self._deploy.plan.stealing or not movable or not tasklet.is_at_rest:
            return None
        state = pack({"processor": tasklet.processor, "tasklet": tasklet.packed()}, self._staying(tasklet))
        if state is None:
            return None
        self._wiring.remove(place)
        self._wiring.move_owner(place, to)
        self.tasklets.remove(tasklet)
        del self._places[id(tasklet)]
        del self._processors[place]
        self.running -= 1
        inline, fds = put_state(state)
        return HandOver(self.execution_id, to, v, p, inline, len(state)), fds

    def adopt(self, message: Adopt, data: bytes) -> ProcessorTasklet:
        """Make the tasklet that another worker has handed over with this state."""
        place = message.vertex, message.processor
        context, outbox = self._context(place), self._outbox(message.vertex)
        self._blamed = (self._deploy.plan.vertices[message.vertex].name, message.processor)
        here = {"outbox": outbox, "context": context, "grid": self._grid, "config": self._common["job_config"]}
        state = unpack(data, here)
        self._blamed = None
        processor = self._processors[place] = state["processor"]
        self._add(place, processor, context, outbox, moved=True)
        tasklet = self.tasklets[-1]
        tasklet.unpack(state["tasklet"])
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
        """Return the name of a tasklet's vertex and the processor's index."""
        v, p = self._places[id(tasklet)]
        return self._deploy.plan.vertices[v].name, p

    # -- faults -------------------------------------------------------------------------------------------------

    def blame(self, error: BaseException, tasklet: ProcessorTasklet | None) -> tuple[str | None, int, str]:
        """Return the vertex and processor that an error came from, and a hint for the user."""
        name, index = self._blamed or (None, -1)
        if tasklet is not None:
            name, index = self.vertex_and_index(tasklet)
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
        if hasattr(self, "_wiring"):
            self._wiring.release()
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


def checked_processor(processor: Any, vertex: str) -> Processor:
    if not isinstance(processor, Processor):
        raise ProcessorError(
            f"vertex {vertex!r}: its supplier must make Processor objects, got {processor!r} "
            f"({type(processor).__name__})"
        )
    return processor
