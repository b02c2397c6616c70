"""Processors around other processors, and suppliers of them, for any supplier.

Must not know: what a wrapper does, nor what it wraps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from shmjet.core.inbox import Inbox
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
    state_kind_of,
)
from shmjet.core.saving import captures, saves_at_end
from shmjet.data.marks import Watermark

Wrap = Callable[[Processor], Processor]


class WrappingProcessor(Processor):
    """Passes every callback on to another processor; a subclass overrides `passed_on`, or single callbacks.

    Args:
        wrapped: the other processor.
    """

    def __init__(self, wrapped: Processor) -> None:
        self.wrapped = wrapped
        self.is_cooperative = wrapped.is_cooperative

    def passed_on(self, callback: str, *args: Any) -> Any:
        """Call a method of the other processor that may emit."""
        return getattr(self.wrapped, callback)(*args)

    @property
    def next_call(self) -> float | None:  # type: ignore[override]
        """What the other processor says now."""
        return self.wrapped.next_call

    @property
    def movable(self) -> bool | None:  # type: ignore[override]
        """What the other processor says now."""
        return self.wrapped.movable

    @property
    def _saves_at_end(self) -> bool:  # type: ignore[override]
        return saves_at_end(self.wrapped)

    @property
    def _captures(self) -> bool:  # type: ignore[override]
        return captures(self.wrapped)

    def time_facts(self) -> Sequence[Any]:
        """Pass on, where the other processor is a source with event time."""
        found: Sequence[Any] = getattr(self.wrapped, "time_facts", tuple)()
        return found

    @property
    def late_events_dropped(self) -> int:  # type: ignore[override]
        """What the other processor has counted."""
        return self.wrapped.late_events_dropped

    @property
    def failed_items_skipped(self) -> int:  # type: ignore[override]
        """What the other processor has counted."""
        return self.wrapped.failed_items_skipped

    def init(self, outbox: Outbox, context: ProcessorContext) -> None:
        """Pass on."""
        super().init(outbox, context)
        self.passed_on("init", outbox, context)
        self.work_unit = self.wrapped.work_unit

    def process(self, ordinal: int, inbox: Inbox) -> None:
        """Pass on."""
        self.passed_on("process", ordinal, inbox)

    def try_process_watermark(self, watermark: Watermark) -> bool:
        """Pass on."""
        return bool(self.passed_on("try_process_watermark", watermark))

    def complete_edge(self, ordinal: int) -> bool:
        """Pass on."""
        return bool(self.passed_on("complete_edge", ordinal))

    def complete(self) -> bool:
        """Pass on."""
        return bool(self.passed_on("complete"))

    def progress(self) -> tuple[int, int]:
        """Pass on."""
        return self.wrapped.progress()

    def _capture(self) -> bool:
        return bool(self.passed_on("_capture"))

    def save_to_snapshot(self) -> bool:
        """Pass on."""
        return bool(self.passed_on("save_to_snapshot"))

    def snapshot_commit_prepare(self) -> bool:
        """Pass on."""
        return bool(self.passed_on("snapshot_commit_prepare"))

    def snapshot_commit_finish(self, success: bool) -> bool:
        """Pass on."""
        return self.wrapped.snapshot_commit_finish(success)

    def restore_from_snapshot(self, inbox: Inbox) -> None:
        """Pass on."""
        self.wrapped.restore_from_snapshot(inbox)

    def finish_snapshot_restore(self) -> bool:
        """Pass on."""
        return bool(self.passed_on("finish_snapshot_restore"))

    def close(self) -> None:
        """Pass on."""
        self.wrapped.close()


class ActiveWrapping(WrappingProcessor):
    """Put in front of a wrapper of processors that work without an inbox: the engine calls overridden methods only."""

    def try_process(self) -> bool:
        """Pass on."""
        return bool(self.passed_on("try_process"))


def is_active(processor: Processor) -> bool:
    """Say whether a processor works without an inbox, too."""
    return type(processor).try_process is not Processor.try_process


class _WrappingFactory:
    def __init__(self, factory: Callable[[], Processor], wrap: Wrap) -> None:
        self._factory = factory
        self._wrap = wrap
        self.is_cooperative = getattr(factory, "is_cooperative", None)
        self.state_kind = state_kind_of(factory)
        self.__name__ = getattr(factory, "__name__", type(factory).__name__)

    def __call__(self) -> Processor:
        return self._wrap(self._factory())


class WrappingSupplier(ProcessorSupplier):
    """Wraps the processors of another supplier."""

    def __init__(self, supplier: ProcessorSupplier, wrap: Wrap) -> None:
        self._supplier = supplier
        self._wrap = wrap
        self.is_cooperative = supplier.is_cooperative
        self.state_kind = state_kind_of(supplier)

    def init(self, context: SupplierContext) -> None:
        """Pass on."""
        self._supplier.init(context)

    def get(self, count: int) -> Sequence[Processor]:
        """Wrap what the other one makes."""
        return [self._wrap(each) for each in self._supplier.get(count)]

    def close(self, error: BaseException | None) -> None:
        """Pass on."""
        self._supplier.close(error)


class _CommittingWrappingSupplier(WrappingSupplier, CommittingSupplier):
    def commit(self) -> None:
        assert isinstance(self._supplier, CommittingSupplier)
        self._supplier.commit()


class WrappingMetaSupplier(ProcessorMetaSupplier):
    """Wraps the processors of another meta-supplier."""

    def __init__(self, supplier: ProcessorMetaSupplier, wrap: Wrap) -> None:
        self._supplier = supplier
        self._wrap = wrap
        self.preferred_local_parallelism = supplier.preferred_local_parallelism
        self.is_cooperative = supplier.is_cooperative
        self.state_kind = state_kind_of(supplier)
        self.on_client = getattr(supplier, "on_client", None)
        self.observable = getattr(supplier, "observable", None)

    def init(self, context: MetaSupplierContext) -> None:
        """Pass on."""
        self._supplier.init(context)

    def get(self, addresses: Sequence[str]) -> Mapping[str, ProcessorSupplier]:
        """Wrap what the other one gives."""
        given = self._supplier.get(addresses)
        supplier_at = given.__getitem__ if isinstance(given, Mapping) else given
        found = {address: supplier_at(address) for address in addresses}
        return {address: _around(supplier, self._wrap) for address, supplier in found.items()}

    def commit(self) -> None:
        """Pass on."""
        self._supplier.commit()

    def close(self, error: BaseException | None) -> None:
        """Pass on."""
        self._supplier.close(error)


def _around(supplier: ProcessorSupplier, wrap: Wrap) -> ProcessorSupplier:
    kind = _CommittingWrappingSupplier if isinstance(supplier, CommittingSupplier) else WrappingSupplier
    return kind(supplier, wrap)


def wrapping(supplier: SupplierLike | ProcessorMetaSupplier, wrap: Wrap) -> Any:
    """Return what makes the processors of a supplier, wrapped.

    Args:
        supplier: what a vertex takes.
        wrap: makes the wrapper of a processor; picklable.
    """
    if isinstance(supplier, ProcessorMetaSupplier):
        return WrappingMetaSupplier(supplier, wrap)
    if isinstance(supplier, ProcessorSupplier):
        return _around(supplier, wrap)
    return _WrappingFactory(supplier, wrap)
