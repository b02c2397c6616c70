"""Rules for stages of batches: projections and filters, joins, sorts, distinct rows, unions.

What a rule is: see `item_rules`. Stages that look at one row at a time and follow one another are one processor; what
needs all rows is done in two stages where the first makes less of them. Must not know how columns are computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shmjet.core.column_key import ColumnKey
from shmjet.pipeline import transforms as t
from shmjet.pipeline.planner.column_needs import known_names, sought_names
from shmjet.pipeline.planner.draft import Draft, adopt
from shmjet.pipeline.planner.keys import identity_of
from shmjet.pipeline.planner.model import GRID_PARTITIONS, Partitioning, PlannedVertex
from shmjet.pipeline.planner.outputs import Feed, Output, Time, partitioned_by
from shmjet.pipeline.planner.small_inputs import SMALL, most_bytes
from shmjet.processors import hash_join_batches, sort_batches
from shmjet.processors.columns.distinct_rows import ROW_HASH, distinct_rows
from shmjet.processors.columns.hash_join_batches import seeking
from shmjet.processors.columns.project_batches import project_batches
from shmjet.processors.columns.sort_batches import sorted_share
from shmjet.processors.columns.sorted_shares import ColumnOrder
from shmjet.processors.columns.union_batches import check_union, union_batches
from shmjet.processors.general.base import telling_columns


def _one(draft: Draft, node: t.Node) -> Output:
    """Return the only input of a stage of bounded data as batches."""
    return draft.batches(draft.only_input(node), node)


# -- row by row --------------------------------------------------------------------------------------------------------


def plan_projections(draft: Draft, chain: list[t.Node]) -> Output:
    """Plan projections and filters that follow one another as one vertex."""
    first, last = chain[0], chain[-1]
    output = draft.batches(draft.only_input(first), first)
    time = output.feeds[0].time if draft.graph.times.carries(last) else None
    steps = [_step(node.transform) for node in chain]
    if isinstance(time, str):
        steps, time = _keeping(steps, time)
    why = [described(node.transform) for node in chain]
    if sum(not isinstance(node.transform, t.Only) for node in chain) > 1:
        why.append(f"{len(chain)} stages of columns in one processor: a batch goes through all of them at once")
    parallelism = draft.graph.parallelism(first)
    if parallelism == 1 and first.parallelism == -1:
        why.append("one processor, which keeps the order")
    stages = [node.name for node in chain if not isinstance(node.transform, t.Only)] or [first.name]
    name = stages[0] if len(stages) == 1 else f"fused({', '.join(stages)})"
    vertex = draft.vertex(name, project_batches(steps), parallelism, first, *why)
    vertex.stages = tuple(stages)
    keys = _kept_keys(output, steps)
    if all(isinstance(node.transform, t.Only) for node in chain) and len(output.feeds) == 1:
        return _left_out(draft, first, output, vertex, time, keys)
    if keys and last.id in draft.graph.placed and draft.lies_alike(output, vertex):
        reason = "rows stay on the processor where they lie by key, which a later stage makes use of"
        draft.wires.in_place(output, vertex, reason)
        return Output((Feed(vertex, output.feeds[0].partitioning, columnar=True, time=time),))
    lie = draft.onward(output, vertex, first)
    return Output((Feed(vertex, lie if keys else None, columnar=True, time=time),))


def _left_out(draft: Draft, node: t.Node, output: Output, vertex: PlannedVertex, time: Time, keys: bool) -> Output:
    """Plan a vertex that leaves columns out: as many processors as feed it, and each takes what one has emitted."""
    (feed,) = output.feeds
    processors = feed.vertex.processors
    vertex.parallelism = 1 if processors == ("at most", 1) else feed.vertex.parallelism
    alike = processors in (-1, ("at most", 1)) or isinstance(processors, int)
    if alike and feed.spread is None:
        draft.wires.in_place(output, vertex, "nothing moves")
        lie = feed.partitioning
    else:
        lie = draft.onward(output, vertex, node)
    return Output((Feed(vertex, lie if keys else None, columnar=True, time=time),))


def _step(transform: t.Transform) -> tuple[str, Any]:
    if isinstance(transform, t.Only):
        return "only", transform.names
    if isinstance(transform, t.Where):
        return "where", transform.expression
    assert isinstance(transform, t.Select | t.With)
    return ("select" if isinstance(transform, t.Select) else "with"), transform.outputs


_HIDDEN_TIME = "\0time"
"""The column of the event time where another column has taken its name."""


def _keeping(steps: list[tuple[str, Any]], time: str) -> tuple[list[tuple[str, Any]], str]:
    """Return steps that keep the column of the event time, and its name behind them."""
    kept: list[tuple[str, Any]] = []
    for kind, given in steps:
        if kind == "only":
            kept.append((kind, given | {time}))
            continue
        made = dict(given) if kind != "where" else {}
        is_same = isinstance(made.get(time), ColumnKey) and made[time].names == (time,)
        following = time
        if kind != "where" and time in made and not is_same:
            following = _HIDDEN_TIME
        if (kind == "select" and not is_same) or following != time:
            given = (*given, (following, ColumnKey((time,))))
        kept.append((kind, given))
        time = following
    return kept, time


def _kept_keys(output: Output, steps: Sequence[tuple[str, Any]]) -> bool:
    """Tell whether the columns by which batches lie go through all steps as they are."""
    partitioning = output.feeds[0].partitioning
    if partitioning is None:
        return False
    for kind, given in steps:
        if kind == "where":
            continue
        if kind == "only":
            names = _key_names(partitioning)
            if names is None or not given.issuperset(names):
                return False
            continue
        made = {name: each.names == (name,) and isinstance(each, ColumnKey) for name, each in given}
        keys = _key_names(partitioning)
        if keys is None or not all(made.get(name, kind == "with") for name in keys):
            return False
    return True


def _key_names(partitioning: Partitioning) -> tuple[str, ...] | None:
    match partitioning.key:
        case ("at", *names):
            return tuple(str(name) for name in names)
    return None


def described(transform: t.Transform) -> str:
    """Return what a stage of columns does, for `explain`."""
    match transform:
        case t.Select(outputs):
            return f"select {_shown(outputs)}"
        case t.With(outputs):
            return f"with {_shown(outputs)}"
        case t.Where(expression):
            return f"where {expression!r}"
        case t.Only(names):
            return f"only {', '.join(sorted(names))}: no later stage reads other columns"
        case t.SortColumns(names, descending, nulls_first):
            down = [f"{name} descending" if flag else name for name, flag in zip(names, descending, strict=True)]
            return f"sort by {', '.join(down)}{', nulls first' if nulls_first else ''}"
        case t.Top(n, names):
            return f"the first {n} rows by {', '.join(names)}, descending"
        case t.DistinctColumns(names):
            return f"one row for each {', '.join(names)}" if names else "one of equal rows"
        case t.JoinColumns(left, right, how, _):
            pairs = [one if one == two else f"{one} = {two}" for one, two in zip(left, right, strict=True)]
            return f"{how} join on {', '.join(pairs)}"
        case t.GroupColumns():
            made = ", ".join(f"{name}={each!r}" for name, each in transform.aggregates.items())
            return f"groups by {', '.join(transform.keys) or 'nothing'}: {made or 'distinct keys'}"
    return type(transform).__name__


def _shown(outputs: Sequence[tuple[str, Any]]) -> str:
    plain = [(name, isinstance(each, ColumnKey) and each.names == (name,), each) for name, each in outputs]
    return ", ".join(name if is_plain else f"{name}={each!r}" for name, is_plain, each in plain)


def plan_to_batches(draft: Draft, node: t.Node, transform: t.ToBatches) -> Output:
    output = draft.only_input(node)
    return draft.batches(output, node, transform.schema)


def plan_to_rows(draft: Draft, node: t.Node, transform: t.ToRows) -> Output:
    return draft.rows(draft.only_input(node), node)


# -- several inputs ----------------------------------------------------------------------------------------------------


def plan_union(draft: Draft, node: t.Node, transform: t.Union) -> Output:
    inputs = [draft.single(draft.batches(output, node), node) for output in draft.inputs(node)]
    time: Time = None
    if draft.graph.times.takes(node):
        if len({output.feeds[0].time for output in inputs}) > 1:
            inputs = [draft.single(draft.batches(draft.rows(output, node), node), node) for output in inputs]
        time = inputs[0].feeds[0].time
    names = known_names(draft.graph.nodes)[node.upstream[0]] or ()
    what = f"the rows of {len(inputs)} inputs of equal columns"
    vertex = draft.vertex(node.name, union_batches(names), node.parallelism, node, what)
    for ordinal, output in enumerate(inputs):
        draft.onward(output, vertex, node, ordinal)
    checking = draft.vertex(f"{node.name}-check", check_union(node.name), 1, node, "compares the columns of all inputs")
    draft.wires.to_one(Output((Feed(vertex, side=0),)), checking, "the columns of each input, once")
    return Output((Feed(vertex, columnar=True, time=time),))


def plan_join_columns(draft: Draft, node: t.Node, transform: t.JoinColumns) -> Output:
    left, right = (draft.single(draft.batches(output, node), node) for output in draft.inputs(node))
    on = dict(zip(transform.left_keys, transform.right_keys, strict=True))
    supplier = hash_join_batches(on, how=transform.how, suffix=transform.suffix)
    supplier = seeking(supplier, sought_names(draft.graph.nodes, draft.graph.consumers, node, transform.suffix))
    vertex = draft.vertex(node.name, telling_columns(supplier), node.parallelism, node, described(transform))
    left_key, right_key = ColumnKey(transform.left_keys), ColumnKey(transform.right_keys)
    size = most_bytes(draft.graph.nodes, node.upstream[1])
    if transform.how not in ("right", "outer") and size is not None and size <= SMALL:
        vertex.why.append("the right side is small and sent to every processor, so the left side need not move")
        lie = draft.onward(left, vertex, node)
        draft.wires.to_all(right, vertex, "the small side goes to every processor", 1, priority=-1, absorbed=True)
        return Output((Feed(vertex, lie, columnar=True, time=left.feeds[0].time),))
    count = _join_count(draft, vertex, [(left, left_key), (right, right_key)])
    vertex.why.append("both sides are partitioned by the keys")
    by_keys = Partitioning(identity_of(left_key), count)
    draft.wires.by_key(left, vertex, left_key, by_keys)
    wanted = Partitioning(identity_of(right_key), count)
    draft.wires.by_key(right, vertex, right_key, wanted, 1, priority=-1, absorbed=True)
    return Output((Feed(vertex, by_keys, columnar=True, time=left.feeds[0].time),))


def _join_count(draft: Draft, vertex: PlannedVertex, sides: Sequence[tuple[Output, ColumnKey]]) -> int:
    """Return the partitions of a join: those of a side that lies by its key already, else the grid's."""
    for output, key in sides:
        found = output.feeds[0].partitioning
        if found is not None and found.key == identity_of(key) and output.lies_as(found):
            adopt(vertex, output.feeds[0].vertex)
            return found.count
    return GRID_PARTITIONS


