"""The aggregate operations of `shmjet.aggregate_ops` that are used without a pipeline most; kept for `import`s."""

from __future__ import annotations

from shmjet.aggregate_ops import AggregateOperation, counting, summing

__all__ = ["AggregateOperation", "counting", "summing"]
