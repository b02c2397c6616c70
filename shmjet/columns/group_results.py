"""Results of aggregates that need rows of a group: quantiles, numbers of distinct values, extremes, functions of users.

Groups come one after the other, each with so many rows. Rows of all groups are sorted at once; only a user's function
is called group by group. Must not know where the rows have been.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from shmjet._native import _columns
from shmjet.columns.aggregates import Aggregate
from shmjet.columns.group_page import Places
from shmjet.columns.group_rows import RowStore, Sizes
from shmjet.columns.promotion import FLOAT64
from shmjet.columns.schemas import nulls
from shmjet.columns.take import take_rows
from shmjet.data.batch import Batch, any_column
from shmjet.data.column import Values, as_column
from shmjet.data.column_descriptors import descriptor
from shmjet.data.column_types import ColumnType, ListType
from shmjet.data.errors import BatchError
from shmjet.data.text import Mask, Text
from shmjet.data.typed_column import TypedColumn

if TYPE_CHECKING:
    from shmjet._native._arrow import NestedPart

Column = tuple[Values, Mask | None]


class RowResults:
    """Computes the results of aggregates of some groups; aggregates of one store share what is sorted.

    Args:
        places: of the groups.
        count: of the groups.
    """

    def __init__(self, places: Places, count: int) -> None:
        self._places = places
        self._count = count
        self._sorted: dict[int, tuple[npt.NDArray[Any], Sizes]] = {}

    def of(self, result: str, aggregate: Aggregate, store: RowStore) -> Column:
        """Return the column of an aggregate's results.

        Raises:
            BatchError: the column is not one of numbers, or what a function returned can be in no column.
        """
        if aggregate.function == "n_unique":
            return store.sizes_of(self._places, self._count), None
        if aggregate.function == "quantile":
            return self._quantiles(result, aggregate, store)
        if aggregate.function == "list":
            return self._lists(result, str(aggregate.column), store)
        if aggregate.by is not None or aggregate.order is not None:
            return self._extremes(str(aggregate.column), store)
        assert aggregate.fn is not None
        return self._custom(result, aggregate.fn, store)

    def _quantiles(self, result: str, aggregate: Aggregate, store: RowStore) -> Column:
        if id(store) not in self._sorted:
            rows, sizes = store.rows_of(self._places, self._count)
            values, _ = any_column(rows, str(aggregate.column))
            self._sorted[id(store)] = _sorted(values, sizes), sizes
        values, sizes = self._sorted[id(store)]
        return quantiles(values, sizes, aggregate.q)

    def _lists(self, result: str, name: str, store: RowStore) -> Column:
        rows, sizes = store.rows_of(self._places, self._count)
        values, mask = any_column(rows, name)
        if isinstance(values, np.ndarray) and values.dtype.kind in "US":
            values = Text.of(values.tolist())
        kind = values.dtype
        bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        if isinstance(kind, ColumnType) and kind.is_nested:
            items, ends = rows.values(name), bounds.tolist()
            return as_column(result, [items[at:end] for at, end in itertools.pairwise(ends)])
        from shmjet.data.arrow.nested import encoded_parts, leaf_part

        lists: NestedPart = ("l", 0, (leaf_part(values, mask),), None, bounds, None)
        return TypedColumn.trusted(ListType(kind), encoded_parts(lists, len(sizes))), None

    def _extremes(self, name: str, store: RowStore) -> Column:
        rows, sizes = store.rows_of(self._places, self._count)
        has_row = sizes > 0
        if has_row.all():
            return any_column(rows, name)
        if not rows.num_rows:
            return nulls(rows.schema[name], len(sizes)), has_row
        values, mask = any_column(take_rows(rows, np.maximum(np.cumsum(sizes) - 1, 0)), name)
        return values, has_row if mask is None else has_row & mask

    def _custom(self, result: str, fn: Callable[[Batch], Any], store: RowStore) -> Column:
        rows, sizes = store.rows_of(self._places, self._count)
        found, at = [], 0
        for size in sizes.tolist():
            found.append(fn(rows[at : at + size]))
            at += size
        try:
            return as_column(result, found)
        except BatchError as error:
            raise BatchError(f"custom(...) of the result {result!r} must return one value a group: {error}") from None


def check_numbers(result: str, aggregate: Aggregate, kind: Any) -> None:
    """Check that quantiles of a column can be computed. Raises BatchError."""
    if isinstance(kind, np.dtype) and (kind.kind in "biu" or (kind.kind == "f" and kind.itemsize <= 8)):
        return
    raise BatchError(
        f"column {aggregate.column!r} of dtype {kind} has no {aggregate.function} (result {result!r}): "
        "expected a column of bool, integers or floats of up to 64 bits"
    )


def _sorted(values: Values, sizes: Sizes) -> npt.NDArray[Any]:
    """Return the values of each group in order, NaN last."""
    if not isinstance(values, np.ndarray) or not len(values) or values.dtype.kind not in "biuf":
        return np.zeros(0, FLOAT64)  # of nulls alone
    if len(sizes) == 1:
        return np.sort(values)
    groups = np.repeat(np.arange(len(sizes), dtype=np.uint32), sizes)
    order = np.empty(len(values), np.int64)
    _columns.argsort([descriptor(groups, None), descriptor(values, None)], [False, False], False, order, -1)
    return values[order]


def quantiles(values: npt.NDArray[Any], sizes: Sizes, q: float) -> Column:
    """Return a quantile of each group, between two values by linear interpolation; null for a group without values.

    Args:
        values: sorted within each group, the groups one after the other.
        sizes: of the groups.
        q: from 0 to 1.

    Example:
        >>> quantiles(np.array([1, 2, 3, 10, 20]), np.array([3, 2]), 0.5)[0].tolist()
        [2.0, 15.0]
    """
    valid = sizes > 0
    if not len(values):
        return np.zeros(len(sizes)), None if valid.all() else valid
    starts = np.cumsum(sizes) - sizes
    place = q * np.maximum(sizes - 1, 0)
    low = np.floor(place).astype(np.int64)
    part = place - low
    first = np.minimum(starts + low, len(values) - 1)
    second = np.minimum(first + (part > 0), len(values) - 1)
    one, two = values[first].astype(FLOAT64), values[second].astype(FLOAT64)
    with np.errstate(all="ignore"):
        away = two - one
        between = np.where(np.isfinite(away), one + away * part, one * (1 - part) + two * part)
    found = np.where((part == 0) | (one == two), one, between)
    return np.where(valid, found, 0.0), None if valid.all() else valid
