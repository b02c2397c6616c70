"""Processors made of a user's functions: what `sources.builder` and `sinks.builder` build.

The functions may block, so the processors are not cooperative and have processes of their own. Must not know: builders.
After Jet's `SourceBuilder`, `SinkBuilder` and `ConvenientSourceP`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from shmjet.core.inbox import Inbox
from shmjet.core.processor import CommittingSupplier, ProcessorContext
from shmjet.processors.general.base import BulkProcessor

T = TypeVar("T")


class SourceBuffer(Generic[T]):
    """What a source's `fill_buffer_fn` puts its items into.

    Example:
        >>> buffer = SourceBuffer()
        >>> buffer.add(1); buffer.add_all([2, 3]); buffer.close()
        >>> len(buffer), buffer.is_closed
        (3, True)
    """

    def __init__(self) -> None:
        self._items: list[T] = []
        self.is_closed = False
        """True once there will be no more items."""

    def add(self, item: T) -> None:
        """Put one item at the end. Raises TypeError for None, which is never an item."""
        if item is None:
            raise TypeError("buffer.add: None is never an item; call buffer.close() at the end of the data")
        self._items.append(item)

    def add_all(self, items: Iterable[T]) -> None:
        """Put many items at the end."""
        for item in items:
            self.add(item)

    def close(self) -> None:
        """Say that there will be no more items; those in the buffer are still emitted."""
        self.is_closed = True

    def __len__(self) -> int:
        return len(self._items)

    def take(self) -> list[T]:
        """Return what is in it, and empty it; for the processor."""
        items, self._items = self._items, []
        return items


@dataclass(frozen=True)
class SourceFunctions:
    """What a source is made of; see `shmjet.sources.SourceBuilder`."""

    create: Callable[[ProcessorContext], Any]
    fill_buffer: Callable[[Any, SourceBuffer[Any]], Any]
    destroy: Callable[[Any], Any] | None = None
    create_snapshot: Callable[[Any], Any] | None = None
    restore_snapshot: Callable[[Any, list[Any]], Any] | None = None


class BuiltSourceProcessor(BulkProcessor):
    """Emits what `fill_buffer` puts into the buffer, until that closes it."""

    is_cooperative = False

    def __init__(self, functions: SourceFunctions) -> None:
        self._functions = functions
        self._created = False

    def start(self, context: ProcessorContext) -> None:
        """Create the user's context object."""
        self._buffer: SourceBuffer[Any] = SourceBuffer()
        self._object = self._functions.create(context)
        self._created = True

    def complete(self) -> bool:
        """Emit what waits; then have the buffer filled once."""
        if not self.emission.flush():
            return False
        if not self._buffer.is_closed:
            self._functions.fill_buffer(self._object, self._buffer)
            if not (self.emission.put(self._buffer.take()) and self._buffer.is_closed):
                return False
        self.close()  # here what it raises fails the job
        return True

    def close(self) -> None:
        """Destroy the user's object, if that has not happened."""
        if self._created:
            self._created = False
            if self._functions.destroy is not None:
                self._functions.destroy(self._object)


@dataclass(frozen=True)
class SinkFunctions:
    """What a sink is made of; see `shmjet.sinks.SinkBuilder`."""

    create: Callable[[ProcessorContext], Any]
    receive: Callable[[Any, Any], Any]
    flush: Callable[[Any], Any] | None = None
    destroy: Callable[[Any], Any] | None = None
    commit: Callable[[Any], Any] | None = None
    abort: Callable[[Any], Any] | None = None

    @property
    def awaits_the_end(self) -> bool:
        """Whether the object is kept until it is known how the whole job has ended."""
        return self.commit is not None or self.abort is not None


class BuiltSinkProcessor(BulkProcessor):
    """Gives each item to `receive`, and calls `flush` behind each list of them.

    Where the functions await the end of the job, `BuiltSinkSupplier` decides what happens to the object.
    """

    is_cooperative = False

    def __init__(self, functions: SinkFunctions) -> None:
        self._functions = functions
        self._created = False
        self._committed = False

    def start(self, context: ProcessorContext) -> None:
        """Create the user's object."""
        self._object = self._functions.create(context)
        self._created = True

    def process(self, ordinal: int, inbox: Inbox) -> None:
        """Receive everything, then flush."""
        receive, target = self._functions.receive, self._object
        for item in inbox.take():
            receive(target, item)
        if self._functions.flush is not None:
            self._functions.flush(target)

    def finish(self) -> bool:
        """Destroy the user's object now, so that what it raises fails the job."""
        self.close()
        return True

    def close(self) -> None:
        """Destroy the user's object, unless that has happened or it has to wait for the end of the job."""
        if not self._functions.awaits_the_end:
            self._destroy()

    def commit(self) -> None:
        """Publish: the whole job has succeeded."""
        if self._created and self._functions.commit is not None:
            self._functions.commit(self._object)
        self._committed = True

    def let_go(self) -> None:
        """Abort what was not published, and destroy the user's object: the job has ended."""
        try:
            if self._created and not self._committed and self._functions.abort is not None:
                self._functions.abort(self._object)
        finally:
            self._destroy()

    def _destroy(self) -> None:
        if self._created:
            self._created = False
            if self._functions.destroy is not None:
                self._functions.destroy(self._object)


class BuiltSinkSupplier(CommittingSupplier):
    """Makes the processors of a sink that awaits the end of the job, and tells them how it has ended."""

    is_cooperative = False

    def __init__(self, functions: SinkFunctions) -> None:
        self._functions = functions
        self._made: list[BuiltSinkProcessor] = []

    def get(self, count: int) -> list[BuiltSinkProcessor]:
        """Make the processors; a processor that runs in another process is never started here."""
        self._made = [BuiltSinkProcessor(self._functions) for _ in range(count)]
        return self._made

    def commit(self) -> None:
        """Publish; what a function raises fails the job."""
        for processor in self._made:
            processor.commit()

    def close(self, error: BaseException | None) -> None:
        """Abort what was not published, and destroy all objects."""
        with ExitStack() as releasing:
            for processor in self._made:
                releasing.callback(processor.let_go)
