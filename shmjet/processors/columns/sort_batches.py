"""The sort of the rows of batches by columns, in bounded steps.

Must not know how sorted streams of several processors are merged. Batches are joined into runs of some ten thousand
rows, which are sorted as soon as they are full; at the end the runs are merged in slices. What memory has no room for
lies in a file, mapped. With a limit only the first rows are kept all along.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, groupby
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Final

from shmjet.core.column_key import ColumnKey, checked_names
from shmjet.core.inbox import Inbox
from shmjet.core.latency_policy import policy_in
from shmjet.core.outbox import Outbox
from shmjet.core.processor import Processor, ProcessorContext
from shmjet.data.errors import BatchError
from shmjet.processors.columns.saving import CapturedState, PlacedBatches
from shmjet.processors.general.base import BulkProcessor, Supply, check_batch_rows, require_batches
from shmjet.processors.general.spill_files import SPILL_SHARE, SpilledBatches, memory_share, spill_folder

if TYPE_CHECKING:  # numpy takes 0.1 s to import: only where there are batches
    from shmjet.columns.sort import SortedMerge, SortOrder
    from shmjet.data.batch import Batch

RUN_ROWS: Final = 1 << 16
"""Rows that are sorted at once: a few milliseconds."""

BATCH_ROWS: Final = 1 << 15
"""Rows of a batch that is emitted, at most, unless there are thousands of runs."""


class SortBatchesProcessor(BulkProcessor):
    """Keeps sorted runs and merges them at the end. Stable for the rows of one processor.

    Args:
        by, descending, nulls_first, limit, rows: as of `sort_batches`.
        tells_columns: if there are no rows, emit a batch without rows.
    """

    state_kind = "sort_batches"
    _captures = True

    def __init__(
        self,
        by: tuple[str, ...],
        descending: bool | tuple[bool, ...],
        nulls_first: bool,
        limit: int | None,
        rows: int,
        tells_columns: bool = False,
    ) -> None:
        self._tells_columns = tells_columns
        self._arguments = by, descending, nulls_first
        self._limit = limit
        self._rows = rows
        self._order: SortOrder | None = None
        self._runs: list[Batch] = []
        self._waiting: list[Batch] = []
        self._waiting_rows = 0
        self._memory = 0.0
        self._in_memory = 0
        self._folder: str | None = None
        self._spilled: SpilledBatches | None = None
        self._merge: SortedMerge | None = None
        self._saving = CapturedState()
        self._restoring: PlacedBatches | None = None

    def init(self, outbox: Outbox, context: ProcessorContext) -> None:
        """As `BulkProcessor.init`."""
        from shmjet.columns.sort import SortOrder
        from shmjet.columns.stream_kinds import StreamKinds

        self._order = SortOrder(*self._arguments)
        self._kinds = StreamKinds()
        self._memory = SPILL_SHARE * memory_share(context.job_config, context.local_parallelism)
        self._folder = context.job_config.spill_folder
        super().init(outbox, context)

    def process(self, ordinal: int, inbox: Inbox) -> None:
        """Take batches for as long as a call should take."""
        deadline = monotonic_ns() + policy_in(self.context).call_ns
        while inbox:
            batch = inbox.poll()
            require_batches("sort_batches", [batch])
            self._take(batch)
            if monotonic_ns() >= deadline:
                return

    def results(self) -> Iterable[Batch]:
        """Return the merged runs, lazily."""
        self._end_run()
        runs, self._runs = self._runs, []
        if self._spilled is not None:
            runs += self._spilled.batches()  # which came after those in memory
        return self._merged(runs)

    def _merged(self, runs: list[Batch]) -> Iterable[Batch]:
        from shmjet.columns.sort import SortedMerge

        if not self._kinds.kinds:
            return ()
        if not any(run.num_rows for run in runs):
            return [self._kinds.head()] if self._tells_columns else ()
        assert self._order is not None
        self._merge = SortedMerge([self._kinds.of(run) for run in runs], self._order, self._rows)
        return (batch for batch in self._merge if batch.num_rows)

    def _capture(self) -> bool:
        if not self.emission.flush_rest():
            return False
        left = list(self._left())  # no row is copied: batches never change, nor does what has been written to the file
        runs = range(0)
        if self._merge is None and self._limit is None:  # the first one tells the columns, the last ones are not sorted
            runs = range(1, len(left) - len(self._waiting))
        self._saving.take(self.outbox, PlacedBatches(self.context).entries(left, runs))
        return True

    def save_to_snapshot(self) -> bool:
        """Save the rows that have not been emitted, run by run; equal rows keep their order."""
        return self._saving.save(self._capture)

    def _left(self) -> Iterator[Batch]:
        """Give what tells the columns, then the rows that are left."""
        if self._kinds.kinds:
            yield self._kinds.head()
        if self._merge is not None:
            yield from self._merge.rest()
            return
        spilled = [] if self._spilled is None else self._spilled.batches()
        yield from chain(self._runs, spilled, self._waiting)

    def restore_from_snapshot(self, inbox: Inbox) -> None:
        """Take rows, for as long as a call should take."""
        deadline = monotonic_ns() + policy_in(self.context).call_ns
        restoring = self._restoring = self._restoring or PlacedBatches(self.context)
        while inbox:
            for batch in restoring.restored(*inbox.poll()):
                if batch.num_rows:
                    self._take(batch)
                else:
                    self._kinds.add(batch)
            if monotonic_ns() >= deadline:
                return

    def finish_snapshot_restore(self) -> bool:
        """Begin to sort what comes."""
        self._restoring = None
        return True

    def _take(self, batch: Batch) -> None:
        self._kinds.add(batch)
        rows = batch.num_rows
        for piece in (batch,) if rows <= RUN_ROWS else (batch[at : at + RUN_ROWS] for at in range(0, rows, RUN_ROWS)):
            self._waiting.append(piece)
            self._waiting_rows += piece.num_rows
            if self._waiting_rows >= RUN_ROWS:
                self._end_run()

    def _end_run(self) -> None:
        if not self._waiting:
            return
        assert self._order is not None
        limit = self._limit
        kept = self._runs if limit is not None else []
        runs = [self._order.sort(run, limit) for run in self._joined([*kept, *self._waiting])]
        if limit is not None:
            self._runs = runs
        else:
            for run in runs:
                self._keep(run)
        self._waiting = []
        self._waiting_rows = 0

    def _joined(self, batches: list[Batch]) -> list[Batch]:
        """Return batches as one; as several where only what is still to come may bring them together."""
        from shmjet.data.batch import Batch

        try:  # what is widened keeps its order
            return [Batch.concat(map(self._kinds.of, batches))]
        except BatchError:  # -1 and 2**63, say, are floats when there is a float
            same = groupby(batches, lambda batch: [*batch.schema.items()])
            return [Batch.concat(neighbours) for _, neighbours in same]

    def _keep(self, run: Batch) -> None:
        """Keep a sorted run in memory, or in a file when that is used up."""
        if self._spilled is None and self._in_memory + run.nbytes <= self._memory:
            self._runs.append(run)
            self._in_memory += run.nbytes
        else:
            self._spilled = self._spilled or SpilledBatches(spill_folder(self._folder), "sort_batches")
            self._spilled.add(run)

    def close(self) -> None:
        """Let the file go."""
        self._runs = []
        if self._spilled is not None:
            self._spilled.close()


def sorted_share(
    by: tuple[str, ...], descending: tuple[bool, ...], nulls_first: bool = False
) -> Callable[[], Processor]:
    """Sort what this processor gets, for an ordered edge that merges the shares of all: no rows tell the columns, too.

    Args:
        by, descending, nulls_first: as of `sort_batches`.

    Example:
        >>> from shmjet import Batch
        >>> from shmjet.testing import verify_processor
        >>> numbers = [Batch({"n": [3, 1]}), Batch({"n": [2]})]
        >>> verify_processor(sorted_share(("n",), (False,))).inputs(numbers).expect([Batch({"n": [1, 2, 3]})])
    """
    return _supply(by, descending, nulls_first, None, BATCH_ROWS, tells_columns=True)


def sort_batches(
    by: str | Sequence[str] | ColumnKey,
    *,
    descending: bool | Sequence[bool] = False,
    nulls_first: bool = False,
    limit: int | None = None,
    batch_rows: int = BATCH_ROWS,
) -> Callable[[], Processor]:
    """Collect the rows of all batches and emit them sorted by columns at the end.

    For one order over all rows give the vertex `local_parallelism=1`, or sort first with a parallel vertex of the same
    kind, which with a `limit` leaves little for the last one. Rows that are equal keep the order in which the processor
    received them. What does not fit into `memory_limit` of the `JobConfig` goes to a file in its `spill_folder`.

    Args:
        by: the name of a column, or several, the most important first; also what `columns("a", "b")` returns.
        descending: one bool for all columns, or one for each.
        nulls_first: put nulls before all values and not behind them; NaN and NaT always stand behind other values.
        limit: emit only so many rows, the first; only these are kept in memory.
        batch_rows: rows of an emitted batch, at most.

    Raises:
        BatchError: no column is named, or one twice, or `descending` has another length. A column that does not exist
            makes the job fail.
        ValueError: `limit` or `batch_rows` is too small.

    Example:
        >>> from shmjet import Batch
        >>> from shmjet.testing import verify_processor
        >>> numbers = [Batch({"n": [3, 1]}), Batch({"n": [2]})]
        >>> verify_processor(sort_batches("n")).inputs(numbers).expect([Batch({"n": [1, 2, 3]})])
    """
    names = checked_names("sort_batches: by", by)
    flags = descending if isinstance(descending, bool) else tuple(descending)
    if isinstance(flags, tuple) and len(flags) != len(names):
        raise BatchError(f"sort_batches: descending has {len(flags)} flags for the columns {list(names)}")
    if limit is not None and (not isinstance(limit, int) or limit < 0):
        raise ValueError(f"sort_batches: limit must be a number of rows from 0 on, got {limit!r}")
    check_batch_rows("sort_batches", batch_rows)
    return _supply(names, flags, nulls_first, limit, batch_rows)


def _supply(by: tuple[str, ...], descending: bool | tuple[bool, ...], *rest: Any, **flags: Any) -> Supply:
    """Return the supplier; saved runs are sorted, so they are of no use for another order."""
    supply = Supply(SortBatchesProcessor, by, descending, *rest, **flags)
    directions = [descending] * len(by) if isinstance(descending, bool) else descending
    order = [f"{name} descending" if down else name for name, down in zip(by, directions, strict=True)]
    supply.state_kind += f" by {', '.join(order)}"
    return supply
