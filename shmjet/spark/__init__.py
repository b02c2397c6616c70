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
    from shmjet.spark.errors import SparkError
    from shmjet.spark.feed import SparkSource, source

if find_spec("pyspark") is None:
    raise ModuleNotFoundError(
        "shmjet.spark needs PySpark and Java 17 or later: pip install 'shmjet[spark]' (see `shmjet doctor`)",
        name="pyspark",
    )

_PLACES = {
    "SparkError": "shmjet.spark.errors",
    "SparkSource": "shmjet.spark.feed",
    "source": "shmjet.spark.feed",
}

__all__ = ["SparkError", "SparkSource", "source"]


def __getattr__(name: str) -> Any:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(place), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
