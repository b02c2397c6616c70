"""States of groups of one plan as those of another one: what has been grouped stays when a column gets another type.

A column of integers is one of decimals as soon as a decimal comes, one of decimals is one of floats with the first
float, and one of a category is one of text. So it does not matter in which order they come, nor which processor had
which. Must not know when the plan changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from shmjet.columns.aggregates import Aggregate
from shmjet.columns.group_schema import AS, state_name
from shmjet.columns.promotion import FLOAT64, INT64, UINT64, is_known, near
from shmjet.columns.schemas import Kind, nulls
from shmjet.columns.typed_plan import COUNT, HIGH, LOW, TOTALS, VALUES, TypedPlan, comparable, from_comparable
from shmjet.data.batch import Batch
from shmjet.data.column import Values
from shmjet.data.column_types import ColumnType, DecimalType
from shmjet.data.decimals import stored_units
from shmjet.data.text import Mask, Text
from shmjet.data.typed_column import TypedColumn

_MASK = (1 << 64) - 1


def restated(
    states: Batch,
    old: TypedPlan,
    new: TypedPlan,
    aggregates: Mapping[str, Aggregate],
    kinds: Mapping[str, Kind],
    separator: str,
) -> Batch:
    """Return states of one plan as those of another one, whose kinds of columns hold the values of the first one's.

    Args:
        states: with keys that the table of `new` knows.
        old, new: the plans.
        aggregates: result → aggregate.
        kinds: of the columns in the new plan.
        separator: that is in the names of state columns.

    Raises:
        BatchError: the new kind does not hold a value.
    """
    moved = _States(states, separator)
    for result, aggregate in aggregates.items():
        have, want = old.type_of(aggregate), new.type_of(aggregate)
        if have == want:
            continue
        if aggregate.function in VALUES:
            moved.move_value(result, aggregate, have, want or kinds[str(aggregate.column)])
        elif aggregate.function in TOTALS:
            moved.put_total(
                result, moved.take_total(result, aggregate, have), have, want or kinds[str(aggregate.column)]
            )
        elif aggregate.function == "quantile" and have is None:
            moved.put_floats(result)
    return moved.batch()


class _Total(NamedTuple):
    totals: Sequence[int]
    """Of decimals in units of the last digit."""
    mask: Mask | None
    counts: Values | None


class _States:
    def __init__(self, states: Batch, separator: str) -> None:
        columns, masks = states.parts()
        self._columns, self._masks = dict(columns), dict(masks)
        self._rows = states.num_rows
        self._separator = separator

    def batch(self) -> Batch:
        return Batch.trusted(self._columns, self._masks, self._rows)

    def _has(self, result: str, part: str) -> bool:
        return state_name(result, part, self._separator) in self._columns

    def _take(self, result: str, part: str) -> tuple[Any, Mask | None]:
        name = state_name(result, part, self._separator)
        return self._columns.pop(name), self._masks.pop(name, None)

    def _put(self, result: str, part: str, values: Values, mask: Mask | None = None) -> None:
        name = state_name(result, part, self._separator)
        self._columns[name] = values
        if mask is not None:
            self._masks[name] = mask

    def move_value(self, result: str, aggregate: Aggregate, have: ColumnType | None, kind: Kind) -> None:
        """Make a value, such as the least, one of another kind."""
        column, function = str(aggregate.column), aggregate.function
        is_mixed = have is None and self._has(result, AS)
        found, mask = self._take(result, function)
        values = found if have is None else from_comparable(found, have)
        if is_mixed:
            rest, as_ = self._take(result, "rest")[0], self._take(result, AS)[0]
            if as_.dtype.kind != "f" and isinstance(kind, DecimalType):
                units = [(int(one) + int(two)) * 10**kind.scale for one, two in zip(found, rest, strict=True)]
                values = TypedColumn.trusted(kind, stored_units(units, kind))
        if is_known(values, mask):
            values = near(column, values, mask, kind)
        else:
            values, mask = nulls(kind, self._rows), np.zeros(self._rows, np.bool_) if self._rows else None
        self._put(result, function, comparable(values) if isinstance(values, TypedColumn) else values, mask)

    def put_floats(self, result: str) -> None:
        """Make kept integers the nearest floats, as those of decimals are."""
        head = state_name(result, AS, self._separator)
        for name in [name for name in self._columns if name.startswith(head)]:
            kind = self._columns[name].dtype
            if isinstance(kind, np.dtype) and kind.kind in "biu":
                place = state_name(result, f"values{name.removeprefix(head)}", self._separator)
                values: Any = self._columns[place]
                raw = values.compact()
                floats = np.frombuffer(raw.data.tobytes(), kind).astype(FLOAT64)
                ends = raw.offsets // kind.itemsize * FLOAT64.itemsize
                self._columns[place] = Text.trusted(ends, floats.view(np.uint8), True)
                self._columns[name] = nulls(FLOAT64, self._rows)

    def take_total(self, result: str, aggregate: Aggregate, have: ColumnType | None) -> _Total:
        """Take what a sum or a mean has kept."""
        is_mean = aggregate.function == "mean"
        if have is not None:
            words = [self._take(result + part, word) for part in (LOW, HIGH) for word in ("low", "high")]
            counts = self._take(result + COUNT, "n")[0] if is_mean else None
        elif self._has(result, "sum"):  # of nulls and integers only: what has had floats gets no type
            sums, mask = self._take(result, "sum")
            rest = self._take(result, "error")[0]
            counts = self._take(result, "n")[0] if is_mean else None
            return _Total([int(one) + int(two) for one, two in zip(sums, rest, strict=True)], mask, counts)
        else:
            words = [self._take(result, word) for word in ("low", "high")]
            counts = self._take(result, "n")[0] if is_mean else None
        totals = [0] * self._rows
        for place, (values, _) in enumerate(words):
            low = place % 2 == 0
            shift = 64 * (place - place // 2)  # the second pair counts in units of the first one's high word
            for row, value in enumerate(values.tolist()):
                totals[row] += (value & _MASK if low else value) << shift
        return _Total(totals, words[0][1], counts)

    def put_total(self, result: str, total: _Total, have: ColumnType | None, want: Kind) -> None:
        """Put what a sum or a mean keeps where its column has another kind. A mean of no type has no mask."""
        scale = have.scale if isinstance(have, DecimalType) else 0
        mask, is_typed = total.mask, isinstance(want, ColumnType)
        if total.counts is not None and self._rows:
            mask = np.asarray(total.counts) != 0 if is_typed else None  # below 0 where it is to be deducted
        if isinstance(want, DecimalType):
            factor = 10 ** max(want.scale - scale, 0)  # of a longer scale there are only nulls
            totals = [each * factor for each in total.totals]
            highs = [each >> 64 for each in totals]
            self._put(result + LOW, "low", np.array([each & _MASK for each in totals], np.uint64), mask)
            self._put(result + LOW, "high", np.zeros(self._rows, INT64))
            words = np.array([high & _MASK for high in highs], np.uint64).view(np.int64)
            self._put(result + HIGH, "low", words, mask)
            self._put(result + HIGH, "high", np.array([high >> 64 for high in highs], INT64))
        elif want == FLOAT64:
            self._put(result, "sum", np.array([each / 10**scale for each in total.totals], FLOAT64), mask)
            self._put(result, "error", np.zeros(self._rows, FLOAT64))
        else:  # there were nulls only
            is_unsigned = want == UINT64 and total.counts is None
            self._put(result, "low", np.zeros(self._rows, UINT64 if is_unsigned else INT64), mask)
            self._put(result, "high", np.zeros(self._rows, INT64))
        if total.counts is not None:
            self._put(result + COUNT if is_typed else result, "n", total.counts)
