"""The plan as text: a tree from each sink up to the sources, with the reason for every choice.

A vertex that feeds several others is written out where it is met first. It must not know how choices are made.
"""

from __future__ import annotations

from shmjet.core.job import ProcessingGuarantee
from shmjet.pipeline.planner.model import PhysicalPlan, PlannedEdge, PlannedVertex

_ORDER = tuple(ProcessingGuarantee)
"""From the weakest to the strongest."""


def explain(plan: PhysicalPlan, guarantee: ProcessingGuarantee = ProcessingGuarantee.NONE) -> str:
    """Return the tree.

    Args:
        plan: whose.
        guarantee: of the job; where there is one, each source and sink comes with its own.

    Each vertex stands with its number of processors, then come its reasons, then, indented, what feeds it, each with
    the way its items take from there.
    """
    shown: set[PlannedVertex] = set()
    lines: list[str] = []
    for vertex in plan.vertices:
        if not plan.outbound(vertex):
            _write(plan, guarantee, vertex, None, "", "", shown, lines)
    return "\n".join(lines) + "\n"


def _write(
    plan: PhysicalPlan,
    guarantee: ProcessingGuarantee,
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
    if not again and vertex.guarantee is not None and guarantee is not ProcessingGuarantee.NONE:
        reasons.append(_guarantee(guarantee, vertex.guarantee))
    if not again and vertex.has_unnamed_state and guarantee is not ProcessingGuarantee.NONE:
        reasons.append("state: saved under this name, which may change with the pipeline; set_name() keeps it")
    reasons += [f"edge: {why}" for why in edge.why] if edge is not None else []
    lines += [f"{bar}{reason}" for reason in reasons]
    shown.add(vertex)
    for number, each in enumerate(inbound):
        last = number == len(inbound) - 1
        _write(
            plan,
            guarantee,
            each.source,
            each,
            f"{indent}{'└─ ' if last else '├─ '}",
            f"{indent}{'   ' if last else '│  '}",
            shown,
            lines,
        )


def _guarantee(of_job: ProcessingGuarantee, own: ProcessingGuarantee) -> str:
    """Return the weaker one in words."""
    effective = min(of_job, own, key=_ORDER.index)
    text = f"guarantee: {effective.value.replace('_', ' ')}"
    return text if effective is of_job else f"{text}, weaker than that of the job"


def _parallelism(vertex: PlannedVertex) -> str:
    processors = vertex.processors
    if isinstance(processors, tuple):
        return f"at most {processors[1]}"
    return "one per worker" if vertex.parallelism == -1 else str(vertex.parallelism)
