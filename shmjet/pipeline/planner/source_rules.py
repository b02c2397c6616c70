"""Rules for sources, and for the timestamps and watermarks of streams.

What a rule is: see `item_rules`. Must not know how timestamps are made.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from shmjet.core.column_key import ColumnKey
from shmjet.core.event_time import EventTimePolicy
from shmjet.core.processor import ProcessorMetaSupplier
from shmjet.data.errors import PlanError
from shmjet.pipeline import transforms as t
from shmjet.pipeline.definitions import SourceDef, StreamSourceDef
from shmjet.pipeline.planner.draft import Draft, adopt
from shmjet.pipeline.planner.event_time import of_rows
from shmjet.pipeline.planner.outputs import TIMED, Feed, Output, described, partitioned_by
from shmjet.processors import insert_watermarks, to_batches
from shmjet.processors.general.fused_steps import Step, fused


def plan_source(draft: Draft, node: t.Node, transform: t.Source) -> Output:
    source = transform.source
    parallelism = source.parallelism if node.parallelism == -1 else node.parallelism
    policy, columnar = None, source.columnar
    supplier = source.supplier
    keeps_time = isinstance(source, StreamSourceDef) and source.timed is not None and transform.policy is not None
    if keeps_time:
        assert isinstance(source, StreamSourceDef)
        assert transform.policy is not None
        policy = draft.graph.times.policy(node, transform.policy, source)
        columnar = source.columnar if source.columnar is not None else policy.column is not None
        policy = _by_column(node, policy) if columnar else of_rows(policy)
        supplier = source.supplier_for(policy)
    vertex = draft.vertex(node.name, supplier, parallelism, node)
    vertex.expand = source.expand
    vertex.guarantee = source.guarantee
    partitioning = None
    if source.partitions is not None:
        partitioning = partitioned_by(source.partition_key, source.partitions)
        vertex.why.append(f"its items lie in {source.partitions} partitions by {described(source.partition_key)}")
    if columnar:
        vertex.why.append("its items are batches of columns")
    vertex.why += source.notes
    if policy is not None:
        vertex.why.append(_told(policy))
    feed = Feed(vertex, partitioning, columnar)
    if policy is not None:
        return Output((replace(feed, time=policy.column if columnar else TIMED if policy.timed else None),))
    if transform.policy is None:
        return Output((feed,))
    return _timestamps(draft, node, transform.policy, source, Output((feed,)))


def plan_add_timestamps(draft: Draft, node: t.Node, transform: t.AddTimestamps) -> Output:
    output = draft.single(draft.bare(draft.only_input(node), node), node)
    return _timestamps(draft, node, transform.policy, None, output)


def plan_with_time(draft: Draft, node: t.Node, transform: t.WithTime) -> Output:
    output = draft.rows(draft.only_input(node), node)
    vertex = draft.vertex(node.name, fused([Step("map", _stamped, node.name)]), -1, node, "each item with its time")
    draft.onward(output, vertex, node)
    return Output((Feed(vertex, time=TIMED),))


def _stamped(pair: tuple[int, Any]) -> tuple[int, tuple[int, Any]]:
    return pair[0], pair


def _timestamps(
    draft: Draft, node: t.Node, said: EventTimePolicy, source: SourceDef[object] | None, output: Output
) -> Output:
    """Put a vertex behind bare items that makes timestamps and watermarks, in place where that can be."""

    policy = draft.graph.times.policy(node, said, source)
    (feed,) = output.feeds
    columnar = feed.columnar is not False and policy.timestamp_fn is not None and policy.column is not None
    if columnar:
        policy = _by_column(node, policy)
        if feed.columnar is None:
            gathering = draft.vertex(f"{node.name}-batches", to_batches(), -1, node, "items are gathered into batches")
            adopt(gathering, feed.vertex)
            draft.onward(output, gathering, node)
            output = Output((Feed(gathering, columnar=True),))
    else:
        policy = of_rows(policy)
        output = draft.rows(output, node)
    (feed,) = output.feeds
    supplier: Any = insert_watermarks(policy)
    like = feed.vertex.processors
    if isinstance(like, tuple):
        supplier = ProcessorMetaSupplier.of(supplier, like[1])
    name = node.name if source is None else f"{node.name}-timestamps"
    vertex = draft.vertex(name, supplier, node.parallelism if source is None else -1, node, _told(policy))
    lie = draft.onward(output, vertex, node)
    return Output((Feed(vertex, lie, columnar, time=policy.column if columnar else TIMED if policy.timed else None),))


def _by_column(node: t.Node, policy: EventTimePolicy) -> EventTimePolicy:
    """Return a policy for batches.

    Raises:
        PlanError: it has a function of items.
    """
    if policy.column is None:
        raise PlanError(
            f"source {node.name!r} gives batches of columns: name the column that has the timestamps, with "
            "with_timestamps(column(name))"
        )
    assert isinstance(policy.timestamp_fn, ColumnKey)
    return replace(policy, timed=False)


def _told(policy: EventTimePolicy) -> str:
    """Return what a policy does, in words."""
    by = {"native": "of the source's own", "ingestion": "by the wall clock"}.get(policy.timestamps, "by function")
    if policy.column is not None:
        by = f"in column {policy.column!r}"
    text = f"event time {by}, watermarks at multiples of {policy.stride} ms"
    if policy.allowed_lag:
        text += f", allowed lag {policy.allowed_lag} ms"
    return text if policy.max_skew is None else f"{text}, waits when {policy.max_skew} ms ahead of other sources"
