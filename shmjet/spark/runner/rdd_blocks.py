"""RDDs of blocks: the few calls of PySpark by which items move, are cached and come to the driver.

Blocks cross the border between Python and the JVM as they are: neither side pickles them. What is used of PySpark is
what its own `partitionBy` uses, and has been there, unchanged, since Spark 1. Must not know pipelines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from pyspark import RDD, StorageLevel
from pyspark.serializers import NoOpSerializer

Rdd = Any
"""An RDD; PySpark's own class is not generic in all versions."""

Task = Callable[[int, Iterable[Any]], Iterator[Any]]

_PARTITIONER = 0x73686D6A6574
"""Names our way of partitioning to the JVM: RDDs that are partitioned by it into equally many parts lie alike."""


def lists_by(rdd: Rdd, task: Task) -> Rdd:
    """Return the RDD of what a task makes of each partition; where items lie does not change."""
    return rdd.mapPartitionsWithIndex(task, preservesPartitioning=True)


def blocks_by(rdd: Rdd, task: Task) -> Rdd:
    """Return the RDD of the blocks that a task makes of each partition; where items lie does not change."""
    return _raw(rdd.mapPartitionsWithIndex(task, preservesPartitioning=True))


def _raw(rdd: Rdd) -> Rdd:
    """Let an RDD of bytes reach the JVM without being pickled."""
    rdd._bypass_serializer = True
    _ = rdd._jrdd  # sets the serializer that readers look at
    return rdd


def shuffled(rdd: Rdd, split: Task, targets: int) -> Rdd:
    """Return the RDD of the blocks for each target.

    Args:
        split: a task that gives target, block, target, block, ...
        targets: number of partitions.
    """
    split_rdd = _raw(rdd.mapPartitionsWithIndex(split))
    context = rdd.ctx
    pairs = context._jvm.PairwiseRDD(split_rdd._jrdd.rdd()).asJavaPairRDD()
    partitioner = context._jvm.PythonPartitioner(targets, _PARTITIONER)
    return RDD(context._jvm.PythonRDD.valueOfPair(pairs.partitionBy(partitioner)), context, NoOpSerializer())


def united(rdds: Sequence[Rdd]) -> Rdd:
    """Return the union of RDDs of blocks: partition by partition where all lie alike, else one behind the other."""
    return rdds[0] if len(rdds) == 1 else rdds[0].ctx.union(list(rdds))


def cached(rdd: Rdd) -> Rdd:
    """Let the blocks of an RDD be computed once, and kept in memory or on the disks of the executors."""
    return rdd.persist(StorageLevel.MEMORY_AND_DISK)


def parallelized(context: Any, parts: Sequence[Sequence[bytes]]) -> Rdd:
    """Return an RDD with a partition for each sequence of blocks."""
    if not parts:
        parts = [()]
    return context.parallelize(list(map(tuple, parts)), len(parts)).mapPartitionsWithIndex(_flat)


def _flat(_index: int, parts: Iterable[Sequence[bytes]]) -> Iterator[bytes]:
    return (block for part in parts for block in part)


def numbered(context: Any, count: int) -> Rdd:
    """Return an RDD of so many empty partitions."""
    return context.parallelize((), count)


def collected(rdd: Rdd) -> list[bytes]:
    """Return the blocks of all partitions, in their order."""
    blocks: list[bytes] = rdd.collect()
    return blocks
