"""Processors that observe a stream: a sink that logs, a sink that drops, and wrappers that log inputs, outputs
or saved entries.

Must not know: the processors they wrap. After Jet's `DiagnosticProcessors` and `noopP`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from shmjet.core.inbox import Inbox
from shmjet.core.key_functions import selected
from shmjet.core.outbox import Outbox
from shmjet.core.processor import (
    CommittingSupplier,
    MetaSupplierContext,
    Processor,
    ProcessorContext,
    ProcessorMetaSupplier,
    ProcessorSupplier,
    SupplierContext,
    SupplierLike,
)
from shmjet.data.marks import Watermark
from shmjet.processors.general.base import BulkProcessor, Supply


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


class PeekProcessor(Processor):
    """Passes every callback on to another processor and logs the items that go in or come out, or the saved entries.

    What comes out is seen in the outbox' buckets: the engine drains them between callbacks only.
    """

    def __init__(self, wrapped: Processor, to_text: Callable[[Any], str], peeked: Peeked) -> None:
        self._wrapped = wrapped
        self._to_text = to_text
        self._peeked = peeked
        self._known = 0  # items at the end of the inbox that were logged already
        self.is_cooperative = wrapped.is_cooperative

    @property
    def next_call(self) -> float | None:  # type: ignore[override]
        """What the other processor says now."""
        return self._wrapped.next_call

    @property
    def movable(self) -> bool | None:  # type: ignore[override]
        """What the other processor says now."""
        return self._wrapped.movable

    @property
    def _saves_at_end(self) -> bool:  # type: ignore[override]
        return self._wrapped._saves_at_end

    def init(self, outbox: Outbox, context: ProcessorContext) -> None:
        """Pass on."""
        super().init(outbox, context)
        self._watched("init", outbox, context)
        self.work_unit = self._wrapped.work_unit

    def process(self, ordinal: int, inbox: Inbox) -> None:
        """Log what is new in the inbox, then pass on."""
        if self._peeked is Peeked.INPUT:
            if not self._known:
                for item in inbox:
                    self.context.logger.info("Input from ordinal %d: %s", ordinal, self._to_text(item))
            self._watched("process", ordinal, inbox)
            self._known = len(inbox)
        else:
            self._watched("process", ordinal, inbox)

    def try_process_watermark(self, watermark: Watermark) -> bool:
        """Pass on."""
        return bool(self._watched("try_process_watermark", watermark))

    def complete_edge(self, ordinal: int) -> bool:
        """Pass on."""
        return bool(self._watched("complete_edge", ordinal))

    def complete(self) -> bool:
        """Pass on."""
        return bool(self._watched("complete"))

    def progress(self) -> tuple[int, int]:
        """Pass on."""
        return self._wrapped.progress()

    def save_to_snapshot(self) -> bool:
        """Pass on, and log the entries that were saved."""
        saved = len(self.outbox.saved)
        try:
            return bool(self._watched("save_to_snapshot"))
        finally:
            if self._peeked is Peeked.SNAPSHOT:
                for entry in self.outbox.saved[saved:]:
                    self.context.logger.info("Snapshot entry: %s", self._to_text(entry))

    def snapshot_commit_prepare(self) -> bool:
        """Pass on."""
        return bool(self._watched("snapshot_commit_prepare"))

    def snapshot_commit_finish(self, success: bool) -> bool:
        """Pass on."""
        return self._wrapped.snapshot_commit_finish(success)

    def restore_from_snapshot(self, inbox: Inbox) -> None:
        """Pass on."""
        self._wrapped.restore_from_snapshot(inbox)

    def finish_snapshot_restore(self) -> bool:
        """Pass on."""
        return bool(self._watched("finish_snapshot_restore"))

    def close(self) -> None:
        """Pass on."""
        self._wrapped.close()

    def _watched(self, callback: str, *args: Any) -> Any:
        method = getattr(self._wrapped, callback)
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


class PeekActiveProcessor(PeekProcessor):
    """For processors that work without an inbox: the engine keeps calling a processor that overrides `try_process`."""

    def try_process(self) -> bool:
        """Pass on."""
        return bool(self._watched("try_process"))


def _peek(wrapped: Processor, to_text: Callable[[Any], str], peeked: Peeked) -> Processor:
    is_active = type(wrapped).try_process is not Processor.try_process
    return (PeekActiveProcessor if is_active else PeekProcessor)(wrapped, to_text, peeked)


class _PeekSupplier(ProcessorSupplier):
    def __init__(self, wrapped: ProcessorSupplier, to_text: Callable[[Any], str], peeked: Peeked) -> None:
        self._wrapped = wrapped
        self._to_text = to_text
        self._peeked = peeked
        self.is_cooperative = wrapped.is_cooperative

    def init(self, context: SupplierContext) -> None:
        self._wrapped.init(context)

    def get(self, count: int) -> Sequence[Processor]:
        return [_peek(each, self._to_text, self._peeked) for each in self._wrapped.get(count)]

    def close(self, error: BaseException | None) -> None:
        self._wrapped.close(error)


class _CommittingPeekSupplier(_PeekSupplier, CommittingSupplier):
    def commit(self) -> None:
        assert isinstance(self._wrapped, CommittingSupplier)
        self._wrapped.commit()


class _PeekMetaSupplier(ProcessorMetaSupplier):
    def __init__(self, wrapped: ProcessorMetaSupplier, to_text: Callable[[Any], str], peeked: Peeked) -> None:
        self._wrapped = wrapped
        self._to_text = to_text
        self._peeked = peeked
        self.preferred_local_parallelism = wrapped.preferred_local_parallelism
        self.is_cooperative = wrapped.is_cooperative
        self.on_client = getattr(wrapped, "on_client", None)

    def init(self, context: MetaSupplierContext) -> None:
        self._wrapped.init(context)

    def get(self, addresses: Sequence[str]) -> Mapping[str, ProcessorSupplier]:
        given = self._wrapped.get(addresses)
        supplier_at = given.__getitem__ if isinstance(given, Mapping) else given
        found = {address: supplier_at(address) for address in addresses}
        kinds = {False: _PeekSupplier, True: _CommittingPeekSupplier}
        return {
            address: kinds[isinstance(supplier, CommittingSupplier)](supplier, self._to_text, self._peeked)
            for address, supplier in found.items()
        }

    def commit(self) -> None:
        self._wrapped.commit()

    def close(self, error: BaseException | None) -> None:
        self._wrapped.close(error)


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
    return _PeekMetaSupplier(ProcessorMetaSupplier.of(supplier), to_text, Peeked.INPUT)


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
    return _PeekMetaSupplier(ProcessorMetaSupplier.of(supplier), to_text, Peeked.OUTPUT)


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
    return _PeekMetaSupplier(ProcessorMetaSupplier.of(supplier), to_text, Peeked.SNAPSHOT)
