"""`source()`: a DataFrame or an RDD as a source of a pipeline, or as a vertex of a DAG."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from shmjet.core.checks import check_at_least
from shmjet.core.processor import Processor, ProcessorSupplier
from shmjet.data.errors import ConfigError
from shmjet.pipeline.definitions import SourceDef
from shmjet.spark.feed_processor import FeedProcessor
from shmjet.spark.protocol import Mode
from shmjet.spark.schema import NESTED, Field, fields_of, is_columnar

MEMORY = 256 << 20
"""Bytes of shared memory in which the rows of a feed wait, before files take over."""


class SparkSource(SourceDef[Any], ProcessorSupplier):
    """What `source` returns: takes part in a pipeline (`read_from`) and in a DAG (`new_vertex`).

    The process that executes the job must hold the SparkSession. A copy that was pickled can be
    planned, drawn and run by workers, but not executed by another client.
    """

    is_cooperative = True

    def __init__(
        self,
        name: str,
        fields: tuple[Field, ...],
        columnar: bool,
        memory: int,
        origin: Any,
        *,
        heads: bool = False,
    ) -> None:
        SourceDef.__init__(self, name, self, columnar=columnar)
        object.__setattr__(self, "heads", heads)
        object.__setattr__(self, "feed", f"spark-{uuid.uuid4().hex[:12]}")
        object.__setattr__(self, "fields", fields)
        object.__setattr__(self, "memory", memory)
        object.__setattr__(self, "origin", origin)

    feed: str
    fields: tuple[Field, ...]
    memory: int
    heads: bool
    """Each processor begins with a batch without rows, so that the columns are known where no row is left."""
    origin: Any

    def get(self, count: int) -> Sequence[Processor]:
        """Return the processors."""
        return [FeedProcessor(self.feed, self.fields, self.memory, self.heads) for _ in range(count)]

    def on_client(self, execution: Any, ties: Any) -> None:
        """Start Spark's job together with the engine's.

        Raises:
            ConfigError: this process does not hold the DataFrame, or a setting of Spark's would break the feed.
        """
        if self.origin is None:
            raise ConfigError(
                f"{self.name}: a job with spark.source() is executed by the process that made the source, which holds "
                "the SparkSession"
            )
        self.origin.begin(self, execution, ties)

    def prepare(self) -> Any:
        """Return the Spark job that reads the rows, for pipelines that run on Spark.

        Raises:
            ConfigError: this process does not hold the DataFrame, or it is a stream.
        """
        if self.origin is None or not hasattr(self.origin, "prepare"):
            raise ConfigError(f"{self.name}: only the process that made it can read it, and only bounded data at once")
        return self.origin.prepare()

    @property
    def column_names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(field.name for field in self.fields)

    @property
    def frame(self) -> Any:
        """The DataFrame whose rows they are; None for an RDD, a stream, and where it is another process'."""
        return self.origin.df if self.columnar and hasattr(self.origin, "df") else None

    def takes(self, condition: Any) -> bool:
        """Whether Spark can leave out the rows for which a condition is not true: it means the same there."""
        from shmjet.spark.expressions import NotOnSparkError, Translator

        if self.frame is None:
            return False
        try:
            Translator.of(self.frame).condition(condition)
        except NotOnSparkError:
            return False
        return True

    def narrowed(self, columns: tuple[str, ...] | None, conditions: tuple[Any, ...]) -> SparkSource:
        """Return a source of some columns, None for all, of the rows for which conditions are true.

        Args:
            columns: names; without any there is one column all the same, which says how many rows there are.
            conditions: of which this source takes each.
        """
        from shmjet.spark.expressions import NotOnSparkError, Translator, quoted

        df = self.frame
        if df is None:
            return self
        try:
            translator = Translator.of(df)
        except NotOnSparkError:
            return self
        for condition in conditions:
            df = df.where(translator.condition(condition))
        notes = []
        if columns is not None:
            chosen = columns or (min(self.fields, key=_cost).name,)
            df = df.select(*map(quoted, chosen))
            notes.append(f"Spark selects {', '.join(chosen)}")
        notes += [f"Spark gives only rows where {condition!r}" for condition in conditions]
        return self.made(df, notes)

    def telling_columns(self) -> SparkSource:
        """Return a source whose processors tell the columns also where there are no rows."""
        if self.frame is None:
            return self
        found = SparkSource(self.name, self.fields, bool(self.columnar), self.memory, self.origin, heads=True)
        object.__setattr__(found, "notes", self.notes)
        object.__setattr__(found, "parallelism", self.parallelism)
        return found

    def made(self, df: Any, notes: Sequence[str]) -> SparkSource:
        """Return a source of another DataFrame, which is made of this one's.

        Args:
            df: of columns that fit batches.
            notes: what `explain` says of it.
        """
        origin = self.origin.of(df)
        found = SparkSource(self.name, origin.fields, is_columnar(origin.fields), self.memory, origin, heads=self.heads)
        object.__setattr__(found, "notes", tuple(notes))
        object.__setattr__(found, "parallelism", self.parallelism)
        return found

    def __reduce__(self) -> Any:
        return _restored, (self.name, self.fields, self.columnar, self.memory, self.feed, self.heads)

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"SparkSource({self.name!r})"


