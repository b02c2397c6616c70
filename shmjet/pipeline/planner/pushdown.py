"""Projections and filters that sources do themselves: they read only the columns and rows that stages behind them need.

A source takes part with a method `narrowed(columns, conditions)`, which returns it with less, and `takes(condition)`.
What it has taken is not a stage any more. The result of a pipeline stays the same; an error does not come of a value
that is not read any more. Must not know how sources read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from msgspec import structs

from shmjet.core.column_key import ColumnKey
from shmjet.core.expressions import Call, Expression
from shmjet.core.expressions.trees import operands_first
from shmjet.pipeline import transforms as t
from shmjet.pipeline.planner.column_needs import Names, Needs, known_names, needed_names, plain_column
from shmjet.processors.general.collect import CollectSupplier

_OF_COLUMNS = (
    *(t.Select, t.With, t.Where, t.GroupColumns, t.JoinColumns, t.SortColumns, t.Top, t.DistinctColumns, t.Union),
    *(t.ToBatches, t.ToRows),
)
"""Stages to which batches without rows say something, and which pass none of them on to functions."""


def pushed_down(nodes: Sequence[t.Node]) -> tuple[t.Node, ...]:
    """Return the stages of a pipeline with sources that give less, and without the filters that they do themselves."""
    return _narrowed_all([_telling_columns(node, nodes) for node in nodes])


def _telling_columns(node: t.Node, nodes: Sequence[t.Node]) -> t.Node:
    """Return a source whose rows go to stages of columns only, so that these know its columns without rows, too."""
    transform = node.transform
    if not isinstance(transform, t.Source) or transform.policy is not None or not transform.source.columnar:
        return node
    consumers = [each for each in nodes if node.id in each.upstream]
    if not hasattr(transform.source, "telling_columns") or not all(_is_of_columns(each) for each in consumers):
        return node
    return structs.replace(node, transform=structs.replace(transform, source=transform.source.telling_columns()))


def _is_of_columns(node: t.Node) -> bool:
    match node.transform:
        case t.Sink(sink):
            return isinstance(sink.supplier, CollectSupplier)
        case t.Distinct(key_fn):
            return key_fn is None
    return isinstance(node.transform, _OF_COLUMNS)


def _narrowed_all(nodes: Sequence[t.Node]) -> tuple[t.Node, ...]:
    narrowing = [node for node in nodes if _narrows(node)]
    if not narrowing:
        return tuple(nodes)
    taken: dict[int, list[Any]] = {}
    gone: set[int] = set()
    for node in narrowing:
        conditions = []
        for each, condition in _leading_conditions(node, nodes):
            if not node.transform.source.takes(condition):  # type: ignore[attr-defined]
                break  # those behind it may count on it
            conditions.append(condition)
            gone.add(each.id)
        taken[node.id] = conditions
    left, ids = _without(nodes, gone)
    known = known_names(left)
    needs = needed_names(left, known)
    return tuple(
        _narrowed(node, taken[ids[node.id]], known[node.id], needs[node.id]) if ids[node.id] in taken else node
        for node in left
    )


def _narrows(node: t.Node) -> bool:
    transform = node.transform
    return (
        isinstance(transform, t.Source)
        and transform.policy is None
        and bool(transform.source.columnar)
        and hasattr(transform.source, "narrowed")
    )


def _leading_conditions(source: t.Node, nodes: Sequence[t.Node]) -> list[tuple[t.Node, Expression]]:
    """Return the filters that could be done first, in order, each as a condition on the source's own columns."""
    found: list[tuple[t.Node, Expression]] = []
    renames: dict[str, str] | None = None  # names behind the stage so far → the source's; None: all as they are
    hidden: set[str] = set()
    node = source
    while True:
        consumers = [each for each in nodes if node.id in each.upstream]
        if len(consumers) != 1 or consumers[0].on_error is not None:
            return found
        (node,) = consumers
        match node.transform:
            case t.Where(expression):
                if hidden & set(expression.names) or node.parallelism != -1 or node.is_named:
                    return found
                if renames is not None and not all(name in renames for name in expression.names):
                    return found
                found.append((node, expression if renames is None else renamed(expression, renames)))
            case t.Select(outputs):
                renames = {
                    name: plain if renames is None else renames[plain]
                    for name, each in outputs
                    if (plain := plain_column(each)) is not None
                    and plain not in hidden
                    and (renames is None or plain in renames)
                }
                hidden = set()
            case t.With(outputs):
                made = {name for name, _ in outputs}
                hidden |= made
                renames = None if renames is None else {name: old for name, old in renames.items() if name not in made}
            case t.ToBatches(None):
                pass
            case _:
                return found


def renamed(expression: Expression, names: Mapping[str, str]) -> Expression:
    """Return an expression of other columns.

    Example:
        >>> from shmjet import column
        >>> renamed(column("a") + 1, {"a": "b"})
        (column('b') + 1)
    """
    made: dict[int, Expression] = {}
    for node in operands_first(expression):
        plain = plain_column(node)
        if plain is not None:
            made[id(node)] = ColumnKey((names[plain],))
        elif isinstance(node, Call):
            made[id(node)] = replace(node, of=tuple(made[id(each)] for each in node.of))
        else:
            made[id(node)] = node
    return made[id(expression)]


def _without(nodes: Sequence[t.Node], gone: set[int]) -> tuple[list[t.Node], dict[int, int]]:
    """Return the nodes without some that pass on one input, numbered anew, and the old number of each."""
    number: dict[int, int] = {}
    left: list[t.Node] = []
    for node in nodes:
        if node.id in gone:
            number[node.id] = number[node.upstream[0]]
            continue
        number[node.id] = len(left)
        left.append(structs.replace(node, id=len(left), upstream=tuple(number[id_] for id_ in node.upstream)))
    return left, {number[node.id]: node.id for node in nodes if node.id not in gone}


def _narrowed(node: t.Node, conditions: Sequence[Expression], known: Names, needs: Needs) -> t.Node:
    transform: Any = node.transform
    if not conditions and needs is None:
        return node
    columns = None
    if needs is not None and known is not None:
        columns = tuple(name for name in known if name in needs)
        if len(columns) == len(known) or not needs.issubset(known):  # for an error that names what is there
            columns = None
    elif needs is not None:
        columns = tuple(sorted(needs))
    if columns is None and not conditions:
        return node
    return structs.replace(
        node, transform=structs.replace(transform, source=transform.source.narrowed(columns, tuple(conditions)))
    )
