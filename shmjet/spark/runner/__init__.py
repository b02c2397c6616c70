"""Pipelines on a Spark cluster: the planner's vertices as stages of RDDs, each task hosting the engine's own processor.

What a stage does is done by the processors that do it in the engine, so both give the same results; what is Spark's is
where tasks run, how items move between them, and what is done again when one is lost. Only `running` and `moving` call
PySpark; the rest knows lists, blocks and plans, and is tested without a JVM.
"""

from __future__ import annotations

from shmjet.spark.runner.explanation import explain_on_spark
from shmjet.spark.runner.run import run_on_spark

__all__ = ["explain_on_spark", "run_on_spark"]
