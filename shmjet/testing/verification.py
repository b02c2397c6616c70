"""`verify_processor`: one processor, run in several ways over the same input, must give the same output each time.

In each way every call has to make progress, no refused item may be forgotten, and no state may be lost; the rules are
those of `shmjet.core`. Must not know the engine. After Jet's TestSupport.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace
from typing import Any

from shmjet.core.context import MetaSupplierContext, ProcessorContext, SupplierContext
from shmjet.core.job import ProcessingGuarantee
from shmjet.core.processor import Processor, ProcessorSupplier, make_processors
from shmjet.core.vertex import Vertex, VertexSupplier
from shmjet.data.columnar import Columnar
from shmjet.testing.doubles import TestContext
from shmjet.testing.mode_run import ModeRun, Task
from shmjet.testing.modes import MODES, Mode

OutputChecker = Callable[[list[Any], list[Any]], bool]


def verify_processor(supplier: VertexSupplier) -> ProcessorCheck:
    """Start a check of a processor; say its inputs and what must come out.

    Args:
        supplier: what a vertex takes. A fresh processor is made for every run.

    Example:
        >>> from shmjet.core import AbstractProcessor
        >>> class Doubler(AbstractProcessor):
        ...     def try_process0(self, item):
        ...         return self.try_emit(2 * item)
        >>> verify_processor(Doubler).inputs([1, 2, 3]).expect([2, 4, 6])
    """
    return ProcessorCheck(supplier)


class ProcessorCheck:
    """What `verify_processor` returns: options that can be chained, and `expect`, which runs the check.

    Example:
        >>> from shmjet.processors import map_
        >>> verify_processor(map_(str.upper)).inputs("ab", "c").any_order().expect(["A", "B", "C"])
    """

    def __init__(self, supplier: VertexSupplier) -> None:
        self._vertex = Vertex("test", supplier, 1)
        self._inputs: list[list[Any]] = []
        self._priorities: list[int] = []
        self._checker: OutputChecker = _same_sequence
        self._check_progress = True
        self._complete = True
        self._timeout = 1.0
        self._snapshots = True
        self._context: dict[str, Any] = {}

    def inputs(self, *edges: Iterable[Any]) -> ProcessorCheck:
        """Set the items of each inbound edge.

        Args:
            edges: an iterable for each, that of ordinal 0 first; `Watermark` objects may lie among the items.
        """
        self._inputs = [list(edge) for edge in edges]
        return self

    def priorities(self, *priorities: int) -> ProcessorCheck:
        """Set the priority of each inbound edge; by default they are equal and take turns, batch by batch.

        Args:
            priorities: one for each edge; edges of a lower one are read to their end first.
        """
        self._priorities = list(priorities)
        return self

    def any_order(self) -> ProcessorCheck:
        """Compare outputs as multisets; of batches, as multisets of rows."""
        return self.output_checker(_same_items)

    def same_batches(self) -> ProcessorCheck:
        """Compare batches one by one; by default only their rows count, however they are cut into batches."""
        return self.output_checker(lambda expected, actual: expected == actual)

    def output_checker(self, checker: OutputChecker) -> ProcessorCheck:
        """Compare each ordinal's output with `checker(expected, actual)`, which returns whether it is right."""
        self._checker = checker
        return self

    def without_progress_check(self) -> ProcessorCheck:
        """Allow calls that neither take, emit nor finish anything, as those of a processor that waits for something."""
        self._check_progress = False
        return self

    def without_complete(self) -> ProcessorCheck:
        """Do not call `complete_edge` and `complete`; look at what came out before."""
        self._complete = False
        return self

    def without_snapshots(self) -> ProcessorCheck:
        """Leave the modes with snapshots out: for a processor that has state and promises nothing about it."""
        self._snapshots = False
        return self

    def cooperative_timeout(self, seconds: float) -> ProcessorCheck:
        """Set how long a call of a cooperative processor may take; in the engine aim at 1 ms.

        Args:
            seconds: 1.0 unless set; what a call waits for a core of the machine does not count.
        """
        self._timeout = seconds
        return self

    def context(self, **settings: Any) -> ProcessorCheck:
        """Set fields of the `TestContext`; each run has a fresh one, but shares the values given here.

        In modes with snapshots a job without a guarantee has that of EXACTLY_ONCE.

        Args:
            settings: the fields, by name.
        """
        self._context = settings
        return self

    def expect(self, *outputs: Iterable[Any]) -> None:
        """Run the processor in every mode and compare what it emits, before a restore and after it.

        Args:
            outputs: the items expected on each outbound ordinal, watermarks included; none for a vertex without
                outbound edges. Neighbouring batches of the same columns and dtypes count as one, because their cut
                depends on the mode; `same_batches` compares them one by one.

        Raises:
            AssertionError: the output is another one, an item was dropped, state was lost, or a call made no progress
                or took too long; the text names the mode.
            Exception: whatever the processor raises.
        """
        expected = [list(output) for output in outputs]
        if self._priorities and len(self._priorities) != len(self._inputs):
            raise ValueError(f"{len(self._priorities)} priorities for {len(self._inputs)} inputs; give one for each")
        for mode in MODES:
            if self._snapshots or not mode.takes_snapshots:
                self._verify(mode, expected)

    def _verify(self, mode: Mode, expected: list[list[Any]]) -> None:
        """Run one mode and compare."""
        context = TestContext(**self._context)
        if mode.takes_snapshots and not context.snapshotting_enabled:
            config = replace(context.job_config, processing_guarantee=ProcessingGuarantee.EXACTLY_ONCE)
            context = replace(context, job_config=config)
        shared = {f.name: getattr(context, f.name) for f in fields(SupplierContext)}
        meta = self._vertex.meta_supplier
        error: BaseException | None = None
        meta.init(MetaSupplierContext(**shared))
        try:
            suppliers = meta.get(["test-member"])
            supplier = suppliers["test-member"] if isinstance(suppliers, Mapping) else suppliers("test-member")
            supplier.init(SupplierContext(**shared))
            try:
                self._compare(mode, expected, context, lambda: _made(supplier, context))
            except BaseException as raised:
                error = raised
                raise
            finally:
                supplier.close(error)
        finally:
            meta.close(error)

    def _compare(
        self, mode: Mode, expected: list[list[Any]], context: ProcessorContext, make: Callable[[], Processor]
    ) -> None:
        task = Task(
            self._inputs,
            self._priorities or [0] * len(self._inputs),
            self._complete,
            self._check_progress,
            self._timeout,
        )
        run = ModeRun(task, mode, make, context, [len(output) for output in expected])
        for ordinal, (wanted, got) in enumerate(zip(expected, run.run(), strict=True)):
            if not self._checker(wanted, got):
                raise AssertionError(
                    f"{mode.name}: wrong output on ordinal {ordinal}\n"
                    f"  expected {_shown(wanted)}\n  got      {_shown(got)}{run.hint()}"
                )


def _made(supplier: ProcessorSupplier, context: ProcessorContext) -> Processor:
    return make_processors(supplier, context.local_parallelism, "test")[context.local_index]


def _same_sequence(expected: list[Any], actual: list[Any]) -> bool:
    if _has_batches(expected) or _has_batches(actual):
        from shmjet.columns.comparison import joined

        return joined(expected) == joined(actual)
    return expected == actual


def _has_batches(items: list[Any]) -> bool:
    return any(isinstance(item, Columnar) for item in items)


def _same_items(expected: list[Any], actual: list[Any]) -> bool:
    if _has_batches(expected) or _has_batches(actual):
        from shmjet.columns.comparison import rows_of

        expected, actual = list(rows_of(expected)), list(rows_of(actual))
    try:
        return Counter(expected) == Counter(actual)
    except TypeError:  # some cannot be hashed
        left = list(expected)
        for item in actual:
            if item not in left:
                return False
            left.remove(item)
        return not left


def _shown(items: list[Any]) -> str:
    text = repr(items)
    return f"{text if len(text) <= 500 else text[:499] + '…'} ({len(items)} items)"
