"""Of the rows of each group the one with the least or greatest value of a column: `min_by`, `max_by`, `first` by time.

Rows are kept as they come and left out from time to time: at most two for each group are kept, and a block. Must not
know what is made of the rows.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from shmjet.columns.group_page import Places, Positions
from shmjet.columns.group_rows import KeptRows, Sizes, StatePart
from shmjet.columns.sort import SortOrder
from shmjet.columns.take import take_rows
from shmjet.data.batch import Batch, any_column

_BLOCK: Final = 1 << 14
"""Rows that are kept at least before some are left out."""

_GROUP: Final = "\0group"
_IS_NAN: Final = "\0nan"


class ExtremeRows(KeptRows):
    """One row of each group: the first of the rows that are extreme in a column.

    Args:
        name: the column that is wanted.
        by: the column that is compared; NaN and NaT are greater than all others.
        takes_greatest: whether the greatest is meant, and not the least.
        known: rows in which this column is null are left out.
        order: a column without nulls; of equal rows the one in which it is least is meant. None: the first to come.
        takes_last: of rows that are equal in all this the last to come is meant.
    """

    def __init__(
        self,
        name: str,
        by: str,
        *,
        takes_greatest: bool,
        known: str,
        order: str | None = None,
        takes_last: bool = False,
    ) -> None:
        super().__init__(tuple(dict.fromkeys(each for each in (name, by, order) if each is not None)))
        self._by = by
        self._takes_greatest = takes_greatest
        self._known = known
        self._order_by = order
        self._takes_last = takes_last
        self._rows = 0
        self._limit = _BLOCK

    def add(self, numbers: Positions, batch: Batch) -> None:
        """As `RowStore.add`."""
        _, mask = any_column(batch, self._known)
        if mask is not None and batch.num_rows and not mask.all():
            self._kinds.add(batch.select(*self._names or ()))
            rows = np.flatnonzero(mask)
            numbers, batch = numbers[rows], take_rows(batch, rows)
        super().add(numbers, batch)
        self._rows += batch.num_rows
        if self._rows > self._limit:
            self._reduce()
            self._limit = 2 * self._rows + _BLOCK

    def rows_of(self, places: Places, count: int) -> tuple[Batch, Sizes]:
        """As `RowStore.rows_of`; there is one row at most."""
        self._reduce()
        return super().rows_of(places, count)

    def sizes_of(self, places: Places, count: int) -> Sizes:
        """As `RowStore.sizes_of`: 0 or 1."""
        self._reduce()
        return super().sizes_of(places, count)

    def state_parts(self, places: Places, count: int) -> list[StatePart]:
        """As `RowStore.state_parts`."""
        self._reduce()
        return super().state_parts(places, count)

    def _reduce(self) -> None:
        """Leave out all rows but one of each group."""
        if not self._chunks or self._starts is not None:  # sorted rows have been reduced
            return
        numbers = np.concatenate([numbers for numbers, _ in self._chunks])
        batch = Batch.concat([self._kinds.of(each) for _, each in self._chunks])
        if self._takes_last:
            backwards = np.arange(len(numbers) - 1, -1, -1)
            numbers, batch = numbers[backwards], take_rows(batch, backwards)
        order = self._order(numbers, batch)
        sorted_numbers = numbers[order]
        is_first = np.ones(len(order), np.bool_)
        is_first[1:] = sorted_numbers[1:] != sorted_numbers[:-1]
        rows = order[is_first]
        numbers, batch = numbers[rows], take_rows(batch, rows)
        self._chunks, self._rows = [(numbers, batch)], len(rows)
        self._bytes = batch.nbytes + numbers.nbytes

    def _order(self, numbers: Positions, batch: Batch) -> Any:
        """Return the numbers of the rows by group, the row to be kept before the others of its group."""
        values, mask = any_column(batch, self._by)
        columns: dict[str, Any] = {_GROUP: numbers}
        may_be_nan = isinstance(values, np.ndarray) and values.dtype.kind in "fmM"
        if may_be_nan and self._takes_greatest:  # a sort puts NaN last, also where it descends
            columns[_IS_NAN] = np.isnan(values)
        columns[self._by] = values
        flags = [False, *[self._takes_greatest] * (len(columns) - 1)]
        if self._order_by is not None and self._order_by != self._by:
            columns[self._order_by] = any_column(batch, self._order_by)[0]
            flags.append(False)
        keys = Batch.trusted(columns, {} if mask is None else {self._by: mask}, batch.num_rows)
        return SortOrder(tuple(columns), flags).row_order(keys)
