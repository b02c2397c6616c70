"""`SourceDef` and `SinkDef`: descriptions of the sources and sinks of a pipeline.

Plain descriptions: `shmjet.sources` and `shmjet.sinks` make them, the planner reads them. They must not know stages or
the planner, and hold nothing that cannot be pickled, because pipelines are picklable.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from shmjet.core.job import ProcessingGuarantee

if TYPE_CHECKING:
    from shmjet.core import DAG, Vertex

T_co = TypeVar("T_co", covariant=True)
T_contra = TypeVar("T_contra", contravariant=True)

Expansion = Callable[["DAG", str, int], "Vertex"]
"""Adds vertices to a DAG: called with the DAG, the stage's name and its local parallelism (-1: the default)."""


@dataclass(frozen=True)
class SourceDef(Generic[T_co]):
    """A source of items for `Pipeline.read_from`.

    Args:
        name: stem of the vertex' name.
        supplier: what `DAG.new_vertex` takes: a callable without arguments, a `ProcessorSupplier` or a
            `ProcessorMetaSupplier`. Its method `on_client(execution)`, if it has one, is called for each execution of
            the job, in the client and before the execution starts.
        parallelism: local parallelism that it prefers; -1: that of the supplier, else one processor per worker.
        partitions: how many partitions its items are in, None when that is not known. The items of a partition are
            emitted by one processor: the member that owns the partition deals its own in turn to its processors.
        partition_key: function of an item that gives the key by which the partitions are made, with `partitions`.
        columnar: its items are batches of columns; None: some may be, which shows when they come.
        expand: adds more vertices than one and returns the one whose output counts; then `supplier` is not used.
        guarantee: the strongest that it can keep: of each item, when the job goes on from a snapshot.

    Example:
        >>> SourceDef("numbers", supplier=None, parallelism=1).partitions is None
        True
    """

    name: str
    supplier: Any
    parallelism: int = -1
    partitions: int | None = None
    partition_key: Callable[[Any], Any] | None = None
    columnar: bool | None = False
    expand: Expansion | None = None
    guarantee: ProcessingGuarantee = ProcessingGuarantee.NONE

    def __repr__(self) -> str:
        return f"<source {self.name!r}>"


@dataclass(frozen=True, repr=False)
class StreamSourceDef(SourceDef[T_co]):
    """A source whose items never end, for `Pipeline.read_from`, which makes a `StreamStage` of it.

    Its `supplier` says `is_endless`, by which the engine knows too (`shmjet.execution.plan.policy_of`).
    """


@dataclass(frozen=True)
class SinkDef(Generic[T_contra]):
    """A sink for `Stage.write_to`.

    Args:
        name: stem of the vertex' name.
        supplier: what `DAG.new_vertex` takes. Its method `on_client(execution)`, if it has one, is called for each
            execution of the job, in the client and before the execution starts. Its method `after_sinks(suppliers)`,
            if it has one, gets the suppliers of the pipeline's earlier sinks and returns the supplier that takes its
            place.
        parallelism: local parallelism that it prefers; -1: that of the supplier, else one processor per worker. 1
            keeps the order of a single upstream processor.
        expand: adds more vertices than one and returns the one to connect to; then `supplier` is not used.
        partitions: how many partitions it writes to, None when it has none.
        by_row: it takes items only: the rows of batches come to it as dicts, one by one, as they do to `map`.
        single: all items go to one processor in the cluster.
        guarantee: the strongest that it can keep, in what it has written when the job has ended.

    Example:
        >>> SinkDef("list", supplier=None, parallelism=1).name
        'list'
    """

    name: str
    supplier: Any
    parallelism: int = -1
    expand: Expansion | None = None
    partitions: int | None = None
    by_row: bool = False
    single: bool = False
    guarantee: ProcessingGuarantee = ProcessingGuarantee.NONE

    def __repr__(self) -> str:
        return f"<sink {self.name!r}>"
