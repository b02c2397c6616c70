"""The ends of flows: what each kind of sink does with what reaches it, and when that becomes visible.

A sink computes first and commits later, when all sinks of the job have computed. Must not know what comes before.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from shmjet.core.context import ProcessorContext
from shmjet.core.dag import DAG
from shmjet.core.processor import ProcessorSupplier, make_processors
from shmjet.pipeline.definitions import SinkDef
from shmjet.processors.files.record_sink import RecordFiles
from shmjet.processors.general.collect import CollectSupplier
from shmjet.processors.general.collect_sink import EmptyBatches
from shmjet.spark.back.files import file_name
from shmjet.spark.back.sinks import OpenedSink
from shmjet.spark.runner.blocks import unpack
from shmjet.spark.runner.ends import Place, processor_of, supply_of
from shmjet.spark.runner.failures import described
from shmjet.spark.runner.processor_host import drained, hosted
from shmjet.spark.runner.rdd_blocks import blocks_by, collected, lists_by
from shmjet.spark.runner.tasks import Host, Pack, Receipt
from shmjet.spark.runner.translation import Step
from shmjet.spark.runner.user_code import Code


class SinkWriter(Protocol):
    """A sink of one run."""

    rank: int
    """Sinks of lower ranks commit first: those first whose commit may fail."""

    def compute(self, flow: Any) -> None:
        """Do all that may fail, and keep the result invisible; `flow` is an RDD of lists."""

    def commit(self) -> None:
        """Show the result."""

    def abort(self, error: BaseException) -> None:
        """Remove what there is of the result."""

    def close(self) -> None:
        """Free what is kept, at the end of the run."""


def sink_writer(step: Step, code: Code, opened: Any, jet: Any) -> SinkWriter:
    """Return what does a sink.

    Args:
        step: the sink.
        code: of the run.
        opened: for `shmjet.spark.sink`, what it opened for this run, for all steps that end in it.
        jet: the instance that has lists and maps.
    """
    assert step.end is not None
    definition: Any = step.definition
    match step.end.place:
        case Place.FILES:
            return FilesSinkWriter(step, code)
        case Place.SPARK:
            return FrameSinkWriter(step, code, opened)
        case Place.INSTANCE:
            return InstanceSinking(step, definition, jet)
        case Place.DRIVER if isinstance(definition.supplier, CollectSupplier):
            return CollectSinkWriter(definition.supplier)
        case Place.DRIVER:
            return CheckSinking(step)
    return TaskSinkWriter(step, code)


class TaskSinkWriter:
    """Processors in tasks, whose effects are seen at once."""

    rank = 4

    def __init__(self, step: Step, code: Code) -> None:
        self._name = step.name
        self._code = code

    def compute(self, flow: Any) -> None:
        """Run the tasks."""
        self._receipts(flow)

    def _receipts(self, flow: Any) -> list[tuple[int, int, int]]:
        total = flow.getNumPartitions()
        done = lists_by(flow, Host(self._code, self._name, total, (0,)))
        return [unpack(block)[0] for block in collected(blocks_by(done, Receipt(self._code)))]

    def commit(self) -> None:
        """Nothing is left to do."""

    def abort(self, error: BaseException) -> None:
        """Nothing can be done."""

    def close(self) -> None:
        """Nothing is kept."""


class FilesSinkWriter(TaskSinkWriter):
    """Files that tasks write under the names of their attempts."""

    rank = 1

    def __init__(self, step: Step, code: Code) -> None:
        super().__init__(step, code)
        supplier: Any = step.supplier
        self._files: RecordFiles = supplier.elsewhere()
        self._left: list[tuple[int, str]] = []

    def compute(self, flow: Any) -> None:
        """Make the folder and write the files."""
        self._files.folder.create()
        self._left = [(index, f"{self._code.run}-{attempt}") for index, attempt, _ in self._receipts(flow)]

    def commit(self) -> None:
        """Give the files of the attempts that count their names."""
        while self._left:
            self._files.name(*self._left[-1])
            self._left.pop()

    def close(self) -> None:
        """Remove what has not got its name."""
        for index, attempt in self._left:
            with contextlib.suppress(Exception):
                self._files.forget(index, attempt)
        with contextlib.suppress(OSError):
            self._files.sweep(self._code.run)


class FrameSinkWriter(TaskSinkWriter):
    """Column files that tasks write, and Spark's writer reads: `shmjet.spark.sink`.

    Steps that end in the same sink have it open together; the first that commits writes what all have brought.
    """

    rank = 0

    def __init__(self, step: Step, code: Code, opened: OpenedSink) -> None:
        super().__init__(step, code)
        self._opened = opened

    def compute(self, flow: Any) -> None:
        """Write the files; those of the attempts that count will be read."""
        self._opened.count(
            file_name(self._name, index, f"{self._code.run}-{attempt}") for index, attempt, _ in self._receipts(flow)
        )

    def commit(self) -> None:
        """Have Spark write."""
        self._opened.commit()


class _Gathered:
    """All that reaches a sink, in the driver, in the order of the partitions."""

    rank = 2

    def __init__(self) -> None:
        self._blocks: list[bytes] = []

    def compute(self, flow: Any) -> None:
        """Gather it, behind what is there of other steps that end in the same sink."""
        self._blocks += collected(blocks_by(flow, Pack()))

    def commit(self) -> None:
        """Nothing is left to do."""

    def abort(self, error: BaseException) -> None:
        """Forget it."""
        self._blocks = []

    def close(self) -> None:
        """Forget it."""
        self._blocks = []

    def _lists(self) -> Iterator[list[Any]]:
        return map(unpack, self._blocks)


class CollectSinkWriter(_Gathered):
    """`sinks.collect()`: the results stay in the driver."""

    rank = 3

    def __init__(self, supplier: CollectSupplier) -> None:
        super().__init__()
        self.supplier = supplier

    def commit(self) -> None:
        """Put the results where the maker of the sink finds them."""
        self.supplier.give(_Results(self._blocks))

    def abort(self, error: BaseException) -> None:
        """Raise the error for readers of the results."""
        super().abort(error)
        self.supplier.give(_Results([]), error)


class _Results:
    """Reads the items of blocks from the beginning, as often as it is called."""

    def __init__(self, blocks: list[bytes]) -> None:
        self._blocks = blocks

    def __call__(self) -> Iterator[Any]:
        empty = EmptyBatches()
        for block in self._blocks:
            yield from empty.taken_from(unpack(block))
        yield from empty.rest()


class CheckSinking(_Gathered):
    """A processor that looks at everything, in the driver: `sinks.assert_ordered` and its siblings."""

    def __init__(self, step: Step) -> None:
        super().__init__()
        self._step = step

    def compute(self, flow: Any) -> None:
        """Gather all and let the processor look at it."""
        super().compute(flow)
        _host_here([supply_of(self._step.supplier)], self._step.name, self._lists(), None)


class InstanceSinking(_Gathered):
    """A list or map of an instance, written by the driver."""

    def __init__(self, step: Step, definition: SinkDef[Any], jet: Any) -> None:
        super().__init__()
        self._name = step.name
        self._suppliers: list[Any] = [supply_of(definition.supplier)]
        if definition.expand is not None:
            dag = DAG()
            definition.expand(dag, step.name, 1)
            self._suppliers = [supply_of(vertex.supplier) for vertex in dag if processor_of(vertex.supplier)]
        self._jet = jet

    def commit(self) -> None:
        """Write it."""
        _host_here(self._suppliers, self._name, self._lists(), self._jet)


def _host_here(suppliers: Iterable[Any], name: str, lists: Iterable[list[Any]], grid: Any) -> None:
    """Run lists through processors in this process, one behind the other."""
    context = ProcessorContext(vertex_name=name, grid=grid)
    flow = lists
    for supplier in suppliers:
        processor = make_processors(ProcessorSupplier.of(supplier), 1, name)[0]
        flow = hosted(processor, context, ((0, items) for items in flow), (0,))
    try:
        drained(flow)
    except Exception as error:
        raise described(error, name, 0) from error
