"""One walk for all graphs: the logical graph, with or without the connections that the planner adds to it.

It must not know what a vertex is. After the `GraphUtils.traverse` of Samza's execution planner (SAMZA-1889), which
recurses and trusts that there are no cycles; here a cycle ends where it began, and a graph may be as deep as it likes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

V = TypeVar("V", bound=Hashable)


def traverse(vertex: V, visit: Callable[[V], object], next_vertices: Callable[[V], Iterable[V]]) -> None:
    """Visit a vertex and all that can be reached from it, each once.

    Depth first: a vertex before its successors, and these in the order in which `next_vertices` gives them. What a
    visit returns is ignored.

    Args:
        vertex: where the walk starts.
        visit: called with each vertex.
        next_vertices: what follows a vertex; asked once for each, right after its visit.

    Example:
        >>> graph = {"a": "bc", "b": "d", "c": "d", "d": "a"}
        >>> traverse("a", print, lambda vertex: graph[vertex])
        a
        b
        d
        c
    """
    seen: set[V] = set()
    pending = [iter((vertex,))]
    while pending:
        for found in pending[-1]:
            if found not in seen:
                seen.add(found)
                visit(found)
                pending.append(iter(next_vertices(found)))
                break
        else:
            pending.pop()
