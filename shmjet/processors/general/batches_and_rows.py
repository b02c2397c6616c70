"""`to_batches` and `to_rows`: between vertices that work on items and vertices that work on batches.

Must not know what the rows mean. Gathering is a trade between the size of batches and the time that a row waits for
others; a row waits for `max_delay` at most, and never behind a watermark, a barrier or the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import chain, repeat
from time import monotonic
from typing import TYPE_CHECKING, Any

from shmjet._native import index_of_special
from shmjet.core.column_key import checked_names
from shmjet.core.inbox import Inbox
from shmjet.core.latency_policy import policy_in
from shmjet.core.processor import Processor, ProcessorContext
from shmjet.data.columnar import Columnar
from shmjet.data.marks import Watermark
from shmjet.processors.general.base import BulkProcessor, ExpandingProcessor, Supply, require_batches

if TYPE_CHECKING:
    from shmjet.data.batch import Batch

ROWS_AT_ONCE = 4096
"""Rows of a batch that become Python objects at once."""


class ToBatchesProcessor(BulkProcessor):
    """Gathers rows into batches; batches pass between them, in order."""

    def __init__(
        self,
        size: int,
        columns: tuple[str, ...] | None,
        schema: Mapping[str, Any] | None,
        max_delay: float | None,
        tells_columns: bool = False,
    ) -> None:
        self._tells_columns = tells_columns
        self._size = size
        self._columns = columns
        self._schema = schema
        self._given_delay = max_delay
        self._due = 0.0
        self.next_call = math.inf

    def start(self, context: ProcessorContext) -> None:
        """Load what makes columns."""
        from shmjet.columns.row_gatherer import RowGatherer
        from shmjet.columns.schemas import nulls, schema_of
        from shmjet.data.batch import Batch

        schema = None if self._schema is None else schema_of(self._schema)
        self._gatherer = RowGatherer(self._size, self._columns, schema)
        self._head: Batch | None = None
        if schema and self._tells_columns:
            self._head = Batch({name: nulls(kind, 0) for name, kind in schema.items()})
        given = self._given_delay
        self._max_delay = policy_in(context).row_delay_ns / 1e9 if given is None else given

    def process(self, ordinal: int, inbox: Inbox) -> None:
        """Gather all, and emit the batches that are full."""
        emission = self.emission
        if not emission.idle:
            if not emission.flush():
                return
            self.release(inbox)
            if not inbox:
                return
        waited = len(self._gatherer) > 0
        rows = inbox.take()
        if rows:
            self._head = None
        full: list[Batch] = []
        at = 0
        while at < len(rows):
            if isinstance(rows[at], Columnar):
                full += self._gatherer.rest()
                full.append(self.passed(rows[at]))
                at += 1
                continue
            end = index_of_special(rows, at, Columnar)
            run = rows[at:end] if end >= 0 else rows[at:] if at else rows
            self._gatherer.add(run)
            full += self._gatherer.full()
            at += len(run)
        has_rest = len(self._gatherer) > 0
        if has_rest and (full or not waited):
            self._due = monotonic() + self._max_delay
        if full and not emission.put(full):
            self.hold(inbox, rows[-1])
        self._plan_call()

    def passed(self, batch: Batch) -> Batch:
        """Return what is emitted for an item that is a batch."""
        return batch

    def try_process(self) -> bool:
        """Emit the rows that have waited long enough."""
        if len(self._gatherer) and monotonic() >= self._due:
            return self._emit_rest()
        is_through = self.emission.flush()
        self._plan_call()
        return is_through

    def try_process_watermark(self, watermark: Watermark) -> bool:
        """Emit what came before it, then pass it on."""
        return self._emit_rest() and super().try_process_watermark(watermark)

    def save_to_snapshot(self) -> bool:
        """Emit what came before the barrier, so that there is nothing to save."""
        return self._emit_rest()

    def complete(self) -> bool:
        """Emit the rest; if there were no rows at all, a batch that tells the columns of the schema."""
        if not self._emit_rest():
            return False
        if self._head is not None:
            head, self._head = self._head, None
            return self.emission.put([head])
        return self.emission.flush()

    def _emit_rest(self) -> bool:
        emission = self.emission
        if emission.flush() and len(self._gatherer):
            rest = self._gatherer.rest()
            emission.put(rest)
        self._plan_call()
        return emission.idle

    def _plan_call(self) -> None:
        """Ask for a call when there is room, or when the rows have waited long enough."""
        if not self.emission.idle:
            self.next_call = None
        elif len(self._gatherer):
            self.next_call = max(self._due - monotonic(), 0.0)
        else:
            self.next_call = math.inf


class ToRowsProcessor(ExpandingProcessor):
    """Emits the rows of batches."""

    def __init__(self, as_: type) -> None:
        self._as = as_

    def expand(self, ordinal: int, items: list[Any]) -> Iterable[Any]:
        """Return the rows of all, lazily."""
        require_batches("to_rows", items)
        return chain.from_iterable(self._pieces(items))

    def _pieces(self, batches: list[Batch]) -> Iterator[Iterable[Any]]:
        for batch in batches:
            names = batch.names
            for start in range(0, batch.num_rows, ROWS_AT_ONCE):
                rows = batch[start : start + ROWS_AT_ONCE].tuples()
                yield rows if self._as is tuple else map(dict, map(zip, repeat(names), rows))


def to_batches(
    n: int = 8192,
    columns: Sequence[str] | None = None,
    *,
    schema: Mapping[str, Any] | None = None,
    max_delay: float | timedelta | None = None,
) -> Callable[[], Processor]:
    """Gather items into batches of `n` rows, for vertices that work on batches; items that are batches pass.

    What is fewer is emitted at the end, before a watermark, before a batch, and when its first row has waited for
    `max_delay`, so that nothing waits for ever in a stream. With a `schema` all batches have its dtypes, and a value
    that would be lost is an error. Without one a column is what the rows of its batch hold: ints among floats are
    floats, and no value is rounded. Values that no column holds together (text and numbers) are in different batches.

    Args:
        n: rows of a batch, at least 1. Between 1,000 and 100,000 is fast.
        columns: names, in the order of the values of a tuple; for dicts, which values to take. By default those of
            `schema`, or those of the first row, which must be a dict then.
        schema: name → type of the column, as far as it is to be fixed: a numpy dtype, or `int`, `float`, `bool`, `str`,
            `bytes`. A function that minds whether it gets ints or floats needs one.
        max_delay: seconds (or a `timedelta`) for which a row waits for others, at most; by default 0.02, and 0.0005 in
            a job with an endless source.

    Raises:
        TypeError, ValueError, BatchError: when an argument is of the wrong type or out of range, or names what is not
            there.
        BatchError: (in the job) a row or a value does not fit; the text names vertex and column.

    Example:
        >>> from shmjet import Batch
        >>> from shmjet.testing import verify_processor
        >>> supplier = to_batches(2, ["word", "n"])
        >>> batches = [Batch({"word": ["a", "b"], "n": [1, 2]}), Batch({"word": ["c"], "n": [3]})]
        >>> verify_processor(supplier).inputs([("a", 1), ("b", 2), ("c", 3)]).expect(batches)
    """
    if not isinstance(n, int) or isinstance(n, bool):
        raise TypeError(f"to_batches: n must be a number of rows, got {type(n).__name__}: {n!r}")
    if n < 1:
        raise ValueError(f"to_batches: n must be at least 1, got {n}")
    if isinstance(max_delay, timedelta):
        max_delay = max_delay.total_seconds()
    if max_delay is not None and (not isinstance(max_delay, int | float) or not max_delay >= 0):
        raise ValueError(f"to_batches: max_delay must be a number of seconds, 0 or more, got {max_delay!r}")
    names = None if columns is None else checked_names("to_batches: columns", columns)
    if schema is not None:
        from shmjet.columns.schemas import schema_of

        known = checked_names("to_batches: schema", schema_of(schema))
        unknown = [name for name in known if names is not None and name not in names]
        if unknown:
            raise ValueError(
                f"to_batches: the schema names column {unknown[0]!r}, which is not among {list(names or ())}"
            )
    return Supply(ToBatchesProcessor, n, names, schema, None if max_delay is None else float(max_delay))


def to_rows(as_: type = dict) -> Callable[[], Processor]:
    """Emit the rows of batches as items, for vertices that work on items.

    Args:
        as_: `dict` (name → value) or `tuple` (values in the order of the columns), which is faster. Values are plain
            Python ones, None for nulls.

    Raises:
        TypeError: when `as_` is something else.
        BatchError: (in the job) an item is not a batch.

    Example:
        >>> from shmjet import Batch
        >>> from shmjet.testing import verify_processor
        >>> batch = Batch({"n": [1, 2], "name": ["a", None]})
        >>> verify_processor(to_rows()).inputs([batch]).expect([{"n": 1, "name": "a"}, {"n": 2, "name": None}])
    """
    if as_ is not dict and as_ is not tuple:
        raise TypeError(f"to_rows: as_ must be dict or tuple, got {as_!r}")
    return Supply(ToRowsProcessor, as_)
