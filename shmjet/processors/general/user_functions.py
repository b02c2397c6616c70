"""Processors made of a user's functions: what `sources.builder` and `sinks.builder` build.

The functions may block, so the processors are not cooperative and have processes of their own. Must not know: builders.
After Jet's `SourceBuilder`, `SinkBuilder` and `ConvenientSourceP`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from types import NoneType
from typing import Any, Generic, TypeVar

from shmjet._native import index_of_special
from shmjet.core.broadcast_key import BroadcastKey
from shmjet.core.inbox import Inbox
from shmjet.core.outbox import Outbox
from shmjet.core.processor import CommittingSupplier, ProcessorContext
from shmjet.data.errors import ProcessorError
from shmjet.processors.general.base import BulkProcessor

T = TypeVar("T")

_NONE = "buffer.add: None is never an item; call buffer.close() at the end of the data"


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
        self._timestamps: list[Any] = []
        self.is_closed = False
        """True once there will be no more items."""

    def add(self, item: T, timestamp: Any = None) -> None:
        """Put one item at the end.

        Args:
            item: anything but None; a `Batch` too.
            timestamp: its event time, for a stream with native timestamps: milliseconds since the epoch as an int, an
                aware `datetime` or a `datetime64`; of a batch the array of those of its rows. None: the time now.

        Raises:
            TypeError: the item is None.
        """
        if item is None:
            raise TypeError(_NONE)
        if timestamp is not None:
            self._timestamps += [None] * (len(self._items) - len(self._timestamps))
            self._timestamps.append(timestamp)
        self._items.append(item)

    def add_all(self, items: Iterable[T]) -> None:
        """Put many items at the end.

        Raises:
            TypeError: one of them is None; those before it are in the buffer then.
        """
        kept = self._items
        before = len(kept)
        kept += items
        at = index_of_special(kept, before, NoneType)
        if at >= 0:
            del kept[at:]
            raise TypeError(_NONE)

    def close(self) -> None:
        """Say that there will be no more items; those in the buffer are still emitted."""
        self.is_closed = True

    def __len__(self) -> int:
        return len(self._items)

    def take(self) -> list[T]:
        """Return what is in it, and empty it; for the processor."""
        items, self._items = self._items, []
        self._timestamps = []
        return items

    def take_timestamps(self, default: Any) -> list[Any]:
        """Return the timestamps of what is in it, before that is taken.

        Args:
            default: where none was given.
        """
        given = [default if timestamp is None else timestamp for timestamp in self._timestamps]
        return given + [default] * (len(self._items) - len(given))


@dataclass(frozen=True)
class SourceFunctions:
    """What a source is made of; see `shmjet.sources.SourceBuilder`."""

    create: Callable[[ProcessorContext], Any]
    fill_buffer: Callable[[Any, SourceBuffer[Any]], Any]
    destroy: Callable[[Any], Any] | None = None
    create_snapshot: Callable[[Any], Any] | None = None
    restore_snapshot: Callable[[Any, list[Any]], Any] | None = None


class StateFunctions:
    """The snapshot functions of a built end, and the states that wait for their call.

    The states of all processors are saved under a `BroadcastKey` of the processor's index.

    Args:
        create: gives the state of the user's object; None: nothing is saved.
        restore: takes the states of all processors; None: they cannot be restored.
    """

    def __init__(self, create: Callable[[Any], Any] | None, restore: Callable[[Any, list[Any]], Any] | None) -> None:
        self._create = create
        self._restore = restore
        self._state: tuple[Any] | None = None
        self._restored: dict[int, Any] = {}

    def create(self, target: Any) -> None:
        """Have the state created, unless that is done and it has not been saved yet."""
        if self._create is not None and self._state is None:
            self._state = (self._create(target),)

    def save(self, outbox: Outbox, index: int, *, keep: bool = False) -> bool:
        """Offer the state that was created, if there is one; `keep` it for the next save too."""
        if self._state is not None:
            if not outbox.offer_to_snapshot(BroadcastKey(index), self._state[0]):
                return False
            self._state = self._state if keep else None
        return True

    def take(self, inbox: Inbox) -> None:
        """Keep the states of all processors until `restore`."""
        for key, state in inbox.take():
            self._restored[key.key] = state

    def restore(self, target: Any, context: ProcessorContext) -> None:
        """Give the states back, in the order of the processors.

        Raises:
            ProcessorError: there are states, but no function for them.
        """
        states = [state for _, state in sorted(self._restored.items())]
        self._restored = {}
        if not states:
            return
        if self._restore is None:
            raise ProcessorError(
                f"vertex {context.vertex_name!r}: the snapshot has a state of it, but there is no restore_snapshot_fn"
            )
        self._restore(target, states)


class BuiltSourceProcessor(BulkProcessor):
    """Emits what `fill_buffer` puts into the buffer, until that closes it."""

    state_kind = "a built source"
    is_cooperative = False

    def __init__(self, functions: SourceFunctions) -> None:
        self._functions = functions
        self._created = False
        self._ended = False
        self._states = StateFunctions(functions.create_snapshot, functions.restore_snapshot)

    def start(self, context: ProcessorContext) -> None:
        """Create the user's context object."""
        self._saves_at_end = self._functions.create_snapshot is not None and context.snapshotting_enabled
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
        if self.context.snapshotting_enabled and not self._ended:
            self._states.create(self._object)
        self._ended = True
        self.close()  # here what it raises fails the job
        return True

    def save_to_snapshot(self) -> bool:
        """Emit what the buffer had, then save the object's state; at the end that which it had before it went."""
        if not self.emission.flush():
            return False
        if not self._ended:
            self._states.create(self._object)
        return self._states.save(self.outbox, self.context.global_index, keep=self._ended)

    def restore_from_snapshot(self, inbox: Inbox) -> None:
        """Take the states of all processors."""
        self._states.take(inbox)

    def finish_snapshot_restore(self) -> bool:
        """Give the object the states."""
        self._states.restore(self._object, self.context)
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
    create_snapshot: Callable[[Any], Any] | None = None
    restore_snapshot: Callable[[Any, list[Any]], Any] | None = None

    @property
    def awaits_the_end(self) -> bool:
        """Whether the object is kept until it is known how the whole job has ended."""
        return self.commit is not None or self.abort is not None


