"""`verify_processor`: one processor, run in several ways over the same input, must give the same output each time.

A way is a row of `MODES`, so more kinds are more rows. In each, every call has to make progress and no refused item may
be forgotten; the rules are those of `shmjet.core`. Must not know the engine. After Jet's TestSupport.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, NoReturn

from shmjet.core.context import MetaSupplierContext, ProcessorContext, SupplierContext
from shmjet.core.inbox import Inbox
from shmjet.core.outbox import DEFAULT_HIGH_WATER_MARK, Ordinals, Outbox
from shmjet.core.processor import Processor, make_processors
from shmjet.core.vertex import Vertex, VertexSupplier
from shmjet.core.watermark import WatermarkCoalescer
from shmjet.data.columnar import Columnar
from shmjet.data.errors import BatchError, OutboxError, locate
from shmjet.data.marks import Watermark
from shmjet.testing.doubles import TestContext

OutputChecker = Callable[[list[Any], list[Any]], bool]


@dataclass(frozen=True)
class Mode:
    """One way of running a processor.

    Args:
        name: for messages.
        batch_size: items per inbox; None for all that there are up to the next watermark.
        full_at: 1 or 0 for an outbox of one slot that is full at every odd or every even call, None for a roomy one.
    """

    name: str
    batch_size: int | None
    full_at: int | None


MODES = (
    Mode("one item at a time", 1, None),
    Mode("all items at once", None, None),
    Mode("one item at a time, outbox of one slot, full at every odd call", 1, 1),
    Mode("one item at a time, outbox of one slot, full at every even call", 1, 0),
    Mode("all items at once, outbox of one slot, full at every odd call", None, 1),
    Mode("all items at once, outbox of one slot, full at every even call", None, 0),
)
"""What `verify_processor` runs through."""


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

    def cooperative_timeout(self, seconds: float) -> ProcessorCheck:
        """Set how long a call of a cooperative processor may take; in the engine aim at 1 ms.

        Args:
            seconds: 1.0 unless set.
        """
        self._timeout = seconds
        return self

    def context(self, **settings: Any) -> ProcessorCheck:
        """Set fields of the `TestContext`; each run has a fresh one, but shares the values given here.

        Args:
            settings: the fields, by name.
        """
        self._context = settings
        return self

    def expect(self, *outputs: Iterable[Any]) -> None:
        """Run the processor in every mode and compare what it emits.

        Args:
            outputs: the items expected on each outbound ordinal, watermarks included; none for a vertex without
                outbound edges. Neighbouring batches of the same columns and dtypes count as one, because their cut
                depends on the mode; `same_batches` compares them one by one.

        Raises:
            AssertionError: the output is another one, an item was dropped, or a call made no progress or took too
                long; the text names the mode.
            Exception: whatever the processor raises.
        """
        expected = [list(output) for output in outputs]
        for mode in MODES:
            actual = self._run(mode, [len(output) for output in expected])
            for ordinal, (wanted, got) in enumerate(zip(expected, actual, strict=True)):
                if not self._checker(wanted, got):
                    raise AssertionError(
                        f"{mode.name}: wrong output on ordinal {ordinal}\n"
                        f"  expected {_shown(wanted)}\n  got      {_shown(got)}"
                    )

    def _run(self, mode: Mode, expected: list[int]) -> list[list[Any]]:
        context = TestContext(**self._context)
        shared = {f.name: getattr(context, f.name) for f in fields(SupplierContext)}
        meta = self._vertex.meta_supplier
        error: BaseException | None = None
        meta.init(MetaSupplierContext(**shared))
        try:
            suppliers = meta.get(["test-member"])
            supplier = suppliers["test-member"] if isinstance(suppliers, Mapping) else suppliers("test-member")
            supplier.init(SupplierContext(**shared))
            try:
                processor = make_processors(supplier, context.local_parallelism, "test")[context.local_index]
                return _Run(self, mode, processor, expected).run(context)
            except BaseException as raised:
                error = raised
                raise
            finally:
                supplier.close(error)
        finally:
            meta.close(error)


class _Run:
    """One processor driven through one mode.

    Args:
        expected: number of items expected on each outbound ordinal.
    """

    _MOST_IDLE_CALLS = 10_000
    _MOST_SURPLUS = 10_000
    """Items more than expected that end the run: a processor that offers again what was accepted never stops."""

    def __init__(self, check: ProcessorCheck, mode: Mode, processor: Processor, expected: list[int]) -> None:
        self._check = check
        self._mode = mode
        self._processor = processor
        self._expected = expected
        self._inbox = Inbox()
        self._outbox = _ModeOutbox(len(expected), mode.full_at)
        self._emitted: list[list[Any]] = [[] for _ in expected]
        self._idle_calls = 0

    def run(self, context: ProcessorContext) -> list[list[Any]]:
        processor = self._processor
        try:
            self._outbox.begin_callback()
            processor.init(self._outbox, context)
            self._drain()
            self._feed()
            if self._check._complete:
                self._until_true("complete()", processor.complete)
        except OutboxError as error:
            raise AssertionError(f"{self._mode.name}: {error}") from error
        except BatchError as error:
            locate(error, f"vertex {context.vertex_name!r}")
            raise
        finally:
            processor.close()
        return self._emitted

    def _feed(self) -> None:
        """Give every edge's batches, group by group of priority, the edges of a group in turn."""
        inputs = self._check._inputs
        priorities = self._check._priorities or [0] * len(inputs)
        if len(priorities) != len(inputs):
            raise ValueError(f"{len(priorities)} priorities for {len(inputs)} inputs; give one for each")
        coalescer = WatermarkCoalescer(len(inputs))
        for priority in sorted(set(priorities)):
            group = deque(
                (ordinal, deque(_batches(inputs[ordinal], self._mode.batch_size)))
                for ordinal, own in enumerate(priorities)
                if own == priority
            )
            while group:
                ordinal, batches = group.popleft()
                if batches:
                    self._feed_one(ordinal, batches.popleft(), coalescer)
                    group.append((ordinal, batches))
                elif self._check._complete:
                    self._until_true(f"complete_edge({ordinal})", partial(self._processor.complete_edge, ordinal))
                    self._watermark(coalescer.input_done(ordinal))

    def _feed_one(self, ordinal: int, batch: list[Any] | Watermark, coalescer: WatermarkCoalescer) -> None:
        if isinstance(batch, Watermark):
            self._watermark(coalescer.observe_watermark(ordinal, batch))
            self._watermark(coalescer.pending())
            return
        coalescer.observe_event(ordinal)
        self._until_true("try_process()", self._processor.try_process)
        self._inbox.fill(batch)
        while self._inbox:
            self._call(f"process({ordinal}, inbox)", lambda: self._processor.process(ordinal, self._inbox))
        self._outbox.require_finished(f"process({ordinal}, inbox)")

    def _watermark(self, watermark: Watermark | None) -> None:
        if watermark is not None:
            self._until_true(
                f"try_process_watermark({watermark})", lambda: self._processor.try_process_watermark(watermark)
            )

    def _until_true(self, name: str, callback: Callable[[], Any]) -> None:
        while True:
            answer = self._call(name, callback)
            if answer is None:
                self._fail(f"{name} returned None; return True when it is through, False to be called again")
            if answer:
                break
        self._outbox.require_finished(name)

    def _call(self, name: str, callback: Callable[[], Any]) -> Any:
        """Make one call, check its time and its progress, and return its answer."""
        outbox, before = self._outbox, len(self._inbox)
        outbox.begin_callback()
        started = time.perf_counter()
        answer = callback()
        took = time.perf_counter() - started
        if took > self._check._timeout and self._processor.is_cooperative:
            self._fail(
                f"{name} of a cooperative processor took {took:.3f} s, more than {self._check._timeout} s; "
                "do less per call, or say is_cooperative = False"
            )
        progress = self._drain() or len(self._inbox) < before or bool(answer)
        if progress:
            self._idle_calls = 0
        elif not outbox.is_shut:
            self._idle_calls += 1
            if self._check._check_progress:
                self._fail(
                    f"{name} returned without progress: it took nothing from the inbox ({len(self._inbox)} items "
                    "left), emitted nothing though the outbox had room, and was not through"
                )
            if self._idle_calls > self._MOST_IDLE_CALLS:
                self._fail(f"{name} made no progress in {self._MOST_IDLE_CALLS} calls")
        return answer

    def _drain(self) -> bool:
        """Take what was emitted; True when that was anything."""
        moved = False
        buckets = zip(self._emitted, self._outbox.buckets, self._expected, strict=True)
        for ordinal, (emitted, bucket, expected) in enumerate(buckets):
            moved = moved or bool(bucket)
            emitted += bucket
            bucket.clear()
            if len(emitted) > expected + self._MOST_SURPLUS:
                self._fail(
                    f"{len(emitted)} items on ordinal {ordinal} where {expected} are expected, and no end; an item "
                    "that the outbox has accepted must not be offered again"
                )
        return moved or (not self._emitted and self._outbox.accepted > 0)

    def _fail(self, text: str) -> NoReturn:
        raise AssertionError(f"{self._mode.name}: {text}")


