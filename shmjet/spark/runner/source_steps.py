"""The beginning of flows: RDDs of lists for each kind of source.

Must not know what follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

from shmjet.core.context import MetaSupplierContext, ProcessorContext
from shmjet.core.processor import ProcessorMetaSupplier, ProcessorSupplier
from shmjet.spark.mapping import head_of
from shmjet.spark.runner.ends import Place, supply_of
from shmjet.spark.runner.processor_host import hosted
from shmjet.spark.runner.rdd_blocks import lists_by, numbered, parallelized
from shmjet.spark.runner.spark_source import flow_of_frames
from shmjet.spark.runner.tasks import Host, Unpack, given_blocks
from shmjet.spark.runner.translation import Step
from shmjet.spark.runner.user_code import Code

_ADDRESSES = ("spark-0", "spark-1")
"""Two, as a meta-supplier lets the processors of one member share memory, which tasks do not have."""


def prepared_source(
    supplier: ProcessorMetaSupplier, context: MetaSupplierContext, opened: list[ProcessorMetaSupplier]
) -> ProcessorSupplier:
    """Return what makes a source's processors in tasks, after asking its meta-supplier here, in the driver.

    Args:
        supplier: it is asked for processors that share nothing.
        context: what it is told.
        opened: gets it, to be closed with the run.

    Raises:
        Exception: whatever it raises, such as a `FileNotFoundError`.
    """
    opened.append(supplier)
    supplier.init(context)
    found = supplier.get(_ADDRESSES)
    made = found(_ADDRESSES[0]) if callable(found) else found[_ADDRESSES[0]]
    return ProcessorSupplier.of(made)


def flow_of_source(step: Step, code: Code, spark: Any, jet: Any, tasks: int) -> Any:
    """Return the RDD of the lists of a source.

    Args:
        step: the source.
        code: of the run.
        spark: the session.
        jet: the instance whose maps and lists are read.
        tasks: how many partitions.
    """
    assert step.end is not None
    context = spark.sparkContext
    match step.end.place:
        case Place.GIVEN:
            return _parallelized(context, supply_of(step.supplier).args[0], tasks)
        case Place.INSTANCE:
            return _parallelized(context, _read_here(step, jet), tasks)
        case Place.SPARK:
            source: Any = step.definition
            flow = flow_of_frames(step.name, source)
            if source.heads and not flow.getNumPartitions():  # Spark knows that there are no rows
                return _parallelized(context, [head_of(source.fields)], 1)
            return flow
    return lists_by(numbered(context, tasks), Host(code, step.name, tasks))


def _parallelized(context: Any, items: Sequence[Any], tasks: int) -> Any:
    return lists_by(parallelized(context, given_blocks(items, tasks)), Unpack())


def _read_here(step: Step, jet: Any) -> list[Any]:
    """Return all that a source reads from an instance."""
    context = ProcessorContext(vertex_name=step.name, grid=jet, partition_count=jet.config.partition_count)
    return list(chain.from_iterable(hosted(supply_of(step.supplier)(), context, ())))
