"""Results back in Spark: column files that Spark's own reader takes, as DataFrames, or through Spark's writers.

`fitting` makes arrays of values, `parquet` files of arrays, `frames` DataFrames of maps and lists, `sinks` sinks of
pipelines. Spark is imported by functions of `frames` and `schemas` only, in the client.
"""

from __future__ import annotations

from shmjet.spark.back.frames import free_dataframes, to_dataframe
from shmjet.spark.back.sinks import sink

__all__ = ["free_dataframes", "sink", "to_dataframe"]
