"""The choice of buffered edges, so that no job waits for itself.

A vertex reads the edges of a lower priority to their end before it looks at the others. Meanwhile a vertex that feeds
one of the others is stopped once its lane is full. So such a feeder *waits for* all that the vertex reads first, with
everything upstream of it; and if these wait for the feeder in turn, because one source feeds both or across several
joins, nothing moves ever again. A buffered edge does not stop its feeder.

Must not know what vertices do: only their edges, priorities and which edges are absorbed.
"""

from __future__ import annotations

from collections.abc import Iterable

from shmjet.pipeline.planner.model import PhysicalPlan, PlannedEdge, PlannedVertex


def buffer_edges(plan: PhysicalPlan) -> None:
    """Mark the edges that have to be buffered, as few as a pass in the order of the vertices finds."""
    waits: dict[PlannedVertex, set[PlannedVertex]] = {}
    for vertex in plan.vertices:
        inbound = plan.inbound(vertex)
        for edge in inbound:
            first = [e for e in inbound if e.priority < edge.priority]
            if not first:
                continue
            stopped = _stopped_by(plan, edge)
            awaited = _upstream(plan, [e.source for e in first])
            if any(_reaches(waits, goal, stopped) for goal in awaited) or stopped & awaited:
                edge.buffered = True
                edge.why.append(
                    f"buffered: what feeds it also feeds, or waits for, what {vertex.name} reads first, and would "
                    "otherwise stop for ever"
                )
            else:
                for feeder in stopped:
                    waits.setdefault(feeder, set()).update(awaited)


def _stopped_by(plan: PhysicalPlan, edge: PlannedEdge) -> set[PlannedVertex]:
    """Return the vertices that cannot go on while an edge is not read."""
    stopped: set[PlannedVertex] = set()
    waiting = [edge.source]
    while waiting:
        vertex = waiting.pop()
        if vertex not in stopped:
            stopped.add(vertex)
            waiting += [e.source for e in plan.inbound(vertex) if not e.absorbed and not e.buffered]
    return stopped


def _upstream(plan: PhysicalPlan, vertices: Iterable[PlannedVertex]) -> set[PlannedVertex]:
    """Return some vertices and all that lead to them."""
    found: set[PlannedVertex] = set()
    waiting = list(vertices)
    while waiting:
        vertex = waiting.pop()
        if vertex not in found:
            found.add(vertex)
            waiting += [e.source for e in plan.inbound(vertex)]
    return found


def _reaches(waits: dict[PlannedVertex, set[PlannedVertex]], start: PlannedVertex, goals: set[PlannedVertex]) -> bool:
    """Tell whether a vertex waits for one of several, perhaps by way of others."""
    seen: set[PlannedVertex] = set()
    waiting = [start]
    while waiting:
        vertex = waiting.pop()
        if vertex in goals:
            return True
        if vertex not in seen:
            seen.add(vertex)
            waiting += waits.get(vertex, ())
    return False
