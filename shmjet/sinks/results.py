"""`collect()`: results straight to the client."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Any, TypeVar

from shmjet.core.job import ProcessingGuarantee
from shmjet.data.errors import ShmjetError
from shmjet.pipeline.definitions import SinkDef
from shmjet.processors.general.collect import CollectSupplier, ResultSpool

T = TypeVar("T")
_GUARANTEE = ProcessingGuarantee.AT_LEAST_ONCE


class Results(SinkDef[T]):
    """A sink whose items are read by the process that executes the job, while it runs and afterwards.

    Iterating gives the results of the latest execution from the beginning, waits for more as long as the job runs, and
    ends with it. When the job failed, what came before is given first, then its error is raised
    (`CancelledError` when it was cancelled). It may be iterated as often as wanted; executing the job again makes the
    results of the execution before unreadable.

    In a job with EXACTLY_ONCE each result is read once, and results come when a snapshot has become valid. With
    AT_LEAST_ONCE, and of processors on other hosts, some may come again after a restart.

    Results wait in a temporary file without a name (in the folder `TMPDIR`), not in memory, so the job never waits for
    its reader. The space is free again when the job is executed anew, with `close`, at the end of a `with` block, or
    when nothing refers to the object any more.

    Results are seen at once, also in an EXACTLY_ONCE job; after a restart some come again. Where each must be there
    once, write to a list or to files.

    Example:
        >>> results = sinks.collect()                                     # doctest: +SKIP
        >>> stage.write_to(results)                                   # doctest: +SKIP
        >>> execution = jet.new_job(p).execute()                      # doctest: +SKIP
        >>> for item in results:                                      # doctest: +SKIP
        ...     print(item)
    """

    _spool: ResultSpool

    def __init__(self, name: str = "collect") -> None:
        spool = ResultSpool()
        super().__init__(name, CollectSupplier(spool), parallelism=1, guarantee=_GUARANTEE)
        object.__setattr__(self, "_spool", spool)

    def __iter__(self) -> Iterator[T]:
        """Iterate over the results of the latest execution.

        Raises:
            ShmjetError: the job has not been executed, or the results were closed.
            JobFailedError, CancelledError, MemberLostError: how the execution ended; behind the last result.
        """
        run = self._spool.run
        if run is None:
            raise ShmjetError(f"{self.name}: there are no results before the job is executed in this process")
        return iter(run)

    def close(self) -> None:
        """Free the results of an execution that has ended."""
        self._spool.clear()

    def __enter__(self) -> Results[T]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> Any:
        return _restored, (self.name, self.supplier)


def collect(name: str = "collect") -> Results[Any]:
    """Give the items to the client, as an iterable; Jet's observable.

    The order of an upstream stage with one processor (such as `sort`) is kept.

    Args:
        name: of the stage.

    Returns:
        The sink, which is also the iterable; see `Results`.

    Example:
        >>> results = sinks.collect()                                    # doctest: +SKIP
        >>> p.read_from(sources.items([1, 2])).map(str).write_to(results)  # doctest: +SKIP
        >>> jet.new_job(p).run()                                         # doctest: +SKIP
        >>> sorted(results)                                              # doctest: +SKIP
        ['1', '2']
    """
    return Results(name)


def _restored(name: str, supplier: CollectSupplier) -> Results[Any]:
    results: Results[Any] = object.__new__(Results)
    SinkDef.__init__(results, name, supplier, 1, guarantee=_GUARANTEE)
    object.__setattr__(results, "_spool", ResultSpool())
    return results
