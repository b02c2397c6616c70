"""What has to be asked of user code before a job can be planned: meta-suppliers, and who is not cooperative.

Runs in a worker, so that the member never runs user code.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import cloudpickle

from shmjet.core import (
    MetaSupplierContext,
    ProcessorError,
    ProcessorMetaSupplier,
    ProcessorSupplier,
    SupplierContext,
    make_processors,
)
from shmjet.execution.code import load_code
from shmjet.execution.deployment import LazyGrid, checked_processor, extend_import_path
from shmjet.execution.interrupts import Interrupts
from shmjet.execution.large import Large
from shmjet.execution.logs import about, speaker
from shmjet.execution.messages import Probe, Probed, VertexShape
from shmjet.execution.plan import effective_parallelism


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

    def run(self, fds: Sequence[int]) -> Probed:
        """Answer the question; whatever user code raises comes through.

        Args:
            fds: the descriptor of the code, when it came in a file.
        """
        command = self._command
        extend_import_path(command.import_paths)
        data = Large.received(command.code, command.code_size, fds)
        try:
            code = load_code(data.view())
        finally:
            data.close()
        config = pickle.loads(command.config)
        suppliers: list[dict[int, bytes]] = [{} for _ in self._addresses]
        non_cooperative: list[int] = []
        for v in sorted({*command.meta, *command.unknown}):
            vertex, supplier = command.shape.vertices[v], code.suppliers[v]
            self.vertex = vertex.name
            if isinstance(supplier, ProcessorMetaSupplier):
                given = self._suppliers_of(supplier, vertex, config)
                for place, one in enumerate(given):
                    suppliers[place][v] = cloudpickle.dumps(one)
                supplier = given[0]
            if v in command.unknown and not self._is_cooperative(supplier, vertex, config):
                non_cooperative.append(v)
        self.vertex = None
        commits = any(type(meta).commit is not ProcessorMetaSupplier.commit for _, meta in self._metas)
        return Probed(command.execution_id, suppliers[0], non_cooperative, commits, suppliers[1:])

    def commit(self) -> None:
        """Call `commit` of the meta-suppliers; what one raises comes through."""
        for vertex, meta in self._metas:
            self.vertex = vertex
            meta.commit()
        self.vertex = None

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
            "grid": self._grid,
        }

    def _suppliers_of(self, meta: ProcessorMetaSupplier, vertex: VertexShape, config: Any) -> list[ProcessorSupplier]:
        """Return the supplier that a meta-supplier gives each member."""
        self._metas.append((vertex.name, meta))
        context = MetaSupplierContext(**self._context(vertex, config))
        speaker.about = about(context)
        meta.init(context)
        given = meta.get(self._addresses)
        suppliers = []
        for address in self._addresses:
            supplier = given(address) if callable(given) else given[address]
            if not isinstance(supplier, ProcessorSupplier):
                raise ProcessorError(
                    f"vertex {vertex.name!r}: get() of its meta-supplier must give a ProcessorSupplier for "
                    f"{address!r}, got {supplier!r}"
                )
            suppliers.append(supplier)
        return suppliers

    def _is_cooperative(self, supplier: Any, vertex: VertexShape, config: Any) -> bool:
        declared = getattr(supplier, "is_cooperative", None)
        if isinstance(declared, bool):
            return declared
        if not isinstance(supplier, ProcessorSupplier):
            return _ask(checked_processor(supplier(), vertex.name))
        context = SupplierContext(**self._context(vertex, config))
        speaker.about = about(context)
        supplier.init(context)
        try:
            count = effective_parallelism(vertex, self._command.default_parallelism)
            cooperative = [_ask(processor) for processor in make_processors(supplier, count, vertex.name)]
            return all(cooperative)
        finally:
            supplier.close(None)

    def close(self, error: str | None, interrupts: Interrupts) -> None:
        """Call `close` of the meta-suppliers; their errors are logged only."""
        cause = None if error is None else ProcessorError(error)
        for vertex, meta in self._metas:
            with interrupts.closing(self._command.execution_id, f"the meta-supplier of vertex {vertex!r}"):
                meta.close(cause)
        self._metas.clear()


def _ask(processor: Any) -> bool:
    """Return whether a processor made only for this question is cooperative."""
    try:
        return bool(processor.is_cooperative)
    finally:
        processor.close()
