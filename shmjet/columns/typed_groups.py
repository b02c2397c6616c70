"""`TypedGroups`: groups of batches with decimals, instants with a zone, categories, lists and structs.

A `Groups` table knows numbers, dates and text. Here columns of other types become such columns on the way in, and
keys and results get their types on the way out. Decimals are kept in units of the last digit of the longest scale that
has come; when a longer one comes, the groups move to another table, with their states in the new units. Columns without
such types go to the table as they are. Must not know processors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from shmjet.columns.aggregates import Aggregate
from shmjet.columns.computed_totals import ComputedTotals, totals_of
from shmjet.columns.expressions.number_program import NumberProgram
from shmjet.columns.expressions.projection import Projection
from shmjet.columns.expressions.row_chooser import RowChooser
from shmjet.columns.group_page import Positions
from shmjet.columns.group_rows import PairTable
from shmjet.columns.group_schema import check_names, form_in_states, state_name, state_separator
from shmjet.columns.groups import ANY_NUMBER, Groups
from shmjet.columns.plan_changes import restated
from shmjet.columns.promotion import converted, differing, is_known, near, promoted
from shmjet.columns.schemas import Kind, nulls
from shmjet.columns.typed_plan import TOTALS, VALUES, TypedPlan
from shmjet.data.batch import Batch, any_column
from shmjet.data.column_types import ColumnType
from shmjet.data.typed_column import TypedColumn

_TYPE: Final = "type"
"""The part of states whose type is that of an aggregate's column."""

_MOVED: Final = 1 << 16


def _pairs(names: Sequence[str]) -> PairTable:
    return TypedGroups(names, {})


