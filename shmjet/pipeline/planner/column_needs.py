"""Which columns stages of batches give and read: names that are known go forwards, names that are read go backwards.

Pure analysis of the logical graph. It must not know sources, nor what is made of the answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shmjet.core.column_key import ColumnKey
from shmjet.pipeline import transforms as t

Names = tuple[str, ...] | None
"""Columns in order; None: not known."""

Needs = frozenset[str] | None
"""Columns that are read; None: all."""

_SAME = (t.Where, t.SortColumns, t.Top, t.DistinctColumns)
_SPREADING = (t.Rebalance, t.PartitionBy)
_BY_COLUMN = (
    *("sum", "count", "min", "max", "mean", "first", "last"),
    *("var", "std", "quantile", "median", "n_unique", "list", "min_by", "max_by"),
)
"""Aggregates that read columns that they name."""


def plain_column(expression: Any) -> str | None:
    """Return the name of the column that an expression is as it stands; None where it is computed."""
    return expression.names[0] if isinstance(expression, ColumnKey) else None


def known_names(nodes: Sequence[t.Node]) -> dict[int, Names]:
    """Return the names of the columns that each stage gives, as far as they can be told before there are batches."""
    found: dict[int, Names] = {}
    for node in nodes:
        found[node.id] = _names(node.transform, [found[id_] for id_ in node.upstream])
    return found


def _names(transform: t.Transform, inputs: list[Names]) -> Names:
    match transform:
        case t.Source():
            names: Names = getattr(transform.source, "column_names", None)
            return names
        case t.Select():
            return tuple(name for name, _ in transform.outputs)
        case t.GroupColumns():
            return (*transform.keys, *transform.aggregates)
        case t.ToBatches(None):
            return inputs[0]
        case t.Union():
            return inputs[0] if _are_alike(inputs) else None
    if not inputs or inputs[0] is None:
        return None
    if isinstance(transform, _SAME) or (isinstance(transform, _SPREADING) and _by_names(transform) is not None):
        return inputs[0]
    if isinstance(transform, t.Distinct) and transform.key_fn is None:
        return inputs[0]
    if isinstance(transform, t.Only):
        return tuple(name for name in inputs[0] if name in transform.names)
    if isinstance(transform, t.With):
        return tuple(dict.fromkeys((*inputs[0], *(name for name, _ in transform.outputs))))
    if isinstance(transform, t.JoinColumns):
        return join_names(transform, inputs[0], inputs[1])
    return None


def _are_alike(inputs: Sequence[Names]) -> bool:
    """Tell whether all inputs are known to have columns of the same names."""
    return all(each is not None and inputs[0] is not None and set(each) == set(inputs[0]) for each in inputs)


def join_names(join: t.JoinColumns, left: Names, right: Names) -> Names:
    """Return the names of what a join gives; None where they are not known, or two are the same."""
    if left is None or right is None:
        return None
    if join.how in ("semi", "anti"):
        return left
    made = [suffixed(join, name, left) for name in right if name not in join.right_keys]
    names = (*left, *made)
    return names if len(set(names)) == len(names) else None


def suffixed(join: t.JoinColumns, name: str, left: Sequence[str]) -> str:
    """Return what a column of the right side is called behind a join."""
    return f"{name}{join.suffix or ''}" if name in left else name


def needed_names(nodes: Sequence[t.Node], known: dict[int, Names]) -> dict[int, Needs]:
    """Return the names of the columns of each stage that any stage behind it reads."""
    needs: dict[int, Needs] = {node.id: frozenset() for node in nodes}
    for node in reversed(nodes):
        read = reads(node.transform, needs[node.id], [known[id_] for id_ in node.upstream])
        for upstream, names in zip(node.upstream, read, strict=True):
            before = needs[upstream]
            needs[upstream] = None if before is None or names is None else before | names
    return needs


def reads(transform: t.Transform, wanted: Needs, inputs: list[Names]) -> list[Needs]:
    """Return which columns of its inputs a stage reads, when some of what it gives are wanted."""
    match transform:
        case t.Select():
            return [_read_by(transform.outputs)]
        case t.With():
            if wanted is None:
                return [None]
            return [(wanted - {name for name, _ in transform.outputs}) | _read_by(transform.outputs)]
        case t.Where():
            return [None if wanted is None else wanted | set(transform.expression.names)]
        case t.SortColumns() | t.Top():
            return [None if wanted is None else wanted | set(transform.names)]
        case t.DistinctColumns():
            return [None if wanted is None or not transform.names else wanted | set(transform.names)]
        case t.GroupColumns():
            return [_read_by_groups(transform)]
        case t.ToBatches(None):
            return [wanted]
        case t.Rebalance() | t.PartitionBy() if wanted is not None and (names := _by_names(transform)) is not None:
            return [wanted | names]
        case t.Union():
            return [wanted if _are_alike(inputs) else None] * len(inputs)
        case t.JoinColumns():
            return _read_by_join(transform, wanted, inputs[0], inputs[1])
    return [None] * len(inputs)


def sought_names(
    nodes: Sequence[t.Node], consumers: Mapping[int, Sequence[t.Node]], node: t.Node, suffix: str | None
) -> frozenset[str]:
    """Return names of columns that a join must give, because the stages after it read them.

    Where the columns of both sides are known, only theirs: a name that is misspelt is none that the join gives.

    Args:
        nodes: all stages.
        consumers: of each stage.
        node: the join.
        suffix: of columns of its right side.
    """
    sought = _sought(consumers, node.id)
    known = known_names(nodes)
    left, right = (known[id_] for id_ in node.upstream)
    if left is None or right is None:
        return sought
    return sought & {*left, *right, *(f"{name}{suffix or ''}" for name in right)}


def _sought(consumers: Mapping[int, Sequence[t.Node]], node_id: int) -> frozenset[str]:
    sought: set[str] = set()
    ahead: list[tuple[int, frozenset[str]]] = [(node_id, frozenset())]
    while ahead:
        id_, made = ahead.pop()
        for node in consumers[id_]:
            match node.transform:
                case t.Where():
                    sought |= set(node.transform.expression.names) - made
                    ahead.append((node.id, made))
                case t.With():
                    sought |= _read_by(node.transform.outputs) - made
                    ahead.append((node.id, made | {name for name, _ in node.transform.outputs}))
                case t.Select():
                    sought |= _read_by(node.transform.outputs) - made
                case t.SortColumns() | t.Top() | t.DistinctColumns():
                    sought |= set(node.transform.names) - made
                    ahead.append((node.id, made))
                case t.Only():
                    ahead.append((node.id, made))
                case t.WindowColumns() | t.GroupColumns():
                    sought |= (_read_by_groups(node.transform) or frozenset()) - made
    return frozenset(sought)


def _by_names(transform: t.Rebalance | t.PartitionBy) -> frozenset[str] | None:
    """Return the columns by which batches are spread; None where a function looks at items."""
    if isinstance(transform, t.Rebalance) and not transform.keyed:
        return frozenset()
    return frozenset(transform.key_fn.names) if isinstance(transform.key_fn, ColumnKey) else None


def _read_by(outputs: Sequence[tuple[str, Any]]) -> frozenset[str]:
    return frozenset(name for _, expression in outputs for name in expression.names)


def _read_by_groups(groups: t.GroupColumns | t.WindowColumns) -> Needs:
    names = set(groups.keys)
    for aggregate in groups.aggregates.values():
        if aggregate.function not in _BY_COLUMN:
            return None
        names |= set(aggregate.names)
    return frozenset(names)


def _read_by_join(join: t.JoinColumns, wanted: Needs, left: Names, right: Names) -> list[Needs]:
    if join.how in ("semi", "anti"):
        return [None if wanted is None else wanted | set(join.left_keys), frozenset(join.right_keys)]
    if wanted is None or left is None or right is None or join_names(join, left, right) is None:
        return [None, None]
    of_left = (wanted & set(left)) | set(join.left_keys)
    of_right = set(join.right_keys)
    for name in right:
        if name not in join.right_keys and suffixed(join, name, left) in wanted:
            of_right.add(name)
            of_left |= {name} & set(left)  # for as long as the left has one of that name the right's gets the suffix
    return [frozenset(of_left), frozenset(of_right)]
