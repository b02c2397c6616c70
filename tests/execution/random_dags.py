"""Random DAGs that check themselves, and a plain interpreter that says what each of their vertices has to get.

A DAG is made from a seed alone: vertices and parallelism, routings, priorities, buffered and ordered edges, narrow and
wide lanes, and processors that refuse, hesitate, hold items back, emit from every callback and to several ordinals.
What an item becomes depends on its number only, so the interpreter needs no order. Each processor checks what only it
can see: order within a lane, priorities, watermarks, the processor that a routing names.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shmjet.core import (
    DAG,
    Edge,
    EdgeConfig,
    Inbox,
    Outbox,
    Processor,
    ProcessorContext,
    Watermark,
    from_,
    partition_id,
)
from shmjet.ring.batch import Batch
from shmjet.ring.marks import IDLE
from tests.execution.harness import LocalRun

PARTITIONS = 271
_MOST_ITEMS = 4000
"""Items that a vertex should get at most."""
_ROUTES = ("unicast", "unicast", "partitioned", "broadcast", "isolated", "all_to_one", "fanout", "fanout")


class Parcel:
    """An item of a class that only pickle knows."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Parcel) and self.number == other.number

    __hash__ = None  # type: ignore[assignment]


_MAKERS: tuple[Any, ...] = (
    lambda n: n,
    lambda n: n,
    str,
    lambda n: float(n),
    lambda n: (n, str(n)),
    lambda n: (n, None, float("inf"), [n]),
    lambda n: str(n).encode(),
    lambda n: {"n": n, "\ud800": {n}},
    Parcel,
    lambda n: np.array([n, -n]),
    lambda n: (n, bytes(n % 70_000)),
    lambda n: (n, -(1 << 63), 1 << 70, True, "\0é"),
    lambda n: Batch({"n": [n], "t": [str(n)]}),
)
_BIG = (lambda n: (n, bytes(300_000 + n % 1000)), lambda n: str(n).encode() + b" " * 400_000)


def item_of(kinds: int, number: int) -> Any:
    """Return the item with a number: `kinds` is the kind of all items of a DAG, or -1 for a mixture of all."""
    if kinds >= 0:
        return _MAKERS[kinds](number)
    return _BIG[number % 2](number) if number % 97 == 5 else _MAKERS[number % len(_MAKERS)](number)


def number_of(item: Any) -> int:
    """Return an item's number."""
    if isinstance(item, tuple):
        return int(item[0])
    if isinstance(item, dict):
        return int(item["n"])
    if isinstance(item, Parcel):
        return item.number
    if isinstance(item, np.ndarray):
        return int(item[0])
    if isinstance(item, Batch):
        return int(next(iter(item.tuples()))[0])
    return int(item)


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray):
        return type(b) is np.ndarray and a.tolist() == b.tolist()
    if isinstance(a, Batch):
        return isinstance(b, Batch) and list(a.tuples()) == list(b.tuples())
    return type(a) is type(b) and a == b


def _mixed(*parts: int) -> int:
    """Return a number below 2^40 that depends on all parts."""
    value = 17
    for part in parts:
        value = (value * 1_000_003 + part + 1) * 0x9E3779B1 % (1 << 40)
    return value


@dataclass
class EdgeSpec:
    """One edge, as the interpreter and the processors at its ends know it."""

    source: int
    source_ordinal: int
    destination: int
    destination_ordinal: int
    route: str
    up: int
    down: int
    priority: int = 0
    buffered: bool = False
    ordered: bool = False
    key: int = 0
    queue_size: int = 1024
    high_water_mark: int = 2048


@dataclass
class VertexSpec:
    """One vertex: how its processors behave."""

    index: int
    parallelism: int
    seed: int
    bare: bool
    kinds: int
    late: bool
    source_items: int = 0
    is_sorted: bool = False
    cooperative: bool = True
    nullary: int = -1
    polls: bool = True
    eager: bool = False
    refuses: float = 0.0
    marks: bool = True
    inputs: list[EdgeSpec] = field(default_factory=list)
    outputs: list[EdgeSpec] = field(default_factory=list)


Ordinals = int | list[int]


