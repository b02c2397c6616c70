"""Random DAGs with state that are killed, stopped and restored, and a plain interpreter that says what they count.

A DAG is made from a seed alone. Its sources give known items, its inner vertices pass them on or number those of each
key, its sinks count. Each seed is run in several attempts, each restored from the last valid snapshot, with other
workers and other numbers of processors; the last one ends by itself. Exactly-once counts are those of the interpreter.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shmjet.core import DAG, Edge, ProcessingGuarantee, Vertex, from_
from tests.execution.snapshot_runs import Killed, SnapshotRun
from tests.execution.snapshot_stages import RESULTS, Forward, Numbered, Positions, Tally

Item = tuple[str, int, int, int]


@dataclass
class Stage:
    """One vertex: "source", "forward", "number" or "tally"; its inputs with how each is routed, the last's priority."""

    name: str
    kind: str
    shards: list[int] = field(default_factory=list)
    inputs: list[tuple[Stage, str]] = field(default_factory=list)
    priority: int = 0

    def expected(self) -> Counter[Item]:
        """Return what it emits, or counts."""
        if self.kind == "source":
            pairs = [(shard, number) for shard, size in enumerate(self.shards) for number in range(size)]
            return Counter((self.name, number % 5, shard, number) for shard, number in pairs)
        got: Counter[Item] = Counter()
        for stage, _ in self.inputs:
            got.update(stage.expected())
        if self.kind == "forward":
            forwarded: Counter[Item] = Counter()
            for item, count in got.items():
                forwarded[self.name, *item[1:]] += count
            return forwarded
        if self.kind == "number":
            keys: Counter[int] = Counter()
            for item, count in got.items():
                keys[item[1]] += count
            return Counter((self.name, key, 0, number) for key, count in keys.items() for number in range(count))
        return got


class RandomStages:
    """The vertices of a seed."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self.stages: list[Stage] = []
        for i in range(rng.randint(1, 2)):
            shards = [rng.randint(0, 120) for _ in range(rng.randint(1, 5))]
            self.stages.append(Stage(f"source{i}", "source", shards))
        for i in range(rng.randint(0, 3)):
            kind = rng.choice(["forward", "number"])
            stage = Stage(f"{kind}{i}", kind)
            for source in rng.sample(self.stages, rng.randint(1, min(2, len(self.stages)))):
                stage.inputs.append((source, self._route(rng, source, kind)))
            stage.priority = rng.choice([0, 0, -1]) if len(stage.inputs) == 2 else 0
            self.stages.append(stage)
        used = {source.name for stage in self.stages for source, _ in stage.inputs}
        for i, stage in enumerate([stage for stage in self.stages if stage.name not in used]):
            self.stages.append(Stage(f"tally{i}", "tally", inputs=[(stage, self._route(rng, stage, "tally"))]))

    @staticmethod
    def _route(rng: random.Random, source: Stage, kind: str) -> str:
        if kind == "number":
            return "key"
        ordered = ["ordered"] if source.kind == "source" else []
        if kind == "tally":
            return rng.choice(["item", "item", "all_to_one"])
        return rng.choice(["unicast", "item", "key", "fanout", "all_to_one", "buffered", *ordered])

    def dag(self, rng: random.Random, most: int) -> DAG:
        """Return the DAG with random numbers of processors."""
        dag = DAG()
        made: dict[str, Vertex] = {}
        outbound: Counter[str] = Counter()
        for stage in self.stages:
            parallelism = rng.randint(1, most)
            made[stage.name] = dag.new_vertex(stage.name, self._supplier(stage), local_parallelism=parallelism)
            for ordinal, (source, route) in enumerate(stage.inputs):
                edge = from_(made[source.name], outbound[source.name]).to(made[stage.name], ordinal)
                outbound[source.name] += 1
                if ordinal:
                    edge.priority(stage.priority)
                dag.edge(_routed(edge, route))
        return dag

    @staticmethod
    def _supplier(stage: Stage) -> Any:
        name, shards = stage.name, stage.shards
        match stage.kind:
            case "source":
                return lambda: Positions(name, shards)
            case "forward":
                return lambda: Forward(name)
            case "number":
                return lambda: Numbered(name)
        return lambda: Tally(name)

    def expected(self) -> dict[Any, int]:
        """Return what `RESULTS` has to be in the end."""
        tallies = [stage for stage in self.stages if stage.kind == "tally"]
        return {(stage.name, item): count for stage in tallies for item, count in stage.expected().items()}


def _routed(edge: Edge, route: str) -> Edge:
    match route:
        case "key":
            return edge.partitioned(lambda item: item[1])
        case "item":
            return edge.partitioned(lambda item: item)
        case "ordered":
            return edge.ordered(lambda item: item[3])
        case "buffered":
            return edge.buffered()
        case "fanout":
            return edge.fanout()
        case "all_to_one":
            return edge.all_to_one()
    return edge


def check(seed: int, folder: Path, guarantee: ProcessingGuarantee | None = None) -> str:
    """Run the DAG of a seed in some attempts; return a line that says what it was.

    Args:
        seed: of the DAG and of what happens to it.
        folder: of its snapshots.
        guarantee: of the job; None: a random one.

    Raises:
        AssertionError: something was lost or doubled, or stood still.
    """
    rng = random.Random(f"attempts {seed}")
    stages = RandomStages(seed)
    drawn = ProcessingGuarantee.EXACTLY_ONCE if rng.random() < 0.7 else ProcessingGuarantee.AT_LEAST_ONCE
    guarantee = guarantee or drawn
    exactly = guarantee is not ProcessingGuarantee.AT_LEAST_ONCE
    varies = rng.random() < 0.5
    shape_seed = rng.random()
    RESULTS.clear()
    text = f"seed {seed}: {guarantee.value}"
    attempts = rng.randint(1, 4)
    for attempt in range(attempts + 1):
        workers = rng.choice([1, 2, 3])
        options: dict[str, Any] = {"force_rings": rng.random() < 0.3, "stealing": rng.choice([0, 0, 0.1, 0.3])}
        if workers == 1:
            options["stealing"] = 0
        if attempt < attempts:
            at = rng.choice([rng.randint(1, 60), rng.randint(20, 400)])
            options["terminal_at" if rng.random() < 0.3 else "kill_at"] = at
        rate = rng.choice([0.02, 0.1, 0.5])
        dag = stages.dag(random.Random(attempt if varies else shape_seed), 4)
        run = SnapshotRun(
            dag, folder, workers, guarantee=guarantee, rate=rate, restore=True, seed=rng.randrange(1 << 30), **options
        )
        text += f"; {workers} workers, {options}"
        try:
            run.run()
        except Killed:
            continue
        except BaseException as error:
            error.add_note(text)
            raise
        if run.ended:
            break
    expected = stages.expected()
    if exactly:
        assert expected == RESULTS, f"{text}: {_difference(expected)}"
    else:
        lost = [key for key, count in expected.items() if RESULTS.get(key, 0) < count]
        assert not lost, f"{text}: lost {len(lost)}, as {lost[:3]}"
    return text


def _difference(expected: dict[Any, int]) -> str:
    wrong = [key for key in expected.keys() | RESULTS.keys() if expected.get(key) != RESULTS.get(key)]
    first = [(key, expected.get(key), RESULTS.get(key)) for key in sorted(wrong)[:3]]
    return f"{len(wrong)} of {len(expected)} differ, as (key, expected, found) {first}"
