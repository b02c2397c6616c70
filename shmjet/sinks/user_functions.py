"""`builder()`: a sink made of functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from shmjet.core.checks import check_at_least
from shmjet.core.job import ProcessingGuarantee
from shmjet.core.processor import ProcessorContext, ProcessorMetaSupplier
from shmjet.data.errors import ShmjetError
from shmjet.pipeline.definitions import SinkDef
from shmjet.processors.general.base import Supply
from shmjet.processors.general.user_functions import BuiltSinkProcessor, BuiltSinkSupplier, SinkFunctions

C = TypeVar("C")


@dataclass(frozen=True)
class SinkBuilder(Generic[C]):
    """Builds a sink; each method returns a new builder. Made by `sinks.builder`, which has an example.

    The functions run in a process of their own and may block. What they raise fails the job, but for `abort_fn` and
    what comes after the job has ended: that is logged.

    Example:
        >>> from shmjet import sinks
        >>> built = sinks.builder("print", lambda context: None).receive_fn(lambda _, item: print(item))
        >>> type(built).__name__
        'SinkBuilder'
    """

    name: str
    create_fn: Callable[[ProcessorContext], C]
    _receive: Callable[[C, Any], Any] | None = None
    _flush: Callable[[C], Any] | None = None
    _destroy: Callable[[C], Any] | None = None
    _parallelism: int = 1
    _commit: Callable[[C], Any] | None = None
    _abort: Callable[[C], Any] | None = None
    _create_snapshot: Callable[[C], Any] | None = None
    _restore_snapshot: Callable[[C, list[Any]], Any] | None = None

    def receive_fn(self, fn: Callable[[C, Any], Any]) -> SinkBuilder[C]:
        """Set what takes an item: `fn(object, item)`. It may keep items until `flush_fn`. Needed."""
        return replace(self, _receive=_function("receive_fn", fn))

    def flush_fn(self, fn: Callable[[C], Any]) -> SinkBuilder[C]:
        """Set what writes out all items so far: `fn(object)`, called after each group of items.

        In a job with a processing guarantee it has to make them durable, because a snapshot may follow: the items
        before it never come again. Those after it come again when the job is restarted, so the sink is at-least-once.
        """
        return replace(self, _flush=_function("flush_fn", fn))

    def commit_fn(self, fn: Callable[[C], Any]) -> SinkBuilder[C]:
        """Set what publishes: `fn(object)`, called once when all processors of the job have ended well, on all members.

        The job counts as completed after that, and what it raises fails the job. Other objects, and other sinks of the
        job, may have been committed by then. A job that fails or is cancelled never calls it.

        In a job with a processing guarantee it is also called when a snapshot has become valid, if items have come
        since the last call. The process may be killed between the two: then it is not called for that snapshot. So
        what it publishes has to be durable before, by `flush_fn`, or come back by `restore_snapshot_fn`.
        """
        return replace(self, _commit=_function("commit_fn", fn))

    def abort_fn(self, fn: Callable[[C], Any]) -> SinkBuilder[C]:
        """Set what takes back: `fn(object)`, called once, when the job has failed or was cancelled, or is restarted.

        Every object gets it whose `commit_fn` has not returned well. It has 5 s, and what it raises is logged. Where
        the object's process was killed, or its member, it cannot be called: the next run has to find what was begun.
        """
        return replace(self, _abort=_function("abort_fn", fn))

    def destroy_fn(self, fn: Callable[[C], Any]) -> SinkBuilder[C]:
        """Set what lets go of the object: `fn(object)`, called once at the end, however the job ends.

        It is not told how: publish in `commit_fn`. With `commit_fn` or `abort_fn` it comes after them, and what it
        raises is logged; without them it comes when the processor has all its items.
        """
        return replace(self, _destroy=_function("destroy_fn", fn))

    def create_snapshot_fn(self, fn: Callable[[C], Any]) -> SinkBuilder[C]:
        """Set what gives the object's state for a snapshot: `fn(object)`, picklable; what it has not committed, say.

        Together with `restore_snapshot_fn` it makes the sink exactly-once, if what it has received before the call is
        published by `commit_fn` or else by `restore_snapshot_fn`, and never by both. Items that come between the call
        and `commit_fn` belong to the next snapshot. Jobs without snapshots do not call it.
        """
        return replace(self, _create_snapshot=_function("create_snapshot_fn", fn))

    def restore_snapshot_fn(self, fn: Callable[[C, list[Any]], Any]) -> SinkBuilder[C]:
        """Set what takes the states of a snapshot: `fn(object, states)`, with those of all processors, in their order.

        It is called before any item. The snapshot is valid, so it has to finish what `commit_fn` may not have done; it
        may be called again for the same snapshot. Each processor gets all states: `context.global_index` and
        `context.total_parallelism` say which are its own.
        """
        return replace(self, _restore_snapshot=_function("restore_snapshot_fn", fn))

    def preferred_local_parallelism(self, parallelism: int) -> SinkBuilder[C]:
        """Set how many processors a member has, each with an object of its own; 1 unless set.

        Args:
            parallelism: at least 1.

        Raises:
            ShmjetError: it is below 1.
        """
        check_at_least("preferred_local_parallelism", parallelism, 1)
        return replace(self, _parallelism=parallelism)

    def build(self) -> SinkDef[Any]:
        """Return the sink.

        Raises:
            ShmjetError: `receive_fn` was not set, or only one of the two snapshot functions.
        """
        if self._receive is None:
            raise ShmjetError(f"sink {self.name!r}: set receive_fn before build()")
        if (self._create_snapshot is None) != (self._restore_snapshot is None):
            raise ShmjetError(f"sink {self.name!r}: set both create_snapshot_fn and restore_snapshot_fn, or neither")
        functions = SinkFunctions(
            self.create_fn,
            self._receive,
            self._flush,
            self._destroy,
            self._commit,
            self._abort,
            self._create_snapshot,
            self._restore_snapshot,
        )
        made = BuiltSinkSupplier(functions) if functions.awaits_the_end else Supply(BuiltSinkProcessor, functions)
        is_restored = self._restore_snapshot is not None
        guarantee = ProcessingGuarantee.EXACTLY_ONCE if is_restored else ProcessingGuarantee.AT_LEAST_ONCE
        supplier = ProcessorMetaSupplier.of(made, self._parallelism)
        return SinkDef(self.name, supplier, self._parallelism, guarantee=guarantee)


def builder(name: str, create_fn: Callable[[ProcessorContext], C]) -> SinkBuilder[C]:
    """Begin to build a sink of functions.

    Args:
        name: of the stage.
        create_fn: makes the object that the other functions get, one per processor: `create_fn(context)`, where the
            job runs; a connection, say.

    Example:
        >>> import sqlite3
        >>> sink = (builder("orders", lambda context: sqlite3.connect("orders.db"))
        ...         .receive_fn(lambda database, row: database.execute("insert into orders values (?, ?)", row))
        ...         .commit_fn(lambda database: database.commit())
        ...         .abort_fn(lambda database: database.rollback())
        ...         .destroy_fn(lambda database: database.close())
        ...         .build())
        >>> sink.name, sink.parallelism
        ('orders', 1)
    """
    if not isinstance(name, str) or not name:
        raise TypeError(f"sinks.builder: expected a name, got {name!r}")
    return SinkBuilder(name, _function("create_fn", create_fn))


def _function(what: str, fn: Any) -> Any:
    if not callable(fn):
        raise TypeError(f"sinks.builder: {what} must be callable, got {fn!r} ({type(fn).__name__})")
    return fn
