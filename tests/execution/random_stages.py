"""What random DAGs are made of: items of every kind, and processors that behave in every way and check themselves.

They refuse, hesitate, hold items back, emit from every callback and to several ordinals. What an item becomes depends
on its number only. Each processor checks what only it can see: order within a lane, priorities, watermarks, the
processor that a routing names. `tests/execution/random_dags.py` puts them together.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shmjet.core import (
    Inbox,
    Outbox,
    Processor,
    ProcessorContext,
    Watermark,
    partition_id,
)
from shmjet.data.batch import Batch
from shmjet.data.marks import IDLE

PARTITIONS = 271


class Parcel:
    """An item of a class that only pickle knows."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Parcel) and self.number == other.number

    __hash__ = None  # type: ignore[assignment]


MAKERS: tuple[Any, ...] = (
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
        return MAKERS[kinds](number)
    return _BIG[number % 2](number) if number % 97 == 5 else MAKERS[number % len(MAKERS)](number)


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
    distributed: bool = False


@dataclass
class VertexSpec:
    """One vertex: how its processors behave."""

    index: int
    parallelism: int
    seed: int
    bare: bool
    kinds: int
    late: bool
    members: int = 1
    prefix: str = ""
    source_items: int = 0
    is_sorted: bool = False
    cooperative: bool = True
    nullary: int = -1
    next_call: float | None = None
    eager: bool = False
    refuses: float = 0.0
    marks: bool = True
    inputs: list[EdgeSpec] = field(default_factory=list)
    outputs: list[EdgeSpec] = field(default_factory=list)


Ordinals = int | list[int]


def targets_of(spec: VertexSpec, number: int) -> Ordinals:
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


def said(spec: VertexSpec, processor: int, what: int, k: int = 0) -> int:
    """Return the number of an item that no item asked for."""
    return _mixed(spec.seed, processor, what, k, 99)


SPARE, EDGE, END = range(3)


def scheduled(spec: VertexSpec, processor: int) -> list[tuple[int, int]]:
    """Return what a processor of a source emits: (number, time), ascending where the source is sorted."""
    rng = random.Random(spec.seed * 1000 + processor)
    numbers = [
        _mixed(spec.seed, processor, i) for i in range(rng.choice([0, spec.source_items // 2, spec.source_items]))
    ]
    return list(zip(sorted(numbers) if spec.is_sorted else numbers, range(len(numbers)), strict=True))


def list_name(spec: VertexSpec, what: str) -> str:
    """Return the name of the list in which processors of a vertex write something down."""
    return f"{spec.prefix}{what}-{spec.index}"


class Stage(Processor):
    """A processor of a random DAG, source and sink included."""

    def __init__(self, spec: VertexSpec) -> None:
        self.spec = spec
        self.is_cooperative = spec.cooperative
        self.next_call = spec.next_call
        self._pending: list[tuple[Ordinals, Any, int | None]] = []
        self._sequence = 0
        self._seen: dict[tuple[int, int], int] = {}
        self._watermark = -1
        self._ended: set[int] = set()
        self._said: set[Any] = set()
        self._notes: dict[str, list[Any]] = {}
        self._spare = 0
        self._at = 0
        self._last: dict[int, int] = {}

    def init(self, outbox: Outbox, context: ProcessorContext) -> None:
        super().init(outbox, context)
        self._local, self._index = context.local_index, context.global_index
        self._rng = random.Random(self.spec.seed * 77 + self._index)
        self._schedule = [] if self.spec.inputs else scheduled(self.spec, self._index)

    def _hesitates(self) -> bool:
        return self._rng.random() < self.spec.refuses

    def _note(self, what: str, item: Any) -> None:
        self._notes.setdefault(what, []).append(item)

    def _ends(self) -> bool:
        """Write down what was noted, as the last thing of all."""
        for what, items in self._notes.items():
            self.context.grid.get_list(list_name(self.spec, what)).extend(items)
        return True

    # -- output -------------------------------------------------------------------------------------------------

    def _add(self, number: int, time: int, *, free: bool = False) -> None:
        value = item_of(self.spec.kinds, number)
        if not self.spec.bare:
            value = (self._index, self._sequence, time, value)
        self._sequence += 1
        self._pending.append((targets_of(self.spec, number), value, number if free else None))

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
                assert self._local % edge.up == producer % edge.up % edge.down, "an isolated edge leads elsewhere"
        number = number_of(item)
        assert _same(item, item_of(self.spec.kinds, number)), f"{item!r} is not what was sent"
        assert time < 0 or self.spec.late or time > self._watermark, f"time {time} behind watermark {self._watermark}"
        assert ordinal not in self._ended, "an item came after the end of its edge"
        for other in self.spec.inputs:
            if other.priority < edge.priority:
                assert other.destination_ordinal in self._ended, (
                    "an edge was read before one of a lower priority number"
                )
        if edge.route == "partitioned" and self.spec.members == 1:
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
            self._note("marks", (self._index, time))
            if self.spec.outputs and time % 3 == 0:
                self._add(_mixed(self.spec.seed, self._index, time, 5), -1, free=True)
                return False if self._hesitates() else self._drain() and self._pass(watermark)
        return self._pass(watermark)

    def _pass(self, watermark: Watermark) -> bool:
        return not self.spec.marks or self.outbox.offer(watermark)

    def _spares(self, most: int) -> bool:
        while self._drain() and self._spare < most:
            self._add(said(self.spec, self._index, SPARE, self._spare), -1)
            self._spare += 1
        return not self._pending

    def complete_edge(self, ordinal: int) -> bool:
        if not self._drain() or self._hesitates():
            return False
        if ("edge", ordinal) not in self._said:
            assert ordinal not in self._ended, "an edge ended twice"
            self._ended.add(ordinal)
            self._said.add(("edge", ordinal))
            self._add(said(self.spec, self._index, EDGE, ordinal), -1)
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
            self._add(said(self.spec, self._index, END), -1)
        return self._drain() and self._ends()

    def _emit_schedule(self) -> bool:
        while self._at < len(self._schedule):
            if self._hesitates():
                return False
            number, time = self._schedule[self._at]
            self._add(number, time)
            self._at += 1
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
