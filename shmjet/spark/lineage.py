"""Where a source's rows come from: what the client keeps of a DataFrame, an RDD or a stream."""

from __future__ import annotations

import threading
from typing import Any

from shmjet.data.errors import ConfigError, ShmjetError
from shmjet.spark.errors import FeedEndedError
from shmjet.spark.feed_client import Feed, FeedThread, reached_at
from shmjet.spark.protocol import Mode
from shmjet.spark.row_readers import Prepared, prepare_dataframe, prepare_rdd
from shmjet.spark.rows import names_of
from shmjet.spark.schema import fields_of
from shmjet.spark.settings import check_settings


class _Bounded:
    """A DataFrame or an RDD: one Spark job for each execution."""

    def __init__(self, context: Any, mode: Mode, memory: int) -> None:
        self.context = context
        self.mode = mode
        self.memory = memory
        self.rung = ""
        """By which way the latest execution read."""

    def prepare(self, by_path: bool = False) -> Prepared:
        """Return the Spark job.

        Args:
            by_path: whether Spark's JVM may write into the job's memory itself, which it opens by path.
        """
        raise NotImplementedError

    def _prepare(self, by_path: bool) -> Prepared:
        prepared = self.prepare(by_path)
        self.rung = prepared.rung
        return prepared

    def begin(self, source: Any, execution: Any, ties: Any) -> None:
        """Start the Spark job of an execution that is about to start."""
        check_settings(self.context.getConf(), self.memory)
        thread = FeedThread(
            Feed(source.feed, execution, ties, reached_at(self.context)), self.context, self._prepare, self.choose
        )
        execution.add_done_callback(thread.ended)
        thread.start()

    def choose(self, prepared: Prepared) -> Mode:
        return Mode.ROUND if prepared.is_indeterminate and self.mode is Mode.PARTITION else self.mode


class _DataFrame(_Bounded):
    def __init__(self, df: Any, batch_rows: int, mode: Mode, memory: int) -> None:
        super().__init__(df.sparkSession.sparkContext, mode, memory)
        self.df = df
        self.fields = fields_of(df)
        self.batch_rows = batch_rows

    def of(self, df: Any) -> _DataFrame:
        """Return the same of another DataFrame that is made of this one."""
        return _DataFrame(df, self.batch_rows, self.mode, self.memory)

    def prepare(self, by_path: bool = False) -> Prepared:
        return prepare_dataframe(self.df, self.fields, self.batch_rows, by_path)


class _Rdd(_Bounded):
    def __init__(self, rdd: Any, columns: tuple[str, ...] | None, batch_rows: int, mode: Mode, memory: int) -> None:
        super().__init__(rdd.context, mode, memory)
        self.rdd = rdd
        self.columns = columns
        self.batch_rows = batch_rows

    def prepare(self, by_path: bool = False) -> Prepared:
        return prepare_rdd(self.rdd, self.columns, self.batch_rows)


class _Stream:
    """A streaming DataFrame: a round for each micro-batch that Spark hands over while an execution runs."""

    def __init__(self, df: Any, names: tuple[str, ...], batch_rows: int, memory: int) -> None:
        self.stream = df
        self.context = df.sparkSession.sparkContext
        self.names = names
        self.fields = fields_of(df)
        self.batch_rows = batch_rows
        self.memory = memory
        self._feed: Feed | None = None
        self._lock = threading.Lock()

    def begin(self, source: Any, execution: Any, ties: Any) -> None:
        """Be ready for the micro-batches of an execution that is about to start."""
        check_settings(self.context.getConf(), self.memory)
        with self._lock:
            if self._feed is not None and not self._feed.execution.done():
                raise ShmjetError(f"{source.name}: an execution fed by this stream is still running; wait for its end")
            feed = self._feed = Feed(source.feed, execution, ties, reached_at(self.context))
        execution.add_done_callback(lambda _: feed.close())

    def micro_batch(self, df: Any, batch_id: int) -> None:
        """Feed one micro-batch."""
        feed = self._running()
        feed.connect()
        prepared = prepare_dataframe(_selected(df, self.names), self.fields, self.batch_rows, feed.has_paths)
        feed.run(batch_id, prepared, Mode.ROUND, repeatable=True)

    def finish(self) -> None:
        """Let the source end."""
        self._running().finish()

    def _running(self) -> Feed:
        feed = self._feed
        if feed is None or feed.execution.done():
            raise FeedEndedError(
                "no job is running that takes this stream's batches; execute it before the query starts"
            )
        return feed


def of_dataframe(
    df: Any, columns: tuple[str, ...] | None, batch_rows: int, mode: Mode, memory: int
) -> tuple[Any, _DataFrame | _Stream]:
    """Return the DataFrame with the columns wanted, and where its rows come from.

    Raises:
        ConfigError: it is of Spark Connect, or lacks a column.
    """
    if not hasattr(df, "_jdf"):
        raise ConfigError(
            "spark.source: this DataFrame is of Spark Connect, which gives no access to Spark's JVM; use a classic "
            "session (SparkSession.builder.master(...))"
        )
    if columns is not None:
        missing = [name for name in columns if name not in df.columns]
        if missing:
            raise ConfigError(f"spark.source: the DataFrame has no column {missing[0]!r}; it has {df.columns}")
        df = _selected(df, columns)
    if df.isStreaming:
        if mode is Mode.STREAM:
            raise ConfigError("spark.source: deterministic=True is for bounded data; leave it out for a stream")
        return df, _Stream(df, tuple(df.columns), batch_rows, memory)
    return df, _DataFrame(df, batch_rows, mode, memory)


def of_rdd(rdd: Any, columns: tuple[str, ...] | None, batch_rows: int, mode: Mode, memory: int) -> _Rdd:
    """Return where an RDD's elements come from, and their columns, None if they are not rows.

    Raises:
        ConfigError: a name is none.
    """
    if columns is not None and (not columns or not all(isinstance(name, str) and name for name in columns)):
        raise ConfigError(f"spark.source: columns must be names, got {list(columns)}")
    if columns is None:
        first = rdd.take(1)
        columns = names_of(first[0]) if first else None
    return _Rdd(rdd, columns, batch_rows, mode, memory)


def _selected(df: Any, names: tuple[str, ...]) -> Any:
    quoted = ["`" + name.replace("`", "``") + "`" for name in names]
    return df.select(*quoted)
