"""What Spark's Python workers are given to do: functions of (partition, what comes in), pickled by reference.

Each is a small description; the user's code is found by name in the run's `Code`. What any of them raises names the
vertex. Must not know RDDs, nor import PySpark before it runs in a task.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from shmjet.core.processor import ProcessorContext
from shmjet.spark.runner import exchange_sender
from shmjet.spark.runner.blocks import ITEMS, pack, packed, unpack
from shmjet.spark.runner.exchange_receiver import merged, received
from shmjet.spark.runner.failures import guarded
from shmjet.spark.runner.processor_host import hosted
from shmjet.spark.runner.user_code import Code, close_run, process_id

_TARGET = struct.Struct("!q")
_SAMPLES = 64
"""Items of a sorted partition that are looked at to find ranges."""

Lists = Iterable[list[Any]]


@dataclass(frozen=True)
class Host:
    """Runs a vertex' processor in a task.

    Args:
        code: of the run.
        vertex: which.
        total: tasks of the vertex.
        edges: its inbound ordinals, those first that are read first; none for a source.
        reads_blocks: what comes in are blocks of several edges or of an exchange; else lists of the only edge.
        sides: ordinal and broadcast blocks of edges that every task has all of.
    """

    code: Code
    vertex: str
    total: int
    edges: tuple[int, ...] = ()
    reads_blocks: bool = False
    sides: tuple[tuple[int, Any], ...] = ()

    def __call__(self, index: int, flow: Iterable[Any]) -> Iterator[list[Any]]:
        """Return what the processor emits."""
        try:
            yield from guarded(self._run(index, flow), self.vertex, index)
        except Exception:  # Spark ends the worker for it
            with contextlib.suppress(Exception):
                close_run(self.code.run)
            raise

    def _run(self, index: int, flow: Iterable[Any]) -> Iterator[list[Any]]:
        context = self.context(index)
        processor = self.code.processor(self.vertex, context)
        return hosted(processor, context, self._chunks(flow), self.edges)

    def context(self, index: int) -> ProcessorContext:
        """Return what the processor of a task is told."""
        return ProcessorContext(
            vertex_name=self.vertex,
            local_parallelism=self.total,
            total_parallelism=self.total,
            local_index=index,
            global_index=index,
            job_id=f"{self.code.run}-{attempt_id()}",
        )

    def _chunks(self, flow: Iterable[Any]) -> Iterator[tuple[int, list[Any]]]:
        for ordinal, shipped in self.sides:
            for block in shipped.value:
                yield ordinal, unpack(block)
        main = [ordinal for ordinal in self.edges if ordinal not in {side for side, _ in self.sides}]
        if self.reads_blocks:
            yield from received(flow, main)
        elif main:
            for items in flow:
                yield main[0], items
        else:
            _exhaust(flow)


@dataclass(frozen=True)
class Merge:
    """Merges the sorted blocks of a range."""

    code: Code
    vertex: str
    key: str | None

    def __call__(self, index: int, blocks: Iterable[bytes]) -> Iterator[list[Any]]:
        """Return the items in order."""
        return guarded(self._run(blocks), self.vertex, index)

    def _run(self, blocks: Iterable[bytes]) -> Iterator[list[Any]]:
        return merged(blocks, function_of(self.code, self.key))


@dataclass(frozen=True)
class Split:
    """Splits items over the targets of an exchange, in the form that Spark's Python shuffle takes.

    Args:
        code: of the run.
        vertex: to which the items go, for errors.
        way: "key", "deal", "one" or "range".
        targets: tasks behind the exchange.
        ordinal: of the edge.
        count: partitions by key.
        key: name of the function of keys, or of what is compared.
        bounds: of ranges.
        tells_schemas: by key, the vertex wants to know the columns of all batches.
    """

    code: Code
    vertex: str
    way: str
    targets: int
    ordinal: int = 0
    count: int = 0
    key: str | None = None
    bounds: tuple[Any, ...] = ()
    tells_schemas: bool = False

    def __call__(self, index: int, flow: Lists) -> Iterator[bytes]:
        """Return target, block, target, block, ..."""
        return guarded(self._run(index, flow), self.vertex, index)

    def _run(self, index: int, flow: Lists) -> Iterator[bytes]:
        for target, block in self._split(index, flow):
            yield _TARGET.pack(target)
            yield block

    def _split(self, index: int, flow: Lists) -> Iterator[exchange_sender.Targeted]:
        match self.way:
            case "key":
                key_fn = function_of(self.code, self.key)
                return exchange_sender.by_key(
                    *(flow, key_fn, self.count, self.targets, self.ordinal, index), tells_schemas=self.tells_schemas
                )
            case "deal":
                return exchange_sender.evenly(flow, self.targets, self.ordinal, index)
            case "one":
                return exchange_sender.to_one(flow, self.ordinal, index)
        bounds: list[Any] = unpack(self.bounds[0]) if self.bounds else []
        return exchange_sender.by_range(flow, function_of(self.code, self.key), bounds, self.ordinal, index)


@dataclass(frozen=True)
class Pack:
    """Makes blocks of lists, for what crosses a border between processes without being split."""

    ordinal: int = 0

    def __call__(self, index: int, flow: Lists) -> Iterator[bytes]:
        """Return the blocks."""
        return packed(flow, self.ordinal, index)


@dataclass(frozen=True)
class Received:
    """Makes lists of the blocks of an exchange or a union, edge by edge."""

    edges: tuple[int, ...] = (0,)

    def __call__(self, index: int, blocks: Iterable[bytes]) -> Iterator[list[Any]]:
        """Return the lists."""
        return (items for _, items in received(blocks, self.edges))


@dataclass(frozen=True)
class Unpack:
    """Makes lists of blocks that are read in the order in which they come."""

    def __call__(self, index: int, blocks: Iterable[bytes]) -> Iterator[list[Any]]:
        """Return the lists; a `range` that was sent as such is drawn here."""
        for block in blocks:
            items = unpack(block)
            if len(items) == 1 and type(items[0]) is _Run:
                yield from items[0].lists()
            else:
                yield items


@dataclass(frozen=True)
class Sample:
    """Counts sorted items and takes some of them, evenly spaced."""

    def __call__(self, index: int, flow: Lists) -> Iterator[bytes]:
        """Return one block: the count, then the sample."""
        count, step = 0, 1
        taken: list[Any] = []
        for items in flow:
            for place in range(-count % step, len(items), step):
                taken.append(items[place])
            count += len(items)
            while len(taken) > 2 * _SAMPLES:
                taken, step = taken[::2], 2 * step
        yield pack([(count, taken)])


@dataclass(frozen=True)
class _Run:
    """Consecutive ints that travel as a `range`."""

    numbers: range

    def lists(self) -> Iterator[list[int]]:
        """Return them in lists."""
        for start in range(0, len(self.numbers), ITEMS):
            yield list(self.numbers[start : start + ITEMS])


def given_blocks(items: Sequence[Any], parts: int) -> list[list[bytes]]:
    """Return the blocks of each of so many runs of given items; those of a `range` are not drawn.

    Example:
        >>> [len(blocks) for blocks in given_blocks([1, 2, 3], 2)]
        [1, 1]
    """
    size = len(items)
    runs = [items[size * part // parts : size * (part + 1) // parts] for part in range(parts)]
    if isinstance(items, range):
        return [[pack([_Run(run)])] if run else [] for run in runs]  # type: ignore[arg-type]
    return [list(packed([list(run)])) if run else [] for run in runs]


@dataclass(frozen=True)
class Receipt:
    """Runs a flow to its end, and says which attempt of the partition that was.

    The receipts of a Spark job hold the attempt of each partition that counts, and no other.
    """

    code: Code

    def __call__(self, index: int, flow: Lists) -> Iterator[bytes]:
        """Return one block with partition, attempt and number of items."""
        emitted = sum(map(len, flow))
        yield pack([(index, attempt_id(), emitted)])


@dataclass(frozen=True)
class CloseRun:
    """Closes what a run has open in the worker that happens to do this task."""

    run: str

    def __call__(self, index: int, flow: Iterable[Any]) -> Iterator[bytes]:
        """Return one block with this process, if it had the run's code, and what closing it has raised."""
        _exhaust(flow)
        try:
            found, why = close_run(self.run), ""
        except Exception as error:
            found, why = True, f"{type(error).__name__}: {error}"
        if found:
            yield pack([(process_id(), why)])


def _exhaust(flow: Iterable[Any]) -> None:
    """Read and drop the rest: Spark gives up a worker that has not read its input to the end."""
    for _ in flow:
        pass


def function_of(code: Code, name: str | None) -> Any:
    """Return a function of the plan; None where the item itself is meant."""
    return None if name is None else code.here().functions[name]


def attempt_id() -> int:
    """Return the number of the running attempt, unlike any other in the application; 0 outside tasks."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else int(context.taskAttemptId())
