"""Processors made of a user's functions: what `sources.builder` and `sinks.builder` build.

The functions may block, so the processors are not cooperative and have processes of their own. Must not know: builders.
After Jet's `SourceBuilder`, `SinkBuilder` and `ConvenientSourceP`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from shmjet.core.inbox import Inbox
from shmjet.core.processor import ProcessorContext
from shmjet.processors.bulk import BulkProcessor

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


class BuiltSinkProcessor(BulkProcessor):
    """Gives each item to `receive`, and calls `flush` behind each list of them."""

    is_cooperative = False

    def __init__(self, functions: SinkFunctions) -> None:
        self._functions = functions
        self._created = False

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
        """Destroy the user's object, if that has not happened."""
        if self._created:
            self._created = False
            if self._functions.destroy is not None:
                self._functions.destroy(self._object)
