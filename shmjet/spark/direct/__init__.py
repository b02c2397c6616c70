"""A feed without Python workers: Spark's JVM writes batches into the memory of the running job itself.

Must not know how rows are held, counted and shown: a job sees the writer as it sees a Python worker.
"""

from shmjet.spark.direct.feed import DirectFeed, direct_feed

__all__ = ["DirectFeed", "direct_feed"]
