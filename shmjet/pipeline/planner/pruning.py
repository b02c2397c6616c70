"""Columns that no later stage reads are left out before rows move: neither edges nor what keeps rows have them.

Pure: nodes in, nodes out. Must not know vertices. A join whose names are not known on both sides keeps all columns,
because a name on both sides has to be found.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from shmjet.pipeline import transforms as t
from shmjet.pipeline.planner.column_needs import Names, Needs, known_names, needed_names, reads

_MOVING = (t.JoinColumns, t.SortColumns, t.Top, t.DistinctColumns, t.Union)
"""Stages whose rows move, or are kept until the end."""


def pruned(nodes: Sequence[t.Node]) -> tuple[t.Node, ...]:
    """Return the stages of a pipeline with `Only` before rows move, where there is something to leave out.

    Example:
        >>> from shmjet import Pipeline, column, sinks, sources
        >>> pipeline = Pipeline()
        >>> read = pipeline.read_from(sources.items([])).with_columns(c=column("a") + 1)
        >>> sink = read.sort("b").select("a").write_to(sinks.noop())
        >>> [sorted(node.transform.names) for node in pruned(pipeline.nodes) if isinstance(node.transform, t.Only)]
        [['a', 'b']]
    """
    known = known_names(nodes)
    needs = needed_names(nodes, known)
    found: list[t.Node] = []
    number: dict[int, int] = {}
    for node in nodes:
        upstream = [number[id_] for id_ in node.upstream]
        if isinstance(node.transform, _MOVING):
            wanted = reads(node.transform, needs[node.id], [known[id_] for id_ in node.upstream])
            for place, id_ in enumerate(node.upstream):
                names = wanted[place]
                if names is not None and _leaves_out(nodes[id_], known[id_], names):
                    only = t.Only(names)
                    found.append(t.Node(len(found), f"{node.name}-columns", only, (upstream[place],)))
                    upstream[place] = found[-1].id
        number[node.id] = len(found)
        found.append(replace(node, id=len(found), upstream=tuple(upstream)))
    return tuple(found)


def _leaves_out(node: t.Node, known: Names, names: Needs) -> bool:
    """Tell whether something of a stage's columns may be left out: at least one is kept, so that rows are counted."""
    if not names or isinstance(node.transform, t.FailedItems | t.LateItems):
        return False
    return known is None or (not names.issuperset(known) and not names.isdisjoint(known))
