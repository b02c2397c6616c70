"""Distinct rows of batches, as soon as they are met: one whole row of each key.

What `distinct` is for items, with a native table of the keys. Without key columns rows are compared as a whole; where
they are dealt to several processors a hidden column with the hash of the row does it. Must not know: routing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Final, Literal

from shmjet.core.inbox import Inbox
from shmjet.core.latency_policy import may_be_saved, policy_in
from shmjet.core.processor import Processor, ProcessorContext
from shmjet.core.saving import are_own
from shmjet.processors.columns.empty_results import EmptyResults
from shmjet.processors.columns.groups_state import ChangeNotes, GroupsState
from shmjet.processors.columns.reduction import MEASURED_ROWS, Reduction
from shmjet.processors.columns.saving import CapturedState, LastingPart
from shmjet.processors.general.base import ExpandingProcessor, Supply, require_batches

if TYPE_CHECKING:
    from shmjet.columns.distinct import DistinctRows
    from shmjet.data.batch import Batch

ROW_HASH: Final = "\0hash"
"""The hidden column between two stages, by which the edge is partitioned."""

Part = Literal["first", "last", "whole"]


class DistinctRowsProcessor(ExpandingProcessor):
    """Emits the rows whose key it has not met before.

    Args:
        names: of the key columns; none: all columns.
        part: "first" and "last" of two stages, or the "whole". A first stage has no state: after a snapshot it begins
            anew, and the last one leaves out what it emits twice. Where hardly any key repeats it does not look.
    """

    state_kind = "distinct_rows"

    movable = False
    takes_schemas = True
    """A processor that gets none of the rows has the columns."""

    def __init__(self, names: tuple[str, ...], part: Part) -> None:
        self._names = names
        self._part = part
        self._rows: DistinctRows | None = None
        self._saving = CapturedState()
        self._notes: ChangeNotes | None = None
        self._restoring: GroupsState | None = None
        self._reduction = Reduction(MEASURED_ROWS) if part == "first" else None

    def start(self, context: ProcessorContext) -> None:
        """Begin without keys."""
        from shmjet.columns.distinct import DistinctRows

        hash_name = ROW_HASH if not self._names and self._part != "whole" else None
        self._rows = DistinctRows(self._names, hash_name, adds_hash=self._part == "first")
        self._empty = EmptyResults(at_once=may_be_saved(context))

    @property
    def _table(self) -> DistinctRows:
        assert self._rows is not None, "init() has not been called"
        return self._rows

    def expand(self, ordinal: int, items: list[Any]) -> Iterable[Batch]:
        """Return the new rows of some batches."""
        require_batches("distinct", items)
        return self._fresh(items)

    def _fresh(self, items: list[Batch]) -> Iterator[Batch]:
        for batch in items:
            found = self._empty.passing(self._looked_at(batch))
            if found is not None:
                yield found

    def _looked_at(self, batch: Batch) -> Batch:
        table, reduction, rows = self._table, self._reduction, batch.num_rows
        if reduction is None:
            return table.fresh(batch)
        if reduction.is_poor and rows:
            reduction.passed(rows)
            return table.unlooked(batch)
        fresh = table.fresh(batch)
        if reduction.grouped(rows, len(table)):
            self._forget()
        return fresh

    def _forget(self) -> None:
        self._table.clear()
        if self._reduction is not None:
            self._reduction.emptied()

    def results(self) -> Iterator[Batch]:
        """Return what tells the columns of results without rows."""
        return self._empty.rest()

    @property
    def _captures(self) -> bool:  # type: ignore[override]
        return self._part != "first" and self._table.groups is not None

    def _capture(self) -> bool:
        groups, keys = self._table.groups, self._table.keys
        assert groups is not None
        self._notes = self._notes or ChangeNotes(keys, self.context)
        changed = self._notes.taken(groups)
        entries = GroupsState(groups.captured(), keys, self.context).entries(0, changed)
        self._saving.take(self.outbox, self._named(entries))
        return True

    def _named(self, entries: Iterator[Any]) -> Iterator[Any]:
        """Give entries with the names of the keys."""
        for each in entries:
            if isinstance(each, LastingPart):
                yield LastingPart(each.token, partial(self._named_part, each))
            else:
                yield None if each is None else (each[0], (self._table.keys, each[1]))

    def _named_part(self, part: LastingPart) -> Iterator[Any]:
        return self._named(part.entries())

    def save_to_snapshot(self) -> bool:
        """Save the keys that have been met, by partition."""
        if self._part == "first":
            self._forget()
            return True
        return self._table.groups is None or self._saving.save(self._capture)

    def restore_from_snapshot(self, inbox: Inbox) -> None:
        """Take keys, for as long as a call should take."""
        deadline = monotonic_ns() + policy_in(self.context).call_ns
        is_own = are_own(inbox)
        while inbox:
            key, (keys, value) = inbox.poll()
            if self._restoring is None:
                self._restoring = GroupsState(self._table.begin(keys), keys, self.context)
            self._restoring.restore(key, value, is_own)
            if monotonic_ns() >= deadline:
                return

    def finish_snapshot_restore(self) -> bool:
        """Begin with what comes."""
        if self._restoring is not None:
            self._restoring.finish()
            self._restoring = None
        return True


def distinct_rows(names: tuple[str, ...] = (), part: Part = "whole") -> Callable[[], Processor]:
    """Emit one whole row of each key of the rows of batches, at once.

    Args:
        names: of the key columns; none: all columns.
        part: "whole"; or "first" and "last" of two stages, the edge between which is partitioned by the key columns,
            without any by `column(ROW_HASH)`.

    Nulls and NaN are keys, and -0.0 equals 0.0.

    Raises:
        BatchError: (in the job) a column is missing or cannot be a key, or an item is not a batch.

    Example:
        >>> from shmjet import Batch
        >>> from shmjet.testing import verify_processor
        >>> rows = Batch({"k": [1, 2, 1], "v": ["a", "b", "c"]})
        >>> verify_processor(distinct_rows(("k",))).inputs([rows]).expect([Batch({"k": [1, 2], "v": ["a", "b"]})])
    """
    supply = Supply(DistinctRowsProcessor, names, part)
    supply.state_kind += f" of {', '.join(names) or 'all columns'}"
    return supply
