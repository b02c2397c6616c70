"""What has to be asked of user code before a job can be planned: meta-suppliers, and who is not cooperative.

Runs in a worker, so that the member never runs user code.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import cloudpickle

from shmjet.core import (
    DAG,
    MetaSupplierContext,
    ProcessorError,
    ProcessorMetaSupplier,
    ProcessorSupplier,
    SupplierContext,
    Vertex,
)
from shmjet.core.processor import make_processors
from shmjet.execution.deployment import LazyGrid, checked_processor, extend_import_path
from shmjet.execution.messages import Probe, Probed

logger = logging.getLogger("shmjet.worker")


class Probing:
    """The meta-suppliers of one execution, from `init` to `close`.

    Args:
        command: the member's question.
        grid: opens maps and lists when first called.
    """

    def __init__(self, command: Probe, grid: Callable[[], Any]) -> None:
        self._command = command
        self._grid = LazyGrid(grid)
        self._metas: list[ProcessorMetaSupplier] = []
        self.vertex: str | None = None
        """The vertex whose code is being run: the one to blame for an error."""

    def run(self) -> Probed:
        """Answer the question; whatever user code raises comes through."""
        command = self._command
        extend_import_path(command.import_paths)
        dag: DAG = cloudpickle.loads(command.dag)
        config = cloudpickle.loads(command.config)
        order = list(dag)
        suppliers: dict[int, bytes] = {}
        non_cooperative: list[int] = []
        for v in sorted({*command.meta, *command.unknown}):
            vertex = order[v]
            self.vertex = vertex.name
            supplier: Any = vertex.supplier
            if isinstance(supplier, ProcessorMetaSupplier):
                supplier = self._supplier_of(supplier, vertex, config)
                suppliers[v] = cloudpickle.dumps(supplier)
            if v in command.unknown and not self._is_cooperative(supplier, vertex, config):
                non_cooperative.append(v)
        self.vertex = None
        return Probed(command.execution_id, suppliers, non_cooperative)

    def _context(self, vertex: Vertex, config: Any) -> dict[str, Any]:
        parallelism = vertex.effective_parallelism(self._command.default_parallelism)
        return {
            "vertex_name": vertex.name,
            "logger": logging.getLogger(f"shmjet.job.{vertex.name}"),
            "local_parallelism": parallelism,
            "total_parallelism": parallelism,
            "job_id": self._command.job_id,
            "job_config": config,
            "partition_count": self._command.partition_count,
            "grid": self._grid,
        }

    def _supplier_of(self, meta: ProcessorMetaSupplier, vertex: Vertex, config: Any) -> ProcessorSupplier:
        self._metas.append(meta)
        meta.init(MetaSupplierContext(**self._context(vertex, config)))
        address = self._command.member_address
        given = meta.get([address])
        supplier = given(address) if callable(given) else given[address]
        if not isinstance(supplier, ProcessorSupplier):
            raise ProcessorError(
                f"vertex {vertex.name!r}: get() of its meta-supplier must give a ProcessorSupplier for {address!r}, "
                f"got {supplier!r}"
            )
        return supplier

    def _is_cooperative(self, supplier: Any, vertex: Vertex, config: Any) -> bool:
        declared = getattr(supplier, "is_cooperative", None)
        if isinstance(declared, bool):
            return declared
        if not isinstance(supplier, ProcessorSupplier):
            return _ask(checked_processor(supplier(), vertex.name))
        supplier.init(SupplierContext(**self._context(vertex, config)))
        try:
            made = make_processors(
                supplier, vertex.effective_parallelism(self._command.default_parallelism), vertex.name
            )
            cooperative = [_ask(processor) for processor in made]
            return all(cooperative)
        finally:
            supplier.close(None)

    def close(self, error: str | None) -> None:
        """Call `close` of the meta-suppliers; their errors are logged only."""
        cause = None if error is None else ProcessorError(error)
        for meta in self._metas:
            try:
                meta.close(cause)
            except Exception:
                logger.exception("close() of a meta-supplier failed")
        self._metas.clear()


def _ask(processor: Any) -> bool:
    """Return whether a processor made only for this question is cooperative."""
    try:
        return bool(processor.is_cooperative)
    finally:
        processor.close()
