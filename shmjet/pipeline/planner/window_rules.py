"""Rules for windows: in one stage or in two, by key or all together.

What a rule is: see `item_rules`. Two stages as in Jet: where accumulators combine, there are no early results, and the
items have not been spread by the key on purpose; sessions have one. Unlike there, a window by key over a stream of one
processor on each member, from which one sink on each member gets all results, has one stage on one processor, too: a
second one would wake another worker for each window, which takes half of the time that a result is under way.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import Any

from shmjet.core.windows import SessionWindow
from shmjet.pipeline import transforms as t
from shmjet.pipeline.planner.aggregation_rules import common_partitioning
from shmjet.pipeline.planner.draft import Draft, adopt
from shmjet.pipeline.planner.keys import identity_of
from shmjet.pipeline.planner.model import GRID_PARTITIONS, Partitioning, PlannedVertex
from shmjet.pipeline.planner.outputs import LATE, TIMED, Feed, Output, partitioned_by
from shmjet.processors import (
    accumulate_by_frame,
    aggregate_to_session_window,
    aggregate_to_sliding_window,
    combine_to_sliding_window,
)
from shmjet.processors.time.windows import without_event_time

KEY = attrgetter("key")
"""The key of a `KeyedWindowResult`."""


def plan_window(draft: Draft, node: t.Node, transform: t.Window) -> Output:
    inputs = [draft.rows(output, node) for output in draft.inputs(node)]
    if len(inputs) > 1:
        inputs = [draft.single(output, node) for output in inputs]
    key_fns = transform.key_fns
    if key_fns is None:
        return _all_together(draft, node, transform, inputs)
    wanted = [partitioned_by(key_fn) for key_fn in key_fns]
    lying = common_partitioning(draft, inputs, list(key_fns))
    spread = all(output.is_spread_by(each) for output, each in zip(inputs, wanted, strict=True))
    why = _why_one_stage(transform)
    if lying is not None:
        why = "items of equal keys are together already"
    elif spread:
        why = "the items have been spread by this key on purpose"
    parallelism = node.parallelism
    if not why and parallelism == -1 and node.id in draft.graph.endless and _is_on_one_way(draft, node, inputs):
        parallelism, why = 1, "items come from one processor, and results go to one"
    if not why:
        return _two_stages(draft, node, transform, inputs)
    why = f"{_told(transform)}; one stage: {why}"
    vertex = draft.vertex(node.name, _supplier(draft, node, transform), parallelism, node, why)
    if lying is not None:
        adopt(vertex, inputs[0].feeds[0].vertex)
    ordinal = 0
    for output, key_fn in zip(inputs, key_fns, strict=True):
        by = Partitioning(identity_of(key_fn), lying.count if lying else GRID_PARTITIONS)
        draft.wires.by_key(output, vertex, key_fn, by, ordinal, absorbed=True)
        ordinal += len(output.feeds)
    by = Partitioning(identity_of(KEY), lying.count if lying else GRID_PARTITIONS)
    return _output(draft, node, vertex, vertex, None if transform.make_result else by)


def _all_together(draft: Draft, node: t.Node, transform: t.Window, inputs: list[Output]) -> Output:
    why = _why_one_stage(transform)
    if why:
        why = f"{_told(transform)}; one stage on one processor: {why}"
        vertex = draft.vertex(node.name, _supplier(draft, node, transform), 1, node, why)
        ordinal = 0
        for output in inputs:
            draft.wires.to_one(output, vertex, "everything is one group", ordinal, absorbed=True)
            ordinal += len(output.feeds)
        return _output(draft, node, vertex, vertex, None)
    return _two_stages(draft, node, transform, inputs)


def _two_stages(draft: Draft, node: t.Node, transform: t.Window, inputs: list[Output]) -> Output:
    definition: Any = transform.definition
    keyed = transform.key_fns is not None
    why = "two stages: a processor folds what it gets, and one accumulator for each key and slide moves"
    supplier = accumulate_by_frame(_keys(transform), None, definition, transform.op, **_options(transform))
    first = draft.vertex(f"{node.name}-accumulate", supplier, node.parallelism, node, why)
    ordinal = 0
    for output in inputs:
        draft.onward(output, first, node, ordinal, absorbed=True)
        ordinal += len(output.feeds)
    timed = draft.graph.times.carries(node)
    make = transform.make_result
    supplier = combine_to_sliding_window(definition, transform.op, map_to_output=make, keyed=keyed, timed=timed)
    frames = Output((Feed(first),))
    if not keyed:
        vertex = draft.vertex(f"{node.name}-combine", supplier, 1, node, f"{_told(transform)}; one processor combines")
        draft.wires.to_one(frames, vertex, "one accumulator from each processor for each slide", absorbed=True)
        return _output(draft, node, vertex, first, None)
    vertex = draft.vertex(
        f"{node.name}-combine", supplier, node.parallelism, node, f"{_told(transform)}; combines what each key has"
    )
    draft.wires.by_key(frames, vertex, KEY, partitioned_by(KEY), absorbed=True)
    return _output(draft, node, vertex, first, None if make else partitioned_by(KEY))


def _output(
    draft: Draft,
    node: t.Node,
    vertex: PlannedVertex,
    first: PlannedVertex,
    lie: Partitioning | None,
) -> Output:
    """Return the results, and note where late items come out."""
    timed = draft.graph.times.carries(node)
    draft.late[node.id] = Output((Feed(first, time=TIMED, side=LATE),))
    return Output((Feed(vertex, lie, time=TIMED if timed else None),))


def _is_on_one_way(draft: Draft, node: t.Node, inputs: Iterable[Output]) -> bool:
    """Say whether what comes in and what goes out goes through one processor on each member."""
    return all(feed.vertex.parallelism == 1 for output in inputs for feed in output.feeds) and all(
        isinstance(consumer.transform, t.Sink)
        and (consumer.transform.sink.parallelism if consumer.parallelism == -1 else consumer.parallelism) == 1
        for consumer in draft.graph.results_of(node)
    )


def _why_one_stage(transform: t.Window) -> str:
    """Return what keeps a window from being made in two stages; empty when nothing does."""
    if isinstance(transform.definition, SessionWindow):
        return "sessions are made where all items of a key are"
    if transform.op.combine is None:
        return "the operation has no combine function"
    if transform.early_results:
        return "early results come from where all items are"
    return ""


def _supplier(draft: Draft, node: t.Node, transform: t.Window) -> Any:
    """Return the supplier of the one stage."""
    definition, options = transform.definition, _options(transform)
    results: Any = {"early_results": transform.early_results / 1000, "map_to_output": transform.make_result}
    if isinstance(definition, SessionWindow):
        made = aggregate_to_session_window(_keys(transform), None, definition, transform.op, **results, **options)
    else:
        made = aggregate_to_sliding_window(_keys(transform), None, definition, transform.op, **results, **options)
    return made if draft.graph.times.carries(node) else without_event_time(made)


def _options(transform: t.Window) -> dict[str, Any]:
    return {
        "keyed": transform.key_fns is not None,
        "timed": True,
        "late_ordinal": 0 if transform.has_late else None,
    }


def _keys(transform: t.Window) -> Any:
    key_fns = transform.key_fns
    return key_fns[0] if key_fns is not None and len(key_fns) == 1 else key_fns


def _told(transform: t.Window) -> str:
    early = f", early results every {transform.early_results} ms" if transform.early_results else ""
    return f"{transform.definition!r}{early}"
