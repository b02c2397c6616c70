"""Running pipelines on a Spark session, for tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shmjet import Pipeline, sinks, sources
from shmjet.pipeline import BatchStage

Build = Callable[[BatchStage[Any]], BatchStage[Any]]


def on_spark(spark: Any, items: Any, build: Build, **options: Any) -> list[Any]:
    """Run a pipeline of one source and the stages that `build` adds; return what it gives."""
    pipeline = Pipeline()
    with sinks.collect() as results:
        build(pipeline.read_from(sources.items(items))).write_to(results)
        pipeline.run_on_spark(spark, **options)
        return list(results)
