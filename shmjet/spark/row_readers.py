"""How rows get out of Spark's JVM fastest: a ladder, of which the first rung that is there holds.

0. `direct`: Spark's JVM writes batches into the job's memory itself (`shmjet.spark.direct`), without a Python worker.
   Only for a job of the engine, and columns of plain types.
1. `frames`: Spark's JVM writes record batches (`Dataset.toArrowBatchRdd` of Spark 4: rows of a batch, time zone,
   doubled names, large offsets), bytes that Python never looks at on the way.
2. `plain_frames`: the same of Spark 3.x, which takes the rows of a batch from the session's configuration.
3. `raw_rows`: rows as the JVM pickles them for Python, read without making `Row` objects.
4. `rows`: `df.rdd`.

1 to 4 pass through Spark's Python workers, and are read strictly there. What 0 to 3 use is Spark's own, not public in
Scala but in bytecode, so each rung is probed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shmjet.data.errors import ConfigError
from shmjet.spark.direct import DirectFeed, direct_feed
from shmjet.spark.links import Destination
from shmjet.spark.protocol import Content
from shmjet.spark.rows import Chunk, ElementChunks, RowChunks
from shmjet.spark.schema import Field, fields_of
from shmjet.spark.task import FeedTask

_BATCH_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_TIME_ZONE = "spark.sql.session.timeZone"
MANY = 1024
"""More partitions than these are joined to fewer tasks first: a Python task costs some 25 ms."""


@dataclass(frozen=True)
class Prepared:
    """A Spark job that is ready to run.

    Args:
        rung: by which way it reads.
        rdd: PySpark's.
        partitions: of it.
        content, chunks: what `FeedTask` makes frames of.
        direct: what runs in Spark's JVM instead of a `FeedTask`.
        is_indeterminate: whether Spark says that a partition that is computed again may have other rows.
    """

    rung: str
    rdd: Any
    partitions: int
    content: Content | None
    chunks: Chunk | None
    is_indeterminate: bool
    direct: DirectFeed | None = None

    def run(self, destination: Destination) -> list[tuple[int, int, int, int]]:
        """Run it and return the receipts. Raises what PySpark raises."""
        from shmjet.spark.strict import StrictSerializer

        if self.direct is not None:
            return self.direct.run(destination)
        mapped = self.rdd.mapPartitionsWithIndex(FeedTask(destination, self.content, self.chunks))
        if self.content is None:
            mapped._prev_jrdd_deserializer = StrictSerializer(mapped._prev_jrdd_deserializer)
        receipts: list[tuple[int, int, int, int]] = mapped.collect()
        return receipts


@dataclass(frozen=True)
class _RowSource:
    """Where a rung gets its elements: a JavaRDD with a deserializer, or an RDD of PySpark's; and what they are."""

    jrdd: Any
    deserializer: Any
    content: Content | None
    internal: bool
    direct: DirectFeed | None = None


Rung = Callable[[Any, int], _RowSource | None]


def direct(df: Any, batch_rows: int) -> _RowSource | None:
    """Have Spark's JVM write into the job's memory; None where it cannot."""
    found = direct_feed(df, fields_of(df), batch_rows)
    return None if found is None else _RowSource(found.rows.toJavaRDD(), None, None, True, found)


def frames(df: Any, batch_rows: int) -> _RowSource | None:
    """Have Spark 4 write record batches; None where it cannot."""
    found = call_scala(df._jdf, "toArrowBatchRdd", batch_rows, "UTC", False, True)
    return None if found is None else _arrow(found, Content.ARROW_LARGE)


def plain_frames(df: Any, batch_rows: int) -> _RowSource | None:
    """Have Spark 3 write record batches; None where it cannot."""
    conf = df.sparkSession.conf
    before = {key: conf.get(key, None) for key in (_BATCH_ROWS, _TIME_ZONE)}
    conf.set(_BATCH_ROWS, str(batch_rows))
    conf.set(_TIME_ZONE, "UTC")
    try:
        found = call_scala(df._jdf, "toArrowBatchRdd")
    finally:
        for key, value in before.items():
            conf.unset(key) if value is None else conf.set(key, value)
    return None if found is None else _arrow(found, Content.ARROW)


