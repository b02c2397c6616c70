"""How columns of types become columns that a `Groups` table knows, and its states and results get types again.

A decimal is summed as the two words of 128 bits, so that no sum overflows; its least and greatest are found among
integers, or among bytes that ascend as the numbers do. Must not know when groups move from one plan to another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from shmjet.columns.aggregates import Aggregate
from shmjet.columns.schemas import nulls
from shmjet.data.batch import Batch
from shmjet.data.column import Values
from shmjet.data.column_types import MOST_DIGITS, WIDE, ColumnType, DecimalType
from shmjet.data.decimals import stored_units, units_of
from shmjet.data.errors import BatchError
from shmjet.data.text import Mask
from shmjet.data.typed_column import Physical, TypedColumn
from shmjet.data.typed_keys import check_order, key_values

LOW: Final = "\0low"
HIGH: Final = "\0high"
FLOAT: Final = "\0float"
COUNT: Final = "\0n"
"""What stands after the names of hidden columns and results."""

_HALF: Final = 1 << 60
"""Totals with a high word below twice this have less than 38 digits, and two such words do not overflow."""

_EXACT: Final = 1 << 53

_SIGN: Final = np.uint64(1 << 63)
_WORD: Final = 1 << 64
_FLOATS: Final = ("var", "std", "quantile")
VALUES: Final = ("min", "max", "first", "last")
"""Functions whose results are values of their column."""
TOTALS: Final = ("sum", "mean")
_AS_IT_IS: Final = ("n_unique", "list", "min_by", "max_by", "custom")

Column = tuple[Values, Mask | None]


class TypedPlan:
    """What a table computes for aggregates of columns of some types.

    Args:
        keys: names of the key columns.
        aggregates: result → aggregate.
        types: of the columns that have one.

    Raises:
        BatchError: there is no such aggregate of a type.
    """

    def __init__(
        self, keys: Sequence[str], aggregates: Mapping[str, Aggregate], types: Mapping[str, ColumnType]
    ) -> None:
        self._keys = tuple(keys)
        self._all = dict(aggregates)
        self._types = dict(types)
        self._hidden: set[tuple[str, str]] = set()
        self.aggregates: dict[str, Aggregate] = {}
        """Name in the table → aggregate of the table."""
        for result, aggregate in aggregates.items():
            self._add(result, replace(aggregate, expression=None, by_expression=None))

    def type_of(self, aggregate: Aggregate) -> ColumnType | None:
        """Return the type of an aggregate's column; None where the table takes the column as it is."""
        if aggregate.column is None or aggregate.order is not None or aggregate.function in _AS_IT_IS:
            return None
        return self._types.get(aggregate.column)

    def _add(self, result: str, aggregate: Aggregate) -> None:
        kind, function, column = self.type_of(aggregate), aggregate.function, str(aggregate.column)
        if kind is None:
            self.aggregates[result] = aggregate
        elif function in ("sum", "mean") and isinstance(kind, DecimalType):
            for part in (LOW, HIGH):
                self._hidden.add((column, part))
                self.aggregates[result + part] = Aggregate("sum", column + part, is_wide=True)
            if function == "mean":
                self.aggregates[result + COUNT] = Aggregate("count", column + LOW)
        elif function in _FLOATS and isinstance(kind, DecimalType):
            self._hidden.add((column, FLOAT))
            self.aggregates[result] = replace(aggregate, column=column + FLOAT)
        elif function in (*VALUES, "count"):
            if function in ("min", "max"):
                check_order(column, kind)
            self._hidden.add((column, COUNT))
            self.aggregates[result] = replace(aggregate, column=column + COUNT)
        else:
            raise BatchError(f"column {column!r} of {kind} has no {function} (result {result!r}): expected numbers")

    # -- in ------------------------------------------------------------------------------------------------------------

    def lowered(self, batch: Batch) -> Batch:
        """Return a batch of the types with its keys, and what the table needs, as columns that it knows."""
        columns, masks = batch.parts()
        made, valid = dict(columns), dict(masks)
        for name, part in self._hidden:
            values = columns[name]
            if not isinstance(values, TypedColumn):  # of nulls alone
                values = TypedColumn.trusted(self._types[name], nulls(self._types[name].stored, len(values)))  # type: ignore[arg-type]
            made[name + part] = _hidden(values, part)
            if name in masks:
                valid[name + part] = masks[name]
        return self.lowered_keys(Batch.trusted(made, valid, batch.num_rows))

    def lowered_keys(self, batch: Batch) -> Batch:
        """Return a batch with its keys as columns that the table knows."""
        columns, masks = batch.parts()
        made = dict(columns)
        for name in self._keys:
            values = columns[name]
            if isinstance(values, TypedColumn):
                made[name] = comparable(values)
        return Batch.trusted(made, dict(masks), batch.num_rows)

    # -- out -----------------------------------------------------------------------------------------------------------

    def raised_keys(self, batch: Batch) -> Batch:
        """Return a batch of the table with the types of its keys."""
        columns, masks = batch.parts()
        made = dict(columns)
        for name in self._keys:
            if name in self._types and not isinstance(made[name], TypedColumn):
                made[name] = from_comparable(made[name], self._types[name])
        return Batch.trusted(made, dict(masks), batch.num_rows)

    def results(self, batch: Batch) -> Batch:
        """Return the results of a table with their types, in order."""
        batch = self.raised_keys(batch)
        columns, masks = batch.parts()
        made: dict[str, Values] = {name: columns[name] for name in self._keys}
        valid: dict[str, Mask] = {name: masks[name] for name in self._keys if name in masks}
        for result, aggregate in self._all.items():
            values, mask = self._result(result, aggregate, columns, masks)
            made[result] = values
            if mask is not None:
                valid[result] = mask
        return Batch.trusted(made, valid, batch.num_rows)

    def _result(
        self, result: str, aggregate: Aggregate, columns: Mapping[str, Values], masks: Mapping[str, Mask]
    ) -> Column:
        kind, function = self.type_of(aggregate), aggregate.function
        if kind is None or function == "count" or function in _FLOATS:
            return columns[result], masks.get(result)
        if function in VALUES:
            return from_comparable(columns[result], kind), masks.get(result)
        assert isinstance(kind, DecimalType)
        mask = masks.get(result + LOW)
        whole, unit = DecimalType(MOST_DIGITS, kind.scale), 10**kind.scale
        words = _words_of_totals(columns[result + LOW], columns[result + HIGH])
        if words is not None and function == "sum":
            return TypedColumn.trusted(whole, words.reshape(-1).view(WIDE)), mask
        counts: Any = None
        if function != "sum":  # a total has been known since the first value, and these may all have been deducted
            counts = columns[result + COUNT]
            known = counts > 0
            mask = None if known.all() else known
        if words is not None and function != "sum" and _are_exact(words, counts, unit):
            divisors = (np.maximum(counts, 1) * unit).astype(np.float64)
            return words[:, 0].view(np.int64).astype(np.float64) / divisors, mask
        totals = _totals(columns[result + LOW], columns[result + HIGH])
        if function == "sum":
            if any(abs(total) >= 10**MOST_DIGITS for total in totals):
                raise BatchError(
                    f"the sum of column {aggregate.column!r} (result {result!r}) has more than {MOST_DIGITS} digits"
                )
            return TypedColumn.trusted(whole, stored_units(totals, whole)), mask
        means = [total / (max(count, 1) * unit) for total, count in zip(totals, counts.tolist(), strict=True)]
        return np.array(means, np.float64), mask


