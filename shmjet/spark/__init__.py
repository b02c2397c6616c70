"""Spark and shmjet: DataFrames in as batches of columns, results back, pipelines on a Spark cluster.

Nothing here needs pyarrow or pandas. PySpark is imported by the functions that talk to it, not by this package, because
workers of the engine load parts of it that must not know Spark. Names are loaded when they are first used.

Must not know: how workers and rings do what they do; a feed is a source like any other.
"""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shmjet.spark.back import free_dataframes, sink, to_dataframe
    from shmjet.spark.errors import SparkError
    from shmjet.spark.feed import SparkSource, source
    from shmjet.spark.runner import explain_on_spark, run_on_spark

if find_spec("pyspark") is None:
    raise ModuleNotFoundError(
        "shmjet.spark needs PySpark and Java 17 or later: pip install pyspark (see `shmjet doctor`)",
        name="pyspark",
    )

_PLACES = {
    "SparkError": "shmjet.spark.errors",
    "SparkSource": "shmjet.spark.feed",
    "explain_on_spark": "shmjet.spark.runner",
    "free_dataframes": "shmjet.spark.back",
    "run_on_spark": "shmjet.spark.runner",
    "sink": "shmjet.spark.back",
    "source": "shmjet.spark.feed",
    "to_dataframe": "shmjet.spark.back",
}

__all__ = [
    "SparkError",
    "SparkSource",
    "explain_on_spark",
    "free_dataframes",
    "run_on_spark",
    "sink",
    "source",
    "to_dataframe",
]


def __getattr__(name: str) -> Any:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(place), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
