"""What a pipeline means: an interpreter over plain lists, with which the engine's results are compared.

It follows the words of `shmjet/pipeline/stages.py` and knows nothing of the planner. Each stage is a list of items.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

from shmjet import Batch
from shmjet.pipeline import Pipeline
from shmjet.pipeline import transforms as t


def interpret(pipeline: Pipeline, sources: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    """Return the items that reach each sink, by the sink's name.

    Args:
        pipeline: what is interpreted.
        sources: the items of each source, by the name of its definition.
    """
    lists: dict[int, list[Any]] = {}
    sinks: dict[str, list[Any]] = {}
    tables: dict[str, dict[Any, Any]] = {}
    for node in pipeline.nodes:  # tables first, as they are complete before they are joined
        inputs = [lists[i] for i in node.upstream if i in lists]
        if len(inputs) < len(node.upstream) or _awaits_table(pipeline, node, lists):
            continue
        _do(node, inputs, lists, sinks, tables, sources)
    left = [node for node in pipeline.nodes if node.id not in lists]
    while left:
        for node in left:
            if all(i in lists for i in node.upstream) and not _awaits_table(pipeline, node, lists):
                _do(node, [lists[i] for i in node.upstream], lists, sinks, tables, sources)
        left = [node for node in left if node.id not in lists]
    return sinks


def _awaits_table(pipeline: Pipeline, node: t.Node, lists: Mapping[int, Any]) -> bool:
    return isinstance(node.transform, t.JoinTable) and any(
        isinstance(other.transform, t.SendToTable)
        and other.transform.table == node.transform.table
        and other.id not in lists
        for other in pipeline.nodes
    )


def _do(
    node: t.Node,
    inputs: list[list[Any]],
    lists: dict[int, list[Any]],
    sinks: dict[str, list[Any]],
    tables: dict[str, dict[Any, Any]],
    sources: Mapping[str, list[Any]],
) -> None:
    match node.transform:
        case t.Source(source):
            made = list(sources[source.name])
        case t.Sink(sink):
            made = [item for items in inputs for item in items]
            sinks.setdefault(sink.name, []).extend(made)
        case t.SendToTable(table, key_fn, keyed):
            made = []
            for item in inputs[0]:
                key, value = (_key(key_fn, item), item) if keyed else item
                tables.setdefault(table, {})[key] = value
        case t.JoinTable(table, key_fn, fn):
            found = tables.get(table, {})
            made = _present(fn(item, found.get(_key(key_fn, item))) for item in inputs[0])
        case _:
            made = _transformed(node.transform, inputs)
    lists[node.id] = made


def _transformed(transform: t.Transform, inputs: list[list[Any]]) -> list[Any]:
    items = inputs[0]
    match transform:
        case t.Map(fn):
            return _present(map(fn, items))
        case t.Filter(fn):
            return [item for item in items if fn(item)]
        case t.FlatMap(fn):
            return [result for item in items for result in fn(item)]
        case t.Peek() | t.Rebalance() | t.PartitionBy():
            return items
        case t.Merge():
            return [item for each in inputs for item in each]
        case t.MapStateful(create, fn, key_fn, keyed):
            return _stateful(type(transform), create, fn, key_fn, keyed, items)
        case t.UsingService(kind, service, fn, key_fn, keyed):
            return _using(transform, kind, service, fn, key_fn, keyed, items)
        case t.HashJoin(clauses, project, inner):
            return _hash_join(clauses, project, inner, inputs)
        case t.Join(left_key, right_key, project):
            pairs = [(a, b) for a in items for b in inputs[1] if _key(left_key, a) == _key(right_key, b)]
            return pairs if project is None else _present(project(a, b) for a, b in pairs)
        case t.Sort(key_fn, reverse):
            return sorted(items, key=key_fn, reverse=reverse)
        case t.Distinct(key_fn):
            return list({_key(key_fn, item): item for item in reversed(items)}.values())
        case t.Aggregate(op, key_fns):
            return _aggregate(op, key_fns, inputs)
        case t.RollingAggregate(op, key_fn, keyed):
            return _rolling(op, key_fn, keyed, items)
        case t.MapBatches(fn):
            return list(Batch(fn(Batch.from_rows(items))).rows()) if items else []
        case t.GroupColumns(grouping):
            keys, (name,) = grouping.keys, grouping.aggregates
            counts = Counter(tuple(row[key] for key in keys) for row in items)
            return [dict(zip((*keys, name), (*key, n), strict=True)) for key, n in counts.items()]
    raise AssertionError(f"the interpreter does not know {transform!r}")


def _key(key_fn: Callable[[Any], Any] | None, item: Any) -> Any:
    return item if key_fn is None else key_fn(item)


def _present(results: Any) -> list[Any]:
    return [result for result in results if result is not None]


def _kept(kind: str, pairs: list[tuple[Any, Any]]) -> list[Any]:
    """Return what map, filter or flat_map makes of items and what a function gave for them."""
    if kind == "filter":
        return [item for item, result in pairs if result]
    if kind == "flat_map":
        return [each for _, result in pairs for each in result]
    return _present(result for _, result in pairs)


def _stateful(kind: type, create: Any, fn: Any, key_fn: Any, keyed: bool, items: list[Any]) -> list[Any]:
    states: dict[Any, Any] = {}
    pairs = []
    for item in items:
        key = _key(key_fn, item) if keyed else None
        if key not in states:
            states[key] = create()
        pairs.append((item, fn(states[key], key, item) if keyed else fn(states[key], item)))
    return _kept({t.FilterStateful: "filter", t.FlatMapStateful: "flat_map"}.get(kind, "map"), pairs)


def _using(
    transform: t.Transform, kind: str, factory: Any, fn: Any, key_fn: Any, keyed: bool, items: list[Any]
) -> list[Any]:
    service = factory.create()
    pairs = []
    for item in items:
        result = fn(service, _key(key_fn, item), item) if keyed else fn(service, item)
        if isinstance(transform, t.UsingServiceAsync):
            result = asyncio.run(result)
        pairs.append((item, result))
    return _kept(kind, pairs)


def _hash_join(clauses: Any, project: Any, inner: Any, inputs: list[list[Any]]) -> list[Any]:
    results = []
    for item in inputs[0]:
        matches = []
        for clause, side_is_inner, side in zip(clauses, inner, inputs[1:], strict=True):
            found = [
                _key(clause.projection, b) for b in side if _key(clause.right_key, b) == _key(clause.left_key, item)
            ]
            matches.append(found or ([] if side_is_inner else [None]))
        results += [(item, *match) if project is None else project(item, *match) for match in product(*matches)]
    return _present(results)


def _aggregate(op: Any, key_fns: Any, inputs: list[list[Any]]) -> list[Any]:
    def result(accumulator: Any) -> Any:
        return accumulator if op.finisher is None else op.finisher(accumulator)

    accumulators: dict[Any, Any] = {} if key_fns is not None else {None: op.create()}
    accumulates = getattr(op, "accumulates", (op.accumulate,))
    for number, items in enumerate(inputs):
        for item in items:
            key = None if key_fns is None else _key(key_fns[number], item)
            if key not in accumulators:
                accumulators[key] = op.create()
            changed = accumulates[number](accumulators[key], item)
            if changed is not None:
                accumulators[key] = changed
    if key_fns is None:
        return _present([result(accumulators[None])])
    return [(key, result(accumulator)) for key, accumulator in accumulators.items()]


def _rolling(op: Any, key_fn: Any, keyed: bool, items: list[Any]) -> list[Any]:
    seen: dict[Any, list[Any]] = {}
    results = []
    for item in items:
        key = _key(key_fn, item) if keyed else None
        seen.setdefault(key, []).append(item)
        ((_, result),) = _aggregate(op, (lambda _: None,), [seen[key]])
        results.append((key, result) if keyed else result)
    return results
