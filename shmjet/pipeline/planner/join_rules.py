"""Rules for joins: of streams and of tables, by hashing on every processor or by key.

What a rule is: see `item_rules`. Must not know how matches are found.
"""

from __future__ import annotations

from shmjet.core.key_functions import KeyFn
from shmjet.pipeline import transforms as t
from shmjet.pipeline.planner.draft import Draft, adopt
from shmjet.pipeline.planner.keys import FIRST, identity_of
from shmjet.pipeline.planner.model import GRID_PARTITIONS, Partitioning, PlannedVertex
from shmjet.pipeline.planner.outputs import Feed, Output
from shmjet.processors import hash_join
from shmjet.processors.general.table_lookup import join_table


def plan_hash_join(draft: Draft, node: t.Node, transform: t.HashJoin) -> Output:
    inputs = [draft.single(draft.rows(output, node), node) for output in draft.inputs(node)]
    clauses = [(c.left_key, c.right_key, c.projection) for c in transform.clauses]
    supplier = hash_join(*clauses, project=transform.project, inner=transform.inner)
    why = "each processor keeps the joined sides in memory, so the stream need not move"
    vertex = draft.vertex(node.name, supplier, node.parallelism, node, why)
    draft.wires.any_way(inputs[0], vertex)
    for ordinal, side in enumerate(inputs[1:], 1):
        reason = "the small side goes to every processor, before the stream"
        draft.wires.to_all(side, vertex, reason, ordinal, priority=-1, absorbed=True)
    return Output((Feed(vertex),))


def plan_join(draft: Draft, node: t.Node, transform: t.Join) -> Output:
    left, right = (draft.single(draft.rows(output, node), node) for output in draft.inputs(node))
    supplier = hash_join((transform.left_key, transform.right_key), project=transform.project, inner=True)
    vertex = draft.vertex(node.name, supplier, node.parallelism, node, "both sides are partitioned by the key")
    count = _join_count(draft, node, vertex, [(left, transform.left_key), (right, transform.right_key)])
    wanted = Partitioning(identity_of(transform.left_key), count)
    draft.wires.by_key(left, vertex, transform.left_key, wanted)
    wanted = Partitioning(identity_of(transform.right_key), count)
    draft.wires.by_key(right, vertex, transform.right_key, wanted, 1, priority=-1, absorbed=True)
    return Output((Feed(vertex),))


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
    supplier = join_table(transform.key_fn, [entry_key for _, _, entry_key in entries], transform.fn)
    vertex = draft.vertex(node.name, supplier, node.parallelism, node, "stream and table are partitioned by the key")
    sides = [(stream, transform.key_fn), *((output, key_fn) for output, key_fn, _ in entries)]
    count = _join_count(draft, node, vertex, sides)
    draft.wires.by_key(stream, vertex, transform.key_fn, Partitioning(identity_of(transform.key_fn), count))
    for ordinal, (output, key_fn, _) in enumerate(entries, 1):
        wanted = Partitioning(identity_of(key_fn), count)
        draft.wires.by_key(output, vertex, key_fn, wanted, ordinal, priority=-1, absorbed=True)
    return Output((Feed(vertex),))


def plan_send_to_table(draft: Draft, node: t.Node, transform: t.SendToTable) -> None:
    """Nothing: the entries go straight to the joins that look the table up."""


def _join_count(draft: Draft, node: t.Node, vertex: PlannedVertex, sides: list[tuple[Output, KeyFn]]) -> int:
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
