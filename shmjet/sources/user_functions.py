"""`builder()`: a source made of functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, TypeVar

from shmjet.core.checks import check_at_least
from shmjet.core.event_time import EventTimePolicy
from shmjet.core.job import ProcessingGuarantee
from shmjet.core.processor import ProcessorContext, ProcessorMetaSupplier
from shmjet.data.errors import ShmjetError
from shmjet.pipeline.definitions import SourceDef, StreamSourceDef
from shmjet.processors.general.base import Supply
from shmjet.processors.general.user_functions import BuiltSourceProcessor, SourceBuffer, SourceFunctions
from shmjet.processors.streams.built_stream import BuiltStreamProcessor

C = TypeVar("C")


@dataclass(frozen=True)
class SourceBuilder(Generic[C]):
    """Builds a source; each method returns a new builder. Made by `sources.builder`, which has an example.

    The functions run in a process of their own and may block. What they raise fails the job.

    Example:
        >>> from shmjet import sources
        >>> built = sources.builder("one", lambda context: [1]).fill_buffer_fn(lambda rest, buffer: buffer.close())
        >>> type(built).__name__
        'SourceBuilder'
    """

    name: str
    create_fn: Callable[[ProcessorContext], C]
    _fill: Callable[[C, SourceBuffer[Any]], Any] | None = None
    _destroy: Callable[[C], Any] | None = None
    _create_snapshot: Callable[[C], Any] | None = None
    _restore_snapshot: Callable[[C, list[Any]], Any] | None = None
    _parallelism: int = 0

    def fill_buffer_fn(self, fn: Callable[[C, SourceBuffer[Any]], Any]) -> SourceBuilder[C]:
        """Set what brings items: `fn(object, buffer)`, called repeatedly. Needed.

        It puts some items into the buffer with `buffer.add(item)` or `buffer.add_all(items)` and returns; when there
        are none now, it returns at once or waits for about a second at most. At the end of the data it calls
        `buffer.close()`.
        """
        return replace(self, _fill=_function("fill_buffer_fn", fn))

    def destroy_fn(self, fn: Callable[[C], Any]) -> SourceBuilder[C]:
        """Set what frees the object: `fn(object)`, called once at the end, also when the job failed."""
        return replace(self, _destroy=_function("destroy_fn", fn))

    def create_snapshot_fn(self, fn: Callable[[C], Any]) -> SourceBuilder[C]:
        """Set what gives the object's state for a snapshot: `fn(object)`, picklable; its position, say.

        It is called between two calls of `fill_buffer_fn`, when everything in the buffer has been emitted, and once
        more at the end of the data. Jobs without snapshots do not call it.
        """
        return replace(self, _create_snapshot=_function("create_snapshot_fn", fn))

    def restore_snapshot_fn(self, fn: Callable[[C, list[Any]], Any]) -> SourceBuilder[C]:
        """Set what puts the states of a snapshot back: `fn(object, states)`, with those of all processors.

        They come in the order of the processors that saved them; their number is another one than now when the
        parallelism has changed. It is called once, before `fill_buffer_fn`, on an object that is new.
        """
        return replace(self, _restore_snapshot=_function("restore_snapshot_fn", fn))

    def distributed(self, preferred_local_parallelism: int) -> SourceBuilder[C]:
        """Have several processors on each member, each with an object of its own, instead of one in all.

        They tell their shares apart by `context.global_index` and `context.total_parallelism`.

        Args:
            preferred_local_parallelism: how many on each member.

        Raises:
            ShmjetError: it is below 1.
        """
        check_at_least("distributed: preferred_local_parallelism", preferred_local_parallelism, 1)
        return replace(self, _parallelism=preferred_local_parallelism)

    def build(self) -> SourceDef[Any]:
        """Return the source, of bounded data.

        Raises:
            ShmjetError: `fill_buffer_fn` was not set, or only one of the two snapshot functions.
        """
        supplier = _placed(Supply(BuiltSourceProcessor, self._functions("build")), self._parallelism)
        return SourceDef(self.name, supplier, self._parallelism or 1, columnar=None, guarantee=self._guarantee)

    def stream(self) -> StreamSourceDef[Any]:
        """Return the source, of endless data; in place of `build`.

        `fill_buffer_fn` is called without end: at once after it has brought items or has waited for some, else after a
        pause, which is one part in 32 of the time for which it has brought nothing and at most two seconds.
        `buffer.add(item, timestamp)` gives an item its native timestamp, which is the time now where it is left out.
        After `buffer.close()` on all processors windows and joins give their last results, and the job completes.

        With snapshot functions items come once, and the watermark of a restored source is the least of those saved.

        Raises:
            ShmjetError: `fill_buffer_fn` was not set, or only one of the two snapshot functions.

        Example:
            >>> def fill(position, buffer):
            ...     buffer.add(f"item {position[0]}", timestamp=position[0] * 1000)
            ...     position[0] += 1
            >>> source = (builder("ticks", lambda context: [0])
            ...           .fill_buffer_fn(fill)
            ...           .create_snapshot_fn(lambda position: position[0])
            ...           .restore_snapshot_fn(lambda position, states: position.__setitem__(0, states[0]))
            ...           .stream())
            >>> p.read_from(source).with_native_timestamps(allowed_lag=1)               # doctest: +SKIP
        """
        timed = partial(_stream_supplier, self._functions("stream"), self._parallelism)
        return StreamSourceDef(
            self.name,
            timed(None),
            self._parallelism or 1,
            columnar=None,
            guarantee=self._guarantee,
            timed=timed,
            has_native_timestamps=True,
        )

    @property
    def _guarantee(self) -> ProcessingGuarantee:
        has_position = self._create_snapshot is not None
        return ProcessingGuarantee.EXACTLY_ONCE if has_position else ProcessingGuarantee.NONE

    def _functions(self, method: str) -> SourceFunctions:
        if self._fill is None:
            raise ShmjetError(f"source {self.name!r}: set fill_buffer_fn before {method}()")
        if (self._create_snapshot is None) != (self._restore_snapshot is None):
            raise ShmjetError(f"source {self.name!r}: set both create_snapshot_fn and restore_snapshot_fn, or neither")
        return SourceFunctions(self.create_fn, self._fill, self._destroy, self._create_snapshot, self._restore_snapshot)


def builder(name: str, create_fn: Callable[[ProcessorContext], C]) -> SourceBuilder[C]:
    """Begin to build a source of functions.

    Args:
        name: of the stage.
        create_fn: makes the object that the other functions get, one per processor: `create_fn(context)`, where the
            job runs; a connection or an open file, say.

    Example:
        >>> def fill(lines, buffer):
        ...     line = next(lines, None)
        ...     buffer.close() if line is None else buffer.add(line)
        >>> source = (builder("hosts", lambda context: open("/etc/hosts"))
        ...           .fill_buffer_fn(fill)
        ...           .destroy_fn(lambda lines: lines.close())
        ...           .build())
        >>> source.name, source.parallelism
        ('hosts', 1)
    """
    if not isinstance(name, str) or not name:
        raise TypeError(f"sources.builder: expected a name, got {name!r}")
    return SourceBuilder(name, _function("create_fn", create_fn))


def _placed(supply: Supply, parallelism: int) -> ProcessorMetaSupplier:
    """Return what makes one processor in all, or so many on each member."""
    if not parallelism:
        return ProcessorMetaSupplier.force_total_parallelism_one(supply)
    return ProcessorMetaSupplier.of(supply, parallelism)


def _stream_supplier(
    functions: SourceFunctions, parallelism: int, policy: EventTimePolicy | None
) -> ProcessorMetaSupplier:
    return _placed(Supply(BuiltStreamProcessor, functions, policy), parallelism)


def _function(what: str, fn: Any) -> Any:
    if not callable(fn):
        raise TypeError(f"sources.builder: {what} must be callable, got {fn!r} ({type(fn).__name__})")
    return fn
