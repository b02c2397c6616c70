"""Inputs that are small for certain: a join sends them to every processor instead of moving the other side. Pure.

Must not know vertices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from shmjet.pipeline import transforms as t

SMALL: Final = 1 << 20
"""Bytes that every processor of a join keeps without a thought: they stay in a core's cache."""

_ROW: Final = 1024
"""Bytes of a row, where only the number of rows is known."""

_PASSING = (
    t.Where,
    t.Only,
    t.Select,
    t.SortColumns,
    t.DistinctColumns,
    t.Rebalance,
    t.PartitionBy,
    t.ToBatches,
    t.GroupColumns,
)
"""Stages that make no more of their first input than there is, about."""


def most_bytes(nodes: Sequence[t.Node], node_id: int) -> int | None:
    """Return how many bytes come out of a stage, about and at most; None if that is not known.

    Args:
        nodes: of the pipeline, each after the nodes that feed it.
        node_id: which stage.
    """
    node = nodes[node_id]
    match node.transform:
        case t.Source(source):
            return source.nbytes
        case t.Top(n, _):
            return n * _ROW
        case t.GroupColumns() as groups if not groups.keys:
            return _ROW
        case t.Union() | t.Merge():
            sizes = [most_bytes(nodes, each) for each in node.upstream]
            return None if None in sizes else sum(size or 0 for size in sizes)
        case t.JoinColumns(_, _, how, _) if how in ("semi", "anti"):
            return most_bytes(nodes, node.upstream[0])
    return most_bytes(nodes, node.upstream[0]) if isinstance(node.transform, _PASSING) else None
