"""The client's end of a feed that Spark's JVM writes itself: compiles the writer and runs it over a DataFrame's rows.

The writer is Java source (`source.py`) that Spark compiles in each of its processes with the compiler that it
ships for the code of its own queries (Janino), so nothing has to be installed or added to the session. It talks to the
job as a Python worker does, with the same messages and the same rules; it opens memory and files by path, since
Java takes no descriptors from a socket.

All that is used of Spark is public in bytecode but not meant for others: where anything of it is missing or of another
shape, there is no such writer, and the next rung of `shmjet.spark.row_readers` reads. The source is compiled once in
the driver, so that this shows before the job starts. It needs Java 16 (Unix sockets).
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, replace
from typing import Any

from shmjet.spark.direct.source import is_writable, schema_text, source_of
from shmjet.spark.links import Destination
from shmjet.spark.schema import Field

SETTING = "spark.shmjet.direct"
"""Setting of a session that turns this way off (`false`)."""

_log = logging.getLogger("shmjet.spark")


@dataclass(frozen=True)
class DirectFeed:
    """A Spark job that is ready to be told where to write.

    Args:
        context: the SparkContext.
        code: the writer's source, as Spark wants it.
        rows: RDD of the rows, on the JVM's side.
        schema: their schema, on the JVM's side.
        columns: how batches describe it.
        batch_rows: rows of a batch, at most.
    """

    context: Any
    code: Any
    rows: Any
    schema: Any
    columns: str
    batch_rows: int

    def on(self, rows: Any) -> DirectFeed:
        """Return the same for another RDD of such rows."""
        return replace(self, rows=rows)

    def run(self, destination: Destination) -> list[tuple[int, int, int, int]]:
        """Run it and return the receipts. Raises what PySpark raises."""
        told = _receipts(self.rows, _writer(self.context, self.code, self._references(destination)))
        return [tuple(receipt) for receipt in json.loads(told)]

    def _references(self, to: Destination) -> Any:
        """Return what the writer is told, in the order that it knows."""
        texts = [to.member_socket, to.execution_id, to.feed, to.processors, to.round, str(to.streams).lower()]
        values = [*map(str, (*texts, self.batch_rows)), self.columns, self.schema, *to.host]
        references = self.context._gateway.new_array(self.context._jvm.java.lang.Object, len(values))
        for place, value in enumerate(values):
            references[place] = value
        return references


def direct_feed(df: Any, fields: tuple[Field, ...], batch_rows: int) -> DirectFeed | None:
    """Return the feed of a DataFrame; None where there is none: of some types, in some versions of Spark and Java.

    Raises:
        Exception: what PySpark raises when it plans the DataFrame.
    """
    from py4j.protocol import Py4JError

    if not is_writable(fields) or df.sparkSession.conf.get(SETTING, "true").lower() == "false":
        return None
    context = df.sparkSession.sparkContext
    columns = schema_text(fields)
    try:
        columns.encode()
        code = load_compiled(context._jvm, source_of(fields, [field.nullable for field in df.schema.fields]))
        _writer(context, code, context._gateway.new_array(context._jvm.java.lang.Object, 0))
    except (Py4JError, TypeError, UnicodeEncodeError) as error:
        _log.debug("Spark's JVM cannot write for the job itself, so its Python workers do: %s", error)
        return None
    return DirectFeed(context, code, df._jdf.queryExecution().toRdd(), df._jdf.schema(), columns, batch_rows)


def load_compiled(jvm: Any, source: str) -> Any:
    """Return source as Spark takes it, after compiling it here. Raises Py4JError or TypeError where that fails."""
    codegen = jvm.org.apache.spark.sql.catalyst.expressions.codegen
    comments = jvm.org.apache.spark.api.python.PythonUtils.toScalaMap({})
    code = codegen.CodeAndComment(source, comments)
    codegen.CodeGenerator.compile(code)
    return code


def _writer(context: Any, code: Any, references: Any) -> Any:
    """Return what makes the writer in a task: what Spark itself uses for the code that it generates."""
    from py4j.protocol import Py4JError

    jvm = context._jvm
    execution = jvm.org.apache.spark.sql.execution
    metric = execution.metric.SQLMetrics.createMetric(context._jsc.sc(), "shmjet")
    try:
        return execution.WholeStageCodegenEvaluatorFactory(code, metric, references)
    except Py4JError:  # since Spark 4.2 the code may also be a broadcast
        return execution.WholeStageCodegenEvaluatorFactory(jvm.scala.util.Right(code), metric, references)


def _receipts(rows: Any, writer: Any) -> str:
    """Run the writer over an RDD of rows; returns its receipts as text."""
    written = rows.mapPartitionsWithEvaluator(writer, rows.elementClassTag())
    return str(written.toJavaRDD().collect().toString())
