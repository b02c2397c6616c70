"""What the processors of a group-by have in common: a table of groups, its results, and its state in snapshots."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Final

from shmjet.columns.aggregates import Aggregate
from shmjet.core.inbox import Inbox
from shmjet.core.latency_policy import policy_in
from shmjet.core.processor import ProcessorContext
from shmjet.core.saving import are_own
from shmjet.processors.columns.groups_state import ChangeNotes, GroupsState
from shmjet.processors.columns.saving import CapturedState
from shmjet.processors.general.base import BulkProcessor

if TYPE_CHECKING:
    from shmjet.columns.typed_groups import TypedGroups
    from shmjet.data.batch import Batch

EMITTED_ROWS: Final = 16384
"""Groups in a batch of results: some 100 microseconds of work, a few hundred kilobytes."""

CALLED_ROWS: Final = 256
"""Groups in a batch of results that a user's function is called for."""


class GroupingProcessor(BulkProcessor):
    """Keeps a table of groups and emits it at the end.

    Args:
        keys: names of the key columns.
        aggregates: output column → aggregate.
        tells_columns: if there are no groups, emit a batch without rows.
    """

    takes_schemas = True
    """Its results have the dtypes that hold what all processors get."""

    _captures = True

    def __init__(self, keys: tuple[str, ...], aggregates: Mapping[str, Aggregate], tells_columns: bool = False) -> None:
        self._tells_columns = tells_columns
        self._keys = keys
        self._aggregates = aggregates
        self._groups: TypedGroups | None = None
        self._restoring: GroupsState | None = None
        self._saving = CapturedState()
        self._notes: ChangeNotes | None = None
        self._position = 0

    def start(self, context: ProcessorContext) -> None:
        """Make the table."""
        from shmjet.columns.typed_groups import TypedGroups

        self._groups = TypedGroups(self._keys, self._aggregates)
        if context.snapshotting_enabled:
            GroupsState(self._groups, self._keys, context)  # so that the first barrier does not wait for imports
            self._notes = ChangeNotes(self._keys, context)

    @property
    def _table(self) -> TypedGroups:
        assert self._groups is not None, "init() has not been called"
        return self._groups

    def results(self) -> Iterable[Any]:
        """Return the batches of all groups, each made when it is drawn."""
        return self._finished()

    def _drawn(self, batch_at: Callable[[int, int], tuple[Batch, int]]) -> Iterator[Batch]:
        has_calls = any(aggregate.fn is not None for aggregate in self._aggregates.values())
        rows = CALLED_ROWS if has_calls else EMITTED_ROWS
        while self._position < len(self._table):
            batch, position = batch_at(self._position, rows)
            self._position = position
            if position < 0:
                self._table.clear()
                self._position = 0
            yield batch

    def _finished(self) -> Iterator[Batch]:
        """Give the results; where there are no groups, what tells their columns."""
        if self._tells_columns and not len(self._table):
            empty, _ = self._table.results(0, 1)
            if empty.names:
                yield empty
        yield from self._drawn(self._table.results)

    def _capture(self) -> bool:
        if not self.emission.flush_rest():
            return False
        changed = None if self._notes is None else self._notes.taken(self._table)
        state = GroupsState(self._table.captured(), self._keys, self.context)
        self._saving.take(self.outbox, state.entries(self._position, changed))
        return True

    def save_to_snapshot(self) -> bool:
        """Save the groups whose results have not been emitted, by partition."""
        return self._saving.save(self._capture)

    def restore_from_snapshot(self, inbox: Inbox) -> None:
        """Merge pieces, for as long as a call should take."""
        deadline = monotonic_ns() + policy_in(self.context).call_ns
        state = self._restoring = self._restoring or GroupsState(self._table, self._keys, self.context)
        is_own = are_own(inbox)
        while inbox:
            key, value = inbox.poll()
            state.restore(key, value, is_own)
            if monotonic_ns() >= deadline:
                return

    def finish_snapshot_restore(self) -> bool:
        """Put the groups into the order that they had."""
        if self._restoring is not None:
            self._restoring.finish()
            self._restoring = None
        return True
