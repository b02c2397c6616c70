"""Steps of projections and filters, compiled to one function of a batch.

Must not know processors.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from shmjet.columns.aggregates import Aggregate
from shmjet.columns.computed_totals import totals_of
from shmjet.columns.expressions import Projection, Selection
from shmjet.columns.expressions.number_program import NumberProgram
from shmjet.columns.expressions.row_chooser import RowChooser
from shmjet.columns.expressions.selections import Selections
from shmjet.columns.typed_groups import TypedGroups
from shmjet.core.expressions import Expression
from shmjet.data.batch import Batch
from shmjet.data.schema_heads import known_columns

_NOTHING: Final = np.zeros(0, np.bool_)
_NOTHING.flags.writeable = False


def compiled(steps: Iterable[tuple[str, Any]]) -> Callable[[Batch], Batch]:
    """Return the function that takes a batch through all steps.

    A result without rows says which of its columns have had values before the rows went (`schema_heads`).

    Args:
        steps: as of `processors.columns.project_batches`.
    """
    passes = _passes(list(steps))

    def apply(batch: Batch) -> Batch:
        made = batch
        for each in passes:
            made = each.apply(made)
        return made if made.num_rows else _marked(made, batch)

    return apply


class ProjectedGroups:
    """Steps whose results go into a table of groups.

    Args:
        steps: as of `compiled`.
        keys, aggregates: of the table.
    """

    def __init__(
        self, steps: Iterable[tuple[str, Any]], keys: tuple[str, ...], aggregates: Mapping[str, Aggregate]
    ) -> None:
        *self._before, self._last = _passes(list(steps))
        outputs, keep = self._last.outputs, self._last.keep
        has_inputs = any(each.expressions for each in aggregates.values())
        self._totals = None if has_inputs else totals_of(outputs, keep, keys, aggregates)

    def add(self, batch: Batch, groups: TypedGroups) -> Batch | None:
        """Take a batch through all steps.

        Returns:
            what is to be grouped; None: the last step has added its results to the groups.
        """
        made = batch
        for each in self._before:
            made = each.apply(made)
        condition = self._last.condition
        if self._totals is not None and condition and groups.add_computed(self._totals, made, condition):
            return None
        chooser = self._last.chooser(made)
        if self._totals is not None and groups.add_computed(self._totals, made, chooser):
            return None
        made = self._last.chosen(made, chooser)
        return made if made.num_rows else _marked(made, batch)


def _marked(made: Batch, batch: Batch) -> Batch:
    """Return a result without rows with a mask for each column that has had values, or that is computed of such."""
    known = known_columns(batch)
    are_all = known.issuperset(batch.names)
    there = [name for name in made.names if name in known or name not in batch.names or are_all]
    return Batch.trusted(dict(made.parts()[0]), dict.fromkeys(there, _NOTHING), 0)


def _passes(steps: Sequence[tuple[str, Any]]) -> list[_Pass]:
    passes: list[_Pass] = []
    place = 0
    while place < len(steps):
        kind, given = steps[place]
        place += 1
        if kind == "only":
            passes.append(_Only(given))
        elif kind != "where":
            passes.append(_Projected(Projection(dict(given), keep=kind == "with")))
        else:
            conditions, wanted, end = [given], [], place
            while end < len(steps) and steps[end][0] in ("only", "where"):
                kind, given = steps[end]
                end += 1
                if kind == "where":
                    conditions.append(given)
                else:
                    wanted.append(_Only(given))
            selection = Selection(conditions[0]) if len(conditions) == 1 else Selections(conditions)
            if end == len(steps):
                passes.append(_Filter(selection, wanted))
                break
            kind, given = steps[end]
            place = end + 1
            passes.append(_FilteredProjection(selection, wanted, Projection(dict(given), keep=kind == "with")))
    return passes


class _Pass:
    """One pass over a batch: it chooses rows, or takes all, and makes columns of them."""

    outputs: Mapping[str, Expression] = {}
    """What it computes, by name."""

    keep = True
    """The columns of the batch are in the result, too."""

    @property
    def condition(self) -> NumberProgram | None:
        """What chooses the rows that stay, if it can be for columns of plain numbers."""
        return None

    def chooser(self, batch: Batch) -> RowChooser | None:
        """Return what chooses the rows that stay; None: all do."""
        return None

    def chosen(self, batch: Batch, chooser: RowChooser | None) -> Batch:
        """Return what it makes of the rows that stay."""
        raise NotImplementedError

    def apply(self, batch: Batch) -> Batch:
        """Return what it makes of a batch."""
        return self.chosen(batch, self.chooser(batch))


class _Projected(_Pass):
    """A projection of all rows."""

    def __init__(self, projection: Projection) -> None:
        self._projection = projection
        self.outputs, self.keep = projection.outputs, projection.keep

    def chosen(self, batch: Batch, chooser: RowChooser | None) -> Batch:
        """Return what the projection makes of it."""
        return self._projection.apply(batch)


class _Filter(_Pass):
    """Filters, and which columns are wanted of the rows that they keep.

    Args:
        wanted: each takes some columns; what none of them takes is not gathered.
    """

    def __init__(self, selection: Selection | Selections, wanted: Sequence[_Only]) -> None:
        self._selection = selection
        self._wanted = wanted

    @property
    def condition(self) -> NumberProgram | None:
        """What chooses the rows that are kept."""
        return self._selection.in_register

    def chooser(self, batch: Batch) -> RowChooser | None:
        """Return what chooses the rows that are kept."""
        found = self._selection.chooser(batch)
        return None if found.rows == batch.num_rows else found

    def chosen(self, batch: Batch, chooser: RowChooser | None) -> Batch:
        """Return the rows that are kept."""
        kept = self._only_wanted(batch)
        return kept if chooser is None else chooser.batch(batch, kept.names)

    def _only_wanted(self, batch: Batch) -> Batch:
        for only in self._wanted:
            batch = only.apply(batch)
        return batch


class _FilteredProjection(_Filter):
    """A filter and the projection after it: no column is gathered that is only computed with.

    Args:
        wanted: what is between them.
    """

    def __init__(self, selection: Selection | Selections, wanted: Sequence[_Only], projection: Projection) -> None:
        super().__init__(selection, wanted)
        self._projection = projection
        self.outputs, self.keep = projection.outputs, projection.keep

    def chosen(self, batch: Batch, chooser: RowChooser | None) -> Batch:
        """Return what the projection makes of the rows that the filter keeps."""
        batch = self._only_wanted(batch)
        return self._projection.apply(batch) if chooser is None else self._projection.apply_to_rows(batch, chooser)


class _Only(_Pass):
    """A batch with those of its columns that are wanted."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = frozenset(names)

    def chosen(self, batch: Batch, chooser: RowChooser | None) -> Batch:
        """Return it."""
        columns, masks = batch.parts()
        if self._names.issuperset(columns):
            return batch
        kept = {name: column for name, column in columns.items() if name in self._names}
        return Batch.trusted(kept, {name: mask for name, mask in masks.items() if name in kept}, batch.num_rows)
