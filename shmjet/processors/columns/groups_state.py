"""The state of a group-by in snapshots: its table in slices or by partition, heads for the columns, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from shmjet.core.broadcast_key import BroadcastKey
from shmjet.core.processor import ProcessorContext
from shmjet.core.state_placement import OwnRows, takes_place
from shmjet.processors.columns.saving import Entry, LastingPart, check_form, row_partitions

if TYPE_CHECKING:
    from shmjet.columns.aggregates import Aggregate
    from shmjet.columns.group_changes import Flags, GroupChanges, PartitionPieces
    from shmjet.columns.group_export import Piece
    from shmjet.columns.group_page import Positions
    from shmjet.columns.groups import Groups
    from shmjet.columns.typed_groups import TypedGroups
    from shmjet.data.batch import Batch

HEAD: Final = "columns"
"""Under a `BroadcastKey` (this, index): states without rows. All processors need the columns of all."""

PLACE: Final = "groups"
"""Under a `BroadcastKey` (this, index, number): groups that have no partition."""


def kind_of_groups(keys: Iterable[str], aggregates: Mapping[str, Aggregate]) -> str:
    """Name what is kept of groups: a table of other keys or aggregates cannot take it.

    Example:
        >>> from shmjet.columns import sum_
        >>> kind_of_groups(("k",), {"total": sum_("v")})
        "group_by('k').agg(total=sum)"
    """
    named = (f"{name}={aggregate.function}" for name, aggregate in aggregates.items())
    return f"group_by({', '.join(map(repr, keys))}).agg({', '.join(named)})"


class Changed(NamedTuple):
    """What is known of changes of a table since the last save: as of `GroupChanges.note`."""

    changes: GroupChanges
    flags: Flags | None


class ChangeNotes:
    """Notes what of a table changes from one save to the next, where its rows lie by partition.

    Args:
        keys: the key columns.
        context: of the processor.
    """

    def __init__(self, keys: tuple[str, ...], context: ProcessorContext) -> None:
        from shmjet.columns.group_changes import GroupChanges

        partitions = row_partitions(context, keys, {})
        self._changes = None
        if partitions is not None:
            placement = partitions.placement
            self._changes = GroupChanges(placement.count, are_hashed=placement.partitioner is None)

    def taken(self, groups: Groups | TypedGroups) -> Changed | None:
        """Return what has changed since the last call, before the table is captured."""
        return None if self._changes is None else Changed(self._changes, self._changes.note(groups))


class GroupsState:
    """Saves and restores the groups of one processor.

    Args:
        groups: its table.
        keys: the key columns.
        context: of the processor.
    """

    def __init__(self, groups: Groups | TypedGroups, keys: tuple[str, ...], context: ProcessorContext) -> None:
        from shmjet.columns.group_export import RestoredGroups
        from shmjet.data.schema_heads import SchemaHeads

        self._groups = groups
        self._context = context
        self._partitions = row_partitions(context, keys, {})
        self._heads = SchemaHeads()
        self._restored = RestoredGroups(groups)

    def entries(self, start: int, changed: Changed | None = None) -> Iterator[Entry | LastingPart | None]:
        """Give the entries of the groups from a position on, step by step; nothing may be added meanwhile.

        Captured groups are copied first.

        Args:
            start: the position.
            changed: what is known of changes since the last save; None: nothing.
        """
        from shmjet.columns.group_export import Piece, slices

        yield from self._groups.copy_steps()
        index, partitions = self._context.global_index, self._partitions
        head = self._groups.head()
        if head is not None:
            yield BroadcastKey((HEAD, index)), head
        if partitions is None:
            for number, piece in enumerate(slices(self._groups, start)):
                yield BroadcastKey((PLACE, index, number)), (piece.states, piece.positions)
            return
        found: Iterator[Piece | PartitionPieces | None] = slices(self._groups, start)
        if changed is not None and not start:
            found = changed.changes.pieces(self._groups, changed.flags, partitions.of)
        for number, each in enumerate(found):
            if isinstance(each, Piece):
                yield OwnRows(number), (partitions.form, each.states, each.positions)
            else:
                yield None if each is None else LastingPart(each.token, partial(self._made, each.pieces))

    def _made(self, pieces: Callable[[], Iterator[Piece]]) -> Iterator[Entry]:
        partitions = self._partitions
        assert partitions is not None
        for piece in pieces():
            yield partitions.key_of(piece.states), (partitions.form, piece.states, piece.positions)

    def restore(self, key: Any, value: Any, is_own: bool = False) -> None:
        """Take one entry of `entries` of any processor.

        Args:
            key: of the entry.
            value: of the entry.
            is_own: it is one of `OwnEntries`.

        Raises:
            ProcessorError: its groups may belong to other processors.
            BatchError: the states are those of other columns.
        """
        if not isinstance(key, BroadcastKey):
            form, states, positions = value
            check_form(self._context, "group_by", form, self._partitions)
            is_new = is_own or (isinstance(key, OwnRows) and key.taken is None)
            if isinstance(key, OwnRows) and key.taken is not None and not all(key.taken):
                states, positions = self._of_mine(key.taken, states, positions)
            if len(positions):  # no rows with a mask would say what the column is
                self._restored.merge(states, positions, are_new=is_new)
            return
        what, index, *_ = cast("tuple[Any, ...]", key.key)
        if what == HEAD:
            self._merge_head(value)
        elif takes_place(self._context, index):
            states, positions = value
            self._restored.merge(states, positions, are_new=index == self._context.global_index)

    def _of_mine(self, taken: bytes, states: Batch, positions: range) -> tuple[Batch, Positions]:
        """Return the rows of some partitions, and their positions."""
        import numpy as np

        assert self._partitions is not None  # several processors have partitions of the form that was saved
        chosen = np.frombuffer(taken, np.bool_)[self._partitions.of(states)]
        return states.filter(chosen), np.asarray(positions, np.uint32)[chosen]

    def _merge_head(self, head: Batch) -> None:
        if self._heads.before(head) is not None:
            self._groups.merge(head)

    def finish(self) -> None:
        """Put the restored groups in order."""
        self._restored.finish()
