"""`builder()`: a sink made of functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from shmjet.core.checks import check_at_least
from shmjet.core.errors import ShmjetError
from shmjet.core.processor import ProcessorContext, ProcessorMetaSupplier
from shmjet.pipeline.definitions import SinkDef
from shmjet.processors.building import BuiltSinkProcessor, SinkFunctions
from shmjet.processors.bulk import Supply

C = TypeVar("C")


@dataclass(frozen=True)
class SinkBuilder(Generic[C]):
    """Builds a sink; each method returns a new builder. Made by `sinks.builder`, which has an example.

    The functions run in a process of their own and may block. What they raise fails the job.
    """

    name: str
    create_fn: Callable[[ProcessorContext], C]
    _receive: Callable[[C, Any], Any] | None = None
    _flush: Callable[[C], Any] | None = None
    _destroy: Callable[[C], Any] | None = None
    _parallelism: int = 1

    def receive_fn(self, fn: Callable[[C, Any], Any]) -> SinkBuilder[C]:
        """Set what takes an item: `fn(object, item)`. It may keep items until `flush_fn`. Needed."""
        return replace(self, _receive=_function("receive_fn", fn))

    def flush_fn(self, fn: Callable[[C], Any]) -> SinkBuilder[C]:
        """Set what makes all items so far visible: `fn(object)`, called behind each group of items."""
        return replace(self, _flush=_function("flush_fn", fn))

    def destroy_fn(self, fn: Callable[[C], Any]) -> SinkBuilder[C]:
        """Set what frees the object: `fn(object)`, called once at the end, also when the job failed."""
        return replace(self, _destroy=_function("destroy_fn", fn))

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
            ShmjetError: `receive_fn` was not set.
        """
        if self._receive is None:
            raise ShmjetError(f"sink {self.name!r}: set receive_fn before build()")
        functions = SinkFunctions(self.create_fn, self._receive, self._flush, self._destroy)
        supplier = ProcessorMetaSupplier.of(Supply(BuiltSinkProcessor, functions), self._parallelism)
        return SinkDef(self.name, supplier, self._parallelism)


def builder(name: str, create_fn: Callable[[ProcessorContext], C]) -> SinkBuilder[C]:
    """Begin to build a sink of functions.

    Args:
        name: of the stage.
        create_fn: makes the object that the other functions get, one per processor: `create_fn(context)`, where the
            job runs; a connection, say.

    Example:
        >>> sink = (builder("lines", lambda context: open(f"/tmp/out-{context.global_index}", "w"))
        ...         .receive_fn(lambda file, item: file.write(f"{item}\\n"))
        ...         .flush_fn(lambda file: file.flush())
        ...         .destroy_fn(lambda file: file.close())
        ...         .build())
        >>> sink.name, sink.parallelism
        ('lines', 1)
    """
    if not isinstance(name, str) or not name:
        raise TypeError(f"sinks.builder: expected a name, got {name!r}")
    return SinkBuilder(name, _function("create_fn", create_fn))


def _function(what: str, fn: Any) -> Any:
    if not callable(fn):
        raise TypeError(f"sinks.builder: {what} must be callable, got {fn!r} ({type(fn).__name__})")
    return fn
