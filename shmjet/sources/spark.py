"""`spark()`: a Spark DataFrame as a source; the work is done in `shmjet.spark`, imported when it is called."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shmjet.pipeline.definitions import SourceDef


def spark(
    df_or_rdd: Any,
    columns: Sequence[str] | None = None,
    batch_rows: int = 32768,
    deterministic: bool = False,
) -> SourceDef[Any]:
    """Feed a Spark DataFrame or RDD into the job; see `shmjet.spark.source`, which this is.

    Args:
        df_or_rdd: PySpark's.
        columns: which columns; for an RDD of tuples, their names.
        batch_rows: rows of a batch at most.
        deterministic: that Spark computes the same rows in the same order again.

    Raises:
        ModuleNotFoundError: PySpark is not installed. ConfigError: see `shmjet.spark.source`.

    Example:
        >>> p.read_from(sources.spark(spark_session.range(10)))      # doctest: +SKIP
    """
    from shmjet.spark.feed import source

    return source(df_or_rdd, columns, batch_rows, deterministic)