def comparable(column: TypedColumn) -> Physical:
    """Return values that a table compares as the column's are: long decimals as bytes that ascend as they do."""
    stored = key_values(column)
    if not isinstance(stored, np.ndarray) or stored.dtype != WIDE:
        return stored
    words = stored.view(np.uint64).reshape(-1, 2)
    ordered = np.empty((len(stored), 2), ">u8")
    ordered[:, 0] = words[:, 1] ^ _SIGN
    ordered[:, 1] = words[:, 0]
    found: npt.NDArray[Any] = ordered.reshape(-1).view("S16")
    return found


def from_comparable(values: Values, kind: ColumnType) -> TypedColumn:
    """Return a column of a type over what `comparable` gave."""
    assert not isinstance(values, TypedColumn)
    if kind.stored != WIDE or not isinstance(values, np.ndarray):
        return TypedColumn.trusted(kind, values)
    if values.dtype == np.dtype("S16"):
        words = np.ascontiguousarray(values).view(">u8").reshape(-1, 2)
        stored = np.empty((len(values), 2), np.uint64)
        stored[:, 0] = words[:, 1]
        stored[:, 1] = words[:, 0].astype(np.uint64) ^ _SIGN
        return TypedColumn.trusted(kind, stored.reshape(-1).view(WIDE))
    return TypedColumn.trusted(kind, values)


def _hidden(column: TypedColumn, part: str) -> Physical:
    if part == COUNT:
        return comparable(column)
    stored, kind = column.stored, column.dtype
    assert isinstance(stored, np.ndarray)
    assert isinstance(kind, DecimalType)
    if part == FLOAT:
        if stored.dtype != WIDE:
            return stored / np.float64(10**kind.scale)
        unit = 10**kind.scale
        return np.array([value / unit for value in units_of(stored)], np.float64)
    if stored.dtype != WIDE:
        return stored.view(np.uint64) if part == LOW else stored >> 63
    words = stored.view(np.uint64).reshape(-1, 2)
    return np.ascontiguousarray(words[:, 0] if part == LOW else words[:, 1].view(np.int64))


def _totals(low: Values, high: Values) -> list[int]:
    """Return sums of low and of high words, as wide sums give them, as integers."""
    assert isinstance(low, np.ndarray)
    assert isinstance(high, np.ndarray)
    return [one + two * _WORD for one, two in zip(units_of(low), units_of(high), strict=True)]


def _words_of_totals(low: Values, high: Values) -> npt.NDArray[np.uint64] | None:
    """Return the sums as pairs of a low and a high word, computed for all groups at once; None if one may not fit."""
    assert isinstance(low, np.ndarray)
    assert isinstance(high, np.ndarray)
    if low.dtype != WIDE or high.dtype != WIDE:
        return None
    ones, twos = (np.ascontiguousarray(each).view(np.int64).reshape(-1, 2) for each in (low, high))
    if (twos[:, 1] != twos[:, 0] >> 63).any() or (np.abs(ones[:, 1] >> 1) >= _HALF).any():
        return None
    if (np.abs(twos[:, 0] >> 1) >= _HALF).any():
        return None
    words = ones.copy()
    words[:, 1] += twos[:, 0]
    return None if (np.abs(words[:, 1] >> 1) >= _HALF).any() else words.view(np.uint64)


def _are_exact(words: npt.NDArray[np.uint64], counts: Any, unit: int) -> bool:
    """Tell whether all totals and divisors are floats without rounding, so that one division gives the nearest mean."""
    totals = words.view(np.int64)
    if (totals[:, 1] != totals[:, 0] >> 63).any() or (np.abs(totals[:, 0] >> 1) >= _EXACT >> 1).any():
        return False
    return unit * max(int(counts.max(initial=0)), 1) <= _EXACT
