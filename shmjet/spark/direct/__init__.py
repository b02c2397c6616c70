"""A feed without Python workers: Spark's JVM writes batches into the memory of the running job itself.

Must not know how rows are held, counted and shown: to a job, the writer is a visitor like a Python worker.
"""

from shmjet.spark.direct.feed import DirectFeed, direct_feed

__all__ = ["DirectFeed", "direct_feed"]
