"""What the sources and sinks of a pipeline are on Spark: done in tasks, done by the driver, or not possible.

It looks at who makes a stage's processors. What belongs to an instance (maps and lists) goes through the driver, which
has the instance; what must not be done twice, or by another host than the user's, is refused. Must not know RDDs.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

from shmjet.core.processor import CommittingSupplier, FactorySupplier, ProcessorMetaSupplier, supplier_for_all
from shmjet.data.errors import PlanError
from shmjet.pipeline.definitions import SinkDef, SourceDef, StreamSourceDef
from shmjet.processors.checks.assertion_sinks import (
    AssertAnyOrderProcessor,
    AssertCollectedEventuallyProcessor,
    AssertCollectedProcessor,
    AssertContainsProcessor,
    AssertOrderedProcessor,
)
from shmjet.processors.files.record_sink import RecordSinkSupplier
from shmjet.processors.general.base import Supply
from shmjet.processors.general.collect import CollectSupplier
from shmjet.processors.general.generate import ItemsProcessor
from shmjet.processors.general.observable_sink import WriteObservableSupplier
from shmjet.processors.general.sockets import ReadLinesProcessor, WriteSocketProcessor
from shmjet.processors.grid.maps_and_lists import (
    ReadListProcessor,
    ReadMapProcessor,
    WriteListProcessor,
    WriteMapProcessor,
)
from shmjet.processors.grid.partitioned_items import PartitionedMapProcessor
from shmjet.spark.back.sinks import SparkSinkSupplier
from shmjet.spark.feed import SparkSource, StreamSource


class Place(enum.Enum):
    """Where an end is done."""

    TASKS = "tasks"
    """By a processor in each task."""
    GIVEN = "given"
    """The items of a source are at hand in the driver."""
    INSTANCE = "instance"
    """By the driver, on the maps and lists of an instance."""
    DRIVER = "driver"
    """By the driver, from all that comes."""
    FILES = "files"
    """By tasks that write files; the driver gives them their names."""
    SPARK = "spark"
    """By Spark's own readers and writers: `shmjet.spark.source` and `sink`."""


@dataclass(frozen=True)
class End:
    """How a source or a sink is done.

    Args:
        place: where.
        what: in a few words.
    """

    place: Place
    what: str


def source_end(stage: str, source: SourceDef[Any]) -> End:
    """Return how a source is done on Spark.

    Args:
        stage: its name, for messages.

    Raises:
        PlanError: it cannot be; the text names the stage.
    """
    if isinstance(source, StreamSourceDef):
        raise PlanError(
            f"{stage}: an endless source cannot be run on Spark, only what is bounded; jet.new_job(pipeline) runs it"
        )
    if isinstance(source, StreamSource):
        raise PlanError(f"{stage}: a streaming DataFrame has no end, and only what is bounded can be run on Spark")
    if isinstance(source, SparkSource):
        return End(Place.SPARK, "its rows never leave Spark: batches in the tasks that read them")
    kind = processor_of(source.supplier)
    if kind is ItemsProcessor:
        return End(Place.GIVEN, "items that travel with the job")
    if kind in (ReadMapProcessor, ReadListProcessor, PartitionedMapProcessor):
        return End(Place.INSTANCE, "read by the driver from the instance")
    if kind is ReadLinesProcessor:
        raise PlanError(
            f"{stage}: a socket cannot be read on Spark: a task that is done again would find it read; let Spark read "
            "the stream, or write it to files first"
        )
    if source.expand is not None:
        raise PlanError(f"{stage}: a source of several vertices cannot run on Spark; use a source of one processor")
    if isinstance(source.supplier, ProcessorMetaSupplier) and supplier_for_all(source.supplier) is None:
        return End(Place.TASKS, "found by the driver, shared out to the tasks, which must reach the same files")
    return End(Place.TASKS, "each task emits its share")


_ASSERTING = (
    AssertOrderedProcessor,
    AssertAnyOrderProcessor,
    AssertContainsProcessor,
    AssertCollectedProcessor,
    AssertCollectedEventuallyProcessor,
)
"""What looks at all items together."""


def sink_end(stage: str, sink: SinkDef[Any]) -> End:
    """Return how a sink is done on Spark.

    Raises:
        PlanError: it cannot be; the text names the stage.
    """
    supplier = sink.supplier
    if isinstance(supplier, SparkSinkSupplier):
        return End(Place.SPARK, "written by Spark's writer once everything else has succeeded")
    if isinstance(supplier, RecordSinkSupplier):
        return End(Place.FILES, "a file for each partition, renamed by the driver when the job has succeeded")
    if isinstance(supplier, CollectSupplier):
        return End(Place.DRIVER, "collected by the driver")
    kind = processor_of(supplier)
    if sink.expand is not None:
        if kind is not WriteMapProcessor:
            raise PlanError(f"{stage}: a sink of several vertices cannot run on Spark; use a sink of one processor")
        return End(Place.INSTANCE, "collected, and merged into the instance's map by the driver")
    if kind in (WriteListProcessor, WriteMapProcessor):
        return End(Place.INSTANCE, "collected, and written to the instance by the driver when the job has succeeded")
    if kind in _ASSERTING:
        return End(Place.DRIVER, "collected and compared by the driver")
    if isinstance(supplier, WriteObservableSupplier):
        raise PlanError(
            f"{stage}: an observable shows what a job of shmjet writes while it runs, and Spark's tasks have no member "
            "to write to; write files, or collect() the results"
        )
    if kind is WriteSocketProcessor:
        raise PlanError(
            f"{stage}: a socket cannot be written on Spark: a task that is done again would send its lines twice; "
            "write files, or collect() the results"
        )
    if isinstance(supplier, ProcessorMetaSupplier) and supplier_for_all(supplier) is None and kind is None:
        raise PlanError(
            f"{stage}: {type(supplier).__name__} decides for the members of a cluster, which Spark has not; write "
            "files, collect() the results, or use shmjet.spark.sink()"
        )
    if isinstance(supplier_for_all(supplier), CommittingSupplier):
        raise PlanError(
            f"{stage}: a sink with commit_fn or abort_fn has to learn how the whole job has ended, and a task of Spark "
            "ends before that; write files, collect() the results, or use shmjet.spark.sink()"
        )
    return End(Place.TASKS, "each task takes its share; a task that Spark repeats takes it again")


def needs_instance(stage: str, name: str, instances: int) -> PlanError:
    """Return the error for a stage that needs an instance, where this process has none or several."""
    found = f"{instances} are open in this process" if instances else "none is open in this process"
    return PlanError(
        f"{stage}: {name} belongs to an instance of shmjet, and {found}; pass one, run_on_spark(spark, jet=instance), "
        "or use files, collect() or shmjet.spark.sink()"
    )


def processor_of(supplier: Any) -> Any:
    """Return the class of the processors that a supplier makes, where it says so; None elsewhere."""
    found = supplier
    for _ in range(4):
        if isinstance(found, Supply):
            return found.processor
        if isinstance(found, FactorySupplier):
            found = found.factory
        elif isinstance(found, ProcessorMetaSupplier):
            found = getattr(found, "supplier", None)
        else:
            return found if isinstance(found, type) else None
    return None


def supply_of(supplier: Any) -> Supply:
    """Return the supply behind a supplier for which `processor_of` has found a class of this package."""
    found = supplier
    while not isinstance(found, Supply):
        found = found.factory if isinstance(found, FactorySupplier) else found.supplier
    return found