class BuiltSinkProcessor(BulkProcessor):
    """Gives each item to `receive`, and calls `flush` behind each list of them.

    `commit` is called when a snapshot has become valid and something was received since the last call. Where the
    functions await the end of the job, `BuiltSinkSupplier` decides what happens to the object then.
    """

    state_kind = "a built sink"
    is_cooperative = False

    def __init__(self, functions: SinkFunctions) -> None:
        self._functions = functions
        self._created = False
        self._committed = False
        self._states = StateFunctions(functions.create_snapshot, functions.restore_snapshot)
        self._has_new = True
        """Whether there is something to commit; True before the first call, so that a job without items commits."""
        self._new_at_save = False
        self._is_saved = False
        """Whether what was received belongs to a snapshot of which it is not known yet how it ends."""

    def start(self, context: ProcessorContext) -> None:
        """Create the user's object."""
        self._object = self._functions.create(context)
        self._created = True

    def process(self, ordinal: int, inbox: Inbox) -> None:
        """Receive everything, then flush."""
        receive, target = self._functions.receive, self._object
        self._has_new = True
        for item in inbox.take():
            receive(target, item)
        if self._functions.flush is not None:
            self._functions.flush(target)

    def save_to_snapshot(self) -> bool:
        """Save the object's state; what it has received has been flushed."""
        self._states.create(self._object)
        if not self._states.save(self.outbox, self.context.global_index):
            return False
        self._new_at_save, self._has_new = self._has_new or self._new_at_save, False
        self._is_saved = True
        return True

    def snapshot_commit_finish(self, success: bool) -> bool:
        """Publish what was received before a snapshot that is valid now."""
        if success and self._new_at_save:
            self._new_at_save = False
            if self._functions.commit is not None:
                self._functions.commit(self._object)
        self._is_saved = False
        return True

    def restore_from_snapshot(self, inbox: Inbox) -> None:
        """Take the states of all processors."""
        self._states.take(inbox)

    def finish_snapshot_restore(self) -> bool:
        """Give the object the states."""
        self._states.restore(self._object, self.context)
        return True

    def finish(self) -> bool:
        """Destroy the user's object now, so that what it raises fails the job."""
        self.close()
        return True

    def close(self) -> None:
        """Destroy the user's object, unless that has happened or it has to wait for the end of the job."""
        if not self._functions.awaits_the_end:
            self._destroy()

    def commit(self) -> None:
        """Publish what has not been published: the whole job has succeeded."""
        if self._created and self._functions.commit is not None and (self._has_new or self._new_at_save):
            self._functions.commit(self._object)
        self._committed = True

    def let_go(self) -> None:
        """Abort what was not published, and destroy the user's object: the job has ended, or is restarted.

        What a snapshot may have is not aborted where it can be restored.
        """
        try:
            is_restorable = self._functions.restore_snapshot is not None
            is_kept = self._is_saved and is_restorable and self.context.snapshotting_enabled
            is_due = not self._committed and not is_kept and (self._has_new or self._new_at_save)
            if self._created and is_due and self._functions.abort is not None:
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

    state_kind = "a built sink"
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