# -- all rows ----------------------------------------------------------------------------------------------------------


def plan_sort_columns(draft: Draft, node: t.Node, transform: t.SortColumns) -> Output:
    order = ColumnOrder(transform.names, transform.descending, transform.nulls_first)
    output = _one(draft, node)
    what = described(transform)
    if node.parallelism == 1 or any(feed.vertex.processors in (1, ("at most", 1)) for feed in output.feeds):
        supplier = telling_columns(sort_batches(order.by, descending=order.descending, nulls_first=order.nulls_first))
        vertex = draft.vertex(node.name, supplier, 1, node, f"{what}, on one processor: equal rows stay in order")
        draft.wires.to_one(output, vertex, "all rows are sorted together", absorbed=True)
        return Output((Feed(vertex, columnar=True),))
    share = sorted_share(order.by, order.descending, order.nulls_first)
    why = f"{what}: each processor sorts its share"
    local = draft.vertex(f"{node.name}-local", share, node.parallelism, node, why)
    draft.wires.any_way(output, local, absorbed=True)
    vertex = draft.vertex(node.name, project_batches(()), 1, node, "one processor, which gets the sorted shares merged")
    merged = "sorted shares are merged row by row"
    draft.wires.to_one(Output((Feed(local),)), vertex, merged, ordered=True, order_key=order)
    return Output((Feed(vertex, columnar=True),))


