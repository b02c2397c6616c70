"""`collect()`: results straight to the client."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Any, TypeVar

from shmjet.core.job import ProcessingGuarantee
from shmjet.data.errors import ShmjetError
from shmjet.data.html_tables import MOST_ROWS, note, section
from shmjet.data.items_html import items_html
from shmjet.host.bounded_call import NoAnswerError, call_within
from shmjet.pipeline.definitions import SinkDef
from shmjet.processors.general.collect import CollectedResults, CollectSupplier, GivenResults, ResultSpool

T = TypeVar("T")
_GUARANTEE = ProcessingGuarantee.AT_LEAST_ONCE


class Results(SinkDef[T]):
    """A sink whose items are read by the process that executes the job, while it runs and afterwards.

    Iterating gives the results of the latest execution from the beginning, waits for more as long as the job runs, and
    ends with it. When the job failed, what came before is given first, then its error is raised
    (`CancelledError` when it was cancelled). It may be iterated as often as wanted; executing the job again makes the
    results of the execution before unreadable.

    Each result can be read at once while the job runs, also with an endless source. In a job with EXACTLY_ONCE results
    come when a snapshot has become valid, and each is read once. With AT_LEAST_ONCE, and of processors on other hosts,
    some may come again after a restart; where each must be there once, write to a list or to files.

    Results wait in a temporary file without a name (in the folder `TMPDIR`), not in memory, so the job never waits for
    its reader. The file keeps all of them, so that of an endless job grows: `sinks.observable` keeps the last ones.
    The space is free again when the job is executed anew, with `close`, at the end of a `with` block, or when nothing
    refers to the object any more.

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
        return iter(self._latest())

    def so_far(self) -> list[T]:
        """Return the results of the latest execution that have come, without waiting for others.

        Raises:
            ShmjetError: the job has not been executed, or the results were closed.

        Example:
            >>> results = sinks.collect()                             # doctest: +SKIP
            >>> execution = jet.new_job(p).execute()                  # doctest: +SKIP
            >>> len(results.so_far())                                 # doctest: +SKIP
        """
        return self._latest().so_far()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Give all results to another library as one table, when the job has ended.

        So `polars.DataFrame(results)`, `pyarrow.table(results)` and `duckdb.sql("select * from results")` read them.
        Results are batches, or dicts or named tuples of equal names; a column gets a type that holds the values of all.

        Args:
            requested_schema: a capsule with the schema that the consumer would like.

        Raises:
            TypeError: a result is not a batch, dict or named tuple.
            BatchError: their columns differ, or have no common type.
            ShmjetError: the job has not been executed, or the results were closed.
            JobFailedError, CancelledError, MemberLostError: how the execution ended.
        """
        from shmjet.data.arrow.streams import stream_of

        return stream_of(*self._table(), requested_schema)

    def __arrow_c_schema__(self) -> Any:
        """Give the columns of `__arrow_c_stream__`. Raises as it does."""
        from shmjet.data.arrow.streams import schema_capsule_of

        return schema_capsule_of(self._table()[0])

    def _table(self) -> tuple[Any, Any]:
        # Here, because numpy is not to be loaded where there are no batches.
        from shmjet.columns.tables import as_batches, as_table

        return as_table(as_batches(self, self.name))

    def _latest(self) -> CollectedResults | GivenResults:
        run = self._spool.run
        if run is None:
            raise ShmjetError(f"{self.name}: there are no results before the job is executed in this process")
        return run

    def close(self) -> None:
        """Free the results of an execution that has ended."""
        self._spool.clear()

    def __enter__(self) -> Results[T]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _repr_html_(self) -> str:
        """Show the first results that have come, in a notebook."""
        run = self._spool.run
        title = f"results of {self.name!r}"
        if run is None:
            return section(f"{title}: the job has not been executed")
        state = "as it has ended" if run.execution.done() else "so far; the job is running"
        try:
            found = call_within(lambda: run.first(MOST_ROWS + 1))
        except NoAnswerError as error:
            return section(title, note(str(error)))
        if len(found) > MOST_ROWS:
            return items_html(f"{title}, the first {MOST_ROWS}", found[:MOST_ROWS], "... and more")
        return items_html(f"{title}: {len(found)}, {state}", found)

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
