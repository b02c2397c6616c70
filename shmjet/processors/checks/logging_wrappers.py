"""Processors that observe a stream: a sink that logs, a sink that drops, and wrappers that log inputs, outputs
or saved entries.

Must not know: the processors they wrap. After Jet's `DiagnosticProcessors` and `noopP`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

from shmjet.core.inbox import Inbox
from shmjet.core.key_functions import selected
from shmjet.core.processor import Processor, ProcessorMetaSupplier, SupplierLike
from shmjet.processors.general.base import BulkProcessor, Supply
from shmjet.processors.general.wrapping import ActiveWrapping, WrappingMetaSupplier, WrappingProcessor, is_active


class LoggerProcessor(BulkProcessor):
    """Logs items."""

    def __init__(self, to_text: Callable[[Any], str], predicate: Callable[[Any], Any] | None) -> None:
        self._to_text = to_text
        self._predicate = predicate

    def absorb(self, ordinal: int, items: list[Any]) -> None:
        """Log a list."""
        for item in items if self._predicate is None else selected(self._predicate, items):
            self.context.logger.info("%s", self._to_text(item))


class NoopProcessor(BulkProcessor):
    """Takes items and forgets them."""

    def absorb(self, ordinal: int, items: list[Any]) -> None:
        """Forget a list."""


class Peeked(enum.Enum):
    """What a wrapper logs."""

    INPUT = "input"
    OUTPUT = "output"
    SNAPSHOT = "snapshot"


class PeekProcessor(WrappingProcessor):
    """Passes every callback on to another processor and logs the items that go in or come out, or the saved entries.

    What comes out is seen in the outbox' buckets: the engine drains them between callbacks only.
    """

    def __init__(self, wrapped: Processor, to_text: Callable[[Any], str], peeked: Peeked) -> None:
        super().__init__(wrapped)
        self._to_text = to_text
        self._peeked = peeked
        self._known = 0  # items at the end of the inbox that were logged already

    def process(self, ordinal: int, inbox: Inbox) -> None:
        """Log what is new in the inbox, then pass on."""
        if self._peeked is Peeked.INPUT:
            if not self._known:
                for item in inbox:
                    self.context.logger.info("Input from ordinal %d: %s", ordinal, self._to_text(item))
            self.passed_on("process", ordinal, inbox)
            self._known = len(inbox)
        else:
            self.passed_on("process", ordinal, inbox)

    def save_to_snapshot(self) -> bool:
        """Pass on, and log the entries that were saved."""
        saved = len(self.outbox.saved)
        if self._peeked is Peeked.SNAPSHOT:
            self.outbox._lasting = None  # so that entries are offered, whatever the snapshot before has
        try:
            return super().save_to_snapshot()
        finally:
            if self._peeked is Peeked.SNAPSHOT:
                for entry in self.outbox.saved[saved:]:
                    self.context.logger.info("Snapshot entry: %s", self._to_text(entry))

    def passed_on(self, callback: str, *args: Any) -> Any:
        """Pass on, and log what was emitted."""
        method = getattr(self.wrapped, callback)
        if self._peeked is not Peeked.OUTPUT:
            return method(*args)
        buckets = self.outbox.buckets
        before = [len(bucket) for bucket in buckets]
        try:
            return method(*args)
        finally:
            for ordinal, (bucket, size) in enumerate(zip(buckets, before, strict=True)):
                for item in bucket[size:]:
                    self.context.logger.info("Output to ordinal %d: %s", ordinal, self._to_text(item))


class PeekActiveProcessor(ActiveWrapping, PeekProcessor):
    """For processors that work without an inbox: the engine keeps calling a processor that overrides `try_process`."""


class _Peek:
    """Wraps a processor; a class, so that it pickles."""

    def __init__(self, to_text: Callable[[Any], str], peeked: Peeked) -> None:
        self._arguments = to_text, peeked

    def __call__(self, processor: Processor) -> Processor:
        return (PeekActiveProcessor if is_active(processor) else PeekProcessor)(processor, *self._arguments)


def logger(
    to_text: Callable[[Any], str] = str, predicate: Callable[[Any], Any] | None = None
) -> Callable[[], Processor]:
    """Log each item at level INFO with the processor's logger; nothing is emitted.

    Args:
        to_text: text of an item.
        predicate: log only the items for which it is true.

    Raises:
        TypeError: when a function is not callable.

    Example:
        >>> sink = logger(repr)
    """
    if not callable(to_text) or (predicate is not None and not callable(predicate)):
        raise TypeError(f"logger: expected functions, got {to_text!r} and {predicate!r}")
    return Supply(LoggerProcessor, to_text, predicate)


def noop() -> Callable[[], Processor]:
    """Take all items and emit nothing.

    Example:
        >>> from shmjet.testing import verify_processor
        >>> verify_processor(noop()).inputs([1, 2]).expect([])
    """
    return Supply(NoopProcessor)


def peek_input(
    supplier: SupplierLike | ProcessorMetaSupplier, to_text: Callable[[Any], str] = str
) -> ProcessorMetaSupplier:
    """Wrap a supplier of any level: its processors log each item that they are given.

    Args:
        supplier: what a vertex takes.
        to_text: text of an item.

    Example:
        >>> vertex = dag.new_vertex("map", peek_input(processors.map(str.lower)))    # doctest: +SKIP
    """
    return WrappingMetaSupplier(ProcessorMetaSupplier.of(supplier), _Peek(to_text, Peeked.INPUT))


def peek_output(
    supplier: SupplierLike | ProcessorMetaSupplier, to_text: Callable[[Any], str] = str
) -> ProcessorMetaSupplier:
    """Wrap a supplier of any level: its processors log each item that they emit, once per ordinal.

    Args:
        supplier: what a vertex takes.
        to_text: text of an item.

    Example:
        >>> vertex = dag.new_vertex("map", peek_output(processors.map(str.lower)))   # doctest: +SKIP
    """
    return WrappingMetaSupplier(ProcessorMetaSupplier.of(supplier), _Peek(to_text, Peeked.OUTPUT))


def peek_snapshot(
    supplier: SupplierLike | ProcessorMetaSupplier, to_text: Callable[[Any], str] = str
) -> ProcessorMetaSupplier:
    """Wrap a supplier of any level: its processors log each entry that they save in a snapshot.

    Args:
        supplier: what a vertex takes.
        to_text: text of a `(key, value)` entry.

    Example:
        >>> vertex = dag.new_vertex("distinct", peek_snapshot(processors.distinct()))    # doctest: +SKIP
    """
    return WrappingMetaSupplier(ProcessorMetaSupplier.of(supplier), _Peek(to_text, Peeked.SNAPSHOT))
