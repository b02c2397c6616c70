"""The plan as text: a tree from each sink up to the sources, with the reason for every choice.

A vertex that feeds several others is written out where it is met first. It must not know how choices are made.
"""

from __future__ import annotations

from shmjet.pipeline.planner.model import PhysicalPlan, PlannedEdge, PlannedVertex


def explain(plan: PhysicalPlan) -> str:
    """Return the tree.

    Each vertex stands with its number of processors, then come its reasons, then, indented, what feeds it, each with
    the way its items take from there.
    """
    shown: set[PlannedVertex] = set()
    lines: list[str] = []
    for vertex in plan.vertices:
        if not plan.outbound(vertex):
            _write(plan, vertex, None, "", "", shown, lines)
    return "\n".join(lines) + "\n"


def _write(
    plan: PhysicalPlan,
    vertex: PlannedVertex,
    edge: PlannedEdge | None,
    head: str,
    indent: str,
    shown: set[PlannedVertex],
    lines: list[str],
) -> None:
    traits = edge.traits() if edge is not None else ""
    again = vertex in shown
    title = f"{vertex.name} ({_parallelism(vertex)})"
    if traits:
        title += f"  → {traits}"
    lines.append(f"{head}{title}{'  (see above)' if again else ''}")
    inbound = [] if again else plan.inbound(vertex)
    bar = f"{indent}{'│' if inbound else ' '}    "
    reasons = [] if again else [*vertex.why]
    if not again and vertex.stages not in ((), (vertex.name,)):
        reasons.insert(0, f"does {', '.join(vertex.stages)}")
    reasons += [f"edge: {why}" for why in edge.why] if edge is not None else []
    lines += [f"{bar}{reason}" for reason in reasons]
    shown.add(vertex)
    for number, each in enumerate(inbound):
        last = number == len(inbound) - 1
        _write(
            plan,
            each.source,
            each,
            f"{indent}{'└─ ' if last else '├─ '}",
            f"{indent}{'   ' if last else '│  '}",
            shown,
            lines,
        )


def _parallelism(vertex: PlannedVertex) -> str:
    processors = vertex.processors
    if isinstance(processors, tuple):
        return f"at most {processors[1]}"
    return "one per worker" if vertex.parallelism == -1 else str(vertex.parallelism)
