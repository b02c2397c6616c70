"""A pipeline on Spark as text: a tree from each sink up to the sources, with what moves between tasks and why.

Must not know how anything is run.
"""

from __future__ import annotations

from collections.abc import Sequence

from shmjet.core.job import JobConfig
from shmjet.pipeline import transforms as t
from shmjet.spark.runner.translation import How, Input, SparkPlan, Step, translate


def explain_on_spark(nodes: Sequence[t.Node], config: JobConfig) -> str:
    """Return how Spark would run a pipeline; no Spark is needed for that.

    Raises:
        PlanError: it cannot be run there; the text names the stage.
    """
    return as_text(translate(nodes, config, instances=1))


def as_text(plan: SparkPlan) -> str:
    """Return the tree of a plan."""
    steps = {step.name: step for step in plan.steps}
    read = {each.source for step in plan.steps for each in step.inputs}
    shown: set[str] = set()
    lines: list[str] = []
    for step in plan.steps:
        if step.name not in read:
            _write(steps, step, None, "", "", shown, lines)
    return "\n".join(lines) + "\n"


def _write(
    steps: dict[str, Step], step: Step, way: Input | None, head: str, indent: str, shown: set[str], lines: list[str]
) -> None:
    again = step.name in shown
    shown.add(step.name)
    arrow = "" if way is None else f"  → {way.how.value}"
    lines.append(f"{head}{step.name}: {_operator(step)}{arrow}{'  (see above)' if again else ''}")
    inputs = [] if again else list(reversed(step.inputs))
    bar = f"{indent}{'│' if inputs else ' '}    "
    reasons = [] if again else [*([step.end.what] if step.end is not None else []), *step.why]
    if step.shared and not again:
        reasons.append("several stages read it: cached, and not computed again")
    reasons += [f"edge: {why}" for why in way.why] if way is not None else []
    lines += [f"{bar}{reason}" for reason in reasons]
    for number, each in enumerate(inputs):
        last = number == len(inputs) - 1
        below = f"{indent}{'   ' if last else '│  '}"
        _write(steps, steps[each.source], each, f"{indent}{'└─ ' if last else '├─ '}", below, shown, lines)


def _operator(step: Step) -> str:
    """Return the RDD operator that a step is."""
    if step.is_source:
        return {
            "given": "parallelize",
            "instance": "parallelize",
            "spark": "DataFrame",
        }.get(step.end.place.value if step.end is not None else "", "mapPartitions over shares")
    if step.end is not None:
        return {
            "tasks": "foreachPartition",
            "files": "mapPartitions, then the driver",
            "spark": "DataFrame writer",
        }.get(step.end.place.value, "collect, then the driver")
    ways = {each.how for each in step.inputs}
    words = []
    if How.BROADCAST in ways:
        words.append("broadcast")
    if How.SORTED in ways:
        words.append("sample, range partitions, merge")
    elif How.BY_KEY in ways or How.TO_ONE in ways or How.DEAL in ways:
        words.append("partitionBy" + (f" ({step.tasks} task{'s' if step.tasks > 1 else ''})" if step.tasks > 0 else ""))
    if len([each for each in step.inputs if each.how is not How.BROADCAST]) > 1:
        words.append("union")
    return ", ".join([*words, "mapPartitions"])
