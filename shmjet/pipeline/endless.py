"""What an endless input allows, and the words in which the rest is refused. Pure.

One entry for each kind of stage. The planner checks the whole graph by it, whatever types the stages had.
"""

from __future__ import annotations

from collections.abc import Sequence

from shmjet.data.errors import PlanError
from shmjet.pipeline import transforms as t
from shmjet.pipeline.definitions import StreamSourceDef

NEEDS_ALL = frozenset(
    ("sort", "distinct", "aggregate", "aggregate2", "aggregate3", "aggregate_builder", "group_by", "top")
)
"""Methods of a stage of bounded data that need all items at once."""

_ITEM_BY_ITEM = (
    *(
        t.Source,
        t.Sink,
        t.Map,
        t.Filter,
        t.FlatMap,
        t.Peek,
        t.MapBatches,
        t.Merge,
        t.Rebalance,
        t.PartitionBy,
        t.Custom,
        t.AddTimestamps,
        *t.WINDOWS,
        t.WithTime,
        t.LateItems,
        t.FailedItems,
    ),
    *(t.MapStateful, t.FilterStateful, t.FlatMapStateful, t.RollingAggregate, t.UsingService, t.UsingServiceAsync),
    t.JoinTable,
    t.MapUsingMap,
    t.StreamJoin,
    t.StreamJoinColumns,
    *(*t.PROJECTIONS, t.Union, t.ToBatches, t.ToRows),
)
_ALL_ITEMS = (t.Sort, t.Distinct, t.Aggregate, t.GroupColumns, t.SortColumns, t.Top, t.DistinctColumns)
_SIDES_FIRST = (t.HashJoin, t.Join, t.JoinColumns)
_COMPLETE_FIRST = (t.SendToTable,)

KNOWN = frozenset((*_ITEM_BY_ITEM, *_ALL_ITEMS, *_SIDES_FIRST, *_COMPLETE_FIRST))
"""All kinds of stages: of each it is known what it does with an endless input."""


def needs_window(what: str, stream: str) -> str:
    """Return the text that refuses what needs the end of a stream."""
    return f"{what} needs the end of its input, but {stream!r} is endless: cut it with window(...) first"


def check_endless(nodes: Sequence[t.Node]) -> frozenset[int]:
    """Refuse what a pipeline cannot do with endless inputs.

    Args:
        nodes: of the pipeline, each after the nodes that feed it.

    Returns:
        the ids of the nodes that an endless source feeds, its own among them.

    Raises:
        PlanError: a stage needs the end of an input that has none; the text names both.
    """
    source_of: dict[int, str] = {}
    """The endless source, by the id of each node that it feeds."""
    for node in nodes:
        transform = node.transform
        if isinstance(transform, t.Source):
            if isinstance(transform.source, StreamSourceDef):
                source_of[node.id] = node.name
            continue
        endless = [source_of[upstream] for upstream in node.upstream if upstream in source_of]
        if not endless:
            continue
        source_of[node.id] = endless[0]
        if isinstance(transform, _ALL_ITEMS):
            raise PlanError(needs_window(f"stage {node.name!r}", endless[0]))
        if isinstance(transform, _SIDES_FIRST) and not isinstance(transform, t.StreamJoin):
            sides = [source_of[upstream] for upstream in node.upstream[1:] if upstream in source_of]
            if sides:
                raise PlanError(
                    f"stage {node.name!r} reads all of a joined side before the first item, but {sides[0]!r} is "
                    "endless; join two streams with join(other, left_key, right_key, within=seconds)"
                )
        if isinstance(transform, _COMPLETE_FIRST):
            raise PlanError(
                f"stage {node.name!r}: a table is complete before the first item is joined with it, but "
                f"{endless[0]!r} is endless"
            )
    return frozenset(source_of)
