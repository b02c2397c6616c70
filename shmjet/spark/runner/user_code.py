"""The user's code on its way to Spark's Python workers, and what of it lives as long as a worker process.

All of a pipeline's code is pickled once, so that what its parts share stays shared, and unpickled once in each worker
process. There the suppliers of vertices live, as in a worker of the engine, and with them the services that the tasks
of a process share. Must not know RDDs.
"""

from __future__ import annotations

import gc
import os
import sys
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields
from types import ModuleType
from typing import Any, Protocol

import cloudpickle

from shmjet.core.context import SupplierContext
from shmjet.core.processor import Processor, ProcessorContext, ProcessorSupplier, make_processors
from shmjet.data.code_pickling import dumps
from shmjet.processors.general.service_use import ServiceSupplier
from shmjet.spark.links import host_id

_WORKERS = ("pyspark.daemon", "pyspark.worker")
"""Programs that Spark's Python workers are."""

MOST_RUNS = 4
"""Runs whose code a worker process keeps; the services of the oldest are closed then."""


class Shipment(Protocol):
    """What a Spark broadcast of bytes looks like."""

    @property
    def value(self) -> bytes:
        """The bytes."""


@dataclass(frozen=True)
class Code:
    """A pipeline's code, as tasks carry it.

    Args:
        run: identity of the run.
        shipment: of what `pickled` returned.
        homes: an accumulator of the processes that have services of the run; None where it has none.
    """

    run: str
    shipment: Shipment
    homes: Any = None

    def processor(self, vertex: str, context: ProcessorContext) -> Processor:
        """Return a fresh processor of a vertex; services that are shared are those of this process."""
        here = self.here()
        made = here.processor(vertex, context)
        if here.has_services and self.homes is not None:
            self.homes.add(frozenset([process_id()]))
        return made

    def here(self) -> CodeHere:
        """Return the code in this process."""
        found = _here.get(self.run)
        if found is None:
            while len(_here) >= MOST_RUNS:
                close_run(next(iter(_here)))
            found = _here[self.run] = CodeHere(self.shipment.value)
            _spare_the_collector()
        _here.move_to_end(self.run)
        return found


_here: OrderedDict[str, CodeHere] = OrderedDict()

_is_spared = False


def _spare_the_collector() -> None:
    """In a worker of Spark's: have its garbage collection leave out the modules that are loaded now.

    Such a worker collects all garbage after each task, which takes longer than many a task does. Done once for each
    process, so that what belongs to a run is not kept when the run is over.
    """
    global _is_spared
    program = getattr(sys.modules["__main__"], "__spec__", None)
    if program is not None and program.name in _WORKERS and not _is_spared:
        _is_spared = True  # the collector's own count tells nothing: Python 3.12 begins with some objects frozen
        gc.collect()
        gc.freeze()


def close_run(run: str) -> bool:
    """Forget the code of a run in this process, and close the services that it has here; False if it has no code here.

    Raises:
        Exception: the first that closing them has raised, when all have been.
    """
    found = _here.pop(run, None)
    if found is not None:
        found.close()
    return found is not None


def process_id() -> str:
    """Return what tells this process from all others, on this host and elsewhere."""
    return f"{host_id()}:{os.getpid()}"


def is_gone(process: str) -> bool:
    """Whether a process of this host has ended; False for a process of another host."""
    host, _, pid = process.rpartition(":")
    return host == host_id() and not os.path.exists(f"/proc/{pid}")


class Processes:
    """How Spark adds up sets of processes."""

    def zero(self, value: frozenset[str]) -> frozenset[str]:
        """Return the empty set."""
        return frozenset()

    def addInPlace(self, one: frozenset[str], other: frozenset[str]) -> frozenset[str]:
        """Return the processes of both."""
        return one | other


def pickled(suppliers: Mapping[str, Any], functions: Mapping[Any, Any], modules: Sequence[ModuleType] = ()) -> bytes:
    """Return a pipeline's code as bytes.

    Args:
        suppliers: of processors, by vertex.
        functions: of edges.
        modules: whose code goes along.

    Raises:
        TypeError: something cannot be pickled; the text names the vertex.
    """
    already = set(cloudpickle.list_registry_pickle_by_value())
    added = [module for module in modules if module.__name__ not in already]
    for module in added:
        cloudpickle.register_pickle_by_value(module)
    try:
        code: bytes = dumps((dict(suppliers), dict(functions)))
        return dumps((sys.path, code))
    except Exception as error:
        for name, supplier in suppliers.items():
            try:
                dumps(supplier)
            except Exception as cause:
                raise TypeError(
                    f"stage {name!r} cannot be sent to Spark's workers: {cause}; open files, locks and connections "
                    "in a service or in the processor's init() instead of capturing them"
                ) from error
        raise TypeError(f"the pipeline cannot be sent to Spark's workers: {error}") from error
    finally:
        for module in added:
            cloudpickle.unregister_pickle_by_value(module)


class CodeHere:
    """A pipeline's code in one process, with the suppliers that live there."""

    def __init__(self, data: bytes) -> None:
        path, code = cloudpickle.loads(data)
        # A worker on the driver's host finds there what the driver finds; elsewhere the folders are missing.
        sys.path += [folder for folder in path if folder not in sys.path and os.path.exists(folder)]
        self._suppliers, self.functions = cloudpickle.loads(code)
        self._opened: dict[str, ProcessorSupplier] = {}
        self._holders: dict[str, Any] = {}

    def processor(self, vertex: str, context: ProcessorContext) -> Processor:
        """Return a fresh processor of a vertex; services that are shared are those of this process."""
        supplier = self._supplier(vertex, context)
        if not isinstance(supplier, ServiceSupplier) or not supplier.shares:
            return make_processors(supplier, 1, vertex)[0]
        holder = self._holders.get(vertex)
        if holder is None:
            holder = supplier.holder()
            holder.acquire(context)  # until the process is done with the run, so that tasks find it open
            self._holders[vertex] = holder
        return supplier.using(holder)

    def _supplier(self, vertex: str, context: ProcessorContext) -> ProcessorSupplier:
        opened = self._opened.get(vertex)
        if opened is None:
            opened = ProcessorSupplier.of(self._suppliers[vertex])
            shared = {field.name: getattr(context, field.name) for field in fields(SupplierContext)}
            opened.init(SupplierContext(**shared))
            self._opened[vertex] = opened
        return opened

    @property
    def has_services(self) -> bool:
        """Whether there are any to be closed."""
        return bool(self._holders)

    def close(self) -> None:
        """Close services and suppliers, whatever some of them raise; then raise the first of that."""
        holders, self._holders = self._holders, {}
        opened, self._opened = self._opened, {}
        with ExitStack() as closing:
            for supplier in opened.values():
                closing.callback(supplier.close, None)
            for holder in holders.values():
                closing.callback(holder.release)
