"""`Selections`: filters that follow each other, as one pass over a batch where that gives the same.

A filter must not raise for a row that an earlier one leaves out. So conditions are only computed together where they
are programs of plain numbers, which tell a result that leaves its type before anything is raised. Otherwise each
condition gets the columns that it reads of the rows that are left.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import numpy as np

from shmjet.columns.expressions.number_program import NumberProgram
from shmjet.columns.expressions.program import Program
from shmjet.columns.expressions.projection import Selection, plain_columns
from shmjet.columns.expressions.row_chooser import RowChooser
from shmjet.core.expressions import Expression
from shmjet.data.batch import Batch
from shmjet.data.text import Mask

_TOGETHER: Final = 8
"""Conditions of one pass, at most: a program has few registers, and later conditions may have few rows."""


class Selections:
    """The rows of a batch in which several expressions are true; null leaves out.

    Args:
        conditions: of bools, one at least; of a later one only rows count that all earlier ones leave.

    Raises:
        BatchError: an option of a function cannot be.

    Example:
        >>> from shmjet import Batch, column
        >>> Selections([column("n") > 1, column("n") < 3]).chooser(Batch({"n": [1, 2, 3, None]})).mask.tolist()
        [False, True, False, False]
    """

    def __init__(self, conditions: Sequence[Expression]) -> None:
        self._parts = [_Together(conditions[at : at + _TOGETHER]) for at in range(0, len(conditions), _TOGETHER)]

    @property
    def in_register(self) -> NumberProgram | None:
        """All conditions for columns of plain numbers, as what chooses the rows of a block; None: there are many."""
        return self._parts[0].in_register if len(self._parts) == 1 else None

    def chooser(self, batch: Batch) -> RowChooser:
        """Return what chooses the rows in which all conditions are true.

        Raises:
            BatchError: as `Selection.mask`.
        """
        chosen: RowChooser | None = None
        for part in self._parts:
            chosen = part.chooser(batch, chosen)
        assert chosen is not None
        return chosen


class _Together:
    """Conditions that are computed in one pass if they can be."""

    def __init__(self, conditions: Sequence[Expression]) -> None:
        self._each = [Selection(condition) for condition in conditions]
        self._names = _names(self._each)
        self._all = Program([functools.reduce(operator.and_, conditions)])

    @functools.cached_property
    def in_register(self) -> NumberProgram:
        """All of them, as `Selections.in_register`."""
        return self._all.in_registers()

    def chooser(self, batch: Batch, chosen: RowChooser | None) -> RowChooser:
        """Return what chooses of the rows that are left those in which the conditions are true."""
        if len(self._each) > 1:
            found = _narrowed(batch, chosen, self._names, self._in_one_pass)
            if found is not None:
                return found
        for selection in self._each:
            chosen = _narrowed(batch, chosen, selection.names, selection.mask)
        assert chosen is not None
        return chosen

    def _in_one_pass(self, batch: Batch) -> Mask | None:
        found = plain_columns(self._all, batch)
        if found is None:
            return None
        ((values, valid),) = found
        assert isinstance(values, np.ndarray)
        return values if valid is None else values & valid


def _names(selections: Iterable[Selection]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for each in selections for name in each.names))


def _narrowed(
    batch: Batch, chosen: RowChooser | None, names: Sequence[str], find: Callable[[Batch], Mask | None]
) -> RowChooser | None:
    """Return what chooses the rows of a mask among the chosen rows; None if there is no mask."""
    if chosen is None or chosen.rows == batch.num_rows:
        found = find(batch)
        return None if found is None else RowChooser(found, int(np.count_nonzero(found)))
    found = find(chosen.batch(batch, names))
    if found is None:
        return None
    mask = chosen.mask.copy()
    mask[mask] = found
    return RowChooser(mask, int(np.count_nonzero(found)))
