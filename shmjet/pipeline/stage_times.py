"""Which stages of a pipeline have event time, and the words in which the rest is refused. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from shmjet.core.column_key import ColumnKey
from shmjet.data.errors import PlanError
from shmjet.pipeline import transforms as t


def has_time(nodes: Sequence[t.Node], node_id: int) -> bool:
    """Tell whether the items of a stage have event time.

    Args:
        nodes: of the pipeline.
        node_id: which stage.
    """
    while True:
        node = nodes[node_id]
        if isinstance(node.transform, (t.AddTimestamps, *t.WINDOWS, t.LateItems)):
            return True
        if isinstance(node.transform, t.Source):
            return node.transform.policy is not None
        node_id = node.upstream[0]


def gives_batches(nodes: Sequence[t.Node], node_id: int) -> bool:
    """Tell whether what a stage gives is batches of columns, for certain.

    Args:
        nodes, node_id: as of `has_time`.
    """
    node = nodes[node_id]
    match node.transform:
        case t.Source(source, policy):
            by_column = policy is not None and policy.column is not None
            return by_column if source.columnar is None else bool(source.columnar)
        case t.AddTimestamps(policy):
            return policy.column is not None and gives_batches(nodes, node.upstream[0])
        case t.Rebalance(key_fn, True) | t.PartitionBy(key_fn):
            return isinstance(key_fn, ColumnKey) and gives_batches(nodes, node.upstream[0])
        case t.Rebalance() | t.Merge():
            return all(gives_batches(nodes, upstream) for upstream in node.upstream)
    made = (*t.COLUMNAR, t.MapBatches, t.ToBatches, t.WindowColumns)
    return isinstance(node.transform, made)


def check_time(nodes: Sequence[t.Node], node_id: int, what: str) -> None:
    """Check that the items of a stage have event time.

    Args:
        nodes, node_id: as of `has_time`.
        what: needs it, for the error.

    Raises:
        PlanError: they have none; the text says how they get it.
    """
    if not has_time(nodes, node_id):
        raise PlanError(
            f"{what} needs event time, but the items of {nodes[node_id].name!r} have none: say with_timestamps(fn) "
            "where the stream is read, or add_timestamps(fn) before"
        )


def check_merged(nodes: Sequence[t.Node], node_ids: Sequence[int], what: str = "merge") -> None:
    """Check that streams that become one all have event time, or that none has; `what` makes one of them.

    Raises:
        PlanError: some have and some have not; the text names one of each.
    """
    by_time = {has_time(nodes, node_id): nodes[node_id].name for node_id in node_ids}
    if len(by_time) > 1:
        raise PlanError(
            f"{what}: the items of {by_time[True]!r} have event time, those of {by_time[False]!r} have none; give both "
            "of them timestamps, or neither"
        )