def plan_top(draft: Draft, node: t.Node, transform: t.Top) -> Output:
    supplier = sort_batches(transform.names, descending=True, limit=transform.n)
    local = draft.vertex(
        f"{node.name}-local",
        telling_columns(supplier),
        node.parallelism,
        node,
        f"each processor keeps {described(transform)}",
    )
    draft.wires.any_way(_one(draft, node), local, absorbed=True)
    vertex = draft.vertex(node.name, telling_columns(supplier), 1, node, "the first of these, on one processor")
    draft.wires.to_one(Output((Feed(local),)), vertex, f"{transform.n} rows of each processor", absorbed=True)
    return Output((Feed(vertex, columnar=True),))


def plan_distinct_columns(draft: Draft, node: t.Node, transform: t.DistinctColumns) -> Output:
    return distinct_of(draft, node, transform, _one(draft, node))


def distinct_of(draft: Draft, node: t.Node, transform: t.DistinctColumns, output: Output) -> Output:
    """Plan the distinct rows of batches."""
    names = transform.names
    if names and output.lies_as(partitioned_by(ColumnKey(names))):
        vertex = draft.vertex(
            node.name, distinct_rows(names), -1, node, f"{described(transform)}: equal keys are together already"
        )
        draft.lies_alike(output, vertex)
        draft.wires.by_key(output, vertex, ColumnKey(names), output.feeds[0].partitioning or partitioned_by(None))
        return Output((Feed(vertex, output.feeds[0].partitioning, columnar=True),))
    why = f"{described(transform)}: what is repeated on a processor does not move"
    local = draft.vertex(f"{node.name}-local", distinct_rows(names, "first"), node.parallelism, node, why)
    draft.wires.any_way(output, local)
    vertex = draft.vertex(
        node.name, distinct_rows(names, "last"), node.parallelism, node, "what is repeated between processors goes"
    )
    key = ColumnKey(names or (ROW_HASH,))
    wanted = partitioned_by(key)
    draft.wires.by_key(Output((Feed(local, columnar=True),)), vertex, key, wanted)
    return Output((Feed(vertex, wanted if names else None, columnar=True),))
