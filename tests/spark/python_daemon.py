"""The process that Spark forks its Python workers from, with what they load: that costs each worker half a second.

Spark runs it as `python -m tests.spark.python_daemon pyspark.worker`. Each error of a task ends a worker, for one.
"""

from __future__ import annotations

import importlib
import runpy

LOADED = (
    "pyspark.worker",
    "numpy",
    "shmjet._native._arrow",
    "shmjet.aggregate_ops",
    "shmjet.pipeline",
    "shmjet.processors",
    "shmjet.spark.back.sinks",
    "shmjet.spark.runner.run",
    "shmjet.spark.runner.tasks",
    "shmjet.spark.task",
)

if __name__ == "__main__":
    for name in LOADED:
        importlib.import_module(name)
    runpy.run_module("pyspark.daemon", run_name="__main__", alter_sys=True)