class TypedGroups:
    """As `Groups`, for columns of any type. Nested columns are keys by equality.

    Args:
        keys, aggregates: as for `Groups`.

    Raises:
        BatchError: as `Groups`.

    Example:
        >>> from decimal import Decimal
        >>> from shmjet.columns.aggregates import sum_
        >>> groups = TypedGroups(["k"], {"total": sum_("v")})
        >>> groups.add(Batch({"k": [1, 1], "v": [Decimal("1.5"), Decimal("2.25")]}))
        >>> groups.results(0, 9)[0].to_dict()
        {'k': [1], 'total': [Decimal('3.75')]}
    """

    def __init__(self, keys: Sequence[str], aggregates: Mapping[str, Aggregate]) -> None:
        self._keys = (keys,) if isinstance(keys, str) else tuple(keys)
        self._aggregates = dict(aggregates)
        check_names(self._keys, self._aggregates)
        self._separator = state_separator(self._keys)
        made = {name: one for each in aggregates.values() for name, one in each.expressions.items()}
        self._inputs = Projection(made, keep=True) if made else None
        self._totals = totals_of(made, True, self._keys, self._aggregates) if made else None
        used = (name for each in aggregates.values() for name in (each.column, each.by) if name is not None)
        self._used = tuple(dict.fromkeys([*self._keys, *used]))
        kept = (
            aggregate for aggregate in aggregates.values() if aggregate.keeps_rows and aggregate.function != "quantile"
        )
        self._exact = {*self._keys, *(name for each in kept for name in (each.column, each.by) if name is not None)}
        """Columns whose values are told apart, as keys are: a decimal among floats has to be equal to one."""
        self._untyped = TypedPlan(self._keys, self._aggregates, {})
        self.clear()

    def clear(self) -> None:
        """Forget all groups and types."""
        self._kinds: dict[str, Kind] = {}
        self._known: set[str] = set()
        self._types: dict[str, ColumnType] = {}
        self._plan = self._untyped
        self._groups = Groups(self._keys, self._plan.aggregates, _pairs)

    def empty(self) -> bool:
        """As `Groups.empty`."""
        return self._groups.empty()

    def __len__(self) -> int:
        return len(self._groups)

    @property
    def entries(self) -> int:
        """As `Groups.entries`."""
        return self._groups.entries

    @property
    def nbytes(self) -> int:
        """Bytes that the groups take."""
        return self._groups.nbytes

    # -- in ------------------------------------------------------------------------------------------------------------

    def add(self, batch: Batch, numbers: Positions | None = None) -> None:
        """Add the rows of a batch; `numbers` and errors as of `Groups.add`."""
        if self._totals is not None and numbers is None and self.add_computed(self._totals, batch):
            return
        given = batch
        if self._inputs is not None:
            batch = self._inputs.apply(batch)
        columns, masks = batch.parts()
        self._note(
            {
                name: (columns[name].dtype, is_known(columns[name], masks.get(name)))
                for name in self._used
                if name in columns
            }
        )
        if self._types or any(isinstance(columns.get(name), TypedColumn) for name in self._used):
            for name in self._used:
                any_column(batch, name)
            batch = self._plan.lowered(self._of_kinds(batch, self._used))
        self._groups.add(batch, given, numbers)

    def add_computed(
        self, totals: ComputedTotals, batch: Batch, chosen: RowChooser | NumberProgram | None = None
    ) -> bool:
        """Add values as they are computed. Returns False where nothing was added, as `ComputedTotals.add`."""
        return not self._types and totals.add(self._groups, batch, chosen)

    def _of_kinds(self, batch: Batch, names: Sequence[str]) -> Batch:
        """Return a batch with the columns of types in these types."""
        columns, masks = batch.parts()
        made = dict(columns)
        for name in names:
            kind = self._kinds.get(name)
            is_typed = isinstance(columns[name], TypedColumn) or isinstance(kind, ColumnType)
            if kind is not None and is_typed and columns[name].dtype != kind:
                to = converted if name in self._exact else near
                made[name] = to(name, columns[name], masks.get(name), kind)
        return Batch.trusted(made, dict(masks), batch.num_rows)

    def _note(self, found: Mapping[str, tuple[Kind, bool]]) -> None:
        """Note kinds of columns; where a type is new or another, the groups move."""
        if not self._types and any(isinstance(kind, ColumnType) for kind, _ in found.values()):
            head = self._groups.head()
            self._note_kinds({} if head is None else self._kinds_of(head))  # of states that have been merged
        self._note_kinds(found)
        types = {name: kind for name, kind in self._kinds.items() if isinstance(kind, ColumnType)}
        if types != self._types:
            self._move(types)

    def _note_kinds(self, found: Mapping[str, tuple[Kind, bool]]) -> None:
        for name, (kind, known) in found.items():
            have = self._kinds.get(name)
            if have is None or (known and name not in self._known):
                self._kinds[name] = kind
            elif known and kind != have:
                both = promoted(have, kind)
                if both is not None:
                    self._kinds[name] = both
                elif isinstance(have, ColumnType) or isinstance(kind, ColumnType):
                    raise differing(name, [have, kind])
            if known:
                self._known.add(name)

    def _kinds_of(self, states: Batch) -> dict[str, tuple[Kind, bool]]:
        """Return the kinds of columns without a type that states show; sums show less of them than values do."""
        columns = states.parts()[0]
        found: dict[str, tuple[Kind, bool]] = {}
        for of_values in (False, True):
            for result, aggregate in self._aggregates.items():
                if aggregate.function not in (VALUES if of_values else TOTALS) or aggregate.order is not None:
                    continue
                if state_name(result, _TYPE, self._separator) not in columns:
                    form = form_in_states(states, result, aggregate, self._separator)
                    counts = columns.get(state_name(result, "n", self._separator))  # of means, which have no mask
                    known = form.is_known if counts is None or not states.num_rows else bool(np.asarray(counts).any())
                    found[str(aggregate.column)] = form.dtype, known
        return found

    def _move(self, types: dict[str, ColumnType]) -> None:
        before, groups, plan = self._types, self._groups, self._plan
        self._types = types
        self._plan = TypedPlan(self._keys, self._aggregates, types)
        self._groups = Groups(self._keys, self._plan.aggregates, _pairs)
        head = groups.head()
        if head is None:
            return
        moved, position = [head], 0
        while position >= 0 and len(groups):
            states, position = groups.states(position, _MOVED)
            moved.append(states)
        for states in moved:
            self._merge(plan, states, before)

    def merge(self, states: Batch, are_new: bool = False) -> None:
        """Merge partial states, which `states()` or `head()` gave. Arguments and errors as of `Groups.merge`."""
        columns, masks = states.parts()
        found: dict[str, tuple[Kind, bool]] = {}
        for name in self._keys:
            values, mask = any_column(states, name)
            found[name] = values.dtype, is_known(values, mask)
        for result, aggregate in self._aggregates.items():
            marker = columns.get(state_name(result, _TYPE, self._separator))
            if marker is not None and aggregate.column is not None:
                mask = masks.get(state_name(result, _TYPE, self._separator))
                found[aggregate.column] = marker.dtype, is_known(marker, mask)
        types = {name: kind for name, (kind, _) in found.items() if isinstance(kind, ColumnType)}
        if types or self._types:
            found = self._kinds_of(states) | found
        self._note(found)
        plan = self._plan if types == self._types else TypedPlan(self._keys, self._aggregates, types)
        self._merge(plan, states, types, are_new)

    def _merge(self, plan: TypedPlan, states: Batch, types: Mapping[str, ColumnType], are_new: bool = False) -> None:
        """Merge states that were made by another plan."""
        if types == self._types and not self._types:
            self._groups.merge(states, are_new)
            return
        typed = plan.raised_keys(states)
        keys = self._plan.lowered_keys(self._of_kinds(typed, self._keys))
        columns, masks = states.parts()
        made = dict(columns) | {name: keys.parts()[0][name] for name in self._keys}
        known = {name: mask for name, mask in masks.items() if name not in self._keys}
        known |= {name: mask for name, mask in keys.parts()[1].items() if name in self._keys}
        states = Batch.trusted(made, known, states.num_rows)
        if types != self._types:
            states = restated(states, plan, self._plan, self._aggregates, self._kinds, self._separator)
        self._groups.merge(states, are_new)

    # -- out -----------------------------------------------------------------------------------------------------------

    def results(self, position: int, limit: int) -> tuple[Batch, int]:
        """As `Groups.results`, with the types of keys and results."""
        batch, following = self._groups.results(position, limit)
        return (self._plan.results(batch) if self._types and batch.names else batch), following

    def head(self) -> Batch | None:
        """As `Groups.head`."""
        head = self._groups.head()
        return None if head is None else self._typed(head)

    def states(self, position: int, limit: int) -> tuple[Batch, int]:
        """As `Groups.states`; its keys have their types, and there is a column for the type of each aggregate's."""
        states, following = self._groups.states(position, limit)
        return self._typed(states), following

    def states_at(self, positions: Positions) -> Batch:
        """As `Groups.states_at`."""
        return self._typed(self._groups.states_at(positions))

    def results_at(self, positions: Positions) -> Batch:
        """As `Groups.results_at`, with the types of keys and results."""
        batch = self._groups.results_at(positions)
        return self._plan.results(batch) if self._types else batch

    def key_words(self, place: int, position: int) -> npt.NDArray[np.int64]:
        """As `Groups.key_words`."""
        return self._groups.key_words(place, position)

    def key_columns(self, position: int, limit: int) -> Batch:
        """As `Groups.key_columns`."""
        return self._plan.raised_keys(self._groups.key_columns(position, limit))

    def captured(self) -> TypedGroups:
        """As `Groups.captured`."""
        made = TypedGroups(self._keys, self._aggregates)
        made._kinds, made._known, made._types = dict(self._kinds), set(self._known), self._types
        made._plan, made._groups = self._plan, self._groups.captured()
        return made

    @property
    def serial(self) -> int:
        """As `Groups.serial`."""
        return self._groups.serial

    def note_updates(self, most: int = ANY_NUMBER) -> None:
        """As `Groups.note_updates`."""
        self._groups.note_updates(most)

    def take_updates(self) -> npt.NDArray[np.bool_] | None:
        """As `Groups.take_updates`."""
        return self._groups.take_updates()

    def copy_steps(self) -> Iterator[None]:
        """As `Groups.copy_steps`."""
        return self._groups.copy_steps()

    def arrange(self, order: Positions | None) -> None:
        """As `Groups.arrange`."""
        self._groups.arrange(order)

    def _typed(self, states: Batch) -> Batch:
        if not self._types or not states.names:
            return states
        states = self._plan.raised_keys(states)
        columns, masks = states.parts()
        made, valid = dict(columns), dict(masks)
        for result, aggregate in self._aggregates.items():
            kind = self._plan.type_of(aggregate)
            if kind is not None:
                name = state_name(result, _TYPE, self._separator)
                known = aggregate.column in self._known
                made[name] = nulls(kind, states.num_rows)
                if known != bool(states.num_rows):
                    valid[name] = np.zeros(states.num_rows, np.bool_)
        return Batch.trusted(made, valid, states.num_rows)

    def __repr__(self) -> str:
        return f"Typed{self._groups!r}"
