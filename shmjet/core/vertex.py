"""A vertex: a name, who makes its processors, and how many of them run on each member."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from shmjet.core.checks import check_int, check_name
from shmjet.core.processor import Processor, ProcessorMetaSupplier, ProcessorSupplier, SupplierLike, made_by
from shmjet.data.errors import DagError

VertexSupplier = SupplierLike | ProcessorMetaSupplier
"""A processor class or factory, a `ProcessorSupplier`, or a `ProcessorMetaSupplier`."""


class Vertex:
    """One step of a DAG.

    Args:
        name: unique in its DAG.
        supplier: a `Processor` subclass or another callable without arguments that makes one, a `ProcessorSupplier`,
            or a `ProcessorMetaSupplier`.
        local_parallelism: processors per member; -1 for one per worker.

    Raises:
        DagError: a wrong name, supplier or parallelism; the text names the vertex.

    Example:
        >>> Vertex("numbers", Processor, local_parallelism=2)
        Vertex('numbers', Processor, local_parallelism=2)
    """

    def __init__(self, name: str, supplier: VertexSupplier, local_parallelism: int = -1) -> None:
        self.name = check_name("a vertex's name", name, DagError)
        self.supplier: VertexSupplier = _checked_supplier(name, supplier)
        self.local_parallelism = local_parallelism

    @property
    def local_parallelism(self) -> int:
        """Processors per member as the user set it; -1 when unset."""
        return self._local_parallelism

    @local_parallelism.setter
    def local_parallelism(self, value: int) -> None:
        check_int(f"vertex {self.name!r}: local_parallelism", value, DagError)
        if value == 0 or value < -1:
            raise DagError(
                f"vertex {self.name!r}: local_parallelism must be -1 (one per worker) or at least 1, got {value}"
            )
        self._local_parallelism = value

    @property
    def preferred_local_parallelism(self) -> int:
        """What the meta-supplier prefers; -1 for no preference."""
        if isinstance(self.supplier, ProcessorMetaSupplier):
            return self.supplier.preferred_local_parallelism
        return -1

    def effective_parallelism(self, default: int) -> int:
        """Return the processors per member: the user's number, else the preferred one up to `default`, else that."""
        if self.local_parallelism != -1:
            return self.local_parallelism
        preferred = self.preferred_local_parallelism
        return default if preferred == -1 else min(preferred, default)

    @property
    def meta_supplier(self) -> ProcessorMetaSupplier:
        """The supplier, wrapped as a meta-supplier unless it is one."""
        return ProcessorMetaSupplier.of(self.supplier)

    def update_supplier(self, wrap: Callable[[VertexSupplier], VertexSupplier]) -> Vertex:
        """Replace the supplier by what `wrap` makes of it; return the vertex."""
        self.supplier = _checked_supplier(self.name, wrap(self.supplier))
        return self

    def describe_supplier(self) -> str:
        """Short name of what makes the processors, for drawings and messages."""
        supplier = made_by(self.supplier)
        name = getattr(supplier, "__name__", None)
        return str(name) if name else type(supplier).__name__

    def __repr__(self) -> str:
        parallelism = "" if self.local_parallelism == -1 else f", local_parallelism={self.local_parallelism}"
        return f"Vertex({self.name!r}, {self.describe_supplier()}{parallelism})"


def _checked_supplier(name: str, supplier: Any) -> Any:
    if isinstance(supplier, ProcessorSupplier | ProcessorMetaSupplier):
        return supplier
    if isinstance(supplier, Processor):
        raise DagError(
            f"vertex {name!r}: got a {type(supplier).__name__} object; pass its class or a function that makes one, "
            "because every processor needs an object of its own"
        )
    if isinstance(supplier, type) and issubclass(supplier, ProcessorSupplier | ProcessorMetaSupplier):
        raise DagError(
            f"vertex {name!r}: got the class {supplier.__name__}; pass an object of it: {supplier.__name__}(...)"
        )
    if not callable(supplier):
        raise DagError(
            f"vertex {name!r}: expected a Processor class, a function without arguments, a ProcessorSupplier or a "
            f"ProcessorMetaSupplier, got {supplier!r} ({type(supplier).__name__})"
        )
    _check_no_arguments(name, supplier)
    return supplier


def _check_no_arguments(name: str, factory: Callable[..., Any]) -> None:
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):  # some builtins have none
        return
    try:
        signature.bind()
    except TypeError as error:
        called = getattr(factory, "__name__", repr(factory))
        raise DagError(
            f"vertex {name!r}: {called}{signature} cannot be called without arguments ({error}); "
            f"pass lambda: {called}(...) instead"
        ) from None
