"""Random DAGs that check themselves, and a plain interpreter that says what each of their vertices has to get.

A DAG is made from a seed alone: vertices and parallelism, routings, priorities, buffered and ordered edges, narrow and
wide lanes, and the processors of `random_stages.py`. The interpreter needs no order. A DAG runs on the harness, where
a lost wake-up is a deadlock, or on real engines, next to others.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from shmjet import ClientConfig, JetConfig, JetInstance, JobConfig, new_client, new_instance
from shmjet.core import DAG, Edge, EdgeConfig, from_
from tests.execution.harness import LocalRun
from tests.execution.random_stages import (
    EDGE,
    END,
    MAKERS,
    SPARE,
    EdgeSpec,
    StageSupplier,
    VertexSpec,
    key_of,
    list_name,
    made_of,
    number_of,
    said,
    scheduled,
    targets_of,
)

WORKERS = {"one": 1, "two": 2, "rings": 2, "four": 4, "cluster": 1}
"""The engines that `engine` starts, and the workers of each of their members."""
_SECRET = "a secret of these DAGs"
_MOST_ITEMS = 4000
"""Items that a vertex should get at most."""
_ROUTES = ("unicast", "unicast", "partitioned", "broadcast", "isolated", "all_to_one", "fanout", "fanout")


def _key_function(bare: bool, kind: int) -> Any:
    return lambda item: key_of(kind, number_of(item if bare else item[3]))


class RandomDag:
    """A DAG made from a seed.

    Args:
        seed: decides everything.
        workers: for which it is meant; parallelism is up to twice that.
        members: on which it runs.
        prefix: of the names of its lists.
    """

    def __init__(self, seed: int, workers: int, members: int = 1, prefix: str = "") -> None:
        rng = self._rng = random.Random(seed)
        self.bare = rng.random() < 0.3
        self.kinds = rng.choice([-1, -1, -1, *range(len(MAKERS))])
        self.late = rng.random() < 0.2
        self.vertices: list[VertexSpec] = []
        self.edges: list[EdgeSpec] = []
        self._expected: list[int] = []
        self._workers = workers
        self._members = members
        self._prefix = prefix
        for index in range(rng.randint(2, 6)):
            self._add_vertex(index)
        for spec in self.vertices:
            if not spec.inputs and not spec.outputs:
                spec.source_items = 0  # no processor would get them
        self.has_priorities = any(edge.priority or edge.ordered for edge in self.edges)

    def _add_vertex(self, index: int) -> None:
        rng = self._rng
        parallelism = rng.choice([1, 1, 2, rng.randint(1, 2 * self._workers)])
        spec = VertexSpec(index, parallelism, rng.randrange(1 << 30), self.bare, self.kinds, self.late)
        spec.members, spec.prefix = self._members, self._prefix
        spec.refuses = rng.choice([0, 0, 0.1, 0.5])
        spec.cooperative = rng.random() > 0.1
        spec.marks = rng.random() > 0.1
        spec.eager = rng.random() < 0.3
        self.vertices.append(spec)
        if index == 0 or (index < 4 and rng.random() < 0.25):
            spec.source_items = rng.choice([3, 30, 100])
            spec.is_sorted = rng.random() < 0.3
            self._expected.append(parallelism * self._members * spec.source_items)
            return
        spec.nullary = rng.choice([-1, -1, 0, 3])
        spec.next_call = rng.choice([None, None, 0, 0.0002])
        uses_priorities = rng.random() < 0.4
        expected = 0
        for ordinal in range(rng.choice([1, 1, 2, 3])):
            source = self.vertices[rng.randrange(index)]
            edge = self._edge(source, spec, ordinal)
            edge.priority = rng.choice([-1, 0, 5]) if uses_priorities else 0
            self.edges.append(edge)
            source.outputs.append(edge)
            spec.inputs.append(edge)
            expected += self._expected[source.index] * self._copies(edge)
        self._expected.append(expected)
        first = min(edge.priority for edge in spec.inputs)
        for edge in spec.inputs:  # what is not read yet must not hold back what is
            edge.buffered = edge.buffered or edge.priority > first

    def _copies(self, edge: EdgeSpec) -> int:
        """Return to how many processors an item goes on an edge."""
        members = self._members if edge.distributed else 1
        return edge.down * members if edge.route == "broadcast" else members if edge.route == "fanout" else 1

    def _edge(self, source: VertexSpec, spec: VertexSpec, ordinal: int) -> EdgeSpec:
        rng = self._rng
        route = rng.choice(_ROUTES)
        most = self._expected[source.index] * spec.parallelism * self._members
        if route == "broadcast" and most > _MOST_ITEMS:
            route = "unicast"
        up, down = source.parallelism, spec.parallelism
        edge = EdgeSpec(source.index, len(source.outputs), spec.index, ordinal, route, up, down)
        edge.distributed = self._members > 1 and route != "isolated" and rng.random() < 0.6
        edge.key = rng.randrange(5)
        edge.buffered = rng.random() < 0.15
        edge.queue_size, edge.high_water_mark = rng.choice([1, 2, 8, 64, 1024]), rng.choice([1, 3, 16, 300, 2048])
        if source.is_sorted and not source.inputs and rng.random() < 0.7:
            edge.ordered = True
            edge.buffered = edge.buffered or down > 1 or self._members > 1  # else producers may wait for each other
        return edge

    def dag(self) -> DAG:
        """Build it."""
        dag = DAG()
        built = [dag.new_vertex(f"v{v.index}", StageSupplier(v), v.parallelism) for v in self.vertices]
        for spec in self.edges:
            edge: Edge = from_(built[spec.source], spec.source_ordinal).to(
                built[spec.destination], spec.destination_ordinal
            )
            if spec.route == "partitioned":
                edge.partitioned(_key_function(self.bare, spec.key))
            elif spec.route != "unicast":
                getattr(edge, spec.route)()
            if spec.distributed:
                edge.distributed()
            edge.priority(spec.priority)
            if spec.buffered:
                edge.buffered()
            if spec.ordered:
                edge.ordered(_key_function(self.bare, 0))
            edge.configure(EdgeConfig(high_water_mark=spec.high_water_mark, queue_size=spec.queue_size))
            dag.edge(edge)
        return dag

    def expected(self, free: dict[int, list[int]]) -> list[Counter[tuple[int, int]]]:
        """Return what each vertex gets: (ordinal, number) as often as all its processors together.

        Args:
            free: by vertex, the numbers of items that watermarks made it emit, which depends on timing.
        """
        inputs: list[Counter[tuple[int, int]]] = [Counter() for _ in self.vertices]
        for spec in self.vertices:
            made: Counter[int] = Counter(free.get(spec.index, ()))
            for processor in range(spec.parallelism * self._members):
                if not spec.inputs:
                    made.update(number for number, _ in scheduled(spec, processor))
                made.update(said(spec, processor, SPARE, k) for k in range(spec.nullary))
                made.update(said(spec, processor, EDGE, edge.destination_ordinal) for edge in spec.inputs)
                made[said(spec, processor, END)] += not spec.is_sorted
            for (ordinal, number), count in inputs[spec.index].items():
                for result in made_of(spec, ordinal, number):
                    made[result] += count
            for number, count in made.items():
                targets = targets_of(spec, number)
                ordinals = (
                    range(len(spec.outputs)) if targets == -1 else [targets] if isinstance(targets, int) else targets
                )
                for ordinal in ordinals:
                    edge = spec.outputs[ordinal]
                    inputs[edge.destination][edge.destination_ordinal, number] += count * self._copies(edge)
        return [+counter for counter in inputs]

    def problems(self, lists: Mapping[str, Sequence[Any]]) -> list[str]:
        """Return what is wrong with what the vertices got.

        Args:
            lists: what their processors have written down.
        """
        free = {spec.index: list(lists.get(list_name(spec, "free"), ())) for spec in self.vertices}
        wrong = list(self._time_problems(lists))
        for spec, wanted in zip(self.vertices, self.expected(free), strict=True):
            got = list(lists.get(list_name(spec, "got"), ()))
            found = Counter((ordinal, number) for _, ordinal, number in got)
            if found != wanted:
                lost, more = wanted - found, found - wanted
                wrong.append(
                    f"v{spec.index}: lost {sum(lost.values())} {list(lost)[:3]}, too many {sum(more.values())} "
                    f"{list(more)[:3]}"
                )
            for edge in spec.inputs:
                on_edge = [(index, number) for index, ordinal, number in got if ordinal == edge.destination_ordinal]
                wrong += [f"v{spec.index}: {what}" for what in self._misplaced(edge, on_edge)]
        return wrong

    def _time_problems(self, lists: Mapping[str, Sequence[Any]]) -> Iterator[str]:
        """Yield where time stood still: the lowest last watermark of all that feeds a vertex reaches its processors."""
        reached: list[list[int]] = []
        for spec in self.vertices:
            processors = range(spec.parallelism * self._members)
            if not spec.inputs:
                sends = spec.marks and not spec.is_sorted
                counts = [len(scheduled(spec, processor)) for processor in processors]
                reached.append([count // 5 * 5 - 1 if sends and count >= 5 else -1 for count in counts])
                continue
            least = min(min(reached[edge.source]) for edge in spec.inputs)
            most = max(max(reached[edge.source]) for edge in spec.inputs)
            last = dict.fromkeys(processors, -1) | dict(lists.get(list_name(spec, "marks"), ()))
            reached.append([time if spec.marks else -1 for time in last.values()])
            if not all(least <= time <= most for time in last.values()):
                yield f"v{spec.index}: its watermarks reached {last}, those before it {least} to {most}"

    def _misplaced(self, edge: EdgeSpec, got: list[tuple[int, int]]) -> Iterator[str]:
        """Yield what the routing of an edge forbids: `got` has (processor, number) of all items on it."""
        shares = Counter(index for index, _ in got)
        reach = 1 if edge.distributed else self._members
        if edge.route == "all_to_one" and len(shares) > reach:
            yield f"all_to_one reached {len(shares)} processors"
        if edge.route == "partitioned":
            places: dict[Any, set[int]] = {}
            for index, number in got:
                place = 0 if edge.distributed else index // edge.down
                places.setdefault((place, key_of(edge.key, number)), set()).add(index)
            if any(len(found) > 1 for found in places.values()):
                yield "a key reached several processors"
        for member in range(self._members):
            counts = [shares[member * edge.down + index] for index in range(edge.down)]
            never_full = edge.queue_size >= sum(counts)
            producers = edge.up * (self._members if edge.distributed else 1)
            if edge.route == "fanout" and never_full and max(counts) - min(counts) > producers:
                yield f"fanout dealt {counts}"


def check(seed: int) -> str:
    """Run the DAG of a seed on the harness in a way that the seed decides; return a line that says what it was.

    Raises:
        AssertionError: something was lost, doubled, overtaken, sent elsewhere, or the job stood still.
    """
    rng = random.Random(f"run {seed}")
    workers = rng.choice([1, 2, 4])
    made = RandomDag(seed, workers)
    stealing = rng.choice([0, 0.2, 0.5]) if workers > 1 else 0
    options: dict[str, Any] = {
        "force_rings": rng.random() < 0.3,
        "seed": seed if stealing or rng.random() < 0.7 else None,
        "stealing": stealing,
    }
    if options["seed"] is not None and not made.has_priorities:
        options["barriers"] = rng.choice([0, 0.05])
    run = LocalRun(made.dag(), workers, **options)
    text = f"seed {seed}: {workers} workers, {options}"
    try:
        run.run()
    except BaseException as error:
        error.add_note(text)
        raise
    wrong = made.problems(run.grid.lists)
    assert not wrong, f"{text}: {wrong}"
    items = sum(map(len, run.grid.lists.values()))
    return f"{text}: {items} items, {run.rounds} rounds, {run.steals} steals"


@contextmanager
def engine(kind: str) -> Iterator[JetInstance]:
    """Start what jobs are submitted to: "one", "two" or "four" workers, two whose lanes are all "rings", or a "cluster"
    of two members with a worker each."""
    with ExitStack() as stack:
        if kind == "cluster":
            config = JetConfig(cores=1, bind="127.0.0.1:0", secret=_SECRET)
            first = stack.enter_context(new_instance(config))
            addresses = [member.address for member in first.cluster.members]
            stack.enter_context(new_instance(replace(config, members=addresses)))
            yield stack.enter_context(new_client(addresses, ClientConfig(secret=_SECRET)))
            return
        environment = {"SHMJET_FORCE_RINGS": "1" if kind == "rings" else "0"}
        before = {name: os.environ.get(name) for name in environment}
        os.environ.update(environment)
        try:
            jet = stack.enter_context(new_instance(JetConfig(cores=WORKERS[kind])))
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value
        yield jet


def check_on(jet: JetInstance, kind: str, seeds: Sequence[int], timeout: float) -> int:
    """Run the DAGs of some seeds side by side on an engine; return how many items they had.

    Args:
        jet: from `engine(kind)`.
        timeout: seconds that a job may take.

    Raises:
        AssertionError: something was lost, doubled or sent elsewhere; the text names the seed.
        JobFailedError: a processor has seen what must not be.
        TimeoutError: a job stood still.
    """
    members = len(jet.cluster.members)
    made = {seed: RandomDag(seed, WORKERS[kind], members, f"{seed}-") for seed in seeds}
    executions = {seed: jet.new_job(dag.dag(), JobConfig(name=f"seed {seed}")).execute() for seed, dag in made.items()}
    total = 0
    for seed, dag in made.items():
        try:
            executions[seed].result(timeout)
        except BaseException as error:
            error.add_note(f"{kind}, seed {seed} of {list(seeds)}")
            raise
        names = [list_name(spec, what) for spec in dag.vertices for what in ("got", "free", "marks")]
        lists = {name: list(jet.get_list(name)) for name in names}
        wrong = dag.problems(lists)
        assert not wrong, f"{kind}, seed {seed} of {list(seeds)}: {wrong}"
        total += sum(map(len, lists.values()))
        for name in names:
            jet.get_list(name).destroy()
    return total