class StreamSource(SparkSource):
    """What `source` returns for a streaming DataFrame: `foreach_batch` feeds the job that runs, `finish` ends it.

    Example:
        >>> feed = shmjet.spark.source(stream)                                    # doctest: +SKIP
        >>> execution = jet.new_job(p).execute()                                  # doctest: +SKIP
        >>> query = stream.writeStream.foreachBatch(feed.foreach_batch).start()   # doctest: +SKIP
        >>> query.stop(); feed.finish(); execution.result()                       # doctest: +SKIP
    """

    def foreach_batch(self, df: Any, batch_id: int) -> None:
        """Feed one micro-batch to the job's latest execution, and return when its rows count: once for each batch id.

        A batch that comes again after it counted is left out, as Structured Streaming asks of its sinks. Pass the
        method itself to `DataStreamWriter.foreachBatch`.

        Raises:
            FeedEndedError: no job is running that would take it.
        """
        assert self.origin is not None
        self.origin.micro_batch(df, batch_id)

    def finish(self) -> None:
        """Say that no batch will follow: the source ends when all rows have been emitted."""
        assert self.origin is not None
        self.origin.finish()


def source(
    df_or_rdd: Any,
    columns: Sequence[str] | None = None,
    batch_rows: int = 32768,
    deterministic: bool = False,
    *,
    memory: int = MEMORY,
) -> SparkSource:
    """Feed a DataFrame or an RDD into a job: each Spark partition becomes batches of columns, every row once.

    When the job is executed, a Spark job is started with it. Its tasks write into the running job's shared memory;
    neither pyarrow nor pandas is needed. When either side fails or is cancelled, so is the other.

    Rows of a partition are seen when Spark has finished the partition, so that what a failed task has sent is never
    seen; where Spark calls the data indeterminate, when it has finished all. Until then they wait in shared memory, and
    beyond `memory` in files.

    Each column is a column of the batch, of the same type: decimals are decimals, timestamps have the zone of the
    session (`spark.sql.session.timeZone`), arrays are lists and structs structs; nulls are in the batch's validity.
    With maps among the columns, rows become dicts instead of batches, as `Batch.rows()` gives them.

    The elements of an RDD become batches as well when the first is a row, a dict, a tuple or a plain value, which
    Spark is asked for here, as `toDF()` does, unless `columns` is given. Columns are named as Spark names them (`_1`,
    `_2` ... for tuples, `value` for plain values). Anything else arrives as it is.

    Args:
        df_or_rdd: a DataFrame, or an RDD. A streaming DataFrame gives a source with `foreach_batch` (`StreamSource`).
        columns: which columns, in this order; for an RDD of tuples, their names.
        batch_rows: rows of a batch at most. Lower it for very wide rows: Spark makes a batch in memory.
        deterministic: that Spark computes the same rows in the same order again (files, ranges, sorted or persisted
            data). Then rows are seen at once, and what a retry sends again is dropped; other rows fail the job.
        memory: bytes of shared memory in which rows wait, for the whole feed.

    Returns:
        A source for `Pipeline.read_from` and `DAG.new_vertex`.

    Raises:
        ConfigError: no DataFrame or RDD, a column that is not there or has no counterpart, a number below 1.

    Example:
        >>> flights = shmjet.spark.source(spark.read.parquet("flights"), columns=["carrier", "delay"])  # doctest: +SKIP
        >>> p.read_from(flights).map_batches(clean).write_to(sinks.map("delays"))                   # doctest: +SKIP
    """
    from shmjet.spark.lineage import of_dataframe, of_rdd

    check_at_least("spark.source: batch_rows", batch_rows, 1)
    check_at_least("spark.source: memory", memory, 1)
    if isinstance(columns, str):
        raise ConfigError(f"spark.source: columns is a sequence of names, got {columns!r}")
    names = None if columns is None else tuple(columns)
    mode = Mode.STREAM if deterministic else Mode.PARTITION
    if hasattr(type(df_or_rdd), "schema") and hasattr(df_or_rdd, "select"):
        df, origin = of_dataframe(df_or_rdd, names, batch_rows, mode, memory)
        fields = fields_of(df)
        kind = StreamSource if df.isStreaming else SparkSource
        return kind("spark", fields, is_columnar(fields), memory, origin)
    if hasattr(df_or_rdd, "mapPartitionsWithIndex") and hasattr(df_or_rdd, "getNumPartitions"):
        rdd = of_rdd(df_or_rdd, names, batch_rows, mode, memory)
        return SparkSource("spark", (), rdd.columns is not None, memory, rdd)
    raise ConfigError(
        f"spark.source: expected a DataFrame or an RDD of PySpark's, got {type(df_or_rdd).__name__}: {df_or_rdd!r:.80}"
    )


def _cost(field: Field) -> int:
    """Return how dear a column is that only says how many rows there are."""
    return {"bool": 0, "int8": 0, "int16": 1, "int32": 2, "date": 2, "float32": 2}.get(
        field.kind, 3 + 10 * (field.kind in NESTED)
    )


def _restored(name: str, fields: tuple[Field, ...], columnar: bool, memory: int, feed: str, heads: bool) -> SparkSource:
    found = SparkSource(name, fields, columnar, memory, None, heads=heads)
    object.__setattr__(found, "feed", feed)
    return found
