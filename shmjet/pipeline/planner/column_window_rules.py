"""The rule for windows on columns: in one stage or in two, as `window_rules` has it for items."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from shmjet.core.column_key import ColumnKey
from shmjet.core.windows import SessionWindow
from shmjet.pipeline import transforms as t
from shmjet.pipeline.planner.aggregation_rules import common_partitioning
from shmjet.pipeline.planner.draft import Draft, adopt
from shmjet.pipeline.planner.keys import identity_of
from shmjet.pipeline.planner.model import GRID_PARTITIONS, Partitioning, PlannedVertex
from shmjet.pipeline.planner.outputs import LATE, Feed, Output, partitioned_by
from shmjet.processors.general.timed_rows import TIME_COLUMN
from shmjet.processors.time.column_sessions import sessions_of_columns
from shmjet.processors.time.column_windows import (
    combined_windows_of_columns,
    frames_of_columns,
    windows_of_columns,
)
from shmjet.processors.time.grouped_windows import Grouped, GroupedSessions, grouped_by

_HIDDEN_TIME = "\0time"
"""The column with the event time of results where another column has its name."""


def plan_window_columns(draft: Draft, node: t.Node, transform: t.WindowColumns) -> Output:
    output = draft.batches(draft.only_input(node), node)
    time = output.feeds[0].time
    assert isinstance(time, str), "a window has been planned over batches without event time"
    keys = transform.keys
    grouped = _grouped(draft, node, transform, time)
    lying = common_partitioning(draft, [output], [ColumnKey(keys)]) if keys else None
    why = _why_one_stage(transform)
    if lying is not None:
        why = "rows of equal keys are together already"
    elif keys and output.is_spread_by(partitioned_by(ColumnKey(keys))):
        why = "the rows have been spread by this key on purpose"
    if not why:
        assert isinstance(grouped, Grouped), "sessions have one stage"
        return _two_stages(draft, node, transform, grouped, output)
    options: Any = {"period": transform.early_results / 1000, "late_ordinal": 0 if transform.has_late else None}
    if isinstance(grouped, Grouped):
        supplier = windows_of_columns(grouped, **options)
    else:
        supplier = sessions_of_columns(grouped, **options)
    told = f"{_told(transform)}; one stage: {why}"
    if not keys:
        vertex = draft.vertex(node.name, supplier, 1, node, told)
        draft.wires.to_one(output, vertex, "everything is one group", absorbed=True)
        return _output(draft, node, grouped, vertex, vertex, None)
    key = ColumnKey(keys)
    vertex = draft.vertex(node.name, supplier, node.parallelism, node, told)
    if lying is not None:
        adopt(vertex, output.feeds[0].vertex)
    lie = Partitioning(identity_of(key), lying.count if lying else GRID_PARTITIONS)
    draft.wires.by_key(output, vertex, key, lie, absorbed=True)
    return _output(draft, node, grouped, vertex, vertex, lie)


def _grouped(draft: Draft, node: t.Node, transform: t.WindowColumns, time: str) -> Grouped | GroupedSessions:
    keys, aggregates, definition = transform.keys, transform.aggregates, transform.definition
    options: Any = {"has_early": bool(transform.early_results)}
    if draft.graph.times.carries(node):
        options["time_column"] = _HIDDEN_TIME if TIME_COLUMN in (*keys, *aggregates) else TIME_COLUMN
    if isinstance(definition, SessionWindow):
        return GroupedSessions(keys, aggregates, definition.gap, time, **options)
    return grouped_by(keys, aggregates, definition, time, **options)


def _two_stages(draft: Draft, node: t.Node, transform: t.WindowColumns, grouped: Grouped, output: Output) -> Output:
    why = "two stages: a processor groups what it gets, and one row for each key and slide moves"
    supplier = frames_of_columns(grouped, late_ordinal=0 if transform.has_late else None)
    first = draft.vertex(f"{node.name}-accumulate", supplier, node.parallelism, node, why)
    draft.onward(output, first, node, absorbed=True)
    frames, supplier = Output((Feed(first, columnar=True),)), combined_windows_of_columns(grouped)
    if not grouped.keys:
        vertex = draft.vertex(f"{node.name}-combine", supplier, 1, node, f"{_told(transform)}; one processor combines")
        draft.wires.to_one(frames, vertex, "one row from each processor for each slide", absorbed=True)
        return _output(draft, node, grouped, vertex, first, None)
    key = ColumnKey(grouped.keys)
    vertex = draft.vertex(
        f"{node.name}-combine", supplier, node.parallelism, node, f"{_told(transform)}; combines what each key has"
    )
    draft.wires.by_key(frames, vertex, key, partitioned_by(key), absorbed=True)
    return _output(draft, node, grouped, vertex, first, partitioned_by(key))


def _output(
    draft: Draft,
    node: t.Node,
    grouped: Grouped | GroupedSessions,
    vertex: PlannedVertex,
    first: PlannedVertex,
    lie: Partitioning | None,
) -> Output:
    """Return the results, and note where late rows come out."""
    feed = Feed(vertex, lie, columnar=True, time=grouped.time_column)
    draft.late[node.id] = Output((replace(feed, vertex=first, partitioning=None, time=grouped.time, side=LATE),))
    return Output((feed,))


def _why_one_stage(transform: t.WindowColumns) -> str:
    """Return what keeps a window from being made in two stages; empty when nothing does."""
    if isinstance(transform.definition, SessionWindow):
        return "sessions are made where all rows of a key are"
    if any(aggregate.moves_rows for aggregate in transform.aggregates.values()):
        return "an aggregate needs all rows of a group"
    return "early results come from where all rows are" if transform.early_results else ""


def _told(transform: t.WindowColumns) -> str:
    early = f", early results every {transform.early_results} ms" if transform.early_results else ""
    made = ", ".join(f"{name}={each!r}" for name, each in transform.aggregates.items())
    return f"{transform.definition!r}{early} by {', '.join(transform.keys) or 'nothing'}: {made}"