def raw_rows(df: Any, batch_rows: int) -> _RowSource | None:
    """Have the JVM pickle rows; None where it cannot."""
    from shmjet.spark.strict import StrictRows

    found = call_scala(df._jdf, "javaToPython")
    return None if found is None else _RowSource(found, StrictRows(), None, True)


def rows(df: Any, batch_rows: int) -> _RowSource | None:
    """Take `df.rdd`, which is always there."""
    rdd = df.rdd
    return _RowSource(rdd._jrdd, rdd._jrdd_deserializer, None, False)


LADDER: tuple[Rung, ...] = (direct, frames, plain_frames, raw_rows, rows)


def prepare_dataframe(df: Any, fields: tuple[Field, ...], batch_rows: int, by_path: bool = False) -> Prepared:
    """Return the job that reads a DataFrame by the first rung there is.

    Args:
        df: the DataFrame.
        fields: of its columns.
        batch_rows: rows of a frame, at most.
        by_path: whether there is a job whose memory Spark's JVM can open, so that `direct` may be tried.
    """
    from pyspark import RDD

    sc = df.sparkSession.sparkContext
    df = _of_fewer_partitions(df, sc)
    for rung in LADDER:
        row_source = None if rung is direct and not by_path else rung(df, batch_rows)
        if row_source is not None:
            break
    else:
        raise ConfigError("spark.source: this Spark offers no way to read the DataFrame")
    jrdd = row_source.jrdd
    partitions = jrdd.getNumPartitions()
    if partitions > MANY:
        partitions = _enough(sc)
        jrdd = jrdd.coalesce(partitions)
    if row_source.direct is not None:
        found = row_source.direct.on(jrdd.rdd())
        return Prepared(rung.__name__, None, partitions, None, None, _is_indeterminate(jrdd), found)
    rdd: Any = RDD(jrdd, sc, row_source.deserializer)
    chunks = None if row_source.content is not None else RowChunks(fields, batch_rows, row_source.internal)
    return Prepared(rung.__name__, rdd, partitions, row_source.content, chunks, _is_indeterminate(jrdd))


def prepare_rdd(rdd: Any, columns: tuple[str, ...] | None, batch_rows: int) -> Prepared:
    """Return the job that reads an RDD."""
    partitions = rdd.getNumPartitions()
    if partitions > MANY:
        partitions = _enough(rdd.context)
        rdd = rdd.coalesce(partitions)
    jrdd = getattr(rdd, "_prev_jrdd", None) or rdd._jrdd
    chunks = ElementChunks(columns, batch_rows)
    return Prepared("rdd", rdd, partitions, None, chunks, _is_indeterminate(jrdd))


def _of_fewer_partitions(df: Any, sc: Any) -> Any:
    """Join very many partitions before record batches are made of them, each of which costs a millisecond.

    A plan that adapts itself tells its partitions only by running, and does not make that many.
    """
    plan = df._jdf.queryExecution()
    if "Adaptive" in plan.executedPlan().nodeName() or plan.toRdd().getNumPartitions() <= MANY:
        return df
    return df.coalesce(_enough(sc))


def _enough(sc: Any) -> int:
    return min(MANY, max(MANY // 4, 16 * int(sc.defaultParallelism)))


def _arrow(found: Any, content: Content) -> _RowSource:
    from shmjet.spark.strict import StrictFrames

    return _RowSource(found.toJavaRDD(), StrictFrames(), content, False)


def call_scala(target: Any, method: str, *arguments: Any) -> Any:
    """Call a method of a Java object; None when it has none that takes these arguments."""
    from py4j.protocol import Py4JError, Py4JJavaError

    try:
        return getattr(target, method)(*arguments)
    except Py4JJavaError:
        raise
    except (Py4JError, TypeError) as error:
        if "does not exist" in str(error) or "not callable" in str(error):
            return None
        raise


def _is_indeterminate(jrdd: Any) -> bool:
    """Ask Spark whether a partition that is computed again may hold other rows; where it does not tell, it may."""
    level = call_scala(jrdd.rdd(), "outputDeterministicLevel")
    return level is None or level.toString() == "INDETERMINATE"
