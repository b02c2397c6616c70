"""Steps of projections and filters, compiled to one function of a batch.

Must not know processors.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final

import numpy as np

from shmjet.columns.expressions import Projection, Selection
from shmjet.columns.expressions.selections import Selections
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
    functions = _functions(list(steps))

    def apply(batch: Batch) -> Batch:
        made = batch
        for function in functions:
            made = function(made)
        return made if made.num_rows else _marked(made, batch)

    return apply


def _marked(made: Batch, batch: Batch) -> Batch:
    """Return a result without rows with a mask for each column that has had values, or that is computed of such."""
    known = known_columns(batch)
    are_all = known.issuperset(batch.names)
    there = [name for name in made.names if name in known or name not in batch.names or are_all]
    return Batch.trusted(dict(made.parts()[0]), dict.fromkeys(there, _NOTHING), 0)


def _functions(steps: Sequence[tuple[str, Any]]) -> list[Callable[[Batch], Batch]]:
    functions: list[Callable[[Batch], Batch]] = []
    place = 0
    while place < len(steps):
        kind, given = steps[place]
        place += 1
        if kind == "only":
            functions.append(_Only(given).apply)
        elif kind != "where":
            functions.append(Projection(dict(given), keep=kind == "with").apply)
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
                functions.append(_Filter(selection, wanted).apply)
                break
            kind, given = steps[end]
            place = end + 1
            functions.append(_FilteredProjection(selection, wanted, Projection(dict(given), keep=kind == "with")).apply)
    return functions


class _Filter:
    """Filters, and which columns are wanted of the rows that they keep.

    Args:
        wanted: each takes some columns; what none of them takes is not gathered.
    """

    def __init__(self, selection: Selection | Selections, wanted: Sequence[_Only]) -> None:
        self._selection = selection
        self._wanted = wanted

    def apply(self, batch: Batch) -> Batch:
        """Return the rows that are kept."""
        chooser = self._selection.chooser(batch)
        kept = batch
        for only in self._wanted:
            kept = only.apply(kept)
        return kept if chooser.rows == batch.num_rows else chooser.batch(batch, kept.names)


class _FilteredProjection:
    """A filter and the projection after it: no column is gathered that is only computed with.

    Args:
        wanted: what is between them.
    """

    def __init__(self, selection: Selection | Selections, wanted: Sequence[_Only], projection: Projection) -> None:
        self._selection = selection
        self._wanted = wanted
        self._projection = projection

    def apply(self, batch: Batch) -> Batch:
        """Return what the projection makes of the rows that the filter keeps."""
        chooser = self._selection.chooser(batch)
        for only in self._wanted:
            batch = only.apply(batch)
        if chooser.rows == batch.num_rows:
            return self._projection.apply(batch)
        return self._projection.apply_to_rows(batch, chooser)


class _Only:
    """A batch with those of its columns that are wanted."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = frozenset(names)

    def apply(self, batch: Batch) -> Batch:
        """Return it."""
        columns, masks = batch.parts()
        if self._names.issuperset(columns):
            return batch
        kept = {name: column for name, column in columns.items() if name in self._names}
        return Batch.trusted(kept, {name: mask for name, mask in masks.items() if name in kept}, batch.num_rows)
