"""Rules for joins: of streams and of tables, by hashing on every processor or by key.

What a rule is: see `item_rules`. Must not know how matches are found.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shmjet.columns.stream_join_columns import JoinColumns
from shmjet.core.column_key import ColumnKey
from shmjet.core.key_functions import KeyFn
from shmjet.pipeline import transforms as t
from shmjet.pipeline.planner.column_needs import sought_names
from shmjet.pipeline.planner.draft import Draft, adopt
from shmjet.pipeline.planner.keys import FIRST, identity_of
from shmjet.pipeline.planner.model import GRID_PARTITIONS, Partitioning, PlannedVertex
from shmjet.pipeline.planner.outputs import TIMED, Feed, Output
from shmjet.processors import hash_join
from shmjet.processors.general.table_lookup import join_table
from shmjet.processors.general.timed_rows import TIME_COLUMN
from shmjet.processors.time.column_stream_join import join_streams_of_columns
from shmjet.processors.time.stream_join import stream_join


def plan_hash_join(draft: Draft, node: t.Node, transform: t.HashJoin) -> Output:
    inputs = [draft.single(draft.rows(output, node), node) for output in draft.inputs(node)]
    timed = inputs[0].timed
    clauses = [(c.left_key, c.right_key, c.projection) for c in transform.clauses]
    policy = draft.policy(node)
    supplier = hash_join(*clauses, project=transform.project, inner=transform.inner, timed=timed, on_error=policy)
    why = "each processor keeps the joined sides in memory, so the stream need not move"
    vertex = draft.vertex(node.name, supplier, node.parallelism, node, why)
    draft.guarded(node, vertex, policy)
    draft.onward(inputs[0], vertex, node)
    for ordinal, side in enumerate(inputs[1:], 1):
        reason = "the small side goes to every processor, before the stream"
        draft.wires.to_all(side, vertex, reason, ordinal, priority=-1, absorbed=True)
    return Output((Feed(vertex, time=TIMED if timed else None),))


def plan_join(draft: Draft, node: t.Node, transform: t.Join) -> Output:
    left, right = (draft.single(draft.rows(output, node), node) for output in draft.inputs(node))
    supplier = hash_join(
        (transform.left_key, transform.right_key),
        project=transform.project,
        inner=transform.how == "inner",
        timed=left.timed,
        on_error=draft.policy(node),
    )
    vertex = draft.vertex(node.name, supplier, node.parallelism, node, "both sides are partitioned by the key")
    draft.guarded(node, vertex, draft.policy(node))
    count = _join_count(draft, node, vertex, [(left, transform.left_key), (right, transform.right_key)])
    wanted = Partitioning(identity_of(transform.left_key), count)
    draft.wires.by_key(left, vertex, draft.edge_key(node, transform.left_key), wanted)
    wanted = Partitioning(identity_of(transform.right_key), count)
    draft.wires.by_key(right, vertex, transform.right_key, wanted, 1, priority=-1, absorbed=True)
    return Output((Feed(vertex, time=TIMED if left.timed else None),))


def plan_stream_join(draft: Draft, node: t.Node, transform: t.StreamJoin) -> Output:
    left, right = (draft.single(draft.rows(output, node), node) for output in draft.inputs(node))
    within = transform.within / 1000
    policy = draft.policy(node)
    supplier = stream_join(
        transform.left_key, transform.right_key, transform.project, within=within, how=transform.how, on_error=policy
    )
    why = f"both sides are partitioned by the key; an item is kept while the other side may come within {within:g} s"
    vertex = draft.vertex(node.name, supplier, node.parallelism, node, why)
    draft.guarded(node, vertex, policy)
    sides = [(left, transform.left_key), (right, transform.right_key)]
    count = _join_count(draft, node, vertex, sides)
    for ordinal, (output, key_fn) in enumerate(sides):
        wanted = Partitioning(identity_of(key_fn), count)
        draft.wires.by_key(output, vertex, draft.edge_key(node, key_fn), wanted, ordinal)
    return Output((Feed(vertex, time=TIMED),))


def plan_stream_join_columns(draft: Draft, node: t.Node, transform: t.StreamJoinColumns) -> Output:
    left, right = (draft.single(draft.batches(output, node), node) for output in draft.inputs(node))
    left_time, right_time = left.feeds[0].time, right.feeds[0].time
    assert isinstance(left_time, str), "a join has been planned without event time"
    assert isinstance(right_time, str), "a join has been planned without event time"
    is_gathered = left_time == right_time == TIME_COLUMN and transform.suffix is None
    left_out = frozenset((TIME_COLUMN,) if is_gathered else ())
    keys = transform.left_keys, transform.right_keys
    sought: frozenset[str] = frozenset()
    if transform.how != "inner":
        sought = sought_names(draft.graph.nodes, draft.graph.consumers, node, transform.suffix)
    columns = JoinColumns(*keys, left_time, right_time, transform.suffix, left_out, sought)
    supplier = join_streams_of_columns(columns, transform.within, transform.how)
    pairs = [one if one == two else f"{one} = {two}" for one, two in zip(*keys, strict=True)]
    why = (
        f"{transform.how} join of batches on {', '.join(pairs)}; both sides are partitioned by the keys, and a row is "
        f"kept while the other side may come within {transform.within / 1000:g} s"
    )
    vertex = draft.vertex(node.name, supplier, node.parallelism, node, why)
    sides = [(left, ColumnKey(keys[0])), (right, ColumnKey(keys[1]))]
    count = _join_count(draft, node, vertex, sides)
    for ordinal, (output, key) in enumerate(sides):
        draft.wires.by_key(output, vertex, key, Partitioning(identity_of(key), count), ordinal)
    by_keys = Partitioning(identity_of(sides[0][1]), count)
    return Output((Feed(vertex, by_keys, columnar=True, time=left_time),))


def plan_join_table(draft: Draft, node: t.Node, transform: t.JoinTable) -> Output:
    stream = draft.single(draft.rows(draft.only_input(node), node), node)
    entries: list[tuple[Output, KeyFn, KeyFn | bool]] = []
    for sender in draft.graph.senders[transform.table]:
        sent = sender.transform
        assert isinstance(sent, t.SendToTable)
        output = draft.rows(draft.only_input(sender), sender)
        entries += [
            (Output((feed,)), sent.key_fn if sent.keyed else FIRST, sent.key_fn if sent.keyed else False)
            for feed in output.feeds
        ]
    entry_keys = [entry_key for _, _, entry_key in entries]
    policy = draft.policy(node)
    supplier = join_table(transform.key_fn, entry_keys, transform.fn, timed=stream.timed, on_error=policy)
    vertex = draft.vertex(node.name, supplier, node.parallelism, node, "stream and table are partitioned by the key")
    draft.guarded(node, vertex, policy)
    sides = [(stream, transform.key_fn), *((output, key_fn) for output, key_fn, _ in entries)]
    count = _join_count(draft, node, vertex, sides)
    wanted = Partitioning(identity_of(transform.key_fn), count)
    draft.wires.by_key(stream, vertex, draft.edge_key(node, transform.key_fn), wanted)
    for ordinal, (output, key_fn, _) in enumerate(entries, 1):
        wanted = Partitioning(identity_of(key_fn), count)
        draft.wires.by_key(output, vertex, key_fn, wanted, ordinal, priority=-1, absorbed=True)
    return Output((Feed(vertex, time=TIMED if stream.timed else None),))


def plan_send_to_table(draft: Draft, node: t.Node, transform: t.SendToTable) -> None:
    """Nothing: the entries go straight to the joins that look the table up."""


def _join_count(draft: Draft, node: t.Node, vertex: PlannedVertex, sides: Sequence[tuple[Output, Any]]) -> int:
    """Return the partitions of a join: the planned number, else that of a side that lies by its key already."""
    planned = draft.counts.get(node.id)
    for output, key_fn in sides:
        found = output.feeds[0].partitioning
        if found is None or found.key != identity_of(key_fn) or not output.lies_as(found):
            continue
        if planned in (None, found.count):
            adopt(vertex, output.feeds[0].vertex)
            return found.count
    for output, key_fn in sides:
        spread = output.feeds[0].spread
        if planned is None and spread is not None and output.is_spread_by(Partitioning(identity_of(key_fn))):
            return spread.count
    return GRID_PARTITIONS if planned is None else planned
