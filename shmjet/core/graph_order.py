"""Order and cycles of a graph given by names; pure functions, iterative, so that any depth works."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence


def topological_order(nodes: Sequence[str], successors: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the nodes so that each comes after all that lead to it; among equals the given order is kept.

    Nodes on a cycle, and what only they lead to, are left out. O(nodes + edges).

    Example:
        >>> topological_order(["sink", "source"], {"source": ["sink"], "sink": []})
        ['source', 'sink']
    """
    waiting = dict.fromkeys(nodes, 0)
    for node in nodes:
        for successor in successors[node]:
            waiting[successor] += 1
    ready = deque(node for node in nodes if waiting[node] == 0)
    order: list[str] = []
    while ready:
        node = ready.popleft()
        order.append(node)
        for successor in successors[node]:
            waiting[successor] -= 1
            if waiting[successor] == 0:
                ready.append(successor)
    return order


def cycle_in(nodes: Sequence[str], successors: Mapping[str, Sequence[str]]) -> list[str]:
    """Return a cycle as a path whose first and last node are the same; an empty list when there is none.

    Example:
        >>> cycle_in(["a", "b", "c"], {"a": ["b"], "b": ["c"], "c": ["b"]})
        ['b', 'c', 'b']
    """
    finished: set[str] = set()
    for start in nodes:
        if start in finished:
            continue
        path = [start]
        on_path = {start}
        branches = [iter(successors[start])]
        while path:
            node = next(branches[-1], None)
            if node is None:
                finished.add(path[-1])
                on_path.discard(path.pop())
                branches.pop()
            elif node in on_path:
                return [*path[path.index(node) :], node]
            elif node not in finished:
                path.append(node)
                on_path.add(node)
                branches.append(iter(successors[node]))
    return []