def _batches(items: Sequence[Any], size: int | None) -> list[list[Any] | Watermark]:
    """Cut items into batches; a watermark is one by itself."""
    batches: list[list[Any] | Watermark] = []
    current: list[Any] = []
    for item in items:
        if isinstance(item, Watermark) or len(current) == size:
            if current:
                batches.append(current)
            current = []
        if isinstance(item, Watermark):
            batches.append(item)
        else:
            current.append(item)
    if current:
        batches.append(current)
    return batches


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


class _ModeOutbox(Outbox):
    """Counts callbacks, and with `full_at` has one slot per bucket and none at every other callback."""

    __slots__ = ("_calls", "_full_at")

    def __init__(self, bucket_count: int, full_at: int | None) -> None:
        super().__init__([DEFAULT_HIGH_WATER_MARK if full_at is None else 1] * bucket_count)
        self._full_at = full_at
        self._calls = 0

    @property
    def is_shut(self) -> bool:
        return self._calls % 2 == self._full_at

    def begin_callback(self) -> None:
        self._calls += 1
        super().begin_callback()
        if self.is_shut:
            self._caps = [0] * len(self._caps)

    def room(self, ordinal: Ordinals = -1) -> int:
        if self.is_shut:
            return 0
        room = super().room(ordinal)
        return min(room, 1 - len(self._sink)) if self._full_at is not None and not self.buckets else room
