"""The sort of the rows of batches by columns, and the merge of sorted batches in slices.

The work is done by the kernels of `shmjet/_native/columns/sort.h` and `columns/merge.h`; here names become columns.
Must not know processors, nor how much may be done at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from shmjet._native import _columns
from shmjet.columns.take import Rows, take_rows
from shmjet.data.batch import Batch, any_column
from shmjet.data.column_descriptors import descriptor
from shmjet.data.errors import BatchError
from shmjet.data.text import Mask, Text
from shmjet.data.typed_column import Physical, TypedColumn
from shmjet.data.typed_keys import order_values

if TYPE_CHECKING:
    from shmjet._native._columns import Column

LEAST_STEP: Final = 64
"""Rows that a slice takes of each run at least; fewer would cost more to collect than to sort."""


class SortOrder:
    """By which columns rows are sorted, and how. Immutable, and can be pickled.

    Args:
        by: the name of a column, or several, the most important first.
        descending: one bool for all columns, or one for each.
        nulls_first: put nulls before all values and not behind them; in descending columns too. NaN and NaT always
            stand behind all other values, and before nulls that stand last.

    Raises:
        BatchError: there is no column, one is named twice, or `descending` has another length.

    Example:
        >>> SortOrder(["city", "age"], descending=[False, True])
        SortOrder(by=('city', 'age'), descending=(False, True), nulls_first=False)
    """

    __slots__ = ("by", "descending", "nulls_first")

    def __init__(
        self, by: str | Sequence[str], descending: bool | Sequence[bool] = False, nulls_first: bool = False
    ) -> None:
        self.by = (by,) if isinstance(by, str) else tuple(by)
        if not self.by or not all(isinstance(name, str) for name in self.by):
            raise BatchError(f"by= must name one or several columns, got {by!r}")
        if len(set(self.by)) < len(self.by):
            raise BatchError(f"by= names a column twice: {list(self.by)}")
        flags = (descending,) * len(self.by) if isinstance(descending, bool) else tuple(descending)
        if len(flags) != len(self.by):
            raise BatchError(f"descending= has {len(flags)} flags for the columns {list(self.by)}; give one for each")
        self.descending = tuple(bool(flag) for flag in flags)
        self.nulls_first = bool(nulls_first)

    def __repr__(self) -> str:
        return f"SortOrder(by={self.by}, descending={self.descending}, nulls_first={self.nulls_first})"

    def columns(self, batch: Batch) -> tuple[list[Column], list[bool]]:
        """Return the columns of a batch to sort by and which of them descend; a structured one counts as its fields.

        Raises:
            BatchError: there is no such column.
        """
        found: list[Column] = []
        flags: list[bool] = []
        for name, down in zip(self.by, self.descending, strict=True):
            for column in _sorted_by(batch, name):
                found.append(column)
                flags.append(down)
        return found, flags

    def row_order(self, batch: Batch, limit: int | None = None) -> Rows:
        """Return the numbers of the rows in sorted order, equal rows in the order they have.

        Args:
            batch: any.
            limit: so many are wanted, which costs less; all by default.

        Raises:
            BatchError: there is no such column, or it is of a dtype that has no order.
        """
        columns, flags = self.columns(batch)
        out = np.empty(batch.num_rows, np.int64)
        try:
            _columns.argsort(columns, flags, self.nulls_first, out, -1 if limit is None else limit)
        except ValueError as error:
            kinds = {name: str(batch.schema[name]) for name in self.by}
            raise BatchError(f"rows cannot be sorted by {kinds}: {error}") from None
        return out if limit is None else out[:limit]

    def sort(self, batch: Batch, limit: int | None = None) -> Batch:
        """Return a batch with its rows sorted, only the first `limit` of them if given."""
        return take_rows(batch, self.row_order(batch, limit))


def _sorted_by(batch: Batch, name: str) -> Iterator[Column]:
    values, valid = any_column(batch, name)
    if isinstance(values, TypedColumn):
        for part in order_values(name, values):
            yield descriptor(part, valid)
    else:
        yield from _fields(values, valid)


def _fields(values: Physical, valid: Mask | None) -> Iterator[Column]:
    if isinstance(values, Text) or values.dtype.names is None:
        yield descriptor(values, valid)
        return
    for name in values.dtype.names:
        field: Any = values[name]
        if field.ndim > 1:
            flat = field.reshape(len(field), int(np.prod(field.shape[1:])))
            for place in range(flat.shape[1]):
                yield from _fields(np.ascontiguousarray(flat[:, place]), valid)
        else:
            yield from _fields(np.ascontiguousarray(field), valid)


def sort_batch(
    batch: Batch,
    by: str | Sequence[str],
    *,
    descending: bool | Sequence[bool] = False,
    nulls_first: bool = False,
    limit: int | None = None,
) -> Batch:
    """Return a batch with its rows sorted by columns; rows that are equal there keep their order.

    Text is compared by code points, bytes by their values, numbers as numbers, complex ones as numpy does; NaN and NaT
    stand behind all other values, nulls behind everything.

    Args:
        batch: any.
        by: the name of a column, or several, the most important first.
        descending: one bool for all columns, or one for each.
        nulls_first: put nulls first; it holds for descending columns too.
        limit: return only so many rows, the first; faster than sorting all.

    Raises:
        BatchError: a column does not exist, is named twice or cannot be sorted by; or `limit` is below 0.

    Example:
        >>> batch = Batch({"city": ["Rome", "Oslo", None], "n": [3, 1, 2]})
        >>> sort_batch(batch, "city")["n"].tolist(), sort_batch(batch, "n", descending=True, limit=1).to_dict()
        ([1, 3, 2], {'city': ['Rome'], 'n': [3]})
    """
    if limit is not None and limit < 0:
        raise BatchError(f"limit= must be at least 0, got {limit}")
    return SortOrder(by, descending, nulls_first).sort(batch, limit)


def merge_sorted(runs: Sequence[Batch], order: SortOrder, rows: int = 1 << 16) -> Iterator[Batch]:
    """Merge batches that are sorted by `order`, each of them; yields batches of about `rows` rows, in order.

    Rows that are equal come in the order of the runs. A slice of every run is joined and sorted at a time, so that a
    step takes no longer however many rows there are.

    Args:
        runs: sorted batches of the same columns.
        order: what they are sorted by.
        rows: of a batch, at most, but at least `LEAST_STEP` for each run.

    Raises:
        BatchError: the batches differ in their columns.

    Example:
        >>> runs = [Batch({"n": [1, 4]}), Batch({"n": [2, 3]})]
        >>> Batch.concat(merge_sorted(runs, SortOrder("n")))["n"].tolist()
        [1, 2, 3, 4]
    """
    return iter(SortedMerge(runs, order, rows))


class SortedMerge:
    """As `merge_sorted`, and knows what is left.

    Args:
        runs, order, rows: as for `merge_sorted`.

    Raises:
        BatchError: the batches differ in their columns.
    """

    def __init__(self, runs: Sequence[Batch], order: SortOrder, rows: int) -> None:
        if any(run.schema != runs[0].schema for run in runs):
            other = next(run.schema for run in runs if run.schema != runs[0].schema)
            raise BatchError(f"batches of different columns cannot be merged: {runs[0].schema} and {other}")
        self._runs = runs
        self._order = order
        self._rows = rows
        self._starts = [0] * len(runs)

    def rest(self) -> Iterator[Batch]:
        """Give what is left of each run, in their order, without those of which nothing is."""
        for run, start in zip(self._runs, self._starts, strict=True):
            if start < run.num_rows:
                yield run[start:]

    def __iter__(self) -> Iterator[Batch]:
        runs, rows = self._runs, self._rows
        if len(runs) == 1:
            for at in range(0, runs[0].num_rows, rows):
                self._starts = [min(at + rows, runs[0].num_rows)]
                yield runs[0][at : at + rows]
            return
        columns = [self._order.columns(run) for run in runs]
        merger = _columns.Merger(
            [found for found, _ in columns], columns[0][1] if columns else [], self._order.nulls_first
        )
        step = max(rows // len(runs), LEAST_STEP) if runs else 1
        ends = np.zeros(len(runs), np.int64)
        while merger.cut(step, ends):
            upto = ends.tolist()
            pieces = [run[a:b] for run, a, b in zip(runs, self._starts, upto, strict=True) if a < b]
            self._starts = upto
            yield self._order.sort(Batch.concat(pieces)) if len(pieces) > 1 else pieces[0]


def merge_slice(heads: Sequence[Batch], order: SortOrder, rows: int) -> tuple[Batch, list[Batch | None]]:
    """Merge what comes first of sorted batches, no further than the batch that ends first.

    Args:
        heads: sorted batches of the same columns, all with rows. What follows one of them is not before its last row.
        order: what they are sorted by.
        rows: about so many are merged, at least `LEAST_STEP` of each batch.

    Returns:
        the first rows of all, sorted, and the rest of each batch, None if it has been used up.

    Example:
        >>> merged, rest = merge_slice([Batch({"n": [1, 4]}), Batch({"n": [2, 9]})], SortOrder("n"), 1 << 16)
        >>> merged["n"].tolist(), [None if left is None else left["n"].tolist() for left in rest]
        ([1, 2, 4], [None, [9]])
    """
    columns = [order.columns(head) for head in heads]
    merger = _columns.Merger([found for found, _ in columns], columns[0][1], order.nulls_first)
    ends = np.zeros(len(heads), np.int64)
    merger.cut(max(rows // len(heads), LEAST_STEP), ends)
    upto = ends.tolist()
    pieces = [head[:end] for head, end in zip(heads, upto, strict=True) if end]
    merged = order.sort(Batch.concat(pieces)) if len(pieces) > 1 else pieces[0]
    return merged, [head[end:] if end < head.num_rows else None for head, end in zip(heads, upto, strict=True)]
