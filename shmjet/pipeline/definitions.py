"""`SourceDef` and `SinkDef`: descriptions of the sources and sinks of a pipeline.

Plain descriptions: `shmjet.sources` and `shmjet.sinks` make them, the planner reads them. They must not know stages or
the planner, and hold nothing that cannot be pickled, because pipelines are picklable.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from shmjet.core.durations import Duration, milliseconds
from shmjet.core.event_time import EventTimePolicy
from shmjet.core.job import ProcessingGuarantee

if TYPE_CHECKING:
    from shmjet.core import DAG, Vertex

T_co = TypeVar("T_co", covariant=True)
T_contra = TypeVar("T_contra", contravariant=True)
Src = TypeVar("Src", bound="StreamSourceDef[Any]")

Expansion = Callable[["DAG", str, int], "Vertex"]
"""Adds vertices to a DAG: called with the DAG, the stage's name and its local parallelism (-1: the default)."""


@dataclass(frozen=True)
class SourceDef(Generic[T_co]):
    """A source of items for `Pipeline.read_from`.

    Args:
        name: stem of the vertex' name.
        supplier: what `DAG.new_vertex` takes: a callable without arguments, a `ProcessorSupplier` or a
            `ProcessorMetaSupplier`. Its method `on_client(execution, ties)`, if it has one, is called for each
            execution of the job, in the client and before it starts; `ties` lead to the member
            (`shmjet.cluster.client.client_ties`).
        parallelism: local parallelism that it prefers; -1: that of the supplier, else one processor per worker.
        partitions: how many partitions its items are in, None when that is not known. The items of a partition are
            emitted by one processor: the member that owns the partition deals its own in turn to its processors.
        partition_key: function of an item that gives the key by which the partitions are made, with `partitions`.
        columnar: its items are batches of columns; None: some may be, which shows when they come.
        expand: adds more vertices than one and returns the one whose output counts; then `supplier` is not used.
        guarantee: the strongest that it can keep: of each item, when the job goes on from a snapshot.
        notes: what `explain` says of it.
        nbytes: how many bytes of batches it gives, about; None when that is not known. What is small is sent to every
            processor of a join.

    A source of batches that can leave out columns and rows has `column_names` (None: not known before the job),
    `takes(condition)`, whether it can leave out the rows for which an expression is not true, and
    `narrowed(columns, conditions)`, which returns such a source that reads no more than that; see the planner's
    `pushdown`. One whose items do not tell the columns where there are no rows may have `telling_columns()`, which
    returns such a source that begins or ends with a batch without rows then.

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
    notes: tuple[str, ...] = ()
    nbytes: int | None = None

    def __repr__(self) -> str:
        return f"<source {self.name!r}>"


@dataclass(frozen=True, repr=False)
class BatchSourceDef(SourceDef[T_co]):
    """A source of batches whose columns are known before the job; it leaves out none.

    Args:
        column_names: of all its batches, in the order of the first; None: they differ.
    """

    column_names: tuple[str, ...] | None = None


@dataclass(frozen=True, repr=False)
class StreamSourceDef(SourceDef[T_co]):
    """A source whose items never end, for `Pipeline.read_from`, which makes a `StreamSourceStage` of it.

    Its `supplier` says `is_endless`, by which the engine knows too (`shmjet.execution.plan.policy_of`). The three
    settings of its time, durations in seconds or as `timedelta`, change the source and return it; a pipeline sees what
    they are when it is planned.

    Args:
        timed: makes the supplier for an `EventTimePolicy`, where the source keeps the time of its own partitions: it
            emits timed items (batches with `policy.column`) and watermarks. None: it gives bare items by `supplier`,
            and a vertex behind it makes timestamps and watermarks.
        has_native_timestamps: it has timestamps of its own, for the policy "native"; then it has `timed`.
        time_column: where its items are batches, the column that gets native timestamps and those of ingestion.
        partition_idle_timeout, advance_when_idle, max_skew: milliseconds or None, as of `EventTimePolicy`.

    Example:
        >>> StreamSourceDef("clicks", supplier=None).set_partition_idle_timeout(2.5).partition_idle_timeout
        2500
    """

    timed: Callable[[EventTimePolicy], Any] | None = None
    has_native_timestamps: bool = False
    time_column: str = "timestamp"
    partition_idle_timeout: int | None = field(default=60_000, compare=False)
    advance_when_idle: int | None = field(default=None, compare=False)
    max_skew: int | None = field(default=None, compare=False)

    def set_partition_idle_timeout(self: Src, duration: Duration | None = 60) -> Src:
        """Set after how much silence a partition of the source holds the watermark back no longer.

        Args:
            duration: in seconds or as a `timedelta`; None: it always holds it back.

        Raises:
            TypeError: it is not a duration. ConfigError: it is below a millisecond.
        """
        return self._set("partition_idle_timeout", duration)

    def set_advance_when_idle(self: Src, duration: Duration | None = None) -> Src:
        """Set after how much silence the time of a partition goes on at the pace of the wall clock.

        Args:
            duration: in seconds or as a `timedelta`; None: it stands still.

        Raises:
            TypeError: it is not a duration. ConfigError: it is below a millisecond.
        """
        return self._set("advance_when_idle", duration)

    def set_max_skew(self: Src, duration: Duration | None = None) -> Src:
        """Set how far ahead of the others a partition may be, by event time, before it waits for them.

        The others are the partitions of all sources of the job with event time that run on the same member, also
        those without this setting. A partition without an event yet is behind all others, an idle one holds nothing
        back. What a source gives in one call may take it further ahead. Sources on other members are not asked.

        Args:
            duration: in seconds or as a `timedelta`; None: as far as it likes.

        Raises:
            TypeError: it is not a duration. ConfigError: it is below a millisecond.
        """
        return self._set("max_skew", duration)

    def _set(self: Src, name: str, duration: Duration | None) -> Src:
        value = None if duration is None else milliseconds(f"source {self.name!r}: {name}", duration)
        object.__setattr__(self, name, value)
        return self

    def supplier_for(self, policy: EventTimePolicy | None) -> Any:
        """Return what `DAG.new_vertex` takes.

        Args:
            policy: what its timestamps and watermarks are; None: bare items and no watermarks. A source without `timed`
                gives bare items with a policy, too.
        """
        return self.supplier if policy is None or self.timed is None else self.timed(policy)


@dataclass(frozen=True)
class SinkDef(Generic[T_contra]):
    """A sink for `Stage.write_to`.

    Args:
        name: stem of the vertex' name.
        supplier: what `DAG.new_vertex` takes. Its method `on_client(execution, ties)`, if it has one, is called for
            each execution of the job, in the client and before it starts. Its method `after_sinks(suppliers)`, if it
            has one, gets the suppliers of the pipeline's earlier sinks and returns the supplier that takes its
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