def _targets(spec: VertexSpec, number: int) -> Ordinals:
    """Return the ordinals to which a vertex emits an item."""
    count, choice = len(spec.outputs), number // 7
    if count == 0 or choice % 3 == 0:
        return -1
    if choice % 3 == 1 or count == 1:
        return choice // 3 % count
    return [choice // 3 % count, (choice // 3 + 1) % count]


def made_of(spec: VertexSpec, ordinal: int, number: int) -> list[int]:
    """Return the numbers of what a processor makes of an item."""
    made = _mixed(spec.seed, ordinal, number)
    return [_mixed(made, k) for k in range((1, 1, 1, 1, 2, 0, 1, 1)[made % 8])]


def _said(spec: VertexSpec, processor: int, what: int, k: int = 0) -> int:
    """Return the number of an item that no item asked for."""
    return _mixed(spec.seed, processor, what, k, 99)


_SPARE, _EDGE, _END = range(3)


def scheduled(spec: VertexSpec, processor: int) -> list[tuple[int, int]]:
    """Return what a processor of a source emits: (number, time), ascending where the source is sorted."""
    rng = random.Random(spec.seed * 1000 + processor)
    numbers = [
        _mixed(spec.seed, processor, i) for i in range(rng.choice([0, spec.source_items // 2, spec.source_items]))
    ]
    return list(zip(sorted(numbers) if spec.is_sorted else numbers, range(len(numbers)), strict=True))


class Stage(Processor):
    """A processor of a random DAG, source and sink included."""

    def __init__(self, spec: VertexSpec) -> None:
        self.spec = spec
        self.is_cooperative = spec.cooperative
        self.polls = spec.polls
        self._pending: list[tuple[Ordinals, Any, int | None]] = []
        self._sequence = 0
        self._seen: dict[tuple[int, int], int] = {}
        self._watermark = -1
        self._ended: set[int] = set()
        self._said: set[Any] = set()
        self._spare = 0
        self._at = 0
        self._last: dict[int, int] = {}

    def init(self, outbox: Outbox, context: ProcessorContext) -> None:
        super().init(outbox, context)
        self._index = context.local_index
        self._rng = random.Random(self.spec.seed * 77 + self._index)
        self._schedule = [] if self.spec.inputs else scheduled(self.spec, self._index)

    def _hesitates(self) -> bool:
        return self._rng.random() < self.spec.refuses

    def _note(self, what: str, item: Any) -> None:
        self.context.grid.get_list(f"{what}-{self.spec.index}").append(item)  # not kept: it would move by value

    # -- output -------------------------------------------------------------------------------------------------

    def _add(self, number: int, time: int, *, free: bool = False) -> None:
        value = item_of(self.spec.kinds, number)
        if not self.spec.bare:
            value = (self._index, self._sequence, time, value)
        self._sequence += 1
        self._pending.append((_targets(self.spec, number), value, number if free else None))

    def _drain(self) -> bool:
        while self._pending:
            ordinals, item, free = self._pending[0]
            if not self.outbox.offer(item, ordinals):
                return False
            if free is not None:
                self._note("free", free)
            self._pending.pop(0)
        return True

    # -- callbacks ----------------------------------------------------------------------------------------------

    def process(self, ordinal: int, inbox: Inbox) -> None:
        for _ in range(self._rng.choice([1, 3, 50, 2000])):
            if not self._drain() or not inbox or self._hesitates():
                return
            item = inbox.peek()
            key = "item", self._at
            if key not in self._said:
                self._said.add(key)
                self._take(ordinal, item)
            if not self.spec.eager and not self._drain():
                return
            inbox.remove()
            self._said.discard(key)
            self._at += 1

    def _take(self, ordinal: int, item: Any) -> None:
        edge = self.spec.inputs[ordinal]
        time = -1
        if not self.spec.bare:
            producer, sequence, time, item = item
            assert self._seen.get((ordinal, producer), -1) < sequence, f"{item} was overtaken on its lane"
            self._seen[ordinal, producer] = sequence
            if edge.route == "isolated":
                assert self._index % edge.up == producer % edge.down, "an isolated edge leads elsewhere"
        number = number_of(item)
        assert _same(item, item_of(self.spec.kinds, number)), f"{item!r} is not what was sent"
        assert time < 0 or self.spec.late or time > self._watermark, f"time {time} behind watermark {self._watermark}"
        assert ordinal not in self._ended, "an item came after the end of its edge"
        for other in self.spec.inputs:
            if other.priority < edge.priority:
                assert other.destination_ordinal in self._ended, (
                    "an edge was read before one of a lower priority number"
                )
        if edge.route == "partitioned":
            wanted = partition_id(key_of(edge.key, number), PARTITIONS) % edge.down
            assert self._index == wanted, "a key reached the wrong processor"
        if edge.ordered:
            assert self._last.get(ordinal, -1) <= number, "an ordered edge brought disorder"
            self._last[ordinal] = number
        self._note("got", (self._index, ordinal, number))
        for made in made_of(self.spec, ordinal, number):
            self._add(made, time)

    def try_process_watermark(self, watermark: Watermark) -> bool:
        if not self._drain() or self._hesitates():
            return False
        time = watermark.timestamp
        if ("wm", time) not in self._said:
            assert time > self._watermark, f"watermark {time} after {self._watermark}"
            self._said.add(("wm", time))
            self._watermark = time
            if self.spec.outputs and time % 3 == 0:
                self._add(_mixed(self.spec.seed, self._index, time, 5), -1, free=True)
                return False if self._hesitates() else self._drain() and self._pass(watermark)
        return self._pass(watermark)

    def _pass(self, watermark: Watermark) -> bool:
        return not self.spec.marks or self.outbox.offer(watermark)

    def _spares(self, most: int) -> bool:
        while self._drain() and self._spare < most:
            self._add(_said(self.spec, self._index, _SPARE, self._spare), -1)
            self._spare += 1
        return not self._pending

    def complete_edge(self, ordinal: int) -> bool:
        if not self._drain() or self._hesitates():
            return False
        if ("edge", ordinal) not in self._said:
            assert ordinal not in self._ended, "an edge ended twice"
            self._ended.add(ordinal)
            self._said.add(("edge", ordinal))
            self._add(_said(self.spec, self._index, _EDGE, ordinal), -1)
        return self._drain()

    def complete(self) -> bool:
        if not self._drain() or self._hesitates():
            return False
        if self._schedule:
            return self._emit_schedule()
        assert self._ended == set(range(len(self.spec.inputs))), "complete() came before the end of all edges"
        if not self._spares(max(0, self.spec.nullary)):
            return False
        if not self.spec.is_sorted and "end" not in self._said:
            self._said.add("end")
            self._add(_said(self.spec, self._index, _END), -1)
        return self._drain()

    def _emit_schedule(self) -> bool:
        while self._at < len(self._schedule):
            if self._hesitates():
                return False
            number, time = self._schedule[self._at]
            self._add(number, time)
            self._at += 1
            if not self._drain():
                return False
            if self.spec.marks and not self.spec.is_sorted and time % 5 == 4:
                # Comes as an item of its own: refused or not, it keeps its place.
                self._pending.append((-1, Watermark(time), None))
                if self.spec.late and time % 10 == 9:
                    self._pending.append((-1, IDLE, None))
                if not self._drain():
                    return False
        self._schedule = []
        return False


class ActiveStage(Stage):
    """The same with work that no item asks for."""

    def try_process(self) -> bool:
        if not self._drain() or self._hesitates():
            return False
        if self._spare < self.spec.nullary and self._rng.random() < 0.3:
            return self._spares(self._spare + 1)
        return True


@dataclass
class StageSupplier:
    """Makes the processors of a vertex; a class, so that it says what they are."""

    spec: VertexSpec

    @property
    def is_cooperative(self) -> bool:
        return self.spec.cooperative

    def __call__(self) -> Stage:
        return (ActiveStage if self.spec.nullary >= 0 else Stage)(self.spec)


def key_of(kind: int, number: int) -> Any:
    """Return a key in one of several types."""
    return (number, str(number), float(number), (number % 10, "k"), number % 3)[kind]


def _key_function(bare: bool, kind: int) -> Any:
    return lambda item: key_of(kind, number_of(item if bare else item[3]))


class RandomDag:
    """A DAG made from a seed.

    Args:
        seed: decides everything.
        workers: for which it is meant; parallelism is up to twice that.
    """

    def __init__(self, seed: int, workers: int) -> None:
        rng = self._rng = random.Random(seed)
        self.bare = rng.random() < 0.3
        self.kinds = rng.choice([-1, -1, -1, *range(len(_MAKERS))])
        self.late = rng.random() < 0.2
        self.vertices: list[VertexSpec] = []
        self.edges: list[EdgeSpec] = []
        self._expected: list[int] = []
        self._workers = workers
        for index in range(rng.randint(2, 6)):
            self._add_vertex(index)
        for spec in self.vertices:
            if not spec.inputs and not spec.outputs:
                spec.source_items = 0  # nobody would get them
        self.has_priorities = any(edge.priority or edge.ordered for edge in self.edges)

    def _add_vertex(self, index: int) -> None:
        rng = self._rng
        parallelism = rng.choice([1, 1, 2, rng.randint(1, 2 * self._workers)])
        spec = VertexSpec(index, parallelism, rng.randrange(1 << 30), self.bare, self.kinds, self.late)
        spec.refuses = rng.choice([0, 0, 0.1, 0.5])
        spec.cooperative = rng.random() > 0.1
        spec.marks = rng.random() > 0.1
        spec.eager = rng.random() < 0.3
        self.vertices.append(spec)
        if index == 0 or (index < 4 and rng.random() < 0.25):
            spec.source_items = rng.choice([3, 30, 100])
            spec.is_sorted = rng.random() < 0.3
            self._expected.append(parallelism * spec.source_items)
            return
        spec.nullary = rng.choice([-1, -1, 0, 3])
        spec.polls = spec.nullary > 0 or rng.random() < 0.5
        uses_priorities = rng.random() < 0.4
        expected = 0
        for ordinal in range(rng.choice([1, 1, 2, 3])):
            source = self.vertices[rng.randrange(index)]
            edge = self._edge(source, spec, ordinal)
            edge.priority = rng.choice([-1, 0, 5]) if uses_priorities else 0
            self.edges.append(edge)
            source.outputs.append(edge)
            spec.inputs.append(edge)
            expected += self._expected[source.index] * (parallelism if edge.route == "broadcast" else 1)
        self._expected.append(expected)
        first = min(edge.priority for edge in spec.inputs)
        for edge in spec.inputs:  # what is not read yet must not hold back what is
            edge.buffered = edge.buffered or edge.priority > first

    def _edge(self, source: VertexSpec, spec: VertexSpec, ordinal: int) -> EdgeSpec:
        rng = self._rng
        route = rng.choice(_ROUTES)
        if route == "broadcast" and self._expected[source.index] * spec.parallelism > _MOST_ITEMS:
            route = "unicast"
        up, down = source.parallelism, spec.parallelism
        edge = EdgeSpec(source.index, len(source.outputs), spec.index, ordinal, route, up, down)
        edge.key = rng.randrange(5)
        edge.buffered = rng.random() < 0.15
        edge.queue_size, edge.high_water_mark = rng.choice([1, 2, 8, 64, 1024]), rng.choice([1, 3, 16, 300, 2048])
        if source.is_sorted and not source.inputs and rng.random() < 0.7:
            edge.ordered = True
            edge.buffered = edge.buffered or down > 1  # else producers may wait for each other
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
            for processor in range(spec.parallelism):
                if not spec.inputs:
                    made.update(number for number, _ in scheduled(spec, processor))
                made.update(_said(spec, processor, _SPARE, k) for k in range(spec.nullary))
                made.update(_said(spec, processor, _EDGE, edge.destination_ordinal) for edge in spec.inputs)
                made[_said(spec, processor, _END)] += not spec.is_sorted
            for (ordinal, number), count in inputs[spec.index].items():
                for result in made_of(spec, ordinal, number):
                    made[result] += count
            for number, count in made.items():
                targets = _targets(spec, number)
                ordinals = (
                    range(len(spec.outputs)) if targets == -1 else [targets] if isinstance(targets, int) else targets
                )
                for ordinal in ordinals:
                    edge = spec.outputs[ordinal]
                    copies = edge.down if edge.route == "broadcast" else 1
                    inputs[edge.destination][edge.destination_ordinal, number] += count * copies
        return [+counter for counter in inputs]

    def problems(self, lists: dict[str, list[Any]]) -> list[str]:
        """Return what is wrong with what the vertices got."""
        free = {spec.index: lists.get(f"free-{spec.index}", []) for spec in self.vertices}
        wrong = []
        for spec, wanted in zip(self.vertices, self.expected(free), strict=True):
            got = lists.get(f"got-{spec.index}", [])
            found = Counter((ordinal, number) for _, ordinal, number in got)
            if found != wanted:
                lost, more = wanted - found, found - wanted
                wrong.append(
                    f"v{spec.index}: lost {sum(lost.values())} {list(lost)[:3]}, too many {sum(more.values())} "
                    f"{list(more)[:3]}"
                )
            for edge in spec.inputs:
                shares = Counter(index for index, ordinal, _ in got if ordinal == edge.destination_ordinal)
                if edge.route == "all_to_one" and len(shares) > 1:
                    wrong.append(f"v{spec.index}: all_to_one reached {len(shares)} processors")
                counts = [shares[index] for index in range(edge.down)]
                never_full = edge.queue_size >= sum(counts)
                if edge.route == "fanout" and never_full and max(counts) - min(counts) > edge.up:
                    wrong.append(f"v{spec.index}: fanout dealt {counts}")
        return wrong


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
