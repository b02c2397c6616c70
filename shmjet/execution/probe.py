"""What has to be asked of user code before a job can be planned: meta-suppliers, and who is not cooperative.

Runs in a worker, so that the member never runs user code. It is the worker on which processor 0 of every vertex starts:
what had to be made there to be asked is used when the job is deployed, so that user code never sees a
supplier or processor that has no part in the job.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from shmjet.core import (
    MetaSupplierContext,
    ProcessorError,
    ProcessorMetaSupplier,
    ProcessorSupplier,
    SupplierContext,
    make_processors,
)
from shmjet.core.ownership import PartitionOwners, hand_in
from shmjet.core.processor import is_stand_in
from shmjet.data.code_pickling import dumps
from shmjet.execution.code import load_code
from shmjet.execution.deployment import LazyGrid, Prepared, checked_processor, extend_import_path
from shmjet.execution.interrupts import ExecutionInterrupted, Interrupts
from shmjet.execution.job_plan import VertexShape
from shmjet.execution.logs import about, speaker
from shmjet.execution.messages import Probe, Probed
from shmjet.execution.plan import effective_parallelism
from shmjet.ipc.inline_or_memfd import InlineOrMemfd


class Probing:
    """The meta-suppliers of one execution, from `init` to `close`.

    Args:
        command: the member's question.
        grid: opens maps and lists when first called.
    """

    def __init__(self, command: Probe, grid: Callable[[], Any]) -> None:
        self._command = command
        self._grid = LazyGrid(grid)
        self._addresses = [command.member_address, *command.other_addresses]
        self._metas: list[tuple[str, ProcessorMetaSupplier]] = []
        self.vertex: str | None = None
        """The vertex whose code is being run: the one to blame for an error."""
        self.prepared = Prepared()

    def run(self, fds: Sequence[int]) -> Probed:
        """Answer the question; whatever user code raises comes through.

        Args:
            fds: the descriptor of the code, when it came in a file.
        """
        command = self._command
        extend_import_path(command.import_paths)
        data = InlineOrMemfd.received(command.code, command.code_size, fds)
        try:
            code = self.prepared.code = load_code(data.view())
        finally:
            data.close()
        config = pickle.loads(command.config)
        suppliers: list[dict[int, bytes]] = [{} for _ in self._addresses]
        non_cooperative: list[int] = []
        for v in sorted({*command.meta, *command.unknown}):
            vertex, supplier = command.shape.vertices[v], code.suppliers[v]
            self.vertex, is_ours = vertex.name, True
            if isinstance(supplier, ProcessorMetaSupplier):
                given = self._suppliers_of(supplier, vertex, config)
                for place, one in enumerate(given):
                    suppliers[place][v] = dumps(one)
                supplier = next((one for one in given if not is_stand_in(one)), given[0])
                is_ours = supplier is given[0]
            if v in command.unknown and not self._is_cooperative(v, supplier, config, is_ours):
                non_cooperative.append(v)
        self.vertex = None
        commits = any(True for _ in self.commits())
        return Probed(command.execution_id, suppliers[0], non_cooperative, commits, suppliers[1:])

    def commits(self) -> Iterator[tuple[str, int, Callable[[], None]]]:
        """Yield `commit` of the meta-suppliers that have one, each with its vertex and -1: no processor is to blame."""
        for vertex, meta in self._metas:
            if type(meta).commit is not ProcessorMetaSupplier.commit:
                yield vertex, -1, meta.commit

    def _context(self, vertex: VertexShape, config: Any) -> dict[str, Any]:
        parallelism = effective_parallelism(vertex, self._command.default_parallelism)
        return {
            "vertex_name": vertex.name,
            "logger": logging.getLogger(f"shmjet.job.{vertex.name}"),
            "local_parallelism": parallelism,
            "total_parallelism": parallelism * len(self._addresses),
            "member_count": len(self._addresses),
            "job_id": self._command.job_id,
            "job_config": config,
            "partition_count": self._command.partition_count,
            "attached_files": {key: Path(path) for key, path in self._command.attachments.items()},
            "grid": self._grid,
        }

    def _suppliers_of(self, meta: ProcessorMetaSupplier, vertex: VertexShape, config: Any) -> list[ProcessorSupplier]:
        """Return the supplier that a meta-supplier gives each member."""
        self._metas.append((vertex.name, meta))
        context = MetaSupplierContext(**self._context(vertex, config))
        hand_in(context, PartitionOwners(len(self._addresses), self._command.owners))
        speaker.about = about(context)
        meta.init(context)
        given = meta.get(self._addresses)
        suppliers = []
        if not callable(given) and not isinstance(given, Mapping):
            raise ProcessorError(
                f"vertex {vertex.name!r}: get() of its meta-supplier must return a mapping or a function, got {given!r}"
            )
        for address in self._addresses:
            supplier = given(address) if callable(given) else given.get(address)
            if not isinstance(supplier, ProcessorSupplier):
                raise ProcessorError(
                    f"vertex {vertex.name!r}: get() of its meta-supplier must give a ProcessorSupplier for "
                    f"{address!r}, got {supplier!r}"
                )
            suppliers.append(supplier)
        return suppliers

    def _is_cooperative(self, v: int, supplier: Any, config: Any, is_ours: bool) -> bool:
        """Ask processors whether they are cooperative; keep them when they are, and are this member's."""
        vertex, prepared = self._command.shape.vertices[v], self.prepared
        declared = getattr(supplier, "is_cooperative", None)
        if isinstance(declared, bool):
            return declared
        if isinstance(supplier, ProcessorSupplier):
            context = SupplierContext(**self._context(vertex, config))
            speaker.about = about(context)
            prepared.suppliers[v] = supplier
            supplier.init(context)
            count = effective_parallelism(vertex, self._command.default_parallelism)
            prepared.processors[v] = make_processors(supplier, count, vertex.name)
        else:
            prepared.processors[v] = [checked_processor(supplier(), vertex.name)]
        cooperative = all(processor.is_cooperative for processor in prepared.processors[v])
        if not (cooperative and is_ours):  # they run in a process of their own, or on another member
            prepared.processors.pop(v)  # forgotten, not closed: they were never initialised
            if v in prepared.suppliers:
                self._discard(prepared.suppliers.pop(v), vertex.name)
        return cooperative

    def _discard(self, supplier: ProcessorSupplier, vertex: str) -> None:
        """Close a supplier that was made to be asked only; its error is logged only."""
        try:
            supplier.close(None)
        except ExecutionInterrupted:
            raise
        except BaseException:
            logging.getLogger(f"shmjet.job.{vertex}").exception("close() of the supplier of vertex %r failed", vertex)

    def close(self, error: str | None, interrupts: Interrupts) -> None:
        """Call `close` of the meta-suppliers, and of suppliers that were not used; their errors are logged only."""
        cause = None if error is None else ProcessorError(error)
        closing, prepared = partial(interrupts.closing, self._command.execution_id), self.prepared
        for v, supplier in prepared.suppliers.items():
            with closing(f"the supplier of vertex {self._name_of(v)!r}"):
                supplier.close(cause)
        for vertex, meta in self._metas:
            with closing(f"the meta-supplier of vertex {vertex!r}"):
                meta.close(cause)
        self._metas.clear()

    def _name_of(self, v: int) -> str:
        return self._command.shape.vertices[v].name
