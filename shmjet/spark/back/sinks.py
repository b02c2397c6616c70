"""`sink`: the rows of a pipeline, written by Spark's writers when the job has succeeded.

Processors write column files; what Spark writes it reads from these. In the engine, the job's commit is what starts
Spark's writer: the meta-supplier asks the client, which has the session, and the job succeeds only if that does. So a
job that fails, or that Spark's writer fails, writes nothing, and no file is left. Stages that end in the same sink
share its files, and what they ask for together is one write. Must not know stages.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

from shmjet.core.processor import MetaSupplierContext, ProcessorMetaSupplier, ProcessorSupplier
from shmjet.data.errors import ConfigError
from shmjet.pipeline.definitions import SinkDef
from shmjet.processors.general.base import Supply
from shmjet.processors.general.client_ends import ClientEnds
from shmjet.spark.back.areas import new_area
from shmjet.spark.back.files import ColumnFileProcessor
from shmjet.spark.back.schemas import Column, columns_of, struct_of
from shmjet.spark.back.sink_client import AnswerServer, ask
from shmjet.spark.back.writer_options import WriterOptions, checked_options
from shmjet.spark.error_summary import told_by_spark
from shmjet.spark.errors import SparkError

BEGIN, COMMIT = "begin", "commit"
"""What the meta-supplier asks the client."""


def sink(
    spark: Any,
    schema: Any,
    path: str | os.PathLike[str] | None = None,
    *,
    format: str = "parquet",  # noqa: A002
    mode: str = "error",
    table: str | None = None,
    partition_by: Sequence[str] = (),
    options: Mapping[str, Any] | None = None,
    folder: str | os.PathLike[str] | None = None,
) -> SinkDef[Any]:
    """Write rows with Spark, once the whole job has succeeded; for pipelines in the engine and on Spark.

    Rows are dicts, tuples, dataclasses, single values of the only column, or batches; inside them, lists are arrays,
    dicts maps, tuples and dataclasses structs. Naive times are in UTC.

    Args:
        spark: a `SparkSession` of this process, which executes the job.
        schema: a `StructType`, DDL such as `"word string, n bigint"`, or a dict of names and types.
        path: where to write, as for `DataFrameWriter.save`; none for tables and JDBC.
        format: "parquet", "orc", "csv", "json", "text", "jdbc", or another format of Spark.
        mode: "error", "append", "overwrite" or "ignore", when there is something already.
        table: write a table of this name, with `saveAsTable`.
        partition_by: columns by which Spark makes folders.
        options: of the writer; for JDBC `url`, `dbtable` and the like.
        folder: a folder shared by all hosts, for intermediate files, when Spark's executors run on other hosts.

    Raises:
        ConfigError, TypeError: an argument makes no sense; the text names it.

    A value that does not fit its column makes the job fail with a `BatchError` that names column, value and partition.
    Several stages may be written to the same sink: what they have becomes one table, in one write.

    Example:
        >>> stage.write_to(shmjet.spark.sink(spark, "word string, n bigint", path="counts.parquet"))   # doctest: +SKIP
    """
    struct = struct_of(spark, schema)
    columns = columns_of(struct)
    writing = checked_options(path, format, mode, table, partition_by, options, [column.name for column in columns])
    destination = Destination(spark, struct, columns, writing, folder)
    return SinkDef(f"spark({writing.target})", SparkSinkSupplier(destination))


@dataclass(frozen=True)
class Destination:
    """Where rows go, and how: the arguments of `sink`, checked."""

    spark: Any
    struct: Any
    columns: tuple[Column, ...]
    writing: WriterOptions
    folder: str | os.PathLike[str] | None

    def elsewhere(self) -> Destination:
        """Return what of it is known outside the client, where nothing of Spark is."""
        return replace(self, spark=None, struct=None, folder=None)


class SparkSinkSupplier(ProcessorMetaSupplier):
    """Makes the processors in the engine; in the client, has Spark write their files when the job commits.

    A pickled copy knows the columns and the address of the client, and nothing of Spark.
    """

    is_cooperative = True

    def __init__(self, destination: Destination) -> None:
        self._destination = destination
        self.address = f"\0shmjet-spark-sink-{os.urandom(12).hex()}"
        """Where the client takes questions: an abstract Unix socket."""
        self._files = ""

    # -- in the worker that asks meta-suppliers -----------------------------------------------------------------

    def init(self, context: MetaSupplierContext) -> None:
        """Ask the client for the folder of this execution."""
        self._files = ask(self.address, BEGIN)

    def get(self, addresses: Sequence[str]) -> Mapping[str, ProcessorSupplier]:
        """Return a supplier that is the same everywhere."""
        supply = Supply(ColumnFileProcessor, self._files, self._destination.columns)
        return dict.fromkeys(addresses, ProcessorSupplier.of(supply))

    def commit(self) -> None:
        """Have the client write with Spark. Raises SparkError with what Spark says when that fails."""
        ask(self.address, COMMIT)

    # -- in the client ------------------------------------------------------------------------------------------

    def on_client(self, execution: Future[None], ties: object = None) -> None:
        """Be ready for the questions of an execution.

        Args:
            execution: which begins.
            ties: not needed: its processors are on this host.

        Raises:
            ShmjetError: the one before is still running.
            ConfigError: as `on_spark`.
        """
        _at_client.open(self.address, execution, self._open)

    def _open(self) -> _ClientEnd:
        return _ClientEnd(self.address, self.on_spark(self._destination.spark))

    def on_spark(self, spark: Any) -> OpenedSink:
        """Return the sink for one run of a job.

        Raises:
            ConfigError: there may be executors on other hosts, and no folder was named; or the session is another one.
        """
        if spark is not self._destination.spark:
            raise ConfigError("shmjet.spark.sink: its SparkSession is not the session that runs the job")
        return OpenedSink(self._destination)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_destination": self._destination.elsewhere()}


class OpenedSink:
    """The sink in one run: the folder of column files of all its stages, and their commit or removal."""

    def __init__(self, destination: Destination) -> None:
        self._destination = destination
        self._area = new_area(destination.spark, destination.folder)
        self._counted: list[str] | None = None
        self._written = False
        self._closed = False

    @property
    def folder(self) -> str:
        """Where processors put their files."""
        return str(self._area.path)

    def supply(self) -> Supply:
        """Return what makes the processors."""
        return Supply(ColumnFileProcessor, self.folder, self._destination.columns)

    def count(self, names: Iterable[str]) -> None:
        """Let these files count, and those of other calls: what is known only where tasks may be done again.

        Without a call, all files count that are there.
        """
        self._counted = [*(self._counted or ()), *names]

    def commit(self) -> str:
        """Have Spark write what all stages have brought, the first time; nothing is left to do for the next stage.

        Raises:
            SparkError: Spark's writer fails, or refuses; the text is Spark's.
        """
        if not self._written:
            self._write()
            self._written = True
        return ""

    def _write(self) -> None:
        names = self._counted
        if names is None:
            names = [name for name in os.listdir(self.folder) if name.endswith(".parquet")]
        paths = [os.path.join(self.folder, name) for name in sorted(names)]
        spark, struct = self._destination.spark, self._destination.struct
        reader = spark.read.schema(struct)
        try:
            frame = reader.parquet(*paths) if paths else spark.createDataFrame([], struct)
            self._destination.writing.write(frame)
        except Exception as error:
            raise SparkError("\n".join(filter(None, told_by_spark(error)))) from error

    def leave(self) -> None:
        """Close this thread's connection to Spark's JVM, which would stay open behind its end.

        As PySpark's own `InheritableThread` does it.
        """
        with contextlib.suppress(AttributeError, ValueError):
            client = self._destination.spark.sparkContext._gateway._gateway_client
            connection = client.get_thread_connection()
            if connection is not None:
                client.deque.remove(connection)
                connection.close()

    def close(self) -> None:
        """Remove the files."""
        if not self._closed:
            self._closed = True
            self._area.remove()


class _ClientEnd:
    """Answers the questions of one execution, and closes the sink behind it."""

    def __init__(self, address: str, opened: OpenedSink) -> None:
        self._opened = opened
        answers = {BEGIN: lambda: opened.folder, COMMIT: opened.commit}
        try:
            self._answer_server = AnswerServer(address, answers, opened.leave)
        except OSError:
            opened.close()
            raise

    def end(self) -> None:
        """Answer no longer; an answer that is being given is waited for."""
        self._answer_server.close()
        self._opened.close()


_at_client = ClientEnds("shmjet.spark.sink()")
