"""Aggregate operations: what `aggregate` stages and processors compute. `docs/aggregations.md` shows all at a glance.

Just below the floor of processors. It must not know processors, keys' partitions or windows: an operation is a set of
functions on accumulators, and of kernels that do the same for whole lists. After Jet's `AggregateOperations`.
"""

from __future__ import annotations

from shmjet.aggregate_ops.adapters import filtering, flat_mapping, grouping_by, mapping, reducing
from shmjet.aggregate_ops.arithmetic import averaging, counting, linear_trend, summing
from shmjet.aggregate_ops.collectors import concatenating, sorting, to_collection, to_dict, to_list, to_set
from shmjet.aggregate_ops.composites import (
    ItemsByTag,
    OperationBuilder,
    Tag,
    aggregate_operation2,
    aggregate_operation3,
    all_of,
    all_of_builder,
    co_aggregate_operation_builder,
    co_aggregating,
)
from shmjet.aggregate_ops.extremes import bottom_n, max_by, min_by, pick_any, top_n
from shmjet.aggregate_ops.operation import AggregateOperation

__all__ = [
    "AggregateOperation",
    "ItemsByTag",
    "OperationBuilder",
    "Tag",
    "aggregate_operation2",
    "aggregate_operation3",
    "all_of",
    "all_of_builder",
    "averaging",
    "bottom_n",
    "co_aggregate_operation_builder",
    "co_aggregating",
    "concatenating",
    "counting",
    "filtering",
    "flat_mapping",
    "grouping_by",
    "linear_trend",
    "mapping",
    "max_by",
    "min_by",
    "pick_any",
    "reducing",
    "sorting",
    "summing",
    "to_collection",
    "to_dict",
    "to_list",
    "to_set",
    "top_n",
]
